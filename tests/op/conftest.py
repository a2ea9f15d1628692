"""What the tests share: the installed wheel, one thread, the backends, the oracle's record."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import cases
import pytest
import torch
from cells_cases import CELLS
from installed_wheel import one_thread  # noqa: F401 - a fixture

import lltm
from lltm import cells
from lltm._compile import unavailable_reason
from lltm.backends import Backend

ORACLE_JSON = "TORCHPROOF_ORACLE_JSON"
_oracle_records: list[dict[str, Any]] = []


def _rows(backends: Iterable[Backend]) -> Iterator[Any]:
    """Each backend, on each device it computes on; what there is no GPU for is not run."""
    no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="not run: there is no GPU")
    on_gpu = "cuda" in lltm._library.namespaces()
    for row in backends:
        for device in row.devices:
            if device == "cpu":
                yield pytest.param((row.name, device), id=row.name)
            elif on_gpu:
                id_ = row.name if row.devices == ("cuda",) else f"{row.name}-cuda"
                yield pytest.param((row.name, device), id=id_, marks=no_gpu)


@pytest.fixture(params=_rows(lltm.backends.available()))
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every backend this installation can compute with; cases make their tensors on its device."""
    name, device = request.param
    monkeypatch.setattr(cases, "DEVICE", device)
    return str(name)


@pytest.fixture(params=_rows(row for row in lltm.backends.available() if row.bindings))
def compiled_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every backend but the reference itself; cases make their tensors on its device."""
    name, device = request.param
    monkeypatch.setattr(cases, "DEVICE", device)
    return str(name)


@pytest.fixture(scope="session")
def compiler() -> None:
    """What compiles kernels; where there is none, the test is not run."""
    if reason := unavailable_reason():
        pytest.skip(f"not run: {reason}")


@pytest.fixture(scope="module")
def compiled_cells(compiler: None) -> None:
    """Kernels for every cell of the tests."""
    assert all(cells.prepare(cell) for cell in CELLS.values())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """The same random numbers whichever tests the worker has run before."""
    torch.manual_seed(0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Gather the oracle's measurements; under xdist this runs in the controller."""
    if report.when == "call":
        _oracle_records.extend(value for key, value in report.user_properties if key == "oracle")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write them where ``TORCHPROOF_ORACLE_JSON`` says, for the build matrix to read."""
    path = os.environ.get(ORACLE_JSON)
    if path and not hasattr(session.config, "workerinput"):
        Path(path).write_text(json.dumps(_oracle_records, indent=1) + "\n", encoding="utf-8")
