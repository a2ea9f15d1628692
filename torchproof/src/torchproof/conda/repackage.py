"""Wheels of an interpreter, fetched with pip and laid out as conda packages."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.sources import WheelFile
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from rattler_build import assemble_package

from torchproof.audit.torches import find_torch
from torchproof.conda import rendered
from torchproof.conda.targets import Target
from torchproof.config import project, series
from torchproof.errors import TorchproofError
from torchproof.machine import device_code, stubs
from torchproof.machine.environments import NVIDIA, hashed, locked, torch_requirements
from torchproof.machine.lockfiles import Lock

# Where conda-forge's name differs from the wheel's.
CONDA_NAMES = {"torch": "pytorch", "typing-extensions": "typing_extensions"}
# The recipe's host and build needs, beside what the suite needs.
BUILD = ("ninja", "pip", "setuptools>=77", "wheel")
COMPILER = "gxx_linux-64"
# Python that neither `import torch`, torch.testing, pip nor pytest loads: two thirds of it.
NOT_IMPORTED = (
    r"/torch/(_dynamo|_functorch|_inductor|_numpy|_vendor|distributed|onnx|sparse|testing)/"
    r"|/sympy/(combinatorics|parsing|physics|stats)/"
    r"|/(networkx|pygments|tests)/"
)
# Bytes; a few hundred files that hold most of it.
LARGE = 1 << 20
# `installer` would wrap an interpreter with a space in its name in a shell script.
PLACEHOLDER = "/python"


class NoWheel(TorchproofError):
    """A wheel cannot be had; the message says which."""


@dataclass(frozen=True)
class Unpacked:
    """A wheel laid out below a prefix."""

    name: str
    version: str
    root: Path
    site_packages: Path
    distribution: Distribution


def requirements() -> tuple[str, ...]:
    """What the environments hold beside torch and its own needs: the recipe says it."""
    suite = next(o for o in rendered.outputs("linux-64") if o.name == project().conda.tests)
    stated = (part for part in suite.requirements["run"] if isinstance(part, str))
    # The compiler is not a wheel.
    return (*BUILD, *(part for part in stated if part != COMPILER))


def download(target: Target, folder: Path) -> list[Path]:
    """Fetch torch, what it needs without NVIDIA's packages, and what builds and tests need.

    Raises:
        NoWheel: pip cannot have one of them.
    """
    shutil.rmtree(folder, ignore_errors=True)
    lock = locked(target.torch)
    if lock:
        _download_locked(lock, target, folder)
    else:
        _pip(target, folder, "--no-deps", f"torch=={target.torch}")
        _pip(target, folder, *_needs(folder, target), *requirements())
    return sorted(folder.glob("*.whl"))


def _download_locked(lock: Lock, target: Target, folder: Path) -> None:
    """Fetch by hash, in rounds: what a wheel needs is known when it is there."""
    folder.mkdir(parents=True)
    *before, last = [hashed(pin.text, folder / f"{pin.version}.txt") for pin in lock.torches]
    for arguments in before:
        with contextlib.suppress(NoWheel):  # no index has this build: the next is taken
            _pip(target, folder, *arguments)
            break
    else:
        _pip(target, folder, *last)
    have = {"torch"}
    wanted = _names((*requirements(), *_needs(folder, target)))
    while missing := wanted - have:
        pins = lock.text(missing.__contains__)
        _pip(target, folder, *hashed(pins, folder / f"round-{len(have)}.txt"))
        have |= missing
        wanted |= _names(_needs(folder, target))


def _names(requirements: Iterable[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


def _needs(folder: Path, target: Target) -> list[str]:
    """What the wheels in a folder require in that interpreter, without NVIDIA's packages."""
    stated: list[str] = []
    for path in folder.glob("*.whl"):
        with WheelFile.open(path) as wheel:
            metadata = Metadata.from_email(wheel.read_dist_info("METADATA"), validate=False)
        stated += map(str, metadata.requires_dist or ())
    return torch_requirements(stated, target.python.version, nvidia=False)


def _pip(target: Target, folder: Path, *arguments: str) -> None:
    # --python: that interpreter's tags and markers, whether or not it has a pip of its own.
    command = [sys.executable, "-m", "pip", "--python", str(target.python.path), "download"]
    command += ["--quiet", "--only-binary=:all:", "--dest", str(folder), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        last = ended.stderr.strip().splitlines()[-1:]
        raise NoWheel(f"pip cannot download for {target.label}: {' '.join(last)}")


def unpack(wheel: Path, target: Target, prefix: Path) -> Unpacked:
    """Lay a wheel out below `prefix`, as pip would."""
    site_packages = prefix / "lib" / f"python{target.series}" / "site-packages"
    scheme = {
        "purelib": str(site_packages),
        "platlib": str(site_packages),
        "scripts": str(prefix / "bin"),
        "headers": str(prefix / "include" / f"python{target.series}"),
        "data": str(prefix),
    }
    destination = SchemeDictionaryDestination(scheme, PLACEHOLDER, "posix")
    with WheelFile.open(wheel) as source:
        install(source, destination, additional_metadata={"INSTALLER": b"conda"})
    # Whatever Python comes first on PATH: that of the environment in use.
    for script in (prefix / "bin").glob("*"):
        text = script.read_bytes()
        script.write_bytes(text.replace(f"#!{PLACEHOLDER}".encode(), b"#!/usr/bin/env python", 1))
    name, version, _, _ = parse_wheel_filename(wheel.name)
    information = next(site_packages.glob("*.dist-info"))
    distribution = Distribution.at(information)
    return Unpacked(str(name), version.public, prefix, site_packages, distribution)


def depends(unpacked: Unpacked, target: Target) -> Iterator[str]:
    """The wheel's requirements in that interpreter, by conda's names; none of NVIDIA's."""
    yield f"python {target.series}.*"
    yield f"python_abi {target.series}.* *_{target.tag.replace('py', 'cp')}"
    stated = unpacked.distribution.requires or []
    for line in torch_requirements(stated, target.python.version, nvidia=False):
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        yield f"{CONDA_NAMES.get(name, name)} {requirement.specifier}".strip()


def package(wheel: Path, target: Target, scratch: Path, channel: Path, glibc: str) -> Path:
    """Make a wheel a conda package in a channel, and return its file.

    The files of torch become `libtorch`; `pytorch` itself comes from a recipe, as it has exports.
    """
    unpacked = unpack(wheel, target, scratch)
    name, build, needs = CONDA_NAMES.get(unpacked.name, unpacked.name), f"{target.tag}_0", []
    if unpacked.name == "torch":
        name, build = "libtorch", torch_build(unpacked, target)
        needs.append(f"__glibc >={glibc}")
        if build.startswith("cuda"):
            stubs.write(unpacked.site_packages)
            for library in unpacked.site_packages.glob("torch/lib/*.so*"):
                device_code.clear_fatbin(library)
            _forget_nvidia(unpacked)
        _libraries_to_prefix(unpacked)
    _compile(unpacked, target)
    made = assemble_package(
        name,
        unpacked.version,
        "linux-64",
        build,
        channel / "linux-64",
        files_dir=unpacked.root,
        depends=[*depends(unpacked, target), *needs],
        summary=unpacked.distribution.metadata["Summary"],
        compression_level=1,
        compression_threads=os.cpu_count() or 1,
        detect_prefix=False,
    )
    return Path(made.path)


def torch_build(unpacked: Unpacked, target: Target) -> str:
    """The build string of a torch; one without NVIDIA's packages says that it runs on stubs."""
    cuda = find_torch(unpacked.site_packages).cuda
    if cuda is None:
        return f"cpu_{target.tag}_0"
    return f"cuda{series(cuda).replace('.', '')}_stubs_{target.tag}_0"


def _asks_for_nvidia(line: str) -> bool:
    field, _, value = line.partition(":")
    return field == "Requires-Dist" and NVIDIA.match(Requirement(value.strip()).name) is not None


def _libraries_to_prefix(unpacked: Unpacked) -> None:
    """Lay torch's libraries out as conda-forge does: in lib/, with links where torch looks."""
    home = unpacked.site_packages / "torch" / "lib"
    shared = unpacked.root / "lib"
    for library in sorted(home.glob("*.so*")):
        library.rename(shared / library.name)
        library.symlink_to(os.path.relpath(shared / library.name, home))


def _compile(unpacked: Unpacked, target: Target) -> None:
    """Add bytecode, as conda-forge's packages have it: each new environment would compile again."""
    command = [str(target.python.path), "-m", "compileall", "-q"]
    # As if it lay in the prefix; and not bound to the source's time, which packing may change.
    command += ["-s", str(unpacked.root), "-p", "/", "--invalidation-mode", "unchecked-hash"]
    command += ["-x", NOT_IMPORTED, str(unpacked.site_packages)]
    # It also lists templates that are not Python; what is imported is compiled or it fails there.
    subprocess.run(command, capture_output=True, check=False)


def forget(wheel: Path, unpacked: Path) -> None:
    """Empty what is packed now, or the disk will be busy with writing it.

    The small files stay, and none of them is deleted: see `Session.scratch`.
    """
    for path in (wheel, *unpacked.rglob("*")):
        if path.is_file() and path.stat().st_size > LARGE:
            os.truncate(path, 0)


def _forget_nvidia(unpacked: Unpacked) -> None:
    """Drop the packages that the stubs stand for from the metadata, or `pip check` misses them."""
    metadata = next(unpacked.site_packages.glob("torch-*.dist-info")) / "METADATA"
    lines = metadata.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if not _asks_for_nvidia(line)]
    metadata.write_text("".join(kept), encoding="utf-8")
