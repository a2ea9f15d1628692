"""The recipe's variant file: made from matrix.toml, and read alike by every tool that builds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from torchproof.conda import package_builder, settings, variants

from torchproof import config

DOCUMENT = config.read_toml(config.PATH)


def test_the_committed_recipe_has_not_drifted() -> None:
    assert variants.check() == ()


def test_a_drifted_file_is_told_with_its_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drifted = tmp_path / "conda_build_config.yaml"
    drifted.write_text(variants.render().replace('"2.28"', '"2.17"'), encoding="utf-8")
    monkeypatch.setattr(variants, "PATH", drifted)
    (found,) = variants.check()
    assert '-  - "2.17"' in found
    assert '+  - "2.28"' in found


def test_a_recipe_of_another_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "recipe_version", lambda: "9.9.9")
    (found,) = variants.check()
    assert "states version 9.9.9" in found


def test_a_new_torch_becomes_a_variant() -> None:
    text = config.PATH.read_text(encoding="utf-8")
    new = '{ version = "2.99.0", pythons = ["3.14"], cxx = 20, cuda = "13.2" }'
    more = text.replace("stable = {", f"torch = [ {new} ]\nstable = {{", 1)
    before = variants.variants(config.loads(text), settings.load())["pytorch"]
    after = variants.variants(config.loads(more), settings.load())["pytorch"]
    assert after == (*before, "2.99")


def test_no_tool_can_misread_the_variant_file() -> None:
    lines = variants.PATH.read_text(encoding="utf-8").splitlines()
    for line in lines:
        assert re.fullmatch(r'#.*|[a-z_]+:|  - "[^"\[\]#]+"', line), line
    assert not list(settings.RECIPE.glob("meta.yaml"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('cuda = ["12.8", "13.0"]', 'cuda = ["12.8", "12.6"]', "two releases of one major"),
        ('cuda = ["12.8", "13.0"]', 'cuda = ["11.8"]', r"CUDA 11\.8 is not in `cuda`"),
        ('platforms = ["linux-64", ', "platforms = [1, ", "platforms must be a string or a list"),
        ('glibc = "2.28"', "glibc = 2.28", "glibc must be a str, got float"),
        ("torch_below =", "channel =", "unknown key 'channel'; the keys here are cuda, glibc"),
    ],
)
def test_a_wrong_section_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = config.PATH.read_text(encoding="utf-8")
    head, section = text.split("[conda]")
    path = tmp_path / "matrix.toml"
    path.write_text(f"{head}[conda]{section.replace(old, new)}", encoding="utf-8")
    with pytest.raises(config.ConfigError, match=message):
        settings.check(config.conda(path), config.load())


@pytest.mark.parametrize(
    ("tool", "native", "built"),
    [
        ("py-rattler-build", False, ("lltm", "lltm-tests")),
        ("py-rattler-build", True, ("lltm", "lltm-tests", "lltm-native")),
        ("conda-build", False, ("lltm", "lltm-tests", "lltm-native")),
    ],
)
def test_the_native_package_is_built_where_asked_for(
    tool: str, native: bool, built: tuple[str, ...]
) -> None:
    """Or by a program that builds every output of a recipe, whatever it is asked for."""
    assert package_builder.packages(package_builder.TOOLS[tool], native) == built
