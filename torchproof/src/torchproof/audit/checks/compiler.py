"""What compiled it: the compiler, its C++ ABI, and the host compiler of nvcc."""

from packaging.version import Version

from torchproof import config
from torchproof.audit.outcome import Outcome, Subject, judged, not_run
from torchproof.audit.policy import CPU, floor, known

NO_TORCH = "nothing says which torch it was built on (--torch)"


def cxx11_abi(subject: Subject) -> Outcome:
    """The std::string it was compiled with is torch's."""
    found, policy = subject.facts.cxx11_abi, subject.policy
    if found is None:
        return not_run("no std::string", "no symbol mentions a std::string")
    written = f"_GLIBCXX_USE_CXX11_ABI={int(found)}"
    if policy.cxx11_abi is not None:
        return judged(found == policy.cxx11_abi, written, f"{int(policy.cxx11_abi)}")
    if subject.facts.binding == "none":
        return not_run(written, "it uses no torch")
    torch = policy.torch or subject.artifact.torch or policy.target or subject.facts.lowest_torch
    if torch is None:
        return not_run(written, NO_TORCH)
    expected = Version(torch) >= Version(config.audit().cxx11_abi_since)
    return judged(found == expected, written, f"{int(expected)}, as torch {torch}")


def compiler_abi(subject: Subject) -> Outcome:
    """The compiler is not older than the C++ ABI torch ever had."""
    compiler = subject.facts.compiler
    if compiler is None:
        return not_run("no compiler named", "the .comment section names none")
    if compiler.family != "gcc":
        return not_run(str(compiler), "it was not made by GCC")
    oldest = config.audit().gcc_abi
    return judged(Version(compiler.version) >= Version(oldest), str(compiler), f"gcc >= {oldest}")


def compiler_floor(subject: Subject) -> Outcome:
    """The compiler is fit for the C++ standard of the torch headers it compiled."""
    compiler, torch = subject.facts.compiler, subject.policy.torch or subject.artifact.torch
    if compiler is None:
        return not_run("no compiler named", "the .comment section names none")
    if subject.facts.binding == "none":
        return not_run(str(compiler), "it uses no torch")
    if compiler_abi(subject).status == "failed":
        return not_run(str(compiler), "compiler-abi already fails")
    headers = torch or subject.facts.lowest_torch
    if headers is None:
        return not_run(str(compiler), NO_TORCH)
    if Version(headers) < Version(config.audit().cxx17_since):
        return not_run(str(compiler), f"torch {headers} is no C++17 yet")
    cxx, oldest = floor(headers, compiler.family)
    expected = f"{compiler.family} >= {oldest}: torch {headers} is C++{cxx}"
    return judged(Version(compiler.version) >= Version(oldest), str(compiler), expected)


def nvcc_host(subject: Subject) -> Outcome:
    """The host compiler is one that this CUDA release's nvcc accepts."""
    facts, declared = subject.facts, subject.policy.cuda
    if not facts.cuda_images:
        return not_run("no device code", "nvcc made none of it")
    if facts.compiler is None:
        return not_run("no compiler named", "the .comment section names none")
    releases = [declared] if declared not in {None, CPU} else list(facts.cuda_releases)
    rows = [row for release in releases for row in known().cuda if row.version == release]
    if not rows:
        return not_run(str(facts.compiler), "its CUDA release is not in matrix.toml")
    row = min(rows, key=lambda each: each.gxx)
    newest = row.gxx if facts.compiler.family == "gcc" else row.clangxx
    expected = f"{facts.compiler.family} <= {newest} for CUDA {row.version}"
    return judged(Version(facts.compiler.version).major <= newest, str(facts.compiler), expected)
