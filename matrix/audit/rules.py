"""The rules: one row each, with its id, why it is there, what to do when it fails, and its check.

A check returns an Outcome: it passed, it failed, or it was not run for the reason it gives. What a
row does not declare cannot be checked, and is not run; it never counts as passed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Literal

from packaging.version import Version

from matrix.audit import abi3, shims, symbols
from matrix.audit import manylinux as policies
from matrix.audit.architectures import images_of
from matrix.audit.artifact import is_torch_library
from matrix.audit.policy import CPU, bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from matrix.audit.against import Verdict
    from matrix.audit.artifact import Artifact, Member
    from matrix.audit.elf import Elf, Symbol
    from matrix.audit.facts import Facts
    from matrix.audit.policy import Policy

Status = Literal["passed", "failed", "not run"]

CUDA_LIBRARIES = ("libcudart.so.*", "libcu*.so.*", "libnv*.so.*", "libnccl.so.*")
LOADER = ("ld-linux*.so.*",)
VISIBLE = 5  # names listed in a message


@dataclass(frozen=True)
class Outcome:
    """What a check found; `expected` is the bound it was held to, or why it was not run."""

    status: Status
    found: str
    expected: str = ""


@dataclass(frozen=True)
class Subject:
    """One library under audit and all that a rule may ask about it."""

    artifact: Artifact
    member: Member
    elf: Elf
    facts: Facts
    policy: Policy
    verdicts: tuple[Verdict, ...]
    wanted: frozenset[str] = frozenset()  # symbols that the artifact's other libraries take


@dataclass(frozen=True)
class Rule:
    """One line of the audit."""

    id: str
    why: str
    fix: str
    check: Callable[[Subject], Outcome]


def passed(found: str, expected: str = "") -> Outcome:
    """The rule holds."""
    return Outcome("passed", found, expected)


def failed(found: str, expected: str = "") -> Outcome:
    """The rule is broken."""
    return Outcome("failed", found, expected)


def not_run(found: str, because: str) -> Outcome:
    """The rule could not be checked."""
    return Outcome("not run", found, because)


def judged(holds: bool, found: str, expected: str) -> Outcome:
    """Passed or failed."""
    return passed(found, expected) if holds else failed(found, expected)


def listed(names: Iterable[str]) -> str:
    """The first names of a list, and how many more there are."""
    all_names = list(names)
    more = len(all_names) - VISIBLE
    return ", ".join(all_names[:VISIBLE]) + (f" and {more} more" if more > 0 else "")


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def binding(subject: Subject) -> Outcome:
    """The binding that was declared is the one that was built."""
    facts, declared = subject.facts, subject.policy.binding
    count = len(facts.torch_cxx)
    found = f"{facts.binding}: {count} C++ symbols of torch" if count else facts.binding
    if declared is None:
        return not_run(found, "no binding is declared")
    if declared == "stable" and count:
        return failed(f"{found}, {listed(map(symbols.brief, facts.torch_cxx))}", declared)
    return judged(facts.binding == declared, found, declared)


def stable_target(subject: Subject) -> Outcome:
    """Every stable function is there in the lowest torch that is declared."""
    facts, target = subject.facts, subject.policy.target
    if not facts.shims:
        return not_run(facts.binding, "it uses no function of torch's stable C API")
    unknown = [name for name, since in facts.shims.items() if since is None]
    if unknown:
        return failed(f"{listed(unknown)}: in no torch that shims.json knows", f"torch {target}")
    found = f"needs torch {facts.lowest_torch}" if facts.lowest_torch else "native"
    if target is None:
        return not_run(found, "no lowest torch is declared (--target)")
    newer = {
        since: [name for name, first in facts.shims.items() if first == since]
        for since in sorted({s for s in facts.shims.values() if s}, key=Version, reverse=True)
        if Version(since) > Version(target)
    }
    detail = "; ".join(f"{listed(names)} is of torch {since}" for since, names in newer.items())
    return failed(detail, f"torch {target}") if newer else passed(found, f"torch {target}")


def torch_linked(subject: Subject) -> Outcome:
    """Every library of torch that it takes symbols from is a NEEDED entry."""
    facts = subject.facts
    if facts.binding == "none":
        return not_run("no symbol of torch", "it uses no torch")
    known = shims.table()
    cuda = any(name in known and known[name].cuda for name in facts.shims)
    cuda = cuda or any("c10::cuda::" in name or "at::cuda::" in name for name in facts.torch_cxx)
    wanted = ["libtorch_cuda.so or libc10_cuda.so"] if cuda else ["a library of torch"]
    found = [name for name in facts.needed if is_torch_library(name)]
    linked = any(not cuda or "cuda" in name for name in found)
    return judged(linked, ", ".join(found) or "none", ", ".join(wanted))


def python_abi3(subject: Subject) -> Outcome:
    """A library that says abi3 keeps to the limited API."""
    wheel = [tag for tag in subject.artifact.tags if tag.abi == "abi3"]
    python = subject.facts.python
    if python == "none":
        return not_run("no Python API", "it does not use Python's C API")
    if python != "abi3" and not wheel:
        return not_run(python, "it does not claim abi3")
    levels = [f"3.{tag.interpreter.removeprefix('cp3')}" for tag in wheel]
    baseline = max(levels, key=Version, default=bounds().abi3)
    verdict = abi3.check(subject.elf.path, baseline)
    found = f"uses CPython {verdict.computed}"
    if verdict.foreign:
        found = f"outside the limited API: {listed(verdict.foreign)}"
    return judged(verdict.sound, found, f"abi3 of CPython {baseline}")


def python_tag(subject: Subject) -> Outcome:
    """The Python a wheel or row claims is the one the library was built for."""
    found = subject.facts.python
    claims = {_claimed(tag.interpreter, tag.abi) for tag in subject.artifact.tags}
    declared = {subject.policy.python} if subject.policy.python else claims
    if not declared:
        return not_run(found, "neither a wheel's tag nor the row claims a Python")
    wanted = " or ".join(sorted(declared))
    if found == "none":
        return judged(subject.policy.python in {None, "none"}, found, wanted)
    fits = found in declared or (found == "cpython" and any(c != "none" for c in declared))
    return judged(fits, found, wanted)


def _claimed(interpreter: str, abi: str) -> str:
    if abi == "none":
        return "none"
    return "abi3" if abi == "abi3" else f"cpython-{abi.removeprefix('cp')}"


def _ceiling(needs: str | None, ceiling: str | None, name: str) -> Outcome:
    found = f"{name} {needs}" if needs else f"no {name} version"
    if ceiling is None:
        return not_run(found, "no ceiling is declared (--ceilings)")
    holds = needs is None or Version(needs) <= Version(ceiling)
    return judged(holds, found, f"at most {ceiling}")


def glibc(subject: Subject) -> Outcome:
    """No symbol of a newer C library."""
    return _ceiling(subject.facts.needs.glibc, subject.policy.ceilings.glibc, "GLIBC")


def glibcxx(subject: Subject) -> Outcome:
    """No symbol of a newer libstdc++."""
    return _ceiling(subject.facts.needs.glibcxx, subject.policy.ceilings.glibcxx, "GLIBCXX")


def cxxabi(subject: Subject) -> Outcome:
    """No symbol of a newer C++ run-time."""
    return _ceiling(subject.facts.needs.cxxabi, subject.policy.ceilings.cxxabi, "CXXABI")


def manylinux(subject: Subject) -> Outcome:
    """The platform a wheel is tagged with is one it loads on."""
    found = subject.facts.manylinux
    tagged = {tag.platform for tag in subject.artifact.tags if "linux" in tag.platform}
    claims = {subject.policy.platform} if subject.policy.platform else tagged
    claims = {claim for claim in claims if not claim.startswith("linux_")}
    if not claims:
        return not_run(found, "no manylinux tag is claimed")
    strange = [claim for claim in claims if not policies.known(subject.elf.machine, claim)]
    if strange:
        return not_run(found, f"auditwheel knows no policy {listed(strange)}")
    holds = all(policies.satisfies(subject.elf.machine, found, claim) for claim in claims)
    return judged(holds, found, ", ".join(sorted(claims)))


def cxx11_abi(subject: Subject) -> Outcome:
    """The std::string it was compiled with is torch's."""
    found, policy = subject.facts.cxx11_abi, subject.policy
    if found is None:
        return not_run("no std::string", "no symbol mentions a std::string")
    written = f"_GLIBCXX_USE_CXX11_ABI={int(found)}"
    if policy.cxx11_abi is not None:
        return judged(found == policy.cxx11_abi, written, f"{int(policy.cxx11_abi)}")
    torch = policy.torch or subject.artifact.torch or policy.target or bounds().target
    expected = Version(torch) >= Version(bounds().cxx11_abi_since)
    return judged(found == expected, written, f"{int(expected)}, as torch {torch}")


def compiler_abi(subject: Subject) -> Outcome:
    """The compiler is not older than the C++ ABI torch ever had."""
    compiler = subject.facts.compiler
    if compiler is None:
        return not_run("no compiler named", "the .comment section names none")
    if compiler.family != "gcc":
        return not_run(str(compiler), "it was not made by GCC")
    floor = bounds().gcc_abi
    return judged(Version(compiler.version) >= Version(floor), str(compiler), f"gcc >= {floor}")


def compiler_floor(subject: Subject) -> Outcome:
    """The compiler is fit for the C++ standard of the torch headers it compiled."""
    compiler, torch = subject.facts.compiler, subject.policy.torch or subject.artifact.torch
    if compiler is None:
        return not_run("no compiler named", "the .comment section names none")
    if subject.facts.binding == "none":
        return not_run(str(compiler), "it uses no torch")
    if compiler_abi(subject).status == "failed":
        return not_run(str(compiler), "compiler-abi already fails")
    headers = torch or subject.facts.lowest_torch or bounds().target
    floor = bounds().floor(headers)
    oldest = floor.gcc if compiler.family == "gcc" else floor.clang
    expected = f"{compiler.family} >= {oldest}: torch {headers} is C++{floor.cxx}"
    return judged(Version(compiler.version) >= Version(oldest), str(compiler), expected)


def nvcc_host(subject: Subject) -> Outcome:
    """The host compiler is one that this CUDA release's nvcc accepts."""
    facts, declared = subject.facts, subject.policy.cuda
    if not facts.cuda_images:
        return not_run("no device code", "nvcc made none of it")
    if facts.compiler is None:
        return not_run("no compiler named", "the .comment section names none")
    releases = [declared] if declared not in {None, CPU} else list(facts.cuda_releases)
    known = [bounds().nvcc[release] for release in releases if release in bounds().nvcc]
    if not known:
        return not_run(str(facts.compiler), "its CUDA release is not in matrix.toml")
    row = min(known, key=lambda nvcc: nvcc.gcc)
    newest = row.gcc if facts.compiler.family == "gcc" else row.clang
    expected = f"{facts.compiler.family} <= {newest} for CUDA {row.release}"
    return judged(Version(facts.compiler.version).major <= newest, str(facts.compiler), expected)


def needed(subject: Subject) -> Outcome:
    """It links nothing but torch, CUDA and what every manylinux system has."""
    siblings = {member.path.name for member in subject.artifact.members}
    allowed = (
        *(() if subject.policy.cuda == CPU else CUDA_LIBRARIES),
        *LOADER,
        *policies.system_libraries(subject.elf.machine),
        *subject.policy.needed,
    )
    strange = [
        name
        for name in subject.facts.needed
        if not (is_torch_library(name) or name in siblings or _matches(name, allowed))
    ]
    expected = "torch, CUDA, the C and C++ run-times"
    if strange:
        return failed(listed(strange), expected)
    return passed(listed(subject.facts.needed) or "nothing", expected)


def rpath(subject: Subject) -> Outcome:
    """Its search path starts from where it is installed."""
    absolute = [entry for entry in subject.facts.search_path if not entry.startswith("$ORIGIN")]
    found = listed(entry or "(empty)" for entry in subject.facts.search_path) or "none"
    return judged(not absolute, found, "$ORIGIN only")


def bundled_torch(subject: Subject) -> Outcome:
    """It is no library of torch packed beside an extension."""
    inside = subject.member in subject.artifact.bundled
    found = "a library of torch" if inside else "no library of torch"
    return judged(not inside, found, "no library of torch")


def cuda_runtime(subject: Subject) -> Outcome:
    """Its libcudart is the one of the CUDA release it is for."""
    major, cuda = subject.facts.cuda_runtime, subject.policy.cuda
    found = f"libcudart.so.{major}" if major else "no libcudart"
    if cuda is None:
        return not_run(found, "no CUDA release is declared")
    if cuda == CPU:
        return judged(major is None, found, "none: the row is for CPU")
    holds = major is None or major == int(cuda.split(".")[0])
    return judged(holds, found, f"CUDA {cuda}")


def cuda_architectures(subject: Subject) -> Outcome:
    """Its device code is for the architectures declared, no fewer and no more."""
    found, declared = subject.facts.cuda_images, subject.policy.cuda_architectures
    text = ", ".join(found) or "no device code"
    if declared is None:
        return not_run(text, "no architectures are declared")
    wanted = images_of(declared)
    lost = [f"{name} is missing" for name in wanted if name not in found]
    extra = [f"{name} is not declared" for name in found if name not in wanted]
    expected = ", ".join(wanted) or "none"
    return judged(not lost and not extra, listed([*lost, *extra]) or text, expected)


def executable_stack(subject: Subject) -> Outcome:
    """The stack stays data."""
    found = "executable" if subject.elf.executable_stack else "not executable"
    return judged(not subject.elf.executable_stack, found, "not executable")


def relro(subject: Subject) -> Outcome:
    """Relocated data is read-only once it is loaded."""
    found = "none" if not subject.elf.relro else "full" if subject.elf.bind_now else "partial"
    return judged(subject.elf.relro, found, "partial or full")


def text_relocations(subject: Subject) -> Outcome:
    """Code is never written to."""
    found = "present" if subject.elf.text_relocations else "none"
    return judged(not subject.elf.text_relocations, found, "none")


def exports(subject: Subject) -> Outcome:
    """It exports its init function, what its own package takes from it, and nothing else."""
    if subject.facts.binding == "none" and subject.facts.python == "none":
        return not_run("a plain library", "exporting is what a plain library is for")
    strange = [symbol.name for symbol in subject.elf.exported if not _may_export(symbol, subject)]
    found = listed(symbols.brief(name) for name in strange) or "init function at most"
    return judged(not strange, found, "the init function, or what its package uses")


def _may_export(symbol: Symbol, subject: Subject) -> bool:
    """Every library has symbols of std, every native extension weak ones of torch's headers."""
    native = subject.facts.binding == "native"
    return (
        _matches(symbol.name, ("PyInit_*", *subject.policy.exports))
        or symbol.name in subject.wanted
        or symbols.is_std(symbol.name)
        or (native and symbol.weak and symbols.is_torch_inline(symbol.name))
    )


def debug_info(subject: Subject) -> Outcome:
    """A debug build holds what a debugger needs."""
    parts = {"symbol table": subject.elf.symbol_table, "debug information": subject.elf.debug_info}
    found = " and ".join(name for name, there in parts.items() if there) or "stripped"
    if not subject.policy.debug:
        return not_run(found, "it is not declared a debug build")
    return judged(all(parts.values()), found, " and ".join(parts))


def loads(subject: Subject) -> Outcome:
    """It loads, safely, in every torch that was named."""
    if subject.facts.binding == "none":
        return not_run("no symbol of torch", "it uses no torch")
    if not subject.verdicts:
        return not_run("no torch named", "name installations with --against")
    torches = {
        outcome: [v.torch for v in subject.verdicts if v.outcome == outcome]
        for outcome in ("loads", "fails", "unsafe")
    }
    found = "; ".join(f"{outcome} in {', '.join(of)}" for outcome, of in torches.items() if of)
    return judged(not torches["fails"] and not torches["unsafe"], found, "loads in each")


RULES: tuple[Rule, ...] = (
    Rule(
        "binding",
        "A single C++ symbol of torch ties a library to one torch release.",
        "Include only torch/csrc/stable and torch/headeronly, with -DTORCH_STABLE_ONLY.",
        binding,
    ),
    Rule(
        "stable-target",
        "A stable function loads only in a torch that already has it.",
        "Compile with -DTORCH_TARGET_VERSION for the lowest torch, or raise the declared target.",
        stable_target,
    ),
    Rule(
        "torch-linked",
        "A symbol is found only in a library that is named as NEEDED.",
        "Link with -ltorch_cpu -lc10, and -ltorch_cuda for the CUDA functions (--no-as-needed).",
        torch_linked,
    ),
    Rule(
        "python-abi3",
        "A library named abi3 that leaves the limited API crashes in another CPython.",
        "Compile with -DPy_LIMITED_API for the oldest CPython, or drop abi3 from the name.",
        python_abi3,
    ),
    Rule(
        "python-tag",
        "An installer trusts the tag, so a wrong one installs a library its Python cannot load.",
        "Tag the wheel for the Python it was built with, or keep Python's C API out of it.",
        python_tag,
    ),
    Rule(
        "glibc",
        "A symbol version newer than the system's C library stops the loader.",
        "Build on the oldest distribution you support, or raise the ceiling.",
        glibc,
    ),
    Rule(
        "glibcxx",
        "A symbol version newer than the system's libstdc++ stops the loader.",
        "Build with an older GCC, or raise the ceiling.",
        glibcxx,
    ),
    Rule(
        "cxxabi",
        "A C++ run-time symbol newer than the system's libstdc++ stops the loader.",
        "Build with an older GCC, or raise the ceiling.",
        cxxabi,
    ),
    Rule(
        "manylinux",
        "A manylinux tag promises the oldest system the wheel loads on.",
        "Build in that manylinux image, or tag the wheel with the policy that was found.",
        manylinux,
    ),
    Rule(
        "cxx11-abi",
        "A std::string of the other ABI is another type, and torch's functions are not found.",
        "Compile with -D_GLIBCXX_USE_CXX11_ABI set as torch's own.",
        cxx11_abi,
    ),
    Rule(
        "compiler-abi",
        "GCC before 4.9 has a C++ ABI that no torch was ever built with.",
        "Build with a GCC that torch supports.",
        compiler_abi,
    ),
    Rule(
        "compiler-floor",
        "A compiler too old for torch's C++ standard may lay out torch's types differently.",
        "Build with a compiler that is fit for that standard; torch itself only warns.",
        compiler_floor,
    ),
    Rule(
        "nvcc-host",
        "nvcc rejects newer host compilers, and what is forced past its check is unsupported.",
        "Name an older compiler with -ccbin, or use a newer CUDA.",
        nvcc_host,
    ),
    Rule(
        "needed",
        "A library that is not on the user's machine stops the loader.",
        "Drop the dependency, link it statically, or declare it.",
        needed,
    ),
    Rule(
        "rpath",
        "A search path of the build machine finds nothing on the user's, or the wrong library.",
        "Drop -Wl,-rpath, or make it relative to $ORIGIN.",
        rpath,
    ),
    Rule(
        "bundled-torch",
        "A second copy of torch in one process registers everything twice and aborts.",
        "Leave torch's libraries out of the package (auditwheel repair --exclude).",
        bundled_torch,
    ),
    Rule(
        "cuda-runtime",
        "Two majors of libcudart in one process do not share streams or memory.",
        "Build with the CUDA release of the torch it is for.",
        cuda_runtime,
    ),
    Rule(
        "cuda-architectures",
        "A GPU that is neither compiled for nor reachable from PTX fails at the first launch.",
        "Set TORCH_CUDA_ARCH_LIST, or correct the declared list.",
        cuda_architectures,
    ),
    Rule(
        "executable-stack",
        "Hardened systems and newer glibc refuse a library that asks for an executable stack.",
        "Mark assembly with .note.GNU-stack, or link with -Wl,-z,noexecstack.",
        executable_stack,
    ),
    Rule(
        "relro",
        "Without RELRO, an overflow can redirect every call of the library.",
        "Link with -Wl,-z,relro, and -Wl,-z,now.",
        relro,
    ),
    Rule(
        "text-relocations",
        "Code that must be patched at load is writable code, which SELinux refuses.",
        "Compile every object with -fPIC.",
        text_relocations,
    ),
    Rule(
        "exports",
        "An exported symbol can replace, or be replaced by, another extension's of the same name.",
        "Compile with -fvisibility=hidden -fvisibility-inlines-hidden, or use a version script.",
        exports,
    ),
    Rule(
        "debug-info",
        "A debug build without symbols cannot be debugged.",
        "Compile with -g and do not strip.",
        debug_info,
    ),
    Rule(
        "loads",
        "What resolves on the build machine may not resolve in the user's torch.",
        "Build on that torch, or use the stable ABI with a lower target.",
        loads,
    ),
)
