"""An environment is whole or made again, and holds what its torch asks for in that Python."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from torchproof.machine import environments
from torchproof.machine.environments import (
    EnvironmentFailed,
    Maker,
    cuda_runtime,
    find_program,
    torch_requirements,
)
from torchproof.machine.inventory import Interpreter
from torchproof.machine.lockfiles import Lock, parse
from torchproof.machine.processes import Processes, reason_in
from torchproof.report import page
from torchproof.report.page import sample
from wheel.wheelfile import WheelFile

from torchproof import config

if TYPE_CHECKING:
    from collections.abc import Callable

METADATA = (
    "filelock",
    "sympy>=1.13.3",
    'setuptools; python_version >= "3.12"',
    'nvidia-cudnn-cu13==9.26; platform_system == "Linux"',
    'cuda-toolkit[cublas]==13.2; platform_system == "Linux"',
    'triton~=3.9.0; platform_system == "Linux"',
    'optree>=0.13; extra == "optree"',
)


def test_stubs_leave_out_nvidias_packages_and_extras() -> None:
    assert torch_requirements(METADATA, "3.11.7", nvidia=False) == ["filelock", "sympy>=1.13.3"]


def test_a_marker_is_judged_for_the_environments_python() -> None:
    assert "setuptools" in torch_requirements(METADATA, "3.12.1", nvidia=False)


def test_real_packages_are_all_there() -> None:
    wanted = torch_requirements(METADATA, "3.11.7", nvidia=True)
    assert [name.split("=")[0].split("~")[0].split("[")[0] for name in wanted][2:] == [
        "nvidia-cudnn-cu13",
        "cuda-toolkit",
        "triton",
    ]


def test_the_runtime_alone_is_taken_of_what_cuda_requires() -> None:
    old = ["numpy", "nvidia-cuda-runtime-cu12==12.8.90", "nvidia-cudnn-cu12==9.10.2.21"]
    new = ["cuda-toolkit[cublas,cudart,nvrtc]==13.0.3", "nvidia-cudnn-cu13==9.20.0.48"]
    assert cuda_runtime(old, "3.11.7", "x86_64") == ("nvidia-cuda-runtime-cu12==12.8.90",)
    assert cuda_runtime(new, "3.11.7", "x86_64") == ("cuda-toolkit[cudart]==13.0.3",)


@dataclass
class StandIn:
    """Installs a torch that is two text files; `broken` ends the second step.

    `cuda` is that of the torch; `absent` is part of what no index has; `asked` is what was to be
    installed.
    """

    env: dict[str, str] = field(default_factory=dict)
    broken: bool = False
    cuda: str = "None"
    absent: str = "nothing of this name"
    asked: list[str] = field(default_factory=list)

    def create(self, python: Path, path: Path) -> list[str]:
        site = path / "lib" / "python3.11" / "site-packages"
        program = (
            f"mkdir -p {path}/bin {site}/torch/lib {site}/torch-2.13.0.dist-info && "
            f"ln -s {sys.executable} {path}/bin/python && "
            f"printf '__version__ = \"2.13.0+cpu\"\\ncuda = {self.cuda}\\n' "
            f"> {site}/torch/version.py && "
            f"printf 'Metadata-Version: 2.1\\nName: torch\\nVersion: 2.13.0+cpu\\n"
            f"Requires-Dist: cuda-toolkit[cublas,cudart]==13.0.3\\n' "
            f"> {site}/torch-2.13.0.dist-info/METADATA && echo made >> {path.parent}/count"
        )
        return ["sh", "-c", program]

    def install(self, program: Path, *arguments: str) -> list[str]:
        self.asked.append(" ".join(arguments))
        failing = "printf 'Looking\\nerror: no route\\n  cause: refused\\nBye\\n'; exit 1"
        fails = self.broken or self.absent in self.asked[-1]
        return ["sh", "-c", failing if fails else "true"]


@pytest.fixture
def maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maker:
    monkeypatch.setattr(environments, "IMPORT_TORCH", "pass")
    return Maker(tmp_path / "environments", StandIn(), Processes(), gpu=False)


def make(maker: Maker, tmp_path: Path) -> environments.Environment:
    python = Interpreter(Path(sys.executable), "3.11.7")
    return maker.make("2.13.0", python, "stubs", tmp_path / "log")


def times_made(maker: Maker) -> int:
    return len((maker.folder / "count").read_text().splitlines())


def test_a_ready_environment_is_taken_as_it_is(maker: Maker, tmp_path: Path) -> None:
    first = make(maker, tmp_path)
    assert (first.torch, first.flavour) == ("2.13.0+cpu", "cpu")
    assert make(maker, tmp_path) == first
    assert times_made(maker) == 1


def test_a_half_made_environment_is_made_again(maker: Maker, tmp_path: Path) -> None:
    environment = make(maker, tmp_path)
    (maker.folder / f"{environment.path.name}.ready.json").unlink()
    shutil.rmtree(environment.path / "bin")
    assert make(maker, tmp_path).program.exists()
    assert times_made(maker) == 2


def test_a_failed_install_is_told_and_leaves_nothing_ready(maker: Maker, tmp_path: Path) -> None:
    broken = Maker(maker.folder, StandIn(broken=True), Processes(), gpu=False)
    with pytest.raises(EnvironmentFailed) as raised:
        make(broken, tmp_path)
    how = "exit status 1, error: no route, cause: refused; see log"
    assert str(raised.value) == f"torch 2.13.0: {how}"
    assert make(maker, tmp_path).program.exists()


class InstallsNothing(StandIn):
    """As pip and uv do, and end well, where the markers of a lock leave nothing to install."""

    def create(self, python: Path, path: Path) -> list[str]:
        return ["mkdir", "-p", f"{path}/lib/python3.11/site-packages"]


def test_a_lock_without_a_torch_for_the_python_is_told(maker: Maker, tmp_path: Path) -> None:
    with pytest.raises(
        EnvironmentFailed, match=r"lock of torch 2\.13\.0 has none for CPython 3\.11"
    ):
        make(dataclasses.replace(maker, installer=InstallsNothing()), tmp_path)


def test_a_locked_environment_holds_what_the_lock_has(
    maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = ("torch==2.13.0+cpu", "torch==2.13.0", "numpy==2.0", "nvidia-cudnn-cu13==9.26")
    text = "".join(f"{pin} --hash=sha256:{64 * 'a'}\n" for pin in pins)
    monkeypatch.setattr(environments, "locked", lambda _: Lock.of(parse(text)))
    installer = StandIn(absent="2.13.0+cpu.txt")
    made = make(dataclasses.replace(maker, installer=installer), tmp_path)
    exactly = f"--no-deps --require-hashes --only-binary :all: --requirement {made.path}"
    names = ("2.13.0+cpu.txt", "2.13.0.txt", "beside.txt")
    assert installer.asked == [f"{exactly}/{name}" for name in names]
    assert (made.path / "beside.txt").read_text().split()[0] == "numpy==2.0"
    assert "cudnn" not in (made.path / "beside.txt").read_text()


def test_without_a_gpu_a_torch_of_cuda_gets_stubs(
    maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []
    monkeypatch.setattr(environments.stubs, "write", lambda site, *_: written.append(site))
    installer = StandIn(cuda='"13.0"')
    made = make(dataclasses.replace(maker, installer=installer), tmp_path)
    assert made.flavour == "stubbed"
    assert written == [made.site_packages]
    assert installer.asked[-1].endswith("cuda-toolkit[cudart]==13.0.3")
    assert not any("cublas" in asked for asked in installer.asked)


def write_wheel(folder: Path, name: str, version: str = "1.0", requires: str = "") -> Path:
    """The wheel of a package that is a module alone."""
    metadata = f"{name}-{version}.dist-info"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    with WheelFile(wheel, "w") as file:
        file.writestr(f"{name}.py", "ANSWER = 42\n")
        file.writestr(
            f"{metadata}/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        )
        file.writestr(f"{metadata}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
    return wheel


@pytest.mark.parametrize("name", ["uv", "pip"])
def test_an_environment_is_made_and_filled(name: str, tmp_path: Path) -> None:
    uv = find_program("uv")
    if name == "uv" and uv is None:
        pytest.skip("not run: there is no uv on PATH")
    wheel = write_wheel(tmp_path, "tiny")
    made, filler = tmp_path / "made", environments.Installer(uv if name == "uv" else None, {})
    program = made / "bin" / "python"
    for command in (
        filler.create(Path(sys.executable), made),
        filler.install(program, "--no-index", str(wheel)),
        [program, "-c", "import tiny; assert tiny.ANSWER == 42"],
    ):
        ended = Processes().run(command, log=tmp_path / "log", limit=60, cwd=tmp_path)
        assert ended.ok, (tmp_path / "log").read_text()


def write_torch(folder: Path, version: str) -> None:
    """The wheel of a torch that is two lines."""
    wheel = write_wheel(folder, "torch", version)
    wheel.unlink()
    with WheelFile(wheel, "w") as file:
        metadata = f"torch-{version}.dist-info"
        file.writestr("torch/__init__.py", "from torch.version import __version__\n")
        file.writestr("torch/lib/libtorch.so", "")
        file.writestr("torch/version.py", f"__version__ = {version!r}\ncuda = None\n")
        file.writestr(
            f"{metadata}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
        )
        file.writestr(f"{metadata}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")


@pytest.fixture(params=["uv", "pip"])
def vision(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., environments.Environment]:
    """Makes the environment of a torch 2.13.0 for a project that requires vision."""
    uv = find_program("uv") if request.param == "uv" else None
    if request.param == "uv" and uv is None:
        pytest.skip("not run: there is no uv on this machine")
    monkeypatch.setattr(environments, "requirements", lambda: ("vision",))
    write_torch(tmp_path, "2.13.0")
    write_torch(tmp_path, "2.14.0")
    (tmp_path / "index").mkdir()

    def environment(**versions: str) -> environments.Environment:
        for version, torch in versions.items():
            write_wheel(tmp_path, "vision", version[1:], f"torch=={torch}")
        # Both read these.
        settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
        settings |= {"UV_DEFAULT_INDEX": (tmp_path / "index").as_uri()}
        settings |= {"UV_FIND_LINKS": str(tmp_path)}
        installer = environments.Installer(uv, settings)
        return make(Maker(tmp_path / "made", installer, Processes(), gpu=False), tmp_path)

    return environment


def test_a_package_that_needs_another_torch_does_not_replace_the_rows(
    vision: Callable[..., environments.Environment],
) -> None:
    made = vision(v1="2.13.0", v2="2.14.0")
    assert {path.name for path in made.site_packages.glob("*.dist-info")} >= {
        "torch-2.13.0.dist-info",
        "vision-1.dist-info",
    }


def test_an_environment_whose_packages_all_need_another_torch_is_none(
    vision: Callable[..., environments.Environment],
) -> None:
    with pytest.raises(EnvironmentFailed, match=r"^the packages beside torch: "):
        vision(v2="2.14.0")


def test_too_little_disk_is_told_before_anything_is_made(
    maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "FREE_BYTES", 1 << 60)
    with pytest.raises(EnvironmentFailed, match="free some space and run this again"):
        make(maker, tmp_path)
    assert not (maker.folder / "count").exists()


def configured_pip(folder: Path, *lines: str) -> Path:
    """A Python whose pip lists this configuration."""
    python = folder / "python"
    python.write_text("#!/bin/sh\ncat <<'END'\n" + "".join(f"{line}\n" for line in lines) + "END\n")
    python.chmod(0o755)
    return python


def test_pips_configuration_reaches_uv(tmp_path: Path) -> None:
    python = configured_pip(
        tmp_path,
        "global.find-links='/srv/wheels'",
        ":env:.default-timeout='180'",
        "global.index-url='https://example.invalid/simple'",
    )
    assert environments.pip_settings(python) == {
        "UV_FIND_LINKS": "/srv/wheels",
        "UV_DEFAULT_INDEX": "https://example.invalid/simple",
    }


def test_the_environment_counts_before_pips_files_and_other_commands_not_at_all(
    tmp_path: Path,
) -> None:
    python = configured_pip(
        tmp_path,
        ":env:.index-url='https://environment.invalid/simple'",
        "download.find-links='/srv/downloads'",
        "global.cert='/etc/global.pem'",
        "global.index-url='https://file.invalid/simple'",
        "install.cert='/etc/install.pem'",
        "wheel.index-url='https://wheel.invalid/simple'",
    )
    assert environments.pip_settings(python) == {
        "SSL_CERT_FILE": "/etc/install.pem",
        "UV_DEFAULT_INDEX": "https://environment.invalid/simple",
    }


@pytest.mark.parametrize("stated", [r"'\nONE\nTWO'", "'ONE TWO'"], ids=["lines", "words"])
def test_uv_finds_the_wheels_of_every_folder_that_pip_names(tmp_path: Path, stated: str) -> None:
    uv = find_program("uv")
    if uv is None:
        pytest.skip("not run: there is no uv on this machine")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_wheel(tmp_path / name, f"decay_{name}")
        stated = stated.replace(name.upper(), str(tmp_path / name))
    settings = environments.pip_settings(configured_pip(tmp_path, f"global.find-links={stated}"))
    command = [uv, "pip", "install", "--no-index", "--target", tmp_path / "site"]
    done = subprocess.run(
        [*command, "decay_one", "decay_two"],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def write_index(folder: Path, version: str) -> str:
    """A package index that has `decay` in this version; its address."""
    (folder / "decay").mkdir(parents=True)
    wheel = write_wheel(folder / "decay", "decay", version).name
    page = f'<a href="{wheel}">{wheel}</a>'
    (folder / "decay" / "index.html").write_text(page, encoding="utf-8")
    return folder.as_uri()


@pytest.mark.parametrize("between", [" ", "\n"], ids=["words", "lines"])
@pytest.mark.parametrize("newer", [0, 1, 2])
def test_uv_finds_the_newest_of_every_index_that_pip_names(
    tmp_path: Path, newer: int, between: str
) -> None:
    """As pip does; uv would have what the first index has."""
    uv = find_program("uv")
    if uv is None:
        pytest.skip("not run: there is no uv on this machine")
    default, *extra = (
        write_index(tmp_path / str(at), "2.0" if at == newer else "1.0") for at in range(3)
    )
    more = between.join(["", *extra])
    lines = [f"global.index-url={default!r}", f"global.extra-index-url={more!r}"]
    settings = environments.pip_settings(configured_pip(tmp_path, *lines))
    site = tmp_path / "site"
    subprocess.run(
        [uv, "pip", "install", "--target", site, "decay"],
        env={**os.environ, **settings},
        check=True,
        capture_output=True,
    )
    assert [path.name for path in site.glob("decay-*")] == ["decay-2.0.dist-info"]


@pytest.fixture
def stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], tuple[str, ...]]:
    """What the environments hold of a project, by its pyproject.toml and its groups."""

    def read(pyproject: str, *groups: str) -> tuple[str, ...]:
        (tmp_path / "pyproject.toml").write_text(pyproject, encoding="utf-8")
        project = dataclasses.replace(config.project(), groups=groups, requires=("numpy",))
        monkeypatch.setattr(environments, "ROOT", tmp_path)
        monkeypatch.setattr(environments, "project", lambda: project)
        return environments.requirements.__wrapped__()

    return read


def test_an_environment_holds_what_the_project_is_built_and_a_row_run_with(
    stated: Callable[..., tuple[str, ...]],
) -> None:
    builds = '[build-system]\nrequires = ["scikit-build-core", "torch>=2.10"]\n'
    found = stated(builds + '[dependency-groups]\ntest = ["hypothesis", "numpy"]\n', "test")
    assert found[:3] == ("build", "pytest>=8", "pytest-xdist")
    assert found[3:] == ("scikit-build-core", "hypothesis", "numpy")
    assert "setuptools>=40.8.0" in stated("")


@pytest.mark.parametrize("requires", ['["setuptools >>"]', "1", "[1]"])
def test_a_wrong_requirement_of_the_build_is_named(
    stated: Callable[..., tuple[str, ...]], requires: str
) -> None:
    with pytest.raises(config.ConfigError, match=r"pyproject\.toml: \[build-system\] requires: "):
        stated(f"[build-system]\nrequires = {requires}\n")


def test_a_group_that_is_not_there_is_named(stated: Callable[..., tuple[str, ...]]) -> None:
    with pytest.raises(config.ConfigError, match=r"groups, of pyproject.toml: .*'tests' not found"):
        stated("", "tests")


@pytest.mark.parametrize(
    "line",
    [
        "csrc/decay.cpp:3:1: error: expected initializer",
        "fatal.cpp:1:10: fatal error: gone.h: No such file or directory",
        "RuntimeError: The detected CUDA version mismatches",
        "scikit_build_core.errors.CMakeNotFoundError: Could not find CMake with version >=3.18",
        "error: subprocess-exited-with-error",
    ],
)
def test_a_log_gives_the_reason_of_a_failure(tmp_path: Path, line: str) -> None:
    log = tmp_path / "build.log"
    log.write_text(f"$ before\nerror: old\n$ python -m build\nbegin\n{line}\nERROR Backend\n")
    assert reason_in(log) == f", {line}; see build.log"


def larger_than_memory(log: Path, end: bytes) -> None:
    """A log of terabytes, of which the file system keeps nothing but the end."""
    with log.open("wb") as file:
        try:
            file.truncate(1 << 42)
        except OSError as error:
            pytest.skip(f"not run: this file system has no such file: {error}")
        file.seek(0, os.SEEK_END)
        file.write(end)


def test_a_log_larger_than_memory_gives_the_reason_and_is_shown(tmp_path: Path) -> None:
    larger_than_memory(tmp_path / "tests.log", b"\nerror: no GPU\n")
    assert reason_in(tmp_path / "tests.log") == ", error: no GPU; see tests.log"
    result = dataclasses.replace(sample.row("2.13.0", "3.11"), logs={"tests": "tests.log"})
    (shown,) = page.logs(tmp_path, result)
    assert shown.tail.endswith("error: no GPU")
    assert len(shown.tail) <= page.LOG_CHARACTERS


def test_a_reason_is_of_a_readable_length(tmp_path: Path) -> None:
    log = tmp_path / "tests.log"
    log.write_text("$ pytest\n" + "x" * 100_000)
    assert len(reason_in(log)) < 400
