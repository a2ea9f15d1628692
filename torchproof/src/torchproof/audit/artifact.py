"""What the audit is given, opened up as libraries: a .so, a wheel, a folder, a conda package."""

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from torchproof.audit import unpack
from torchproof.audit.elf import is_elf
from torchproof.audit.text import printable, shorten
from torchproof.errors import TorchproofError


class ArtifactError(TorchproofError):
    """The file cannot be audited; the message says what was expected, what came and what to do."""


class NoLibraryError(ArtifactError):
    """It holds no library, of Linux or any other system."""


# torch's own libraries, also under the names that auditwheel gives to grafted ones. Each by name:
# libtorch_npu.so is another project's, and so is the library of whoever calls theirs torch_ops.
TORCH_LIBRARY = re.compile(
    r"lib(?:torch(?:_(?:cpu|python|global_deps|nvshmem|(?:cuda|hip)(?:_(?:cpp|cu|linalg))?|xpu)"
    r"|[_-]xpu[_-]ops[\w-]*)?|c10(?:_(?:cuda|hip|xpu))?)(?:[.-][0-9a-f]{8})?\.so[.\d]*"
)
# Where torch has them itself: in its package, a site-packages, an environment, conda's libtorch.
IN_TORCH = re.compile(
    r"(?:(?:lib/python3[^/]*/site-packages/)?torch/)?lib/libtorch_global_deps\.so"
)
LIBRARY = re.compile(r".+\.so(?:\..*)?")
HOLLOW = re.compile(r".+\.so[.\d]*")  # no lib.so.json, which may be empty
LFS_POINTER = b"version https://git-lfs"
CONDA_INDEX = re.compile(r"info/index\.json")
CONDA_TORCH = frozenset({"pytorch", "pytorch-cpu", "pytorch-gpu", "libtorch"})
METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
FAR = 9999  # later than any release of a series
OTHER_LIBRARY = re.compile(r".+\.(?:dll|dylib|pyd)")
# What else a file may be that somebody takes for a library of Linux, by how it begins.
OTHER_FORMATS = {
    b"\xcf\xfa\xed\xfe": "a Mach-O library of macOS",
    b"\xce\xfa\xed\xfe": "a Mach-O library of macOS",
    b"\xca\xfe\xba\xbe": "a universal Mach-O library of macOS",
    b"MZ": "a library of Windows",
    b"!<arch>": "a static library",
}


def is_torch_library(name: str) -> bool:
    """Whether a file name is that of one of torch's own libraries."""
    return TORCH_LIBRARY.fullmatch(name) is not None


@dataclass(frozen=True)
class Member:
    """One library of an artifact; `name` is its path inside the artifact."""

    name: str
    path: Path

    @property
    def is_torch(self) -> bool:
        """Whether it is one of torch's own libraries."""
        return is_torch_library(self.path.name)


@dataclass(frozen=True)
class Artifact:
    """An opened artifact, with what a wheel says of itself.

    Attributes:
        name: its file name.
        members: its shared libraries.
        tags: a wheel's tags; empty for anything else.
        torch: the one torch series that a package requires, by `Requires-Dist: torch==2.13.*`, a
            range, conda's `pytorch 2.13.*`, or a local version such as `+torch2.13`; None when it
            admits several.
    """

    name: str
    members: tuple[Member, ...]
    tags: frozenset[Tag] = frozenset()
    torch: str | None = None

    @property
    def bundled(self) -> tuple[Member, ...]:
        """The libraries of torch packed with others; torch's own packages bundle nothing."""
        in_torch = {Path(m.name).parent for m in self.members if IN_TORCH.fullmatch(m.name)}
        own = tuple(m for m in self.members if m.is_torch and Path(m.name).parent not in in_torch)
        return own if len(own) < len(self.members) else ()


@contextmanager
def opened(path: Path) -> Iterator[Artifact]:
    """Open an artifact for the length of a `with` block."""
    if not path.exists():
        raise ArtifactError(f"{path} does not exist; name a .so, a wheel, a .conda or a folder")
    with tempfile.TemporaryDirectory(prefix="audit-") as folder:
        yield _open(path, Path(folder))


def _open(path: Path, scratch: Path) -> Artifact:
    name = _shown(path.name or str(path))
    try:
        if path.is_dir():
            return Artifact(name, _libraries(path, path))
        if not path.is_file():
            raise ArtifactError(f"{path} is no regular file; name a .so, a wheel or a .conda")
        if path.suffix == ".whl":
            return _wheel(path, scratch)
        if path.suffix == ".conda" or path.name.endswith(".tar.bz2"):
            return _conda(path, scratch)
        if is_elf(path):
            return Artifact(name, (Member(name, path),))
        raise ArtifactError(f"{path} is {_format(path)}; name one of these")
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror or error}") from error


def _format(path: Path) -> str:
    other = _other_format(path)
    return f"{other}{', ' if other else ''}no ELF library, wheel, .conda package or folder"


def _other_format(path: Path) -> str:
    with path.open("rb") as stream:
        begin = stream.read(8)
    return next((text for magic, text in OTHER_FORMATS.items() if begin.startswith(magic)), "")


def _shown(name: str) -> str:
    return printable(os.fsencode(name))


def _libraries(root: Path, artifact: Path) -> tuple[Member, ...]:
    """The shared libraries in a folder, by name (`x.so`, `x.so.1.2`) and by content."""
    members = tuple(
        Member(_shown(str(file.relative_to(root))), file)
        for file in sorted(root.rglob("*"))
        if LIBRARY.fullmatch(file.name) and not file.is_symlink()
        if is_elf(file) or is_hollow(file)
    )
    if not members:
        others = ((f, _other_format(f)) for f in sorted(root.rglob("*")) if f.is_file())
        named = next((f", but {_shown(f.name)}, {other}" for f, other in others if other), "")
        kind = ArtifactError if named else NoLibraryError
        wheels = any(root.glob("*.whl"))
        remedy = f"name its wheels, {artifact}/*.whl" if wheels else "there is nothing to audit"
        raise kind(f"{artifact} holds no ELF shared library{named}; {remedy}")
    return members


def is_hollow(file: Path) -> bool:
    """Whether what a library holds did not come along: it is empty, or a pointer of Git LFS."""
    if not HOLLOW.fullmatch(file.name) or not file.is_file():
        return False
    with file.open("rb") as stream:
        begin = stream.read(len(LFS_POINTER))
    return begin in {b"", LFS_POINTER}


def _wheel(path: Path, scratch: Path) -> Artifact:
    try:
        _, version, _, tags = parse_wheel_filename(path.name)
        unpack.wheel(path, scratch, LIBRARY, OTHER_LIBRARY, METADATA)
    except (InvalidWheelFilename, unpack.UnpackError) as error:
        raise ArtifactError(
            f"{path} is no well-formed wheel: {error}; build or fetch it again"
        ) from error
    torch = named_torch(version.local or "") or _pinned_torch(path, scratch)
    return Artifact(_shown(path.name), _libraries(scratch, path), tags, torch)


def _conda(path: Path, scratch: Path) -> Artifact:
    try:
        unpack.conda(path, scratch, LIBRARY, CONDA_INDEX)
    except unpack.UnpackError as error:
        raise ArtifactError(
            f"{path} is no well-formed conda package: {error}; build or fetch it again"
        ) from error
    torch = _conda_torch(path, scratch / "info" / "index.json")
    return Artifact(_shown(path.name), _libraries(scratch, path), torch=torch)


def _conda_torch(package: Path, index: Path) -> str | None:
    """The one torch series that a conda package depends on."""
    try:
        about = json.loads(index.read_bytes()) if index.is_file() else {}
        depends = [text.split() for text in about.get("depends", ())]
    except (ValueError, AttributeError, TypeError) as error:
        raise ArtifactError(
            f"{package} has invalid metadata: {shorten(error)}; build it again"
        ) from error
    wanted = (words[1] for words in depends if len(words) > 1 and words[0] in CONDA_TORCH)
    return next(filter(None, map(_conda_series, wanted)), None)


def _conda_series(matched: str) -> str | None:
    """The one series that a version in conda's writing admits, "2.13.*" or ">=2.13,<2.14.0a0"."""
    with suppress(InvalidSpecifier):  # "2.13|2.14"
        return _one_series(SpecifierSet(",".join(map(_of_conda, matched.split(",")))))
    return None


def _of_conda(bound: str) -> str:
    """A bound as pip writes it: "2.13" is "==2.13", and "=2.13" is "==2.13.*"."""
    if bound[:1].isdigit():
        return f"=={bound}"
    starts = bound.startswith("=") and not bound.startswith("==")
    return f"={bound.removesuffix('.*')}.*" if starts else bound


def named_torch(text: str) -> str | None:
    """The torch series in a local version, "cu130torch2.13", or a path, "torch-2.13/lib/x.so".

    A wheel's `.data` folder has its own version in its name.
    """
    match = re.search(r"torch[-_]?(\d+\.\d+)(?![^/]*\.data/)", text)
    return match[1] if match else None


def _pinned_torch(wheel: Path, root: Path) -> str | None:
    """The one torch series that the metadata of an unpacked wheel admits."""
    for metadata in root.glob("*.dist-info/METADATA"):
        try:
            wanted = Metadata.from_email(metadata.read_bytes(), validate=False).requires_dist or []
        except Exception as error:  # an ExceptionGroup of them, from Python 3.11 on
            raise ArtifactError(
                f"{wheel} has invalid metadata: {shorten(error)}; build it again"
            ) from error
        if series := pinned_torch(wanted):
            return series
    return None


def pinned_torch(requirements: Iterable[Requirement]) -> str | None:
    """The one torch series that requirements admit: those that hold here, without extras."""
    wanted = (each.specifier for each in requirements if is_torch(each) and applies(each))
    return next(filter(None, map(_one_series, wanted)), None)


def is_torch(requirement: Requirement) -> bool:
    """Whether it is one of torch, however that is written."""
    return canonicalize_name(requirement.name) == "torch"


def applies(requirement: Requirement) -> bool:
    """Whether an installer heeds it here, where nobody asks for an extra."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def _one_series(admitted: SpecifierSet) -> str | None:
    """The one that is admitted: by "==2.13.0", "~=2.13.0" or ">=2.13,<2.14", but not ">=2.13"."""
    for each in admitted:
        if each.operator not in {"==", "===", "~=", ">=", ">"}:
            continue
        with suppress(InvalidVersion):  # "===" takes any text
            major, *rest = Version(each.version.removesuffix(".*")).release
            minor = rest[0] if rest else 0
            if not any(admitted.contains(other) for other in _others(major, minor)):
                return f"{major}.{minor}"
    return None


def _others(major: int, minor: int) -> Iterator[str]:
    """Releases just before and after those of a series, and much later ones."""
    yield f"{major}.{minor - 1}.{FAR}" if minor else f"{major - 1}.{FAR}"
    yield from (f"{major}.{minor + 1}.0", f"{major}.{FAR}", f"{major + 1}.0", f"{FAR}.0")
