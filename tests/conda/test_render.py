"""Every variant of the recipe renders, on every platform, to exactly what is written down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torchproof.conda import rendered, settings

GOLDEN = Path(__file__).parent / "golden"
PLATFORMS = settings.load().platforms
LINUX = [output for output in rendered.golden("linux-64") if output["name"] == "lltm"]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_variants_are_those_of_the_golden_file(platform: str) -> None:
    written = json.loads((GOLDEN / f"conda-{platform}.json").read_text(encoding="utf-8"))
    assert rendered.golden(platform) == written, "see `nox -s conda -- --write`"


def test_there_is_a_golden_file_for_each_platform_and_no_other() -> None:
    assert {path.name for path in GOLDEN.glob("conda-*.json")} == {
        f"conda-{platform}.json" for platform in PLATFORMS
    }


def test_build_strings_name_the_device_and_cuda_is_numbered_above_cpu() -> None:
    numbers = {output["build"].split("_")[0]: output["number"] for output in LINUX}
    majors = [version.replace(".", "") for version in settings.load().cuda]
    assert list(numbers) == ["cpu", *(f"cuda{version}" for version in majors)]
    assert sorted(numbers.values()) == list(numbers.values())
    assert all(output["build"].endswith(f"_{output['number']}") for output in LINUX)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_only_linux_has_cuda(platform: str) -> None:
    devices = {output["build"][:4] for output in rendered.golden(platform)}
    assert ("cuda" in devices) == platform.startswith("linux")


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_stable_package_is_pinned_to_no_python_and_to_no_single_torch(platform: str) -> None:
    for output in rendered.golden(platform):
        if output["name"] == "lltm":
            run = output["requirements"]["run"]
            assert "python >=3.10" in run
            assert "pytorch >=2.10,<3" in run
            assert "pytorch" in output["requirements"]["ignore_run_exports"]["from_package"]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_tests_are_pinned_to_the_exact_build_they_test(platform: str) -> None:
    outputs = rendered.golden(platform)
    builds = sorted(o["build"].split("_")[0] for o in outputs if o["name"] == "lltm")
    pinned = [o for o in outputs if o["name"] == "lltm-tests"]
    assert sorted(o["build"].split("_")[0] for o in pinned) == builds
    for output in pinned:
        pin = {"pin_subpackage": {"name": "lltm", "exact": True}}
        assert pin in output["requirements"]["run"]
