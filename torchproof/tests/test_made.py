"""Committed files that are made from matrix.toml, by this tool and by the project's own modules."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

import pytest

from torchproof import config, made

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose matrix.toml names the module `table_of_speeds`."""
    project = dataclasses.replace(config.project(), made=("table_of_speeds",))
    monkeypatch.setattr(config, "project", lambda: project)
    monkeypatch.setattr(config, "ROOT", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "table_of_speeds", raising=False)
    return tmp_path


def test_a_module_of_the_project_makes_files_too(project: Path) -> None:
    text = "def check(): return ('speeds.md: old',)\ndef write(): pass\n"
    (project / "table_of_speeds.py").write_text(text)
    assert list(made.makers()[-1].check()) == ["speeds.md: old"]


def test_a_module_that_is_not_there_is_named_with_what_to_write(project: Path) -> None:
    with pytest.raises(config.ConfigError, match=r"names 'table_of_speeds'.*check\(\) and write"):
        made.makers()


@pytest.mark.parametrize("text", ["", "def check(): pass\n", "check, write = 'now', 'later'\n"])
def test_a_module_that_makes_nothing_is_named_with_what_to_write(project: Path, text: str) -> None:
    (project / "table_of_speeds.py").write_text(text)
    with pytest.raises(config.ConfigError, match=r"names 'table_of_speeds'.*check\(\) and write"):
        made.makers()


@pytest.mark.parametrize("name", ["", "./speeds.py", "..speeds", "tools/speeds.py"])
def test_a_name_that_is_no_modules_is_named_with_what_to_write(
    name: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = dataclasses.replace(config.project(), made=(name,))
    monkeypatch.setattr(config, "project", lambda: named)
    with pytest.raises(config.ConfigError, match=r"names '.*': it is no name of a module; name a"):
        made.makers()
