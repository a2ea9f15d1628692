"""Wheels that a test makes, and what is in their libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wheel.wheelfile import WheelFile

if TYPE_CHECKING:
    from pathlib import Path

    from torchproof.machine.environments import Environment

METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}"
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


def make_wheel(
    folder: Path, name: str, code: str, more: str = "", *libraries: Path, version: str = "1"
) -> Path:
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with WheelFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", code)
        archive.writestr(f"{info}/METADATA", METADATA.format(name=name, version=version, more=more))
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
        for library in libraries:
            archive.write(library, f"{name}/{library.name}")
    return path


def torch_of(environment: Environment) -> Path:
    return environment.site_packages / "torch" / "lib" / "libtorch_cpu.so"
