"""Compile a functor of csrc/cell.h into ops, and what they should give, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lltm import _compile, jit

FUNCTORS = Path(__file__).with_name("cell_functors")
Step = Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]], tuple[Tensor, ...]]


@dataclass(frozen=True)
class AnyCell:
    """A cell whose functor is written by hand.

    Attributes:
        name: of the file in cell_functors.
        struct: the functor's name.
        states: how many.
        gates: how many.
        split: whether the step takes the shares of the pre-activations apart.
        step: step(z, recurrent share or nothing, states) -> states, in PyTorch.
    """

    name: str
    struct: str
    states: int
    gates: int
    split: bool
    step: Step


def lstm(z: Sequence[Tensor], _: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """nn.LSTM's step."""
    i, f, g, o = z
    c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru(
    z: Sequence[Tensor], recurrent: Sequence[Tensor], state: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """nn.GRU's step."""
    r, u = (z[0] + recurrent[0]).sigmoid(), (z[1] + recurrent[1]).sigmoid()
    return ((1 - u) * (z[2] + r * recurrent[2]).tanh() + u * state[0],)


LSTM = AnyCell("lstm", "HandLstm", states=2, gates=4, split=False, step=lstm)
GRU = AnyCell("gru", "HandGru", states=1, gates=3, split=True, step=gru)


def only(kernel_set: str) -> str:
    """The flag that chooses it whatever the processor."""
    return f"-DLLTM_ONLY_KERNEL_SET=k{kernel_set.capitalize()}"


def build(
    header: Path, struct: str, namespace: str, folder: Path, kernel_set: str | None = None
) -> Any:
    """The ops of a functor, in one set of kernels or this processor's; returns their namespace."""
    csrc = jit.source_directory()
    kernels, chosen = jit.kernel_sources(), jit.kernel_flags()
    if kernel_set is not None:
        kernels = ("cpu/kernels.cpp", "cpu/amx.cpp", f"cpu/kernels_{kernel_set}.cpp")
        chosen = (only(kernel_set),)
    flags = [
        *(f"-DLLTM_NAMESPACE={namespace}", f"-DLLTM_CELL={struct}"),
        *(f'-DLLTM_CELL_HEADER="{header}"', *chosen),
    ]
    sources = [csrc / name for name in ("stable/any_binding.cpp", *kernels)]
    library = folder / f"{namespace}.so"
    _compile.Library(library, sources, flags, jit.exports()).compile()
    torch.ops.load_library(library)
    return getattr(torch.ops, namespace)


def unroll(
    cell: AnyCell,
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    states: Tensor,
    reset: Tensor | None = None,
    reset_state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """A sequence step by step in PyTorch: output [T, B, S], last [N, B, S]."""
    batch, state = states.shape[1:]
    head = weights.shape[1] - input.shape[2]
    of_head = weights[:, :head].reshape(cell.gates, state // head, head, head)
    added = torch.zeros(()) if bias is None else bias.flatten()
    of_input, of_recurrent = (
        added.chunk(2) if cell.split and bias is not None else (added, torch.zeros(()))
    )
    current, output = list(states), []
    for t, x in enumerate(input):
        if reset is not None:
            anew = torch.zeros_like(states) if reset_state is None else reset_state
            current = [
                torch.where(reset[t, :, None], new, old)
                for new, old in zip(anew, current, strict=True)
            ]
        h = current[0].reshape(batch, state // head, head)
        recurrent = torch.einsum("bhk,ghjk->bghj", h, of_head).reshape(batch, -1) + of_recurrent
        z = x @ weights[:, head:].T + of_input
        if cell.split:
            shares = z.chunk(cell.gates, 1), recurrent.chunk(cell.gates, 1)
        else:
            shares = (z + recurrent).chunk(cell.gates, 1), ()
        current = list(cell.step(*shares, current))
        output.append(current[0])
    return torch.stack(output), torch.stack(current)
