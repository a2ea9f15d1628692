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
# Of the largest element; each step rounds what it stores.
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 2e-5,
    torch.bfloat16: 5e-2,
    torch.float16: 1e-2,
}
Step = Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]], tuple[Tensor, ...]]


@dataclass(frozen=True)
class AnyCell:
    """A cell, as the ops of csrc/contract.h know it.

    Attributes:
        name: of the file in cell_functors, where the functor is written by hand.
        struct: the functor's name.
        states: how many.
        gates: how many.
        split: whether the step takes the shares of the pre-activations apart.
        step: step(z, recurrent share or nothing, states) -> states, in PyTorch.
        scalars: what the ops are called with; the step has them already.
    """

    name: str
    struct: str
    states: int
    gates: int
    split: bool
    step: Step
    scalars: tuple[float, ...] = ()


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
        kernels = ("cpu/kernels.cpp", *jit.TILE_SOURCES, f"cpu/kernels_{kernel_set}.cpp")
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
            restart = torch.zeros_like(states) if reset_state is None else reset_state
            current = [
                torch.where(reset[t, :, None], new, old)
                for new, old in zip(restart, current, strict=True)
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


def arguments(
    cell: AnyCell, shape: tuple[int, ...], dtype: torch.dtype, bias: bool = True
) -> list[Tensor | None]:
    """Input, weights, bias, states; values of the dtype, in float64."""
    torch.manual_seed(sum(shape))
    steps, batch, features, state, heads = shape

    def values(*sizes: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(*sizes, dtype=torch.float64) * scale).to(dtype).double()

    return [
        values(steps, batch, features),
        values(cell.gates * state, state // heads + features, scale=0.4),
        values((1 + cell.split) * cell.gates * state, scale=0.3) if bias else None,
        values(cell.states, batch, state),
    ]


def assert_near(name: str, got: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Within the dtype's tolerance of the largest element."""
    scale = expected.abs().max().item() if expected.numel() else 0.0
    torch.testing.assert_close(
        got.double(), expected, rtol=0, atol=TOLERANCE[dtype] * scale, msg=lambda m: f"{name}: {m}"
    )


def check(
    cell: AnyCell,
    ops: Any,
    given: list[Tensor | None],
    reset: Tensor | None,
    dtype: torch.dtype,
) -> None:
    """Outputs and the gradient of every argument in `given`: the four, and reset_state."""
    exact = [None if value is None else value.clone().requires_grad_() for value in given]
    expected = unroll(cell, *exact[:4], reset, exact[4])
    leaves = [value for value in exact if value is not None]
    grads = [torch.randn_like(value).to(dtype) for value in expected]
    of_leaves = iter(
        torch.autograd.grad(
            expected, leaves, [grad.double() for grad in grads], materialize_grads=True
        )
    )
    low = [None if value is None else value.to(dtype) for value in given]
    op_arguments = (*low[:4], list(cell.scalars), reset, low[4])
    output, last, states_all, saved = ops.sequence_forward(*op_arguments)
    assert_near("output", output, expected[0], dtype)
    assert_near("last", last, expected[1], dtype)
    for kept, alone in zip((output, last), ops.sequence(*op_arguments), strict=True):
        assert torch.equal(kept, alone)
    needs = [value is not None for value in given]
    got = ops.sequence_backward(*grads, *op_arguments, output, states_all, saved, needs)
    names = ("d_input", "d_weights", "d_bias", "d_states", "d_reset_state")
    for name, wanted, gradient in zip(names, needs, got, strict=True):
        if wanted:
            assert_near(name, gradient, next(of_leaves), dtype)
        else:
            assert gradient.numel() == 0
