"""Layers, directions and packed batches around a sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lltm import _dispatch
from lltm.cells._contract import Arguments
from lltm.cells._definition import Definition
from lltm.cells._run import run

Layer = Callable[[Arguments], tuple[Tensor, Tensor]]
"""One layer, to the output ``[T, B, S]`` and the last states ``[N, B, S]``."""
Run = Callable[[Layer, Arguments], tuple[Tensor, Tensor]]
"""A layer in one direction."""


def projected(cell: Definition, projection: Tensor, arguments: Arguments) -> tuple[Tensor, Tensor]:
    """A layer whose hidden state is a product with ``projection``, ``[P, S]``.

    The kernels' hidden state is the one before that product, which the weights have in them. A
    hidden state to start from is none of theirs but input of the step it is for.

    Args:
        cell: its definition.
        projection: what every hidden state is multiplied by.
        arguments: with weights ``U @ projection`` and ``[W, U]`` for the input, where ``U``
            multiplies what is projected; a hidden state is its ``P`` elements, and zeros.

    Returns:
        The output ``[T, B, P]``, and the last states as those of ``arguments``.
    """
    input, first, again = arguments.input, arguments.states, arguments.reset_state
    size, behind = projection.shape[0], projection.shape[1] - projection.shape[0]
    start = F.pad(first[:1, :, :size], (0, 0, 0, 0, 0, input.shape[0] - 1))
    if arguments.reset is not None:
        new = torch.zeros_like(start) if again is None else again[:1, :, :size]
        start = torch.where(arguments.reset.unsqueeze(-1), new, start)
    output, last = run(
        cell,
        arguments._replace(
            input=torch.cat([input, start], -1),
            states=_without_hidden(first),
            reset_state=None if again is None else _without_hidden(again),
        ),
    )
    output = output @ projection.T
    of_no_steps = first[:1, :, :size].to(output.dtype)
    hidden = torch.cat([of_no_steps, output[-1:]])[-1:]
    return output, torch.cat([F.pad(hidden, (0, behind)), last[1:]])


def _without_hidden(states: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(states[:1]), states[1:]])


def run_forward(layer: Layer, arguments: Arguments) -> tuple[Tensor, Tensor]:
    """From the first step to the last."""
    return layer(arguments)


def run_backward(layer: Layer, arguments: Arguments) -> tuple[Tensor, Tensor]:
    """From the last step to the first.

    An episode that begins at a step ends, seen from behind, before the step in front of it.
    """
    reset = arguments.reset
    if reset is not None:
        reset = torch.cat([reset[1:], torch.zeros_like(reset[:1])]).flip(0)
    output, last = layer(arguments._replace(input=arguments.input.flip(0), reset=reset))
    return output.flip(0), last


# A packed batch is sorted by falling length, so the rows alive at a step are always the first ones.
# Steps with the same rows alive form a group, and each group is one run: no row is computed beyond
# its end, and a batch of B sequences needs at most B runs.


def _joined_once(arguments: Arguments) -> Arguments:
    """Backward wants the weights in one tensor, and a packed batch is several runs."""
    return arguments.joined() if _dispatch.is_recorded() else arguments


@dataclass(frozen=True)
class Packed:
    """How a packed batch falls into groups.

    Attributes:
        groups: ``(steps, rows)`` of each run of equal batch sizes, in order of time.
    """

    groups: tuple[tuple[int, int], ...]

    @staticmethod
    def of(batch_sizes: Tensor) -> Packed:
        """From a PackedSequence's."""
        rows, steps = torch.unique_consecutive(batch_sizes, return_counts=True)
        return Packed(tuple(zip(steps.tolist(), rows.tolist(), strict=True)))

    def checked(self, data: Tensor, batch_sizes: Tensor) -> Tensor:
        """``data``; a trace of torch.jit, which has the groups as constants, fails for others.

        Such a trace keeps what leads to a result, and no assertion: narrow refuses to begin at 1.
        """
        if not torch._C._is_tracing():
            return data
        traced = [rows for steps, rows in self.groups for _ in range(steps)]
        others = (batch_sizes != torch.tensor(traced, device="cpu")).any()
        return data.narrow(0, others.long(), data.shape[0])

    def split(self, data: Tensor) -> Sequence[Tensor]:
        """Packed ``[sum of lengths, F]`` as one ``[steps, rows, F]`` per group."""
        parts = torch.split(data, [steps * rows for steps, rows in self.groups])
        return [part.unflatten(0, group) for part, group in zip(parts, self.groups, strict=True)]

    def run(self, layer: Layer, arguments: Arguments) -> tuple[Tensor, Tensor]:
        """Over packed input, forward in time: rows end as it goes."""
        arguments = _joined_once(arguments)
        state, outputs, ended = arguments.states, [], []
        for part in self.split(arguments.input):
            rows = part.shape[1]
            if rows < state.shape[1]:
                ended.append(state[:, rows:])
            output, state = layer(arguments._replace(input=part, states=state[:, :rows]))
            outputs.append(output.flatten(0, 1))
        return torch.cat(outputs), torch.cat([state, *reversed(ended)], dim=1)

    def run_backward(self, layer: Layer, arguments: Arguments) -> tuple[Tensor, Tensor]:
        """Over packed input, backward in time: rows join as it goes."""
        arguments = _joined_once(arguments)
        state, outputs = arguments.states[:, :0], []
        for part in reversed(self.split(arguments.input)):
            joining = arguments.states[:, state.shape[1] : part.shape[1]]
            states = torch.cat([state, joining], dim=1)
            output, state = run_backward(layer, arguments._replace(input=part, states=states))
            outputs.append(output.flatten(0, 1))
        return torch.cat(outputs[::-1]), state
