"""Refuses to test a source tree; one thread, for every test."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
import torch

import lltm

SOURCE_TREE = Path(__file__).parents[2] / "lltm"
# `nox -s dev` builds there on purpose.
if Path(lltm.__file__).parent == SOURCE_TREE and "LLTM_TEST_SOURCE_TREE" not in os.environ:
    raise pytest.UsageError(
        f"lltm was imported from the source tree {SOURCE_TREE}, the suite tests an installed "
        "wheel; run `pip install .` and start pytest, not `python -m pytest`, or test the tree "
        "with `nox -s dev -- FILE`"
    )

# Torch holds a million objects that stay: looking through them for cycles took a tenth of the time.
gc.set_threshold(20_000, 20, 100)

# Inductor's cache of graphs, which all processes of a user share, does not tell loops for AVX-512
# from those for a processor without it (torch 2.13): the second to ask gets what does not compile.
torch.compiler.config.force_disable_caches = True


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """The suite runs in parallel processes; tests about threads set their own number."""
    torch.set_num_threads(1)
