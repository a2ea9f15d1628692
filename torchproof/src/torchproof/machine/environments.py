"""One environment a torch and Python: made once, over one shared cache, never half.

uv makes one in about a second from its cache; where it is missing, venv and pip do the same work.
"""

import ast
import contextlib
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution
from pathlib import Path
from typing import cast

from dependency_groups import resolve
from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement

from torchproof.audit.torches import find_torch
from torchproof.config import HOST, PATH, ROOT, ConfigError, project, read_toml, series
from torchproof.errors import TorchproofError
from torchproof.files import read_sealed, text_hash, tool_hash, write_sealed
from torchproof.machine import stubs
from torchproof.machine.emulation import wrap
from torchproof.machine.inventory import Emulation, Interpreter, find_program
from torchproof.machine.lockfiles import Lock, LockError, read
from torchproof.machine.processes import Processes, reason_in

# What the link stubs stand for, and triton, which only generates GPU code.
NVIDIA = re.compile(r"(nvidia|cuda|triton)(-|$)")
CUDA_RUNTIME = "nvidia-cuda-runtime"
STUBS = "machine/stubs.py"
LIMIT_S = 900.0
# What a row runs in its environment, and what PEP 517 has where a project states no build system.
RUN_IN_IT = ("build", "pytest>=8", "pytest-xdist")
SETUPTOOLS = ("setuptools>=40.8.0", "wheel")
IMPORT_TORCH = "import torch; print(torch.__version__)"
FREE_BYTES = 6 << 30
# Many interpreters start in an environment, and most import torch: what one compiled serves them
# all, whatever the user's shell says of it.
KEEP_BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}
# A torch that the user's shell has Python import would take the place of the environment's.
OWN_MODULES = {"PYTHONPATH": ""}


class EnvironmentFailed(TorchproofError):
    """The environment could not be made; the message says why, in one sentence."""


@dataclass(frozen=True)
class Environment:
    """A ready environment. `flavour` says what torch runs on: "cpu", "stubbed" or "real"."""

    path: Path
    torch: str
    python: str
    flavour: str

    @property
    def program(self) -> Path:
        """Its interpreter."""
        return self.path / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        """Where its packages lie."""
        return self.path / "lib" / f"python{series(self.python)}" / "site-packages"


@dataclass(frozen=True)
class Installer:
    """Commands that make virtual environments and install into them: uv's, or venv's and pip's.

    Attributes:
        uv: the program; None where there is none.
        env: environment variables for its commands.
    """

    uv: str | None
    env: Mapping[str, str]

    def create(self, python: Path, path: Path) -> list[str | Path]:
        """Make an empty environment at `path`."""
        if self.uv is None:
            return [python, "-m", "venv", path]
        return [self.uv, "venv", "--no-project", "--python", python, path]

    def install(self, program: Path, *arguments: str) -> list[str | Path]:
        """Install into the environment of `program`, with pip's own arguments."""
        if self.uv is None:
            return [program, "-m", "pip", "install", *arguments]
        return [self.uv, "pip", "install", "--python", program, *arguments]


# uv does not read pip's configuration; these settings mean the same in both.
PIP_TO_UV = {
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}
# Of these pip has lists, with white space between the items; and what uv has there.
UV_LISTS = {"UV_FIND_LINKS": ",", "UV_EXTRA_INDEX_URL": " ", "UV_INSECURE_HOST": " "}
# Where `pip install` takes them from: a later one counts before an earlier one.
PIP_SECTIONS = ("global", "install", ":env:")


def pip_settings(python: Path) -> dict[str, str]:
    """Pip's own configuration as uv's environment variables."""
    completed = subprocess.run(
        [python, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    stated: dict[str, dict[str, str]] = {section: {} for section in PIP_SECTIONS}
    for line in completed.stdout.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if key in PIP_TO_UV and section in stated:
            stated[section][PIP_TO_UV[key]] = ast.literal_eval(value)
    settings = {name: value for section in stated.values() for name, value in section.items()}
    for name in UV_LISTS.keys() & settings:
        settings[name] = UV_LISTS[name].join(settings[name].split())
    if "UV_EXTRA_INDEX_URL" in settings:
        # pip's indexes have no order; uv would be content with the first that has a package.
        settings["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return settings


def installer(python: Interpreter) -> Installer:
    """Uv where present, on PATH or beside this tool, else venv and pip."""
    uv = find_program("uv")
    if uv is None:
        return Installer(None, {"PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    return Installer(uv, {"UV_PYTHON_DOWNLOADS": "never", **pip_settings(python.path)})


def build_requirements() -> list[Requirement]:
    """What `[build-system]` of pyproject.toml requires."""
    path = ROOT / "pyproject.toml"
    stated = read_toml(path) if path.is_file() else {}
    requires = stated.get("build-system", {}).get("requires", SETUPTOOLS)
    try:
        return [Requirement(line) for line in requires]
    except (InvalidRequirement, TypeError) as error:
        raise ConfigError(f"pyproject.toml: [build-system] requires: {error}") from error


@cache
def requirements() -> tuple[str, ...]:
    """What every environment of a project holds beside torch."""
    if not PATH.is_file():
        return ()
    path = ROOT / "pyproject.toml"
    stated = read_toml(path) if path.is_file() else {}
    builds = [str(each) for each in build_requirements() if each.name != "torch"]
    try:
        groups = resolve(stated.get("dependency-groups", {}), *project().groups)
    except (LookupError, TypeError, ValueError) as error:
        raise ConfigError(f"[project]: groups, of pyproject.toml: {error}") from error
    return tuple(dict.fromkeys((*RUN_IN_IT, *builds, *groups, *project().requires)))


def locked(torch: str) -> Lock | None:
    """The lock of a torch's environments; None where the project keeps none."""
    if not (PATH.is_file() and project().locks):
        return None
    lock = read(ROOT / project().locks, torch)
    if unmet := lock.unmet(requirements()):
        raise LockError(
            f"{project().locks}: no version of {', '.join(unmet)} for torch {torch}; make it again "
            "with `torchproof lock`"
        )
    return lock


def torch_requirements(
    metadata: Sequence[str], python: str, *, nvidia: bool, machine: str = platform.machine()
) -> list[str]:
    """The packages torch asks for in that Python, with or without those of NVIDIA's and triton."""
    marker: dict[str, str | AbstractSet[str]] = {
        **cast("dict[str, str]", default_environment()),
        "python_version": series(python).rstrip("t"),
        "python_full_version": python.rstrip("t"),
        "platform_machine": machine,
        "extra": "",
    }
    wanted = []
    for line in metadata:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate(marker):
            continue
        if nvidia or not NVIDIA.match(requirement.name):
            requirement.marker = None
            wanted.append(str(requirement))
    return wanted


def hashed(requirements: str, file: Path) -> list[str]:
    """An installer's arguments for exactly the files that a requirement file has hashes of."""
    file.write_text(requirements, encoding="utf-8")
    # A source distribution would be built with whatever versions its own build asks for.
    exactly = ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
    return [*exactly, "--requirement", str(file)]


def cuda_runtime(metadata: Sequence[str], python: str, machine: str) -> tuple[str, ...]:
    """Those of torch's requirements that bring CUDA's run-time, and nothing beside it."""
    found = []
    for line in torch_requirements(metadata, python, nvidia=True, machine=machine):
        requirement = Requirement(line)
        if "cudart" in requirement.extras:
            requirement.extras = {"cudart"}
            found.append(str(requirement))
        elif requirement.name.startswith(CUDA_RUNTIME):
            found.append(line)
    return tuple(found)


@dataclass(frozen=True)
class Maker:
    """Makes environments under `folder`."""

    folder: Path
    installer: Installer
    processes: Processes
    gpu: bool

    def make(self, torch: str, python: Interpreter, packages: str, log: Path) -> Environment:
        """The environment of a torch and a CPython; made again when absent, old or incomplete.

        `packages` is "stubs" or "real", as in `matrix.toml`.
        """
        emulation = python.emulation
        odd = "" if python.system == HOST else f"-{python.system}"
        odd += f"-{emulation.platform}-emulated" if emulation else ""
        path = self.folder / f"torch{torch}-py{python.version}-{packages}{odd}"
        ready = path.with_name(f"{path.name}.ready.json")
        try:
            lock = locked(torch)
        except LockError as error:
            raise EnvironmentFailed(str(error)) from error
        contents = (lock.key,) if lock else requirements()
        key = text_hash(
            torch, str(python.path), python.version, packages, tool_hash(STUBS), *contents
        )
        known = read_sealed(ready)
        if known and known["key"] == key and path.is_dir():
            return Environment(path, known["torch"], python.version, known["flavour"])
        ready.unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.folder).free
        if free < FREE_BYTES:
            raise EnvironmentFailed(
                f"{free / 2**30:.1f} GiB of disk are free, an environment may need "
                f"{FREE_BYTES >> 30} GiB: free some space and run this again"
            )
        made = self._make(path, torch, python, packages, log, lock)
        write_sealed(ready, {"key": key, "torch": made.torch, "flavour": made.flavour})
        return made

    def _make(
        self,
        path: Path,
        torch: str,
        python: Interpreter,
        packages: str,
        log: Path,
        lock: Lock | None,
    ) -> Environment:
        program = path / "bin" / "python"
        self._run(self.installer.create(python.path, path), log, f"CPython {python.version}")
        self._install_torch(program, torch, log, lock)
        empty = Environment(path, torch, python.version, "cpu")
        installed = list(empty.site_packages.glob("torch-*.dist-info"))
        if not installed:  # pip takes what no marker of a lock asks for as done
            raise EnvironmentFailed(
                f"the lock of torch {torch} has none for CPython {python.version}: write it again "
                f"with `torchproof lock`"
            )
        distribution = Distribution.at(installed[0])
        cuda = find_torch(empty.site_packages).cuda
        nvidia = cuda is not None and (packages == "real" or self.gpu)
        emulation = python.emulation
        machine = emulation.platform.partition("-")[2] if emulation else platform.machine()
        needs = torch_requirements(
            distribution.requires or [], python.version, nvidia=nvidia, machine=machine
        )
        # A project's requirement such as torchvision would replace the row's torch by its own.
        pin = path / "torch.txt"
        pin.write_text(f"torch=={distribution.version}\n", encoding="utf-8")
        wanted = ["--constraint", str(pin), *needs, *requirements()]
        if lock:
            wanted = hashed(
                lock.text(lambda name: nvidia or not NVIDIA.match(name)), path / "beside.txt"
            )
        self._run(self.installer.install(program, *wanted), log, "the packages beside torch")
        runtime = list(cuda_runtime(distribution.requires or [], python.version, machine))
        if lock:
            pins = lock.text(lambda name: name.startswith(CUDA_RUNTIME))
            runtime = hashed(pins, path / "runtime.txt")
        if cuda is not None and not nvidia:
            self._write_stubs(empty, runtime, emulation, log)
        if emulation:
            wrap(program.parent, emulation)
        self._run([program, "-c", IMPORT_TORCH], log, "import torch")
        flavour = "cpu" if cuda is None else "real" if nvidia else "stubbed"
        return Environment(path, distribution.version, python.version, flavour)

    def _install_torch(self, program: Path, torch: str, log: Path, lock: Lock | None) -> None:
        builds = [["--no-deps", f"torch=={torch}"]]
        if lock:
            home = program.parents[1]
            builds = [hashed(pin.text, home / f"{pin.version}.txt") for pin in lock.torches]
        *before, last = [self.installer.install(program, *arguments) for arguments in builds]
        for command in before:
            with contextlib.suppress(EnvironmentFailed):  # no index has it: the next is taken
                return self._run(command, log, f"torch {torch}")
        return self._run(last, log, f"torch {torch}")

    def _write_stubs(
        self, environment: Environment, runtime: list[str], emulation: Emulation | None, log: Path
    ) -> None:
        folder = environment.path / "cuda-runtime"
        if runtime:
            command = self.installer.install(environment.program, "--target", str(folder), *runtime)
            self._run(command, log, "CUDA's run-time, which a stub imitates")
        own = emulation.compilers if emulation else None
        real = folder.rglob("libcudart.so*")
        stubs.write(environment.site_packages, own / "gcc" if own else "gcc", real)
        shutil.rmtree(folder, ignore_errors=True)

    def _run(self, command: list[str | Path], log: Path, what: str) -> None:
        env = {**self.installer.env, **KEEP_BYTECODE, **OWN_MODULES}
        ended = self.processes.run(command, log=log, limit=LIMIT_S, cwd=self.folder, env=env)
        if not ended.ok:
            raise EnvironmentFailed(f"{what}: {ended.explain(LIMIT_S)}{reason_in(log)}")
