"""The rules: one row each, with its id, why it is there, what to do when it fails, and its check.

A check returns an Outcome: it passed, it failed, or it was not run for the reason it gives. What a
row does not declare cannot be checked, and is not run; it never counts as passed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torchproof.audit.checks import binding, compiler, cuda, hygiene, python, system
from torchproof.audit.outcome import Outcome, Subject


@dataclass(frozen=True)
class Rule:
    """One line of the audit."""

    id: str
    why: str
    fix: str
    check: Callable[[Subject], Outcome]


RULES: tuple[Rule, ...] = (
    Rule(
        "binding",
        "A single C++ symbol of torch ties a library to one torch release.",
        "Include only torch/csrc/stable and torch/headeronly, with -DTORCH_STABLE_ONLY.",
        binding.binding,
    ),
    Rule(
        "stable-target",
        "A stable function loads only in a torch that already has it.",
        "Compile with -DTORCH_TARGET_VERSION for the lowest torch, or raise the declared target.",
        binding.stable_target,
    ),
    Rule(
        "torch-linked",
        "A symbol is found only in a library that is named as NEEDED.",
        "Link with -ltorch_cpu -lc10, and -ltorch_cuda for the CUDA functions (--no-as-needed).",
        binding.torch_linked,
    ),
    Rule(
        "torch-python",
        "libtorch_python.so is loaded by Python alone, and only in a process with torch's binding.",
        "Leave -ltorch_python out: pass py_limited_api=True to CppExtension.",
        binding.torch_python,
    ),
    Rule(
        "python-abi3",
        "A library named abi3 that leaves the limited API crashes in another CPython.",
        "Compile with -DPy_LIMITED_API for the oldest CPython, or drop abi3 from the name.",
        python.python_abi3,
    ),
    Rule(
        "python-tag",
        "An installer trusts the tag, so a wrong one installs a library its Python cannot load.",
        "Tag the wheel for the Python it was built with, or keep Python's C API out of it.",
        python.python_tag,
    ),
    Rule(
        "glibc",
        "A symbol version newer than the system's C library stops the loader.",
        "Build on the oldest distribution you support, or raise the ceiling.",
        system.glibc,
    ),
    Rule(
        "glibcxx",
        "A symbol version newer than the system's libstdc++ stops the loader.",
        "Build with an older GCC, or raise the ceiling.",
        system.glibcxx,
    ),
    Rule(
        "cxxabi",
        "A C++ run-time symbol newer than the system's libstdc++ stops the loader.",
        "Build with an older GCC, or raise the ceiling.",
        system.cxxabi,
    ),
    Rule(
        "manylinux",
        "A manylinux tag promises the oldest system the wheel loads on.",
        "Build in that manylinux image, or tag the wheel with the policy that was found.",
        system.manylinux,
    ),
    Rule(
        "cxx11-abi",
        "A std::string of the other ABI is another type, and torch's functions are not found.",
        "Compile with -D_GLIBCXX_USE_CXX11_ABI set as torch's own.",
        compiler.cxx11_abi,
    ),
    Rule(
        "compiler-abi",
        "GCC before 4.9 has a C++ ABI that no torch was ever built with.",
        "Build with a GCC that torch supports.",
        compiler.compiler_abi,
    ),
    Rule(
        "compiler-floor",
        "A compiler too old for torch's C++ standard may lay out torch's types differently.",
        "Build with a compiler that is fit for that standard; torch itself only warns.",
        compiler.compiler_floor,
    ),
    Rule(
        "nvcc-host",
        "nvcc rejects newer host compilers, and what is forced past its check is unsupported.",
        "Name an older compiler with -ccbin, or use a newer CUDA.",
        compiler.nvcc_host,
    ),
    Rule(
        "needed",
        "A library that is not on the user's machine stops the loader.",
        "Drop the dependency, link it statically, or declare it.",
        system.needed,
    ),
    Rule(
        "rpath",
        "A search path of the build machine finds nothing on the user's, or the wrong library.",
        "Drop -Wl,-rpath, or make it relative to $ORIGIN.",
        system.rpath,
    ),
    Rule(
        "bundled-torch",
        "A second copy of torch in one process registers everything twice and aborts.",
        "Leave torch's libraries out of the package (auditwheel repair --exclude).",
        system.bundled_torch,
    ),
    Rule(
        "cuda-runtime",
        "Two majors of libcudart in one process do not share streams or memory.",
        "Build with the CUDA release of the torch it is for.",
        cuda.cuda_runtime,
    ),
    Rule(
        "cuda-architectures",
        "A GPU that is neither compiled for nor reachable from PTX fails at the first launch.",
        "Set TORCH_CUDA_ARCH_LIST, or correct the declared list.",
        cuda.cuda_architectures,
    ),
    Rule(
        "executable-stack",
        "Hardened systems and newer glibc refuse a library that asks for an executable stack.",
        "Mark assembly with .note.GNU-stack, or link with -Wl,-z,noexecstack.",
        hygiene.executable_stack,
    ),
    Rule(
        "relro",
        "Without RELRO, an overflow can redirect every call of the library.",
        "Link with -Wl,-z,relro, and -Wl,-z,now.",
        hygiene.relro,
    ),
    Rule(
        "text-relocations",
        "Code that must be patched at load is writable code, which SELinux refuses.",
        "Compile every object with -fPIC.",
        hygiene.text_relocations,
    ),
    Rule(
        "exports",
        "An exported symbol can replace, or be replaced by, another extension's of the same name.",
        "Compile with -fvisibility=hidden -fvisibility-inlines-hidden, or use a version script.",
        hygiene.exports,
    ),
    Rule(
        "debug-info",
        "A debug build without symbols cannot be debugged.",
        "Compile with -g and do not strip.",
        hygiene.debug_info,
    ),
    Rule(
        "loads",
        "What resolves on the build machine may not resolve in the user's torch.",
        "Build on that torch, or use the stable ABI with a lower target.",
        binding.loads,
    ),
)
