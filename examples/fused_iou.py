"""A function without any matrix, fused forward and backward: the intersection over union of boxes.

Twenty operations on eight long vectors, each cheaper than the memory it reads and writes: what a
fuser is for. TorchScript fused its forward on GPUs; torch.compile makes one kernel of the forward
and one of the backward, on any device. Both are checked against eager before they are timed.

    python examples/fused_iou.py [--out FOLDER] [--device cuda]

After "Automatic optimization with the PyTorch JIT".
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from shared.fusers import compiled, script
from shared.options import DEVICES, device_here, folder, positive
from shared.picture import bars
from shared.timing import interleaved, show, table
from torch import Tensor
from torch._inductor import metrics

BOXES = 100_000
# float32, and quotients of areas that nearly cancel.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def iou(
    x1: Tensor,
    y1: Tensor,
    w1: Tensor,
    h1: Tensor,
    x2: Tensor,
    y2: Tensor,
    w2: Tensor,
    h2: Tensor,
) -> Tensor:
    """Shared area of two boxes (corner, width, height), as a part of the area they cover."""
    width = (torch.min(x1 + w1, x2 + w2) - torch.max(x1, x2)).clamp(min=0.0)
    height = (torch.min(y1 + h1, y2 + h2) - torch.max(y1, y2)).clamp(min=0.0)
    shared = width * height
    return shared / (w1 * h1 + w2 * h2 - shared).clamp(min=1e-5)


def boxes(count: int, device: str) -> list[Tensor]:
    """Two lists of ``count`` boxes, as x, y, w, h each."""
    torch.manual_seed(0)
    return [each.exp().to(device).requires_grad_() for each in torch.randn(8, count)]


def check(functions: dict[str, Callable[..., Tensor]], arguments: list[Tensor]) -> None:
    """Every function against eager, values and gradients."""
    expected = iou(*arguments)
    gradients = torch.autograd.grad(expected.sum(), arguments)
    for name, function in functions.items():
        message = f"{name} is not iou: {{}}".format
        for _ in range(3):  # TorchScript's first runs are not yet the fused ones
            found = function(*arguments)
            found_gradients = torch.autograd.grad(found.sum(), arguments)
        torch.testing.assert_close(found, expected, **CLOSE, msg=message)
        torch.testing.assert_close(found_gradients, gradients, **CLOSE, msg=message)


def measure(count: int, rounds: int, device: str) -> list[dict[str, Any]]:
    """One row for each way to compute; ``kernels`` is what torch.compile made of it."""
    arguments = boxes(count, device)
    functions = {"eager": iou, "TorchScript": script(iou), **compiled(iou)}
    metrics.reset()
    check(functions, arguments)
    kernels = {"torch.compile": metrics.generated_kernel_count}

    def loss(function: Callable[..., Tensor]) -> Tensor:
        return function(*arguments).sum()

    losses = {name: partial(loss, function) for name, function in functions.items()}
    rows = table(interleaved(losses, arguments, rounds, device), "eager")
    return [{**row, "kernels": kernels.get(row["name"])} for row in rows]


def run(count: int, rounds: int, device: str, out: Path) -> None:
    """Measure, and show it: a table, its machine-readable twin and its picture."""
    rows = measure(count, rounds, device)
    title = f"intersection over union of {count} boxes; times of eager, {device}"
    show(title, rows, "kernels")
    out.mkdir(parents=True, exist_ok=True)
    twin = {"boxes": count, "iou": rows}
    (out / "iou.json").write_text(json.dumps(twin, indent=1) + "\n", encoding="utf-8")
    bars({row["name"]: row["ratio"] for row in rows}, title, out / "iou.svg")
    print(f"the table is in {out}/iou.json, its picture in {out}/iou.svg")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="The intersection over union of boxes, fused.")
    parser.add_argument("--device", type=device_here, choices=DEVICES, default="cpu")
    parser.add_argument("--boxes", type=positive, default=BOXES)
    parser.add_argument("--rounds", type=positive, default=50, help="timed calls of each row")
    parser.add_argument("--out", type=folder, default=Path("fused_iou_output"))
    options = parser.parse_args()
    run(options.boxes, options.rounds, options.device, options.out)


if __name__ == "__main__":
    main()
