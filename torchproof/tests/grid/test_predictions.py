"""What is predicted of a wheel, and when the prediction was right."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest
from torchproof.grid import predict, second
from torchproof.grid.trials import (
    ABORTS,
    FAILS,
    IMPORTS,
    LOADS,
    REFUSES,
    UNSAFE,
    UNSUPPORTED,
    WORKS,
    WRONG,
    LibraryTrial,
    PackageTrial,
)
from torchproof.grid.wheel_file import GridError, read_wheel
from torchproof.machine.environments import Environment
from wheels import make_wheel

if TYPE_CHECKING:
    pass


def test_another_release_of_cuda_promises_nothing(environment: Environment, tmp_path: Path) -> None:
    version = environment.site_packages / "torch" / "version.py"
    version.write_text("__version__ = '2.13.0'\ncuda = '13.2'\n")
    facts = SimpleNamespace(cuda_releases=("13.0",))
    verdict = SimpleNamespace(outcome=LOADS, reason="every symbol is there")
    report = SimpleNamespace(name="decay/_C.so", facts=facts, verdicts=(verdict,))
    wheel = read_wheel(make_wheel(tmp_path, "decay", ""))
    of_13_0 = predict.package(wheel, environment, {"decay/_C.so": report})
    assert of_13_0 == (UNSUPPORTED, "it was made by CUDA 13.0, this torch by CUDA 13.2")
    facts.cuda_releases = ("13.2",)
    assert predict.package(wheel, environment, {"decay/_C.so": report})[0] == WORKS


@pytest.mark.parametrize(
    ("predicted", "outcome", "right"),
    [
        (LOADS, LOADS, True),
        (LOADS, REFUSES, False),
        (LOADS, WRONG, False),
        (LOADS, ABORTS, False),
        (FAILS, REFUSES, True),
        (FAILS, LOADS, False),
        (FAILS, ABORTS, False),
        (UNSAFE, LOADS, True),
        (UNSAFE, WRONG, True),
        (UNSAFE, ABORTS, True),
        (UNSAFE, REFUSES, False),
    ],
)
def test_when_the_prediction_of_a_library_is_right(
    predicted: str, outcome: str, right: bool
) -> None:
    assert LibraryTrial(predicted, "", outcome, "").as_predicted == right


@pytest.mark.parametrize(
    ("predicted", "outcome", "plain", "guarded"),
    [
        (WORKS, WORKS, True, True),
        (WORKS, IMPORTS, True, True),
        (WORKS, REFUSES, False, False),
        (WORKS, WRONG, False, False),
        (WORKS, ABORTS, False, False),
        (FAILS, REFUSES, True, True),
        (FAILS, WRONG, True, False),
        (FAILS, IMPORTS, True, False),
        (FAILS, WORKS, False, False),
        (FAILS, ABORTS, False, False),
        (UNSAFE, REFUSES, True, True),
        (UNSAFE, WORKS, True, False),
        (UNSAFE, ABORTS, True, False),
        (UNSUPPORTED, REFUSES, True, True),
        (UNSUPPORTED, WORKS, True, False),
    ],
)
def test_when_the_prediction_of_a_package_is_right(
    predicted: str, outcome: str, plain: bool, guarded: bool
) -> None:
    trial = PackageTrial(predicted, "", outcome, "ImportError: needs torch 2.10")
    assert trial.as_predicted == plain
    assert replace(trial, guarded=True).as_predicted == guarded


@pytest.mark.parametrize("message", ["OSError: x.so: undefined symbol", "ImportError: two\nlines"])
def test_a_guarded_package_refuses_clearly(message: str) -> None:
    assert not PackageTrial(FAILS, "", REFUSES, message, guarded=True).as_predicted


@pytest.mark.parametrize(
    ("content", "system"), [(b"MZ" + bytes(99), "Windows"), (b"\xcf\xfa\xed\xfe", "macOS")]
)
def test_a_wheel_of_another_system_is_no_pure_python(
    environment: Environment, tmp_path: Path, content: bytes, system: str
) -> None:
    library = tmp_path / "op.so"
    library.write_bytes(content)
    wheel = read_wheel(make_wheel(tmp_path, "decay", "", "", library))
    with pytest.raises(GridError, match=f"op.so, a (Mach-O )?library of {system}"):
        predict.libraries(wheel, tmp_path / "site", environment)


def test_a_second_opinion_is_of_stable_libraries_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = {
        "stable": SimpleNamespace(stable=True, min_torch_version="2.10.0"),
        "native": SimpleNamespace(stable=False, min_torch_version="2.10.0"),
    }
    tool = SimpleNamespace(
        inspect_extension=lambda path: SimpleNamespace(torch=verdicts[path.name])
    )
    monkeypatch.setitem(sys.modules, "torch_abi_audit", tool)
    stable, native = tmp_path / "stable", tmp_path / "native"
    for path in (stable, native):
        path.touch()
    assert second.opinion(stable, "2.9.1+cpu") == FAILS
    assert second.opinion(stable, "2.10.0+cpu") == LOADS
    assert second.opinion(native, "2.13.0") == ""


def test_the_package_of_a_wheel_is_the_one_of_its_name(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, "decay", "")
    with ZipFile(path, "a") as archive:
        archive.writestr("build_tools/__init__.py", "")
    wheel = make_wheel(tmp_path, "odd_name", "").rename(tmp_path / "decay_plus-1-py3-none-any.whl")
    assert read_wheel(path).package == "import decay"
    assert read_wheel(wheel).package == "import odd_name"
