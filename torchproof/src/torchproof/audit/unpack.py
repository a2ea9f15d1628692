"""Takes what the audit reads out of an archive that nobody trusts: into limits, or not at all."""

import bz2
import io
import re
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from re import Pattern
from typing import IO

from conda_package_streaming.package_streaming import tar_generator
from conda_package_streaming.package_streaming import zstd as zstandard

from torchproof.audit.text import shorten
from torchproof.errors import TorchproofError

GIB = 1 << 30
CHUNK = 1 << 20
TAR_OVERHEAD = 256 << 20  # its headers and padding, 1 KiB for each file


@dataclass(frozen=True)
class Limits:
    """The most that is unpacked: bytes of one file and of all, files, and bytes out of each byte.

    sgl-kernel's wheel of 511 MiB, one of the largest extensions, unpacks to three times as much.
    """

    file: int = 4 * GIB
    total: int = 12 * GIB
    files: int = 200_000
    ratio: int = 100
    free_of_ratio: int = 64 << 20


LIMITS = Limits()


class UnpackError(TorchproofError):
    """The archive is damaged, or unpacks to more than the limits, or out of its folder."""


class _Target:
    """A folder that files are written into, until they are too many."""

    def __init__(self, archive: Path, folder: Path, limits: Limits) -> None:
        self.folder = folder
        self.limits = limits
        self.total = 0
        self.files = 0
        ratio = max(limits.free_of_ratio, archive.stat().st_size * limits.ratio)
        self.most = min(ratio, limits.total)

    def count(self, name: str, size: int) -> None:
        """Count a file of the archive, whether it is unpacked or not."""
        shown = shorten(repr(name))
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if not parts or parts[0] == "/" or ".." in parts or "\0" in name:
            raise UnpackError(f"its file {shown} would be written outside of its folder")
        self.files += 1
        self.total += size
        if self.files > self.limits.files:
            raise UnpackError(f"it holds more than {self.limits.files:,} files")
        if size > self.limits.file:
            raise UnpackError(
                f"its file {shorten(repr(name))} claims {size:,} bytes, over {self.limits.file:,}"
            )
        if self.total > self.most:
            raise UnpackError(f"it unpacks to more than {self.most:,} bytes, as no package does")

    def write(self, name: str, source: IO[bytes]) -> None:
        """Unpack a file that was counted."""
        path = self.folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        except (FileExistsError, NotADirectoryError) as error:
            raise UnpackError(f"its file {shorten(repr(name))} is in it twice") from error


class _Limited(io.RawIOBase):
    """A stream that ends in an error after so many bytes: a tar's headers have a size, too."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self.stream = stream
        self.left = most

    def read(self, size: int = -1) -> bytes:
        """Some bytes."""
        data = self.stream.read(min(size, CHUNK) if size >= 0 else CHUNK)
        self.left -= len(data)
        if self.left < 0:
            raise UnpackError("it unpacks to far more than the files that it names")
        return data


@contextmanager
def _explained() -> Iterator[None]:
    """The readers of zip, tar, deflate, bzip2, lzma and zstd have some twenty classes of error."""
    try:
        yield
    except UnpackError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:  # bz2's own have none
            raise
        raise UnpackError(f"{type(error).__name__}: {shorten(error)}") from error


def wheel(path: Path, folder: Path, *wanted: Pattern[str], limits: Limits = LIMITS) -> None:
    """Unpack the files of a wheel whose paths match a pattern.

    Raises:
        UnpackError: it cannot be unpacked.
    """
    target = _Target(path, folder, limits)
    with _explained(), zipfile.ZipFile(path) as archive:
        for row in archive.infolist():
            target.count(row.filename, row.file_size)
        for row in archive.infolist():
            if not row.is_dir() and any(p.fullmatch(row.filename) for p in wanted):
                with archive.open(row) as source:
                    target.write(row.filename, source)


def conda(path: Path, folder: Path, *wanted: Pattern[str]) -> None:
    """Unpack the files of a conda package whose paths match a pattern.

    Raises:
        UnpackError: it cannot be unpacked.
    """
    target = _Target(path, folder, LIMITS)
    with _explained():
        for stream in _conda_tars(path):
            limited = _Limited(stream, target.most + TAR_OVERHEAD)
            for archive, row in tar_generator(limited):
                target.count(row.name, row.size)
                if row.isreg() and any(p.fullmatch(row.name) for p in wanted):
                    source = archive.extractfile(row)
                    assert source is not None
                    target.write(row.name, source)


def _conda_tars(path: Path) -> Iterator[IO[bytes]]:
    """The tars of a package's files: the whole of a .tar.bz2, members of a .conda."""
    if path.name.endswith(".tar.bz2"):
        with bz2.open(path) as stream:
            yield stream
        return
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        about, files = (
            [name for name in names if re.fullmatch(rf"{kind}-.*\.tar\.zst", name)]
            for kind in ("info", "pkg")
        )
        if len(files) != 1:
            raise UnpackError(f"it holds {len(files)} files pkg-*.tar.zst instead of one")
        for name in (*about, *files):
            with archive.open(name) as packed, zstandard.open(packed) as stream:
                yield stream
