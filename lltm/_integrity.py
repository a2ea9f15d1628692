"""Whether a library is whole, before the loader maps it: a truncated one would end the process."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

_ELF = b"\x7fELF\x02\x01"
"""64 bits, little-endian."""
_SEGMENT = 56
"""Bytes of a segment's header; the loader refuses others with a reason."""


@dataclass(frozen=True)
class Recorded:
    """Size and hash of a file, noted when it was written."""

    size: int
    sha256: str

    @staticmethod
    def of(path: Path) -> Recorded:
        """As the file is now."""
        contents = path.read_bytes()
        return Recorded(len(contents), hashlib.sha256(contents).hexdigest())


def damage(path: Path, recorded: Recorded | None) -> str | None:
    """What is wrong with a file, as a clause, or ``None``.

    Args:
        path: the file.
        recorded: what was noted of it; ``None`` where it was changed since on purpose, as a
            packager does who sets a run path. It is then at least as long as its headers say.
    """
    if recorded is None:
        end, size = _end(path), path.stat().st_size
        return f"it ends at {size} of {end} bytes" if size < end else None
    found = Recorded.of(path)
    if found.size != recorded.size:
        return f"it has {found.size} bytes, {recorded.size} were built"
    if found.sha256 != recorded.sha256:
        return f"its SHA-256 is {found.sha256[:12]}..., {recorded.sha256[:12]}... was built"
    return None


def _end(path: Path) -> int:
    """Where the last segment or the section headers of an ELF file end; 0 for any other file."""
    with path.open("rb") as file:
        header = file.read(64)
        if not header.startswith(_ELF) or len(header) < 64:
            return 0
        segments, sections = struct.unpack_from("<QQ", header, 32)
        segment_size, segment_count, section_size, section_count = struct.unpack_from(
            "<4H", header, 54
        )
        end: int = max(
            segments + segment_size * segment_count, sections + section_size * section_count
        )
        if segment_size != _SEGMENT or end > path.stat().st_size:
            return end
        file.seek(segments)
        table = file.read(_SEGMENT * segment_count)
    for at in range(0, len(table) - _SEGMENT + 1, _SEGMENT):
        offset, _, _, length = struct.unpack_from("<4Q", table, at + 8)
        end = max(end, offset + length)
    return end
