"""How the examples time: everything in one run, turn by turn, so that drift hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor


@dataclass(frozen=True)
class Timing:
    """Medians over the rounds, in microseconds a call."""

    forward: float
    backward: float

    @property
    def both(self) -> float:
        """Forward and backward."""
        return self.forward + self.backward

    def ratio(self, base: Timing) -> dict[str, float]:
        """This as a part of another, for each direction and both."""
        return {
            "forward": self.forward / base.forward,
            "backward": self.backward / base.backward,
            "both": self.both / base.both,
        }


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _call(function: Callable[[], Tensor], parameters: Sequence[Tensor], device: str) -> Timing:
    """One forward and one backward; gradients of earlier calls are dropped, not added to."""
    for parameter in parameters:
        parameter.grad = None
    begin = _now(device)
    loss = function()
    middle = _now(device)
    loss.backward()
    return Timing(1e6 * (middle - begin), 1e6 * (_now(device) - middle))


def interleaved(
    functions: Mapping[str, Callable[[], Tensor]],
    parameters: Sequence[Tensor],
    rounds: int,
    device: str = "cpu",
) -> dict[str, Timing]:
    """Time functions that compute a loss, and backward: once a round each, after three dry runs.

    Args:
        functions: by name; each returns a scalar.
        parameters: tensors whose gradients backward computes.
        rounds: how often each is called.
        device: ``cuda`` waits for the GPU before each look at the clock.
    """
    for function in functions.values():
        for _ in range(3):
            _call(function, parameters, device)
    seen: dict[str, list[Timing]] = {name: [] for name in functions}
    for _ in track(range(rounds), description=f"timing on {device}", transient=True):
        for name, function in functions.items():
            seen[name].append(_call(function, parameters, device))
    return {
        name: Timing(
            statistics.median(each.forward for each in timings),
            statistics.median(each.backward for each in timings),
        )
        for name, timings in seen.items()
    }


def table(timings: Mapping[str, Timing], base: str) -> list[dict[str, Any]]:
    """A row for each timing: its name, its microseconds, and its ratio to that of ``base``."""
    return [
        {
            "name": name,
            "forward_us": timing.forward,
            "backward_us": timing.backward,
            "ratio": timing.ratio(timings[base]),
        }
        for name, timing in timings.items()
    ]


def show(title: str, rows: Sequence[Mapping[str, Any]], fact: str) -> None:
    """Print a table of ratios; its last column is a fact of the row's own, "-" where it is None."""
    printed = Table("", title=title)
    for name in ("forward", "backward", "both", "us, both", fact.replace("_", " ")):
        printed.add_column(name, justify="right")
    for row in rows:
        ratios = (f"{row['ratio'][name]:.2f}" for name in ("forward", "backward", "both"))
        both = f"{row['forward_us'] + row['backward_us']:.0f}"
        printed.add_row(row["name"], *ratios, both, "-" if row[fact] is None else str(row[fact]))
    Console(width=100).print(printed)
