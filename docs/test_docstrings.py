"""The examples in the docstrings, which the reference shows."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest
import torch

import lltm

MODULES = [module.name for module in pkgutil.walk_packages(lltm.__path__, "lltm.")]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_examples(name: str) -> None:
    """Each runs, and prints what it shows."""
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, extraglobs={"lltm": lltm, "torch": torch})
    assert not failed


def test_there_are_examples() -> None:
    """The finder finds those that are known to be there."""
    found = doctest.DocTestFinder().find(lltm.LLTM, "LLTM")
    assert sum(len(each.examples) for each in found) > 1
