"""Files that are whole or absent, and hashes of what a result depends on."""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torchproof.config import ROOT, project

# This tool itself.
TOOL = Path(__file__).parent
SEAL = "seal"  # a hash of the rest of a sealed record, under a name that none of them has
IGNORED = ("__pycache__", ".hypothesis", ".pytest_cache")


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader, or a crash, never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with half.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    except BaseException:
        half.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically."""
    write_atomically(path, json.dumps(value, indent=1, sort_keys=False) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON; None where the file is absent, or damaged so that it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return None


def read_end(path: Path, most: int) -> bytes:
    """The last bytes of a file, which may be larger than memory: tests print what they like."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - most))
        return file.read()


@contextmanager
def replaced(folder: Path) -> Iterator[None]:
    """Replace a folder by what is made of it inside; what was there comes back if that fails.

    A killed run leaves the earlier one in a folder `earlier`; the next run puts it back first.
    """
    earlier = folder.parent / "earlier" / folder.name
    _put_back(earlier, folder)
    if folder.exists():
        earlier.parent.mkdir(exist_ok=True)
        folder.rename(earlier)
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        _put_back(earlier, folder)
        raise
    shutil.rmtree(earlier, ignore_errors=True)


def _put_back(earlier: Path, folder: Path) -> None:
    if earlier.exists():
        shutil.rmtree(folder, ignore_errors=True)
        earlier.rename(folder)


def write_sealed(path: Path, record: Mapping[str, Any]) -> None:
    """Write a JSON object atomically, with a hash of itself that shows any damage."""
    plain = json.loads(json.dumps(record))
    write_json(path, {**plain, SEAL: _seal(plain)})


def read_sealed(path: Path) -> dict[str, Any] | None:
    """Read what write_sealed() wrote; None where the file is absent, damaged or another's."""
    value = read_json(path)
    if not isinstance(value, dict) or value.pop(SEAL, None) != _seal(value):
        return None
    return value


def _seal(value: dict[str, Any]) -> str:
    return text_hash(json.dumps(value, sort_keys=True))


def sha256(path: Path) -> str:
    """The hash of a file."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _files(path: Path) -> Iterable[Path]:
    if path.is_file():
        return [path]
    return sorted(
        file
        for file in path.rglob("*")
        if file.is_file()
        and not any(part in IGNORED for part in file.parts)
        and not any(file.is_relative_to(ROOT / made) for made in project().generated)
    )


def _hash(folder: Path, names: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        for file in _files(folder / name):
            # Tests may be outside of the project.
            digest.update(f"{os.path.relpath(file, folder)}\0{sha256(file)}\n".encode())
    return digest.hexdigest()


def source_hash(*names: str) -> str:
    """One hash over files and folders of the project, their names and contents."""
    return _hash(ROOT, names)


def kernels_hash(folder: Path | None = None) -> str:
    """One hash over what computes, of the project or of a folder that carries it."""
    return _hash(folder or ROOT, project().kernels)


def tool_hash(*names: str) -> str:
    """One hash over modules of this tool, for what depends on how it works."""
    return _hash(TOOL, names)


def text_hash(*parts: str) -> str:
    """One hash over strings."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
