"""What one library is, derived from its ELF facts alone: no expectation enters here."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.version import Version

from torchproof import config
from torchproof.audit import manylinux, shims, symbols
from torchproof.audit.elf import Elf
from torchproof.audit.fatbin import DeviceCode
from torchproof.audit.policy import Binding, Ceilings, newest, oldest_systems

GCC = re.compile(r"GCC: \(.*?\) (\d+(?:\.\d+)+)")
CLANG = re.compile(r"clang version (\d+(?:\.\d+)+)")
CUDART = re.compile(r"libcudart(?:[.-][0-9a-f]{8})?\.so\.(\d+)")
CPYTHON = re.compile(r"\.cpython-(\d+t?)-")


@dataclass(frozen=True)
class Compiler:
    """The compiler that made the library; `family` is "gcc" or "clang"."""

    family: str
    version: str

    def __str__(self) -> str:
        return f"{self.family} {self.version}"


@dataclass(frozen=True)
class Facts:
    """One library in the audit's terms.

    Attributes:
        binding: "stable" when every symbol of torch it uses is a stable C function, "native" when
            one is C++, "none" when it uses no torch at all.
        torch_cxx: the C++ symbols of torch that tie it to one release, demangled, in binding order.
        shims: the stable C functions it uses, with the first torch that has each; None is one the
            table does not know.
        lowest_torch: the newest of these; None for a native binary or an unknown function.
        python: "none", "abi3", "cpython-311", or "cpython" when the file name does not say which.
        needs: the newest GLIBC, GLIBCXX and CXXABI version it needs.
        manylinux: the oldest manylinux policy its symbol versions satisfy.
        oldest_systems: the oldest release of each distribution that this policy covers.
        cxx11_abi: which std::string its symbols mention; None when none does.
        compiler: the newest clang named in `.comment`, else the newest GCC; the C run-time's start
            files leave older entries of their own there.
        cuda_runtime: the major of the libcudart it links.
        cuda_releases: the CUDA releases that made its device code, as far as the file tells.
        cuda_images: its device code, "sm_90" or "compute_90" for PTX.
    """

    binding: Binding
    torch_cxx: tuple[str, ...]
    shims: dict[str, str | None]
    lowest_torch: str | None
    python: str
    needs: Ceilings
    manylinux: str
    oldest_systems: tuple[str, ...]
    cxx11_abi: bool | None
    compiler: Compiler | None
    comments: tuple[str, ...]
    needed: tuple[str, ...]
    search_path: tuple[str, ...]
    cuda_runtime: int | None
    cuda_releases: tuple[str, ...]
    cuda_images: tuple[str, ...]

    @property
    def cuda_major(self) -> int | None:
        """The major of its CUDA run-time, shared or linked in; None when it has neither."""
        made_by = max((int(release.split(".")[0]) for release in self.cuda_releases), default=None)
        return self.cuda_runtime or made_by


def derive(elf: Elf, name: str) -> Facts:
    """The facts of one library; `name` is its path inside the artifact, which may claim an ABI."""
    undefined = [symbol.name for symbol in elf.undefined]
    cxx = [symbol for symbol in undefined if symbols.is_torch_cxx(symbol)]
    used = {name: _since(name) for name in undefined if symbols.is_shim(name)}
    versions = [need.version for need in elf.versions]
    policy = manylinux.oldest_policy([elf])
    return Facts(
        binding="native" if cxx else "stable" if used else "none",
        torch_cxx=tuple(symbols.demangle(symbol) for symbol in cxx),
        shims=used,
        lowest_torch=None if cxx else _newest(used.values()),
        python=_python(undefined, name),
        needs=Ceilings(
            glibc=newest(versions, "GLIBC"),
            glibcxx=newest(versions, "GLIBCXX"),
            cxxabi=newest(versions, "CXXABI"),
        ),
        manylinux=policy,
        oldest_systems=oldest_systems(manylinux.glibc_of(policy)),
        cxx11_abi=_cxx11_abi(cxx, undefined),
        compiler=_compiler(elf.comments),
        comments=elf.comments,
        needed=elf.needed,
        search_path=elf.search_path,
        cuda_runtime=next((int(m[1]) for n in elf.needed if (m := CUDART.match(n))), None),
        cuda_releases=_cuda_releases(elf.device_code),
        cuda_images=tuple(dict.fromkeys(image.name for image in elf.device_code.images)),
    )


def _since(name: str) -> str | None:
    shim = shims.table().get(name)
    return shim.since if shim else None


def _newest(versions: Iterable[str | None]) -> str | None:
    """The newest of some versions; None when one is unknown or there is none."""
    known = list(versions)
    if None in known or not known:
        return None
    return max((version for version in known if version), key=Version)


def _python(undefined: list[str], name: str) -> str:
    if not any(symbols.is_python(symbol) for symbol in undefined):
        return "none"
    if ".abi3." in name:
        return "abi3"
    tag = CPYTHON.search(name)
    return f"cpython-{tag[1]}" if tag else "cpython"


def _cxx11_abi(torch_cxx: list[str], undefined: list[str]) -> bool | None:
    # Red Hat's compilers bring old strings along in libstdc++_nonshared, so that in the symbols of
    # std alone one new string outweighs them; in torch's own symbols nothing does.
    torch = symbols.cxx11_strings(torch_cxx)
    if torch:
        return False not in torch
    everything = symbols.cxx11_strings(undefined)
    return True in everything if everything else None


def _compiler(comments: tuple[str, ...]) -> Compiler | None:
    for family, pattern in (("clang", CLANG), ("gcc", GCC)):
        versions = [match[1] for comment in comments if (match := pattern.search(comment))]
        if versions:
            return Compiler(family, max(versions, key=Version))
    return None


def _cuda_releases(device_code: DeviceCode) -> tuple[str, ...]:
    by_ptx = {ptx: release for release, ptx in config.audit().ptx.items()}
    from_ptx = {by_ptx[image.isa] for image in device_code.images if image.isa in by_ptx}
    return tuple(sorted(from_ptx | set(device_code.releases), key=Version))
