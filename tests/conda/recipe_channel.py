"""A channel that holds metadata alone: enough to solve against, nothing to install.

It stands for the many builds of torch, Python and CUDA that no one machine has, so that what the
solver chooses beside each of them can be shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchproof.config import Matrix, series
from torchproof.files import write_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from torchproof.conda.rendered import Output

# How far above its CPU build conda-forge numbers a CUDA build of pytorch.
CUDA_NUMBER = 200


@dataclass(frozen=True)
class Record:
    """A line of a channel's index."""

    name: str
    version: str
    build: str
    number: int = 0
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """The file the line speaks of."""
        return f"{self.name}-{self.version}-{self.build}.conda"


def write_channel(folder: Path, platform: str, records: Iterable[Record]) -> Path:
    """Write the index of a channel, and return its folder."""
    for subdir, held in ((platform, tuple(records)), ("noarch", ())):
        packages: dict[str, Any] = {
            record.file: {
                "name": record.name,
                "version": record.version,
                "build": record.build,
                "build_number": record.number,
                "depends": list(record.depends),
                "constrains": list(record.constrains),
                "subdir": subdir,
                "sha256": "0" * 64,
                "md5": "0" * 32,
                "size": 0,
            }
            for record in held
        }
        write_json(
            folder / subdir / "repodata.json",
            {"info": {"subdir": subdir}, "packages": {}, "packages.conda": packages},
        )
    return folder


def of_recipe(outputs: Iterable[Output]) -> Iterator[Record]:
    """What the recipe's outputs would be in a channel, their pins written out."""
    for output in outputs:
        torch = output.build.split("_")[0].removeprefix("torch")
        yield Record(
            name=output.name,
            version=output.version,
            build=output.build,
            number=output.number,
            depends=tuple(_requirement(part, output, torch) for part in output.requirements["run"]),
            constrains=tuple(output.requirements.get("run_constraints", ())),
        )


def _requirement(part: str | dict[str, Any], output: Output, torch: str) -> str:
    if isinstance(part, str):
        return part
    if "pin_compatible" in part:
        major, minor = int(torch[0]), int(torch[1:])
        return f"{part['pin_compatible']['name']} >={major}.{minor},<{major}.{minor + 1}.0a0"
    raise ValueError(f"{output.key}: {part} has no written-out form; give it one here")


def pythons(matrix: Matrix) -> Iterator[Record]:
    """A CPython of every series some torch has a build for."""
    for version in matrix.pythons:
        tag = version.replace(".", "")
        abi = f"python_abi {version}.* *_cp{tag}"
        yield Record("python", f"{version}.0", "h0_0_cpython", depends=("__glibc >=2.17", abi))
        yield Record("python_abi", version, f"8_cp{tag}", constrains=(f"python {version}.*",))


def cuda_versions(releases: Iterable[str]) -> Iterator[Record]:
    """conda-forge's `cuda-version`: it only says which drivers a CUDA release runs on."""
    for release in releases:
        major = release.split(".")[0]
        yield Record("cuda-version", release, "h0_0", constrains=(f"__cuda >={major}",))


def torches(matrix: Matrix, cuda: Iterable[str]) -> Iterator[Record]:
    """Every torch of matrix.toml for each of its Pythons, for the CPU and each CUDA release."""
    releases = tuple(cuda)
    for torch in matrix.torch:
        for version in torch.pythons:
            tag = f"py{version.replace('.', '')}"
            depends = (
                "__glibc >=2.28",
                f"python_abi {version}.* *_{tag.replace('py', 'cp')}",
                f"python {version}.*",
            )
            yield from _torch(torch.version, f"cpu_generic_{tag}_0", 0, depends)
            for release in releases:
                low, major = release, int(release.split(".")[0])
                yield from _torch(
                    torch.version,
                    f"cuda{series(release).replace('.', '')}_generic_{tag}_{CUDA_NUMBER}",
                    CUDA_NUMBER,
                    (*depends, "__cuda", f"cuda-version >={low},<{major + 1}"),
                )


def _torch(version: str, build: str, number: int, depends: tuple[str, ...]) -> Iterator[Record]:
    yield Record("libtorch", version, build, number, depends)
    yield Record("pytorch", version, build, number, (f"libtorch {version} {build}", *depends))
