"""The table: how each broken rule shows itself in a message, what caused it, and what fixes it.

The first row that fits a message is its diagnosis, so a particular one stands before a general one.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from packaging.version import Version

from torchproof.audit import shims, symbols
from torchproof.doctor.here import Here


@dataclass(frozen=True)
class Fix:
    """A command, and what it does or when it helps."""

    command: str
    note: str


@dataclass(frozen=True)
class Symptom:
    """One row.

    Attributes:
        rule: the audit's rule; where it has none, a name of the same kind.
        pattern: what the message holds; its named groups fill the texts.
        cause: one sentence.
        fixes: what to do, the most likely first.
        applies: whether an undefined symbol is of this row, in this environment.
    """

    rule: str
    pattern: re.Pattern[str]
    cause: str
    fixes: tuple[Fix, ...]
    applies: Callable[[str, Here], bool] = lambda symbol, here: True


MATCHING = Fix(
    "pip install --upgrade {package} torch=={release}",
    "a release that is built for this torch, where there is one",
)
REBUILD = Fix(
    "pip install --force-reinstall --no-deps --no-build-isolation --no-binary {package} {package}",
    "compiles it here, for this torch",
)
REINSTALL = Fix("pip install --force-reinstall --no-deps {package}", "the wheel for this Python")
NEWER_TORCH = Fix("pip install --upgrade torch", "a torch that has the function")
CUDA_TORCH = Fix(
    "pip install --force-reinstall torch=={release}",
    "from an index whose torch has the CUDA that the library was built for",
)
CPU_BUILD = Fix(
    "pip install --force-reinstall --no-deps {package}",
    "from the index that this torch is from, for a build without CUDA",
)
ONE_CUDA = Fix(
    "pip install --force-reinstall torch=={release} {package}",
    "both from one index, so that both are for one CUDA",
)
IMPORT_FIRST = Fix('python -c "import torch, {module}"', "torch loads its libraries on import")
DOCTOR = Fix("torchproof doctor", "lists the installed libraries that do not load, and why")
OLDER_WHEEL = Fix(
    "pip install --force-reinstall --only-binary :all: {package}",
    "a wheel whose manylinux tag fits this system, where there is one",
)
STDCXX = Fix("conda install -c conda-forge libstdcxx", "in a conda environment")
GPU_BUILD = Fix(
    f"env -u TORCH_CUDA_ARCH_LIST {REBUILD.command}",
    "compiles it for the GPUs of this machine, where its build does not name others",
)

SYMBOL = re.compile(
    r"(?:undefined symbol: |[Ss]ymbol not found(?: in flat namespace|:) '?_)(?P<symbol>[\w.$]+)"
)
CUDA_C = re.compile(
    r"_*(?:cuda|cu)[A-Z]|_*(?:cublas|cudnn|cufft|curand|cusolver|cusparse|nccl|nvrtc|nvJitLink)"
)
CUDA_CXX = re.compile(r"_Z.*(?:2at|3c10)4cuda|_Z.*CUDA")
TORCH_C = re.compile(r"(?:aoti_)?torch_[a-z]")


def _is_cuda(symbol: str) -> bool:
    shim = shims.table().get(symbol)
    if shim is not None:
        return shim.device == "cuda"
    return bool(CUDA_C.match(symbol) or CUDA_CXX.match(symbol))


def _is_new_shim(symbol: str, here: Here) -> bool:
    shim = shims.table().get(symbol)
    if shim is None:
        return False
    return here.torch is None or Version(shim.since) > Version(here.torch.series)


def _is_removed_shim(symbol: str, here: Here) -> bool:
    shim = shims.table().get(symbol)
    if shim is None or shim.removed is None or here.torch is None:
        return False
    return Version(shim.removed) <= Version(here.torch.series)


def _is_there(symbol: str, here: Here) -> bool:
    torch = symbols.is_torch_cxx(symbol) or TORCH_C.match(symbol)
    return bool(torch) and here.defines(symbol)


def _has_other_string(symbol: str, here: Here) -> bool:
    mentioned = symbols.cxx11_strings([symbol])
    if not mentioned or not symbols.is_torch_cxx(symbol) or here.cxx11_abi is None:
        return False
    return here.cxx11_abi not in mentioned


SYMBOLS: tuple[Symptom, ...] = (
    Symptom(
        "python-tag",
        SYMBOL,
        "{symbol} is a function of another CPython than this one, {python}: the library was built"
        " for that one.",
        (REINSTALL, REBUILD),
        lambda symbol, here: symbols.is_python(symbol),
    ),
    Symptom(
        "torch-linked",
        SYMBOL,
        "{symbol} is defined by {torch}: the library does not name the library of torch that has"
        " it, or was loaded before torch, or the message is from another environment.",
        (IMPORT_FIRST, REBUILD),
        _is_there,
    ),
    Symptom(
        "cuda-runtime",
        SYMBOL,
        "{symbol} is a function of CUDA: a library that was built for CUDA is beside {torch}.",
        (CUDA_TORCH, CPU_BUILD, REBUILD),
        lambda symbol, here: _is_cuda(symbol) and here.without_cuda,
    ),
    Symptom(
        "cuda-runtime",
        SYMBOL,
        "{symbol} is a function of another release of CUDA's libraries than the one loaded with"
        " {torch}.",
        (ONE_CUDA, Fix("env -u LD_LIBRARY_PATH python", "leaves out a CUDA of the system's")),
        lambda symbol, here: CUDA_C.match(symbol) is not None,
    ),
    Symptom(
        "stable-target",
        SYMBOL,
        "{symbol} is in torch's stable C API from torch {since} on, and this is {torch}.",
        (NEWER_TORCH, MATCHING),
        _is_new_shim,
    ),
    Symptom(
        "stable-target",
        SYMBOL,
        "{symbol} was removed from torch's stable C API in torch {removed}, and this is {torch}.",
        (MATCHING, REBUILD),
        _is_removed_shim,
    ),
    Symptom(
        "torch-linked",
        SYMBOL,
        "{symbol} is in torch's stable C API since torch {since}, but the library does not name"
        " the library of torch that has it, or was loaded before torch.",
        (IMPORT_FIRST, REBUILD),
        lambda symbol, here: symbol in shims.table(),
    ),
    Symptom(
        "stable-target",
        SYMBOL,
        "{symbol}, a function of torch by its name, is in no torch up to {newest}: the library was"
        " built for a newer one than {torch}.",
        (NEWER_TORCH, MATCHING),
        lambda symbol, here: TORCH_C.match(symbol) is not None,
    ),
    Symptom(
        "cxx11-abi",
        SYMBOL,
        "{written} has the std::string of the other _GLIBCXX_USE_CXX11_ABI than {torch}.",
        (MATCHING, REBUILD),
        _has_other_string,
    ),
    Symptom(
        "binding",
        SYMBOL,
        "{symbol} is a C++ function of another torch than this one, {torch}: the library was built"
        " for that one.",
        (MATCHING, REBUILD),
        lambda symbol, here: symbols.is_torch_cxx(symbol),
    ),
    Symptom(
        "glibcxx",
        SYMBOL,
        "{symbol} is a function of a newer libstdc++ than the one that is loaded.",
        (STDCXX, REBUILD),
        lambda symbol, here: symbols.is_std(symbol),
    ),
    Symptom(
        "loads",
        SYMBOL,
        "{symbol} is no function of torch, CUDA or Python: the library that defines it is not"
        " linked, or is another release.",
        (REINSTALL, REBUILD),
    ),
)


def _message(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


MESSAGES: tuple[Symptom, ...] = (
    Symptom(
        "glibc",
        _message(r"version `(?P<version>GLIBC_[\d.]+)' not found"),
        "The library was built on a newer system: it needs {version}, and this one has glibc"
        " {glibc}.",
        (OLDER_WHEEL, REBUILD),
    ),
    Symptom(
        "glibcxx",
        _message(r"version `(?P<version>GLIBCXX_[\d.]+)' not found"),
        "The library was built with a newer g++: it needs {version}, and the system's libstdc++"
        " has up to GLIBCXX_{glibcxx}.",
        (STDCXX, OLDER_WHEEL, REBUILD),
    ),
    Symptom(
        "cxxabi",
        _message(r"version `(?P<version>CXXABI_[\d.]+)' not found"),
        "The library was built with a newer g++: it needs {version}, and the system's libstdc++"
        " has up to CXXABI_{cxxabi}.",
        (STDCXX, OLDER_WHEEL, REBUILD),
    ),
    Symptom(
        "cuda-architectures",
        _message(r"no kernel image is available"),
        "The library has neither code for this GPU's architecture nor PTX that it can compile.",
        (
            Fix("torchproof audit FILE", "names the architectures of a library"),
            Fix("pip install --upgrade {package}", "a newer release may have code for a newer GPU"),
            GPU_BUILD,
        ),
    ),
    Symptom(
        "cuda-runtime",
        _message(
            r"Detected that PyTorch and (?P<module>\w+) were compiled with different CUDA"
            r"(?: major)? versions"
        ),
        "{module} and torch were built for different releases of CUDA.",
        (ONE_CUDA,),
    ),
    Symptom(
        "cuda-runtime",
        _message(
            r"detected CUDA version \((?P<nvcc>[\d.]+)\) mismatches the version that was used to"
            r" compile\s+PyTorch \((?P<cuda>[\d.]+)\)"
        ),
        "The nvcc found is of CUDA {nvcc}, and torch was built for CUDA {cuda}.",
        (
            Fix(
                "CUDA_HOME=/usr/local/cuda-{cuda} pip install --no-build-isolation {package}",
                "builds with the CUDA toolkit of this torch, where it is installed",
            ),
        ),
    ),
    Symptom(
        "cuda-runtime",
        _message(
            r"(?:built|compiled) (?:for|with|against):?\s+(?:PyTorch|torch)\s+(?P<built>[\d.]+)"
            r"\+(?P<local>\w+)\b.*?you have (?P=built)\+(?!(?P=local)\b)(?P<found>\w+)"
        ),
        "The library was built for torch {built}+{local}, and the torch there is {built}+{found}:"
        " the same release, for another CUDA.",
        (ONE_CUDA, REBUILD),
    ),
    Symptom(
        "binding",
        _message(
            r"(?:built|compiled) (?:for|with|against):?\s+(?:PyTorch|torch)\s+"
            r"(?P<built>\d[\w.+]*\w)(?!\w|[.+]\w)[^\n]{0,60}?"
            r"(?:you have|this is|but found|running|installed is)\s+(?:PyTorch |torch )?"
            r"(?!(?P=built)(?!\w|[.+]\w))(?P<found>\d[\w.+]*\w)"
        ),
        "The library was built for torch {built}, and the torch there is {found}.",
        (MATCHING, REBUILD),
    ),
    Symptom(
        "binding",
        _message(
            r"Expected PyTorch version (?P<built>[\d.]+\d) but found version"
            r" (?P<found>[\d.]+\d)"
        ),
        "The library was built for torch {built}, and the torch there is {found}.",
        (MATCHING, REBUILD),
    ),
    Symptom(
        "binding",
        _message(r"incompatible torch version (?P<found>\d[\w.+]*\w)"),
        "The library was built for another torch than the one there, {found}.",
        (MATCHING, REBUILD),
    ),
    # The audit's own sentences on a library whose every symbol is there.
    Symptom(
        "binding",
        _message(r"\Aa native library, and nothing says which torch it was built on"),
        "It uses torch's C++ functions, and nothing declares the torch that it was built for: every"
        " symbol is there, but only that torch lays out its types the same.",
        (REBUILD,),
    ),
    Symptom(
        "binding",
        _message(r"\Aa native library built on torch (?P<built>[\d.]+):"),
        "It was built for torch {built}, and this is {torch}: every symbol is there, but types may"
        " be laid out differently.",
        (MATCHING, REBUILD),
    ),
    Symptom(
        "cuda-runtime",
        _message(r"\Ait brings the run-time of CUDA (?P<cuda>\d+)"),
        "It was built for CUDA {cuda}, and this is {torch}.",
        (ONE_CUDA, REBUILD),
    ),
    Symptom(
        "loads",
        _message(
            r"\Ait is for (?P<machine>\w+), this torch for|wrong ELF class|invalid ELF header"
            r"|incompatible architecture"
        ),
        "The library is for another processor or system than this one.",
        (REINSTALL, REBUILD),
    ),
    Symptom(
        "cuda-runtime",
        _message(
            r"(?P<library>lib(?:torch_cuda\w*|c10_cuda|torch_hip|c10_hip)\.so): cannot open shared"
        ),
        "The library was built for a torch with a GPU back end, which has {library}; this is"
        " {torch}.",
        (CUDA_TORCH, CPU_BUILD, REBUILD),
    ),
    Symptom(
        "torch-linked",
        _message(r"(?P<library>lib(?:torch|torch_cpu|torch_python|c10|shm)\.so): cannot open"),
        "The library was loaded before torch, which brings {library}; this is {torch}.",
        (IMPORT_FIRST, Fix("pip install torch", "where none is installed")),
    ),
    Symptom(
        "driver",
        _message(r"(?P<library>libcuda\.so[.\d]*): cannot open shared"),
        "{library} belongs to the NVIDIA driver, and none is installed, or not in this container.",
        (
            Fix("nvidia-smi", "fails as well where the driver is missing: install it"),
            Fix("docker run --gpus all IMAGE", "gives a container the host's driver"),
        ),
    ),
    Symptom(
        "cuda-runtime",
        _message(
            r"(?P<library>lib(?:cudart|cublas\w*|cudnn\w*|cufft|curand|cusolver|cusparse\w*|nvrtc"
            r"|nccl|nvJitLink)[-\w]*\.so[.\d]*): cannot open shared"
        ),
        "The library was built for the CUDA that {library} belongs to; this is {torch}.",
        (MATCHING, CUDA_TORCH, REBUILD),
    ),
    Symptom(
        "python-tag",
        _message(r"(?P<library>libpython3[\w.]*\.so[.\d]*): cannot open shared"),
        "The library was built for the Python that {library} belongs to; this is {python}.",
        (REINSTALL, REBUILD),
    ),
    Symptom(
        "executable-stack",
        _message(r"cannot enable executable stack"),
        "The library requires an executable stack, which this system refuses.",
        (
            Fix("pip install --upgrade {package}", "a newer release may require none"),
            Fix("patchelf --clear-execstack FILE", "removes the mark from the library"),
        ),
    ),
    Symptom(
        "text-relocations",
        _message(r"cannot restore segment prot after reloc"),
        "The library was compiled without -fPIC, and this system refuses code that it must patch.",
        (REBUILD,),
    ),
    Symptom(
        "needed",
        _message(r"(?P<library>[\w.+-]+\.so[.\d]*): cannot open shared object file"),
        "{library}, which the library needs, is not on this machine.",
        (
            REINSTALL,
            Fix("ldconfig -p | grep {library}", "prints where the system has it, if at all"),
        ),
    ),
    Symptom(
        "python-tag",
        _message(r"(?P<wheel>[\w.+!-]+\.whl) is not a supported wheel on this platform"),
        "{wheel} is for another Python, processor or system: the tag that fits here is {tag}.",
        (
            Fix("pip debug --verbose", "lists all tags that fit here"),
            Fix("pip install {package}", "lets pip choose the wheel, or build it"),
        ),
    ),
    Symptom(
        "python-tag",
        _message(
            r"is not a supported wheel on this platform|matching Python (?:ABI|implementation) tag"
            r"|The wheel is compatible with|Python version mismatch: module was compiled for"
            r"|ABI tag"
        ),
        "The binary is for another Python, processor or system: the tag that fits here is {tag}.",
        (Fix("pip debug --verbose", "lists all tags that fit here"), REINSTALL, REBUILD),
    ),
    Symptom(
        "build-isolation",
        _message(r"No module named '?torch'?(?![\w.])"),
        "setup.py imports torch, and pip builds in an environment of its own that has none; outside"
        " a build, this Python has no torch.",
        (
            Fix("pip install setuptools wheel ninja torch", "what a build imports"),
            Fix("pip install --no-build-isolation {package}", "builds with the installed torch"),
        ),
    ),
    Symptom(
        "loads",
        _message(
            r"operator (?P<module>\w+)::(?P<op>\w+) does not exist"
            r"|'_OpNamespace' '(?P<namespace>\w+)' object has no attribute"
            r"|Couldn't load custom C\+\+ ops"
        ),
        "The library with the operators of {package} was not loaded: most often it was built for"
        " another torch than this one, {torch}, and the package caught its error.",
        (MATCHING, DOCTOR),
    ),
    Symptom(
        "cuda-runtime",
        _message(r"Torch not compiled with CUDA enabled"),
        "The program uses a GPU, and the torch there has no CUDA; this is {torch}.",
        (CUDA_TORCH,),
    ),
    Symptom(
        "driver",
        _message(r"CUDA driver version is insufficient|NVIDIA driver on your system is too old"),
        "The NVIDIA driver, {driver}, is older than the CUDA of torch or of the library; this is"
        " {torch}.",
        (
            Fix("nvidia-smi", "prints the newest CUDA of the driver: install a newer driver"),
            CUDA_TORCH,
        ),
    ),
)

SYMPTOMS: tuple[Symptom, ...] = (*MESSAGES[:3], *SYMBOLS, *MESSAGES[3:])
