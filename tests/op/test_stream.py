"""Inference step by step equals the sequence, and allocates nothing."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import cases
import pytest
import torch
from cases import DTYPES, SEQUENCE_CASES, Case
from torch.profiler import ProfilerActivity, profile

from lltm import LLTM, LLTMSequence, LLTMStream

if TYPE_CHECKING:
    from torch import Tensor

ids = cases.identify
STREAMED = [case for case in SEQUENCE_CASES if case.steps]


def _run(stream: LLTMStream, input: Tensor) -> Tensor:
    return torch.stack([stream.step(x).clone() for x in input])


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize("case", STREAMED, ids=ids)
def test_equals_the_sequence(case: Case, dtype: torch.dtype) -> None:
    arguments = case.arguments(dtype)
    stream = LLTMStream([(arguments.weights, arguments.bias)], case.batch, arguments.alpha)
    stream.reset((arguments.h[None], arguments.c[None]))
    output = _run(stream, arguments.input)
    h_n, c_n = stream.state
    actual = (output, h_n[0], c_n[0])
    for name, a, e in zip(
        cases.OUTPUT_NAMES["sequence"], actual, case.reference(*arguments), strict=True
    ):
        cases.assert_close(a, e, name)


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize("threads", [1, 2])
def test_wide_rows_over_threads(threads: int, dtype: torch.dtype) -> None:
    case = Case("wide", 64, 96, 320, steps=3)
    arguments = case.arguments(dtype)
    torch.set_num_threads(threads)
    stream = LLTMStream([(arguments.weights, arguments.bias)], case.batch)
    stream.reset((arguments.h[None], arguments.c[None]))
    cases.assert_close(_run(stream, arguments.input), case.reference(*arguments)[0], "output")


@pytest.mark.parametrize("layers", [1, 3])
def test_of_a_sequence_module(layers: int) -> None:
    module = LLTMSequence(5, 9, num_layers=layers, alpha=0.7)
    input = torch.randn(6, 2, 5)
    expected, state = module(input)
    stream = module.stream(batch_size=2)
    cases.assert_close(_run(stream, input), expected, "output")
    for name, a, e in zip(("h_n", "c_n"), stream.state, state, strict=True):
        cases.assert_close(a, e, name)


def test_of_a_cell_module() -> None:
    module = LLTM(5, 9, bias=False)
    input = torch.randn(2, 5)
    new_h, new_cell = module(input)
    stream = module.stream(batch_size=2)
    cases.assert_close(stream.step(input), new_h, "new_h")
    cases.assert_close(stream.state[1][0], new_cell, "new_cell")


def test_parameters_changed_later_are_not_seen() -> None:
    module, input = LLTM(5, 9), torch.randn(2, 5)
    expected, _ = module(input)
    stream = module.stream(batch_size=2)
    with torch.no_grad():
        module.weights.zero_()
        module.bias.zero_()
    cases.assert_close(stream.step(input), expected, "new_h")


@pytest.mark.parametrize("how", [copy.deepcopy, lambda stream: pickle.loads(pickle.dumps(stream))])
def test_a_copy_goes_on_from_the_same_state(how: Callable[[LLTMStream], LLTMStream]) -> None:
    """Pickled, as it is for a process that is spawned."""
    torch.manual_seed(0)
    stream = LLTMSequence(3, 4, num_layers=2).stream(2)
    x = torch.randn(2, 3)
    stream.step(x)
    other = how(stream)
    expected = stream.step(x).clone()
    stream.step(x)
    assert torch.equal(other.step(x), expected)


def test_reset_starts_again() -> None:
    stream, input = LLTM(5, 9).stream(batch_size=2), torch.randn(4, 2, 5)
    first = _run(stream, input)
    assert not torch.equal(_run(stream, input), first)
    stream.reset()
    assert torch.equal(_run(stream, input), first)


def test_a_reset_that_is_refused_changes_nothing() -> None:
    stream = LLTM(5, 9).stream(batch_size=2)
    stream.step(torch.randn(2, 5))
    before = stream.state
    with pytest.raises(ValueError, match="state: cell must have shape"):
        stream.reset((torch.ones(1, 2, 9), torch.ones(1, 2, 8)))
    assert torch.equal(torch.stack(stream.state), torch.stack(before))


def test_a_result_lives_until_the_step_after_the_next() -> None:
    stream, input = LLTM(5, 9).stream(batch_size=2), torch.randn(2, 2, 5)
    first = stream.step(input[0])
    kept = first.clone()
    stream.step(input[1])
    assert torch.equal(first, kept)


def test_no_gradient_is_recorded() -> None:
    module = LLTM(5, 9)
    assert not module.stream().step(torch.randn(1, 5, requires_grad=True)).requires_grad


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
def test_a_step_allocates_nothing(dtype: torch.dtype) -> None:
    stream = LLTMSequence(32, 128, num_layers=2, dtype=dtype).stream(batch_size=4)
    input = torch.randn(4, 32).to(dtype)
    stream.step(input)
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as profiler:
        stream.step(input)
    names = [event.name for event in profiler.events()]
    assert names.count("lltm::stream_step") == 2
    assert "[memory]" not in names
    assert all(event.cpu_memory_usage == 0 for event in profiler.events())


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
def test_opcheck(dtype: torch.dtype) -> None:
    a = replace(cases.SMALL["cell"], bias="row").arguments(dtype)
    packed = torch.ops.lltm.pack(a.weights)
    torch.library.opcheck(torch.ops.lltm.pack.default, (a.weights,))
    torch.library.opcheck(
        torch.ops.lltm.stream_step.default,
        (a.input, packed, a.bias, a.h, a.c, torch.empty_like(a.h), 0.5),
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize("state", [1, 4, 9, 16, 17])
def test_weights_are_packed_the_same_every_time(state: int, dtype: torch.dtype) -> None:
    """What pads them, too."""
    weights = torch.randn(3 * state, state + 2).to(dtype)
    first = torch.ops.lltm.pack(weights)
    for _ in range(8):
        torch.full((first.numel(),), float("nan"), dtype=first.dtype)  # dirties what is freed
        assert torch.equal(torch.ops.lltm.pack(weights), first)


# Errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (torch.zeros(7, 9), r"weights must have shape \[3S, S \+ F\], got \[7, 9\]"),
        (torch.zeros(6, 1), r"weights must have shape \[3S, S \+ F\], got \[6, 1\]"),
        (torch.zeros(6), r"weights must have shape \[3S, S \+ F\], got \[6\]"),
        (torch.zeros(6, 4, dtype=torch.int32), r"weights must be float32, .*got"),
    ],
    ids=["rows", "columns", "rank", "dtype"],
)
def test_bad_weights(weights: Tensor, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        LLTMStream([(weights, None)])


@pytest.mark.parametrize(
    ("input", "words"),
    [
        (torch.zeros(3), r"input must have shape \[B, F\] = \[2, 3\], .*got \[3\]"),
        (torch.zeros(1, 3), r"input must have shape \[B, F\] = \[2, 3\], .*got \[1, 3\]"),
        (torch.zeros(2, 7), r"input must have shape \[B, F\] = \[2, 3\], .*got \[2, 7\]"),
        (torch.zeros(2, 3).double(), r"input must have the dtype .*float32, got torch.float64"),
        (torch.zeros(2, 3).to("meta"), r"input must have the device .*cpu, got meta"),
    ],
    ids=["rank", "batch", "features", "dtype", "device"],
)
def test_bad_input(input: Tensor, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        LLTM(3, 4).stream(batch_size=2).step(input)


def test_what_is_written_must_be_contiguous() -> None:
    a = cases.SMALL["cell"].arguments()
    packed = torch.ops.lltm.pack(a.weights)
    with pytest.raises(RuntimeError, match="cell is written in place and must be contiguous"):
        torch.ops.lltm.stream_step(
            a.input, packed, a.bias, a.h, a.c.mT.contiguous().mT, torch.empty_like(a.h)
        )


def test_bad_layers_and_states() -> None:
    weights = torch.zeros(6, 4)
    with pytest.raises(ValueError, match="at least one"):
        LLTMStream([])
    with pytest.raises(TypeError, match="weights must be a Tensor, got list"):
        LLTMStream([([1.0], None)])
    for bad, got in (([weights], "Tensor at 0"), ([(weights,)], r"\(Tensor\) at 0")):
        with pytest.raises(TypeError, match=rf"layers must be pairs \(weights, bias\), got {got}"):
            LLTMStream(bad)
    with pytest.raises(TypeError, match=r"layers must be pairs \(weights, bias\), got int"):
        LLTMStream(1)
    with pytest.raises(TypeError, match="bias must be a Tensor, got str"):
        LLTMStream([(weights, "x")])
    for bias in (torch.zeros(5), torch.zeros(6, dtype=torch.float64), torch.zeros(6).to("meta")):
        with pytest.raises(RuntimeError, match=r"bias must .*, got"):
            LLTMStream([(weights, bias)])
    doubles = torch.zeros(6, 4, dtype=torch.float64)
    for above in (torch.zeros(6, 5), torch.zeros(9, 5), doubles):
        with pytest.raises(ValueError, match=r"layers\[1\] must have weights .* = \[6, 4\] of .*"):
            LLTMStream([(weights, None), (above, None)])
    for size, kind in ((-1, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(kind, match=r"batch_size must be .*, got"):
            LLTMStream([(weights, None)], size)
    for alpha, kind in ((-1.0, ValueError), ("1", TypeError), (float("nan"), ValueError)):
        with pytest.raises(kind, match=r"alpha must be .*, got"):
            LLTMStream([(weights, None)], 1, alpha)
    with pytest.raises(TypeError, match="input must be a Tensor, got float"):
        LLTMStream([(weights, None)]).step(1.5)
    with pytest.raises(ValueError, match="weights must be on cpu to be streamed, got meta"):
        LLTM(3, 4, device="meta").stream()
    with pytest.raises(ValueError, match="bidirectional"):
        LLTMSequence(3, 4, bidirectional=True).stream()
    stream = LLTM(3, 4).stream()
    for state in ((torch.zeros(1, 1, 4),), [1, 2], (None, torch.zeros(1, 1, 4))):
        with pytest.raises(TypeError, match=r"state must be a tuple \(h, c\) of two Tensors, got"):
            stream.reset(state)
    with pytest.raises(ValueError, match=r"h must have shape .* = \[1, 1, 4\], got \[1, 4\]"):
        stream.reset((torch.zeros(1, 4), torch.zeros(1, 4)))


def test_the_fake_of_pack_has_the_shape_of_the_kernel() -> None:
    for state in (1, 15, 16, 17):
        weights = torch.zeros(3 * state, state + 2)
        on_meta = torch.ops.lltm.pack(weights.to("meta"))
        assert torch.ops.lltm.pack(weights).shape == on_meta.shape
