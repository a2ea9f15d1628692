"""A wheel file to be tried: what it requires, and the programs that use it."""

import re
import zlib
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from torchproof.audit.artifact import applies, is_torch
from torchproof.errors import TorchproofError

# What an installer puts at the top; a wheel may keep it in a folder for that.
TOP = r"(?:[^/]+\.data/(?:purelib|platlib)/)?"
PACKAGE = re.compile(rf"{TOP}(\w+(?:/\w+)*)/__init__\.py")
MODULE = re.compile(rf"{TOP}(\w+)\.(?:py|(?:abi3|cpython-[\w-]+)\.so)")


class GridError(TorchproofError):
    """A wheel that cannot be tried."""


@dataclass(frozen=True)
class Wheel:
    """A wheel, and how it is tried.

    Attributes:
        path: the file.
        name: how tables name it.
        requires: what it requires beside torch, as its metadata has it.
        declares: the torches that its metadata admits; empty where it says nothing.
        package: a program that imports it, `import decay`.
        smoke: one that computes something after that, and raises where the result is wrong.
        by_loader: one that does so without the package, after the loader took its library.
        uses: patterns of the libraries that the package needs for that.
        built_on: the torch it was compiled against, where that is known.
        guarded: see PackageTrial.
    """

    path: Path
    name: str
    requires: tuple[str, ...]
    declares: str
    package: str
    smoke: str = ""
    by_loader: str = ""
    uses: tuple[str, ...] = ("*",)
    built_on: str | None = None
    guarded: bool = False

    def admits(self, torch: str) -> bool:
        """Whether its metadata admits a torch."""
        return SpecifierSet(self.declares).contains(torch, prereleases=True)


def read_wheel(path: Path) -> Wheel:
    """A wheel file; its package is the one of its name, else the first of those nearest its top."""
    try:
        if not path.exists():
            raise GridError(f"{path} does not exist; name a wheel, *.whl")
        if not path.is_file():  # a pipe would be waited for
            raise GridError(f"{path} is no regular file; name a wheel, *.whl")
        name, *_ = parse_wheel_filename(path.name)
        with ZipFile(path) as archive:
            names = archive.namelist()
            metadata = [n for n in names if n.count("/") == 1 and n.endswith(".dist-info/METADATA")]
            if len(metadata) != 1:
                raise BadZipFile(f"it holds {len(metadata)} files *.dist-info/METADATA")
            headers = HeaderParser().parsestr(archive.read(metadata[0]).decode())
        lines = headers.get_all("Requires-Dist") or []
        torch = [r for line in lines if is_torch(r := Requirement(line)) and applies(r)]
    except UnicodeDecodeError as error:
        raise GridError(
            f"{path} is no wheel: its METADATA is not UTF-8; name one, *.whl"
        ) from error
    except OSError as error:
        raise GridError(f"{path} cannot be read: {error.strerror}; name a wheel, *.whl") from error
    except InvalidRequirement as error:  # of several lines
        line = str(error).splitlines()[0]
        raise GridError(f"{path} has an invalid Requires-Dist: {line}; build it again") from error
    except (InvalidWheelFilename, BadZipFile, ValueError, RuntimeError, zlib.error) as error:
        raise GridError(f"{path} is no wheel: {error}; name one, *.whl") from error
    found = (pattern.fullmatch(each) for pattern in (PACKAGE, MODULE) for each in names)
    packages = [match[1].replace("/", ".") for match in found if match]
    packages.sort(key=lambda package: (canonicalize_name(package) != name, package.count(".")))
    if not packages:
        raise GridError(f"{path.name} holds no package to import; name a wheel that has one")
    return Wheel(
        path=path,
        name=path.stem,
        requires=tuple(line for line in lines if not is_torch(Requirement(line))),
        declares=",".join(str(requirement.specifier) for requirement in torch),
        package=f"import {packages[0]}",
    )
