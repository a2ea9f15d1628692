"""What the tests share: the installed wheel, one thread, the backends, the oracle's record."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import lltm

SOURCE_TREE = Path(__file__).parents[1] / "lltm"
if Path(lltm.__file__).parent == SOURCE_TREE:
    raise pytest.UsageError(
        f"lltm was imported from the source tree {SOURCE_TREE}, the suite tests an installed "
        "wheel; run `pip install .` and start pytest, not `python -m pytest`"
    )

ORACLE_JSON = "LLTM_ORACLE_JSON"
_oracle_records: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """The suite runs in parallel processes; tests about threads set their own number."""
    torch.set_num_threads(1)


@pytest.fixture(params=[backend.name for backend in lltm.backends.available()])
def backend(request: pytest.FixtureRequest) -> str:
    """Every backend this installation can compute with."""
    name: str = request.param
    return name


@pytest.fixture(params=[b.name for b in lltm.backends.available() if b.bindings])
def compiled_backend(request: pytest.FixtureRequest) -> str:
    """Every backend but the reference itself."""
    name: str = request.param
    return name


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Gather the oracle's measurements; under xdist this runs in the controller."""
    if report.when == "call":
        _oracle_records.extend(value for key, value in report.user_properties if key == "oracle")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write them where ``LLTM_ORACLE_JSON`` says, for the build matrix to read."""
    path = os.environ.get(ORACLE_JSON)
    if path and not hasattr(session.config, "workerinput"):
        Path(path).write_text(json.dumps(_oracle_records, indent=1) + "\n", encoding="utf-8")
