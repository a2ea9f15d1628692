"""How wrong each result of a cell may be on any processor, by the rules of bounds.py.

The functor that the kernels are compiled from is compiled for numbers that carry a bound of their
error, so that what is bounded is what the kernels compute, from what they keep for backward.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from bounds import MATHS, Bounded
from cells_compiled import library_of
from torch import Tensor

from lltm.cells import Definition
from lltm.cells._contract import Arguments
from lltm.cells._functor import functor

HEADER = Path(__file__).with_name("cells_bounded_math.h")
ENTRY = """
using C = {struct}<BoundedMath>;
constexpr int kKept = C::kSaved > 0 ? C::kSaved : 1;
struct In {{
  Bounded z[C::kPre], state[C::kStates];
}};
struct InBackward {{
  Bounded saved[kKept], state[C::kStates], new_state[C::kStates], grad_state[C::kStates];
}};
extern "C" void forward_{index}(long rows, const void* in, void* out, const double* scalars,
                                double of_unit, double of_smallest, double of_maths) {{
  unit = of_unit, smallest = of_smallest, maths = of_maths;
  const In* from = static_cast<const In*>(in);
  auto* to = static_cast<C::Forward<Bounded>*>(out);
  for (long i = 0; i < rows; ++i) to[i] = C::forward(from[i].z, from[i].state, scalars);
}}
extern "C" void backward_{index}(long rows, const void* in, void* out, const double* scalars,
                                 double of_unit, double of_smallest, double of_maths) {{
  unit = of_unit, smallest = of_smallest, maths = of_maths;
  const InBackward* from = static_cast<const InBackward*>(in);
  auto* to = static_cast<C::Backward<Bounded>*>(out);
  for (long i = 0; i < rows; ++i) {{
    to[i] = C::backward(from[i].saved, from[i].state, from[i].new_state, from[i].grad_state,
                        scalars);
  }}
}}
"""


def compiled(cells: Iterable[Definition], folder: Path) -> ctypes.CDLL:
    """The functors of some cells; which one is which, their order says."""
    parts = [HEADER.read_text(encoding="utf-8")]
    for index, cell in enumerate(cells):
        made = functor(cell)
        entry = ENTRY.format(index=index, struct=made.struct)
        parts.append(f"namespace cell_{index} {{\n{made.text}{entry}}}\n")
    return library_of("\n".join(parts), folder)


def exact(tensor: Tensor) -> Bounded:
    value = tensor.detach().double()
    return Bounded(value, torch.zeros_like(value), tensor.dtype)


def mapped(function: Callable[..., Tensor], *parts: Bounded) -> Bounded:
    """What only moves numbers, done to them and to their errors."""
    values, errors = ([getattr(part, of) for part in parts] for of in ("value", "error"))
    return Bounded(function(*values), function(*errors), parts[0].dtype)


def joined(parts: Sequence[Bounded], dim: int) -> Bounded:
    return mapped(lambda *each: torch.cat(each, dim), *parts)


def stacked(parts: Sequence[Bounded]) -> Bounded:
    return mapped(lambda *each: torch.stack(each), *parts)


def all_stored(parts: Iterable[Bounded]) -> list[Bounded]:
    return [part.stored() for part in parts]


@dataclass(frozen=True)
class Saved:
    """What a step leaves for backward."""

    x: Bounded
    old: list[Bounded]
    new: list[Bounded]
    kept: list[Bounded]


@dataclass(frozen=True)
class CellBounds:
    """The bounds of one cell for some arguments.

    Attributes:
        cell: its definition.
        library: its functor's, and other cells'.
        index: which of them.
        arguments: of the sequence.
    """

    cell: Definition
    library: ctypes.CDLL
    index: int
    arguments: Arguments

    def _called(self, name: str, pieces: Sequence[Bounded], results: int) -> list[Bounded]:
        """The functor's function of `pieces [B, S]`."""
        like = pieces[0]
        pairs = [torch.stack([piece.value, piece.error], -1).flatten(0, 1) for piece in pieces]
        rows = torch.stack(pairs, 1)
        out = torch.empty(len(rows), results, 2, dtype=torch.float64)
        info = torch.finfo(torch.float32 if like.dtype.itemsize == 2 else like.dtype)
        scalars = self.arguments.scalars
        numbers = (ctypes.c_double * max(1, len(scalars)))(*scalars)
        units = map(ctypes.c_double, (like.unit, info.tiny * info.eps, 2 * MATHS))
        pointers = (ctypes.c_void_p(each.data_ptr()) for each in (rows, out))
        getattr(self.library, f"{name}_{self.index}")(len(rows), *pointers, numbers, *units)
        return [
            Bounded(*piece.view(*like.value.shape, 2).unbind(-1), like.dtype)
            for piece in out.unbind(1)
        ]

    def _width(self) -> int:
        return self.arguments.states.shape[2] // self.cell.heads

    def _heads(self, tensor: Bounded, parts: int) -> list[Bounded]:
        """`[rows, parts * S]` as `[rows, parts * S / heads]` of each head."""
        heads, width = self.cell.heads, self._width()
        split = mapped(lambda each: each.reshape(len(each), parts, heads, width), tensor)
        return [mapped(lambda each, h=h: each[:, :, h].flatten(1), split) for h in range(heads)]

    def _of_heads(self, heads: Sequence[Bounded], parts: int) -> Bounded:
        """Back, to `[rows, parts * S]`."""
        shape = (parts, self._width())
        return mapped(
            lambda *each: torch.stack([h.unflatten(1, shape) for h in each], 2).flatten(1), *heads
        )

    def _weights(self) -> list[Bounded]:
        """`[gates * S / heads, S / heads + F]` of each head."""
        heads = self._heads(exact(self.arguments.weights.T), self.cell.gates)
        return [head.mT for head in heads]

    def _pre_activations(self, x: Bounded, h: Bounded) -> list[Bounded]:
        """`P` of `[B, S]`."""
        cell, width = self.cell, self._width()
        at_h, at_x = (slice(None), slice(width)), (slice(None), slice(width, None))
        pairs = list(zip(self._heads(h, 1), self._weights(), strict=True))
        if cell.split:
            of_x = self._of_heads([x @ w.part(at_x).mT for _, w in pairs], cell.gates)
            of_h = self._of_heads([h @ w.part(at_h).mT for h, w in pairs], cell.gates)
            z = joined([of_x, of_h], 1)
        else:
            z = self._of_heads([joined([h, x], 1) @ w.mT for h, w in pairs], cell.gates)
        if self.arguments.bias is not None:
            z = z + exact(self.arguments.bias.reshape(1, -1))
        state = self.arguments.states.shape[2]
        return [
            z.part((slice(None), slice(at * state, (at + 1) * state)))
            for at in range(cell.pre_activations)
        ]

    def _begun(self, states: list[Bounded], step: int) -> list[Bounded]:
        """With the rows that begin again."""
        given = self.arguments
        if given.reset is None:
            return states
        start = torch.zeros_like(given.states) if given.reset_state is None else given.reset_state
        rows = given.reset[step].unsqueeze(1)
        return [
            mapped(lambda new, old: torch.where(rows, new, old), exact(new), old)
            for new, old in zip(start, states, strict=True)
        ]

    def forward(self) -> tuple[list[Bounded], list[Saved]]:
        """Output and last states, and what backward needs."""
        states, outputs, saved = [exact(each) for each in self.arguments.states], [], []
        kept = functor(self.cell).saved
        for step, input in enumerate(self.arguments.input):
            x, old = exact(input), self._begun(states, step)
            z = self._pre_activations(x, old[0])
            results = self._called("forward", [*z, *old], self.cell.states + max(1, kept))
            states = all_stored(results[: self.cell.states])
            saved.append(Saved(x, old, states, all_stored(results[self.cell.states :])))
            outputs.append(states[0])
        return [stacked(outputs), stacked(states)], saved

    def backward(self, saved: Sequence[Saved], seeds: Sequence[Tensor]) -> dict[str, Bounded]:
        """The gradient of each argument."""
        cell, given, width = self.cell, self.arguments, self._width()
        at_h, at_x = (slice(None), slice(width)), (slice(None), slice(width, None))
        grad_output, grad_last = map(exact, seeds)
        grads = [grad_last.part(at) for at in range(cell.states)]
        starts = [exact(torch.zeros_like(each)) for each in given.states]
        shares: list[tuple[Bounded, Bounded]] = []
        for step in reversed(range(len(saved))):
            of = saved[step]
            grads[0] = grads[0] + grad_output.part(step)
            results = self._called(
                "backward", [*of.kept, *of.old, *of.new, *grads], cell.pre_activations + cell.states
            )
            d_z = all_stored(results[: cell.pre_activations])
            shares.insert(0, (joined(d_z[: cell.gates], 1), joined(d_z[-cell.gates :], 1)))
            grads = results[cell.pre_activations :]
            pairs = zip(self._heads(shares[0][1], cell.gates), self._weights(), strict=True)
            grads[0] = grads[0] + self._of_heads([d @ w.part(at_h) for d, w in pairs], 1)
            grads = all_stored(grads)
            if given.reset is not None:
                rows = given.reset[step].unsqueeze(1)
                begun = [mapped(lambda each, rows=rows: each * rows, grad) for grad in grads]
                starts = [(sum_ + new).stored() for sum_, new in zip(starts, begun, strict=True)]
                grads = [mapped(lambda each, rows=rows: each * ~rows, grad) for grad in grads]
        of_input, of_recurrent = (joined(share, 0) for share in zip(*shares, strict=True))
        xs, hs = (joined(each, 0) for each in ([s.x for s in saved], [s.old[0] for s in saved]))
        d_weights = [
            joined([d_h.mT @ h, d_x.mT @ xs], 1).mT
            for d_h, d_x, h in zip(
                self._heads(of_recurrent, cell.gates),
                self._heads(of_input, cell.gates),
                self._heads(hs, 1),
                strict=True,
            )
        ]
        ones = exact(torch.ones(1, len(xs.value), dtype=given.input.dtype))
        every = joined([of_input, of_recurrent], 1) if cell.split else of_input
        flat = exact(given.weights).part(at_x)
        return {
            "input": (of_input @ flat).stored(),
            "weights": self._of_heads(d_weights, cell.gates).mT.stored(),
            "bias": (ones @ every).stored(),
            "states": stacked(grads).stored(),
            "reset_state": stacked(starts).stored(),
        }
