"""Who is timed on a GPU: beside those of :mod:`benchmarks.competitors`, who is there alone."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import lltm
from benchmarks.competitors import (
    ATEN,
    BOTH,
    LSTM,
    OTHER,
    OTHERS,
    OURS,
    Competitor,
    arguments,
    asking,
    by_lltm,
    compiled,
    problem_of,
)
from benchmarks.not_here import NotHere
from benchmarks.workloads import INFERENCE, TRAINING_STEP, Outputs, Problem, Row
from lltm import _library, jit
from lltm.functional import lltm_cell, lltm_sequence


def unavailable_reason() -> str | None:
    """Why nothing can be timed on a GPU here, as one clause, or ``None``."""
    if not torch.cuda.is_available():
        return "no CUDA device"
    if not _library.load_cuda():
        return _library.missing_cuda()
    return None


# The tutorial's CUDA design ----------------------------------------------------------------------


class TutorialCell(torch.autograd.Function):
    """The tutorial's lltm_cuda: X and one addmm by ATen, a kernel for the gates, both ways.

    With its kernels in packed accessors (tests/op/cuda_variants), and, as in the tutorial, with the
    gradient of the input computed whether or not it is wanted.
    """

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weights: Tensor, bias: Tensor, h: Tensor, c: Tensor, alpha: float
    ) -> tuple[Tensor, Tensor]:
        x = torch.cat([h, input], dim=1)
        gates = torch.addmm(bias, x, weights.t()).view(len(h), 3, -1)
        new_h, new_cell = torch.empty_like(c), torch.empty_like(c)
        torch.ops.lltm_packed_accessor.forward(gates, c, new_h, new_cell, alpha)
        ctx.save_for_backward(x, weights, gates, new_cell)
        ctx.alpha = alpha
        return new_h, new_cell

    @staticmethod
    def backward(ctx: Any, grad_h: Tensor, grad_cell: Tensor) -> tuple[Tensor | None, ...]:
        x, weights, gates, new_cell = ctx.saved_tensors
        d_gates, d_cell = torch.empty_like(gates), torch.empty_like(new_cell)
        torch.ops.lltm_packed_accessor.backward(
            grad_h.contiguous(), grad_cell.contiguous(), gates, new_cell, d_gates, d_cell, ctx.alpha
        )
        d_z = d_gates.flatten(1)
        d_x = d_z.mm(weights)
        state = new_cell.size(1)
        return d_x[:, state:], d_z.t().mm(x), d_z.sum(0), d_x[:, :state], d_cell, None


def tutorial_sequence(
    input: Tensor, weights: Tensor, bias: Tensor, h: Tensor, c: Tensor, alpha: float
) -> Outputs:
    """The tutorial's cell, step by step."""
    outputs = []
    for x in input.unbind(0):
        h, c = TutorialCell.apply(x, weights, bias, h, c, alpha)
        outputs.append(h)
    return torch.stack(outputs), h, c


def _tutorial(row: Row) -> Problem:
    if row.dtype not in {torch.float32, torch.float64}:
        raise NotHere("the tutorial's kernels compute in float32 and float64 only")
    _load_variant()
    return problem_of(TutorialCell.apply if row.case.steps is None else tutorial_sequence, row)


def _load_variant() -> None:
    from cuda_variants import library  # noqa: PLC0415 - it needs nvcc

    major, minor = torch.cuda.get_device_capability()
    try:
        library.load(jit.cache_directory(), f"sm_{major}{minor}")
    except RuntimeError as error:
        raise NotHere(str(error)) from error


# Others ------------------------------------------------------------------------------------------


def _max_autotune(row: Row) -> Problem:
    # Its CUDA graphs overwrite the outputs of the last call: a second forward pass must not begin
    # before the backward pass of the first has ended.
    graphs = row.work in (TRAINING_STEP, INFERENCE)
    return problem_of(
        compiled(row, "max-autotune" if graphs else "max-autotune-no-cudagraphs"), row
    )


FLASHRNN_GATES = 4


def _flashrnn(row: Row) -> Problem:
    try:
        from flashrnn import flashrnn  # noqa: PLC0415 - where it is installed
    except ImportError as error:
        raise NotHere("flashrnn is not installed") from error
    if row.dtype != torch.bfloat16:
        raise NotHere("its fused kernel is run in its own precision, bfloat16")
    args, case = arguments(row), row.case
    like = {"dtype": row.dtype, "device": row.device}
    batch, state = case.batch, case.state
    input = args.input.detach().transpose(0, 1).contiguous()
    weights = torch.randn(FLASHRNN_GATES * state, case.features, **like) / case.features**0.5
    recurrent = torch.randn(FLASHRNN_GATES, 1, state, state, **like) / state**0.5
    bias = torch.zeros(FLASHRNN_GATES, 1, state, **like)
    initial = torch.stack([args.h, args.c]).view(2, batch, 1, 1, state).detach()
    leaves = [input, weights, recurrent, bias] if row.work.grad else []
    for leaf in leaves:
        leaf.requires_grad_()

    def run() -> Outputs:
        projected = F.linear(input, weights).view(batch, -1, FLASHRNN_GATES, 1, state)
        states, last = flashrnn(
            projected, recurrent, bias, states=initial, function="lstm", backend="cuda_fused"
        )
        return states[0], last[0], last[1]

    try:
        run()
    except Exception as error:  # whatever it raises, the others are still to be timed
        raise NotHere(f"flashrnn cannot compute this problem: {error}") from error
    return Problem(run, [input, weights, recurrent, bias, initial], leaves)


# lltm --------------------------------------------------------------------------------------------


def _graphed(row: Row) -> Problem:
    """Ours, its launches replayed from a CUDA graph, as a user would have it."""
    args = arguments(row)
    function: Callable[..., Outputs] = lltm_cell if row.case.steps is None else lltm_sequence
    of_tensors = partial(function, alpha=args.alpha, backend="cuda")
    if not row.work.grad:
        return _replayed(partial(of_tensors, *args.tensors()), args.tensors())
    samples = tuple(
        tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in args.tensors()
    )
    graphed = torch.cuda.make_graphed_callables(of_tensors, samples)
    problem = asking(lambda *_: graphed(*args.tensors()), args)
    return dataclasses.replace(problem, allocates=False)


def _replayed(call: Callable[[], Outputs], known: list[Tensor]) -> Problem:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = call()

    def replay() -> Outputs:
        graph.replay()
        return outputs

    return Problem(replay, known, [], allocates=False)


TUTORIAL = Competitor(
    "tutorial cuda", OTHER, None, BOTH, _tutorial, "the tutorial's CUDA: packed accessors"
)
NATIVE = Competitor(
    "native", OURS, "jit_cuda", BOTH, by_lltm("jit_cuda"), "lltm's kernels, native binding"
)


@functools.cache
def everyone() -> tuple[Competitor, ...]:
    """All who can run in this process, ours last."""
    binding = _library.build().binding
    found = {backend.name for backend in lltm.backends.available()}
    return (
        *OTHERS,
        Competitor(
            "max-autotune", OTHER, None, BOTH, _max_autotune, "torch.compile, mode max-autotune"
        ),
        *((ATEN,) if ATEN.backend in found else ()),
        TUTORIAL,
        Competitor(
            "flashrnn", LSTM, None, ("sequence",), _flashrnn, "FlashRNN's fused LSTM, bfloat16"
        ),
        Competitor(
            binding, OURS, "cuda", BOTH, by_lltm("cuda"), f"lltm's kernels, {binding} binding"
        ),
        *((NATIVE,) if NATIVE.backend in found else ()),
        Competitor("graphed", OURS, "cuda", BOTH, _graphed, "lltm's kernels, from a CUDA graph"),
    )
