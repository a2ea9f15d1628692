"""Wheels that a test makes, and what is in their libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zipfile import ZipFile

if TYPE_CHECKING:
    from pathlib import Path

    from torchproof.machine.environments import Environment

METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{more}"
# A function of torch's stable ABI that it has, and one that it has not.
PRESENT, ABSENT = "aoti_torch_get_dim", "aoti_torch_get_sizes"
USER = 'extern "C" {{ int {name}(); int use() {{ return {name}(); }} }}'
ABORTING = (
    USER.format(name=PRESENT)
    + """
#include <cstdlib>
static int started = (abort(), 0);
"""
)


def make_wheel(folder: Path, name: str, code: str, more: str = "", *libraries: Path) -> Path:
    path = folder / f"{name}-1-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", code)
        archive.writestr(f"{name}-1.dist-info/METADATA", METADATA.format(name=name, more=more))
        for library in libraries:
            archive.write(library, f"{name}/{library.name}")
    return path


def torch_of(environment: Environment) -> Path:
    return environment.site_packages / "torch" / "lib" / "libtorch_cpu.so"
