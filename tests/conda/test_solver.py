"""What the solver chooses beside torch, Python and a GPU driver, from metadata alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import recipe_channel
from torchproof.conda import rendered, settings, solving

from torchproof import config

MATRIX = config.load()
FACTS = settings.load()
SUPPORTED = [
    (torch.series, python) for torch in MATRIX.supporting("stable") for python in torch.pythons
]


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lltm = [output for output in rendered.outputs("linux-64") if output.name != "lltm-tests"]
    return recipe_channel.write_channel(
        tmp_path_factory.mktemp("channel"),
        "linux-64",
        [
            *recipe_channel.of_recipe(lltm),
            *recipe_channel.pythons(MATRIX),
            *recipe_channel.cuda_versions(FACTS.cuda),
            *recipe_channel.torches(MATRIX, FACTS.cuda),
        ],
    )


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    # Empty means "no driver" also on a machine that has one.
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "")


def test_without_a_driver_the_cpu_package_is_chosen(channel: Path) -> None:
    solution = solving.solve([channel], ["lltm"])
    assert solution.build("lltm").startswith("cpu_")
    assert solution.build("pytorch").startswith("cpu_")


def test_an_unset_override_means_what_the_machine_has(
    channel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONDA_OVERRIDE_CUDA")
    found = [package for package in solving.detect() if "__cuda" in str(package)]
    device = solving.solve([channel], ["lltm"]).build("lltm").split("_")[0]
    assert device.startswith("cuda" if found else "cpu")


@pytest.mark.parametrize(
    ("driver", "variant"), [("13.0", "cuda130_"), ("12.8", "cuda128_"), ("12.2", "cuda128_")]
)
def test_with_a_driver_the_newest_cuda_package_it_can_run_is_chosen(
    channel: Path, monkeypatch: pytest.MonkeyPatch, driver: str, variant: str
) -> None:
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", driver)
    solution = solving.solve([channel], ["lltm"])
    assert solution.build("lltm").startswith(variant)
    assert solution.build("pytorch").startswith("cuda")


def test_a_driver_too_old_gets_the_cpu_package_and_the_reason(
    channel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "11.8")
    assert solving.solve([channel], ["lltm"]).build("lltm").startswith("cpu_")
    with pytest.raises(solving.Unsolvable, match=r"__cuda >=12, which conflicts") as refused:
        solving.solve([channel], ["lltm * cuda*"])
    assert "__cuda 11.8" in str(refused.value)


def test_cuda_asked_for_without_a_driver_names_what_is_missing(channel: Path) -> None:
    with pytest.raises(solving.Unsolvable, match=r"__cuda \*, for which no candidates"):
        solving.solve([channel], ["lltm * cuda*"])


@pytest.mark.parametrize("driver", ["", "13.0"])
def test_a_torch_too_old_fails_in_the_solver_naming_the_constraint(
    channel: Path, monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", driver)
    with pytest.raises(solving.Unsolvable, match=r"pytorch >=2\.10,<3"):
        solving.solve([channel], ["lltm", "pytorch 2.9.*"])


@pytest.mark.parametrize(("torch", "python"), SUPPORTED)
@pytest.mark.parametrize("driver", ["", "12.8", "13.0"])
def test_it_solves_beside_every_supported_torch_and_python(
    channel: Path, monkeypatch: pytest.MonkeyPatch, torch: str, python: str, driver: str
) -> None:
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", driver)
    solution = solving.solve([channel], ["lltm", f"pytorch {torch}.*", f"python {python}.*"])
    assert config.series(solution.version("pytorch")) == torch
    assert config.series(solution.version("python")) == python
    assert solution.build("lltm").startswith(
        f"cuda{driver.replace('.', '')}_" if driver else "cpu_"
    )


@pytest.mark.parametrize("torch", [release.series for release in MATRIX.supporting("stable")])
def test_the_native_package_is_that_of_the_torch_beside_it(channel: Path, torch: str) -> None:
    solution = solving.solve([channel], ["lltm-native", f"pytorch {torch}.*"])
    assert solution.build("lltm-native").startswith(f"torch{torch.replace('.', '')}_")


def test_the_two_bindings_exclude_each_other(channel: Path) -> None:
    with pytest.raises(solving.Unsolvable, match="lltm <0"):
        solving.solve([channel], ["lltm", "lltm-native"])
