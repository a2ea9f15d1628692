"""Options of the benchmarks, and the machine they ran on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from installed_wheel import one_thread  # noqa: F401 - a fixture

import lltm
from lltm import _library, _processor

sys.path.append(str(Path(__file__).parents[1]))  # last: `import lltm` is the installed one
from benchmarks import competitors, cuda_competitors, floors, workloads
from benchmarks.competitors import Competitor

UNBOUNDED = ("smoke", "sweep")
"""Scopes without floors and memory."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("lltm benchmarks")
    group.addoption(
        "--rows",
        choices=[*sorted(workloads.SCOPES), "cells"],
        default="smoke",
        help="which rows to race; smoke races only lltm's backends, without floors",
    )
    group.addoption("--select", metavar="KEY=VALUE,...", help="only rows with these values")
    group.addoption("--without-compilers", action="store_true", help="race without torch.compile")


def _competitors(config: pytest.Config) -> list[Competitor]:
    scope = config.getoption("--rows")
    if scope == "sweep":
        return [competitors.EAGER, competitors.installed()]
    if scope == "smoke":
        return [c for c in competitors.everyone() if c.backend is not None]
    if scope == "cuda" and (reason := cuda_competitors.unavailable_reason()):
        raise pytest.UsageError(f"not run: {reason}")
    competitors.load_native()
    return list(cuda_competitors.everyone() if scope == "cuda" else competitors.everyone())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "entrant" not in metafunc.fixturenames:
        return
    config = metafunc.config
    scope = config.getoption("--rows")
    try:
        rows = workloads.select(workloads.SCOPES[scope](), config.getoption("--select"))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    compilers = not config.getoption("--without-compilers")
    everyone = _competitors(config)
    parameters = []
    for row in rows:
        taking_part = competitors.taking_part(everyone, row, scope, compilers=compilers)
        bounds = () if scope in UNBOUNDED else floors.NAMES[row.device]
        start = (row, taking_part, bool(bounds))
        for name in (*(competitor.name for competitor in taking_part), *bounds):
            parameters.append(pytest.param(start, name, id=f"{row.name}-{name}"))
    metafunc.parametrize(("held", "entrant"), parameters, indirect=["held"])


def pytest_benchmark_update_machine_info(
    config: pytest.Config, machine_info: dict[str, Any]
) -> None:
    """What the times depend on; nothing that names one machine among its like."""
    machine_info.pop("node", None)
    machine_info["lltm"] = {
        "version": lltm.__version__,
        "binding": _library.build().binding,
        "compiler": _library.build().compiler,
    }
    machine_info["processor"] = _processor.read().to_json()
    machine_info["instruction_sets_in_use"] = {
        "lltm": torch.ops.lltm.cpu_capability(),
        **_processor.in_use(),
    }
    machine_info["torch"] = torch.__version__
    if config.getoption("--rows") == "cuda":
        machine_info["gpu"] = _gpu()


def _gpu() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    driver = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "name": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_gib": round(properties.total_memory / 2**30),
        "driver": driver or "unknown",
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "kernels": f"CUDA {_library.build().cuda}",
    }
