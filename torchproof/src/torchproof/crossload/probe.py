"""Run by the interpreter of an environment: load lltm, compute one cell, say what came of it.

``probe.py package`` imports lltm as a user does; ``probe.py loader FILE`` hands the library to
torch without asking lltm. The last line on standard output is JSON: outcome and said.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch


def compute(cell: Callable[..., Any]) -> tuple[str, str]:
    """One cell, 5x3 in and 5x4 out, held against its definition."""
    torch.manual_seed(0)
    x, h, c = torch.randn(5, 3), torch.randn(5, 4), torch.randn(5, 4)
    weights, bias = torch.randn(12, 7), torch.randn(12)
    z_i, z_o, z_c = torch.nn.functional.linear(torch.cat([h, x], 1), weights, bias).chunk(3, 1)
    new_cell = c + torch.nn.functional.elu(z_c) * torch.sigmoid(z_i)
    expected = (torch.tanh(new_cell) * torch.sigmoid(z_o), new_cell)
    try:
        actual = cell(x, weights, bias, h, c)
        right = all(torch.allclose(a, e, atol=1e-5) for a, e in zip(actual, expected, strict=True))
    except Exception as error:  # whatever a wrong binary raises is the finding
        return "loads but wrong", f"{type(error).__name__}: {error}"
    return ("loads", "right") if right else ("loads but wrong", "another result")


def through_package() -> tuple[str, str]:
    """As a user does. An objection of more than one sentence's line is no clear refusal."""
    try:
        import lltm  # noqa: PLC0415  # the import is what is probed
    except ImportError as error:
        text = str(error)
        return ("refuses", text) if "\n" not in text else ("loads but wrong", text)
    return compute(lltm.lltm_cell)


def through_loader(path: str) -> tuple[str, str]:
    """As if nobody judged the library first."""
    try:
        torch.ops.load_library(path)
    except OSError as error:
        return "refuses", str(error)
    if not hasattr(torch.ops.lltm, "cell"):
        return "loads but wrong", "it registers no op lltm::cell"
    return compute(torch.ops.lltm.cell)


if __name__ == "__main__":
    outcome, said = through_package() if sys.argv[1] == "package" else through_loader(sys.argv[2])
    print(json.dumps({"outcome": outcome, "said": said}))
