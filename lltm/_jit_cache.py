"""What :func:`lltm.jit.load` built: noted when it was finished, believed only while it is whole."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from lltm._integrity import Recorded, damage


@dataclass(frozen=True)
class Cache:
    """The folder of one build.

    Attributes:
        directory: the folder.
        library: file name of the library in it.
        sources: the folder of the C++ sources.
    """

    directory: Path
    library: str
    sources: Path

    @property
    def record(self) -> Path:
        """The note: size and hash of the library and its objects, and the sources' hash."""
        return self.directory / f"{self.library}.json"

    def is_finished(self) -> bool:
        """Whether all is there that these sources gave, and whole."""
        noted, sources = self._read()
        return (
            self.library in noted
            and sources == hash_of_sources(self.sources)
            and not self._damaged(noted)
        )

    def remove_damaged(self) -> list[str]:
        """Remove what is not as it was noted, so that ninja builds it again; the names.

        A library that nobody noted was left by a build that was killed: linking again is quick.
        """
        noted, _ = self._read()
        damaged = self._damaged(noted)
        if self.library not in noted:
            (self.directory / self.library).unlink(missing_ok=True)
        for name in damaged:
            (self.directory / name).unlink(missing_ok=True)
        return damaged

    def note(self) -> None:
        """Note a finished build."""
        files = [self.directory / self.library, *sorted(self.directory.glob("*.o"))]
        text = json.dumps(
            {
                "sources": hash_of_sources(self.sources),
                "files": {path.name: asdict(Recorded.of(path)) for path in files},
            }
        )
        written = self.record.with_suffix(".new")
        written.write_text(text, encoding="utf-8")
        written.replace(self.record)

    def _read(self) -> tuple[dict[str, Recorded], str]:
        """The note, or an empty one where there is none that can be read."""
        try:
            fields = json.loads(self.record.read_text(encoding="utf-8"))
            files = {name: Recorded(**entry) for name, entry in fields["files"].items()}
            return files, str(fields["sources"])
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}, ""

    def _damaged(self, noted: dict[str, Recorded]) -> list[str]:
        return [name for name, entry in noted.items() if self._problem(name, entry) is not None]

    def _problem(self, name: str, entry: Recorded) -> str | None:
        try:
            return damage(self.directory / name, entry)
        except OSError as error:
            return str(error)


def hash_of_sources(folder: Path) -> str:
    """Of every file in a folder, by its place there and its content."""
    found = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        found.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()
