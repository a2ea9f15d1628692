"""Torch's two ways to make one kernel of many operations: TorchScript, and torch.compile."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from typing import Any

import torch


def script(function: Callable[..., Any]) -> Callable[..., Any]:
    """TorchScript, which torch calls deprecated in favour of torch.compile: this tells history."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.script`")
        return torch.jit.script(function)


def compiled(function: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """``torch.compile`` by its name; nothing where the C++ compiler that it needs is not there."""
    if shutil.which("c++") is None:
        return {}
    return {"torch.compile": torch.compile(function, fullgraph=True, dynamic=False)}
