"""Properties of the maths, on problems that Hypothesis chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cases
import torch
from cases import BIASES, Case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lltm

if TYPE_CHECKING:
    from cases import Arguments
    from torch import Tensor

SETTINGS = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],  # a clock's, as a deadline: it tells of the load
)
dtypes = st.sampled_from([torch.float32, torch.float64])


@st.composite
def problems(draw: Any, minimum: int = 1) -> Case:
    """A sequence problem of T >= minimum steps; its first step serves the cell."""
    return Case(
        name=f"drawn {draw(st.integers(0, 1000))}",
        batch=draw(st.integers(1, 9)),
        features=draw(st.integers(0, 9)),
        state=draw(st.integers(1, 20)),
        steps=draw(st.integers(minimum, 6)),
        bias=draw(st.sampled_from(BIASES)),
        alpha=draw(st.sampled_from([0.0, 0.5, 1.0, 2.0])),
    )


def _rows(arguments: Arguments, index: Tensor) -> Arguments:
    """The same problem for some rows of the batch, in the order of ``index``."""
    return arguments._replace(
        input=arguments.input[..., index, :], h=arguments.h[index], c=arguments.c[index]
    )


def _assert_close(actual: tuple[Tensor, ...], expected: tuple[Tensor, ...], what: str) -> None:
    for a, e in zip(actual, expected, strict=True):
        cases.assert_close(a, e, what)


def _select(outputs: tuple[Tensor, ...], index: Tensor) -> tuple[Tensor, ...]:
    return tuple(output.index_select(-2, index) for output in outputs)


def test_batch_rows_are_independent(backend: str) -> None:
    @SETTINGS
    @given(problems(), dtypes, st.data())
    def check(case: Case, dtype: torch.dtype, data: st.DataObject) -> None:
        row = torch.tensor([data.draw(st.integers(0, case.batch - 1))], device=cases.DEVICE)
        arguments = case.arguments(dtype)
        together = lltm.lltm_sequence(*arguments, backend=backend)
        alone = lltm.lltm_sequence(*_rows(arguments, row), backend=backend)
        _assert_close(_select(together, row), alone, "one row alone")
        poisoned = arguments._replace(c=arguments.c.index_fill(0, row, float("nan")))
        others = torch.arange(case.batch, device=cases.DEVICE)
        others = others[others != row]
        outputs = lltm.lltm_sequence(*poisoned, backend=backend)
        _assert_close(_select(outputs, others), _select(together, others), "beside a nan row")

    check()


def test_permuting_the_batch_permutes_the_result(backend: str) -> None:
    @SETTINGS
    @given(problems(), dtypes, st.data())
    def check(case: Case, dtype: torch.dtype, data: st.DataObject) -> None:
        order = torch.tensor(data.draw(st.permutations(range(case.batch))), device=cases.DEVICE)
        arguments = case.arguments(dtype)
        straight = lltm.lltm_sequence(*arguments, backend=backend)
        permuted = lltm.lltm_sequence(*_rows(arguments, order), backend=backend)
        _assert_close(permuted, _select(straight, order), "permuted sequence")
        step = arguments._replace(input=arguments.input[0])
        straight_step = lltm.lltm_cell(*step, backend=backend)
        permuted_step = lltm.lltm_cell(*_rows(step, order), backend=backend)
        _assert_close(permuted_step, _select(straight_step, order), "permuted cell")

    check()


def test_concatenated_sequences_equal_one_sequence(backend: str) -> None:
    @SETTINGS
    @given(problems(minimum=0), dtypes, st.data())
    def check(case: Case, dtype: torch.dtype, data: st.DataObject) -> None:
        cut = data.draw(st.integers(0, case.steps or 0))
        arguments = case.arguments(dtype)
        output, h_n, c_n = lltm.lltm_sequence(*arguments, backend=backend)
        head = arguments._replace(input=arguments.input[:cut])
        first, h, c = lltm.lltm_sequence(*head, backend=backend)
        tail = arguments._replace(input=arguments.input[cut:], h=h, c=c)
        second, h, c = lltm.lltm_sequence(*tail, backend=backend)
        _assert_close((torch.cat([first, second]), h, c), (output, h_n, c_n), "concatenated")

    check()


def test_a_cell_that_takes_no_input_stays(backend: str) -> None:
    """With the input gate shut the cell state is kept to the bit; there is no forget gate."""

    @SETTINGS
    @given(problems(), dtypes)
    def check(case: Case, dtype: torch.dtype) -> None:
        arguments = case.arguments(dtype)
        shut = torch.zeros(3 * case.state, dtype=dtype, device=cases.DEVICE)
        shut[: case.state] = float("-inf")
        arguments = arguments._replace(bias=shut)
        _, _, c_n = lltm.lltm_sequence(*arguments, backend=backend)
        assert torch.equal(c_n, arguments.c)

    check()


def test_states_grow_no_faster_than_their_gates(backend: str) -> None:
    """|new_h| < 1, and new_cell leaves old_cell by no more than the candidate."""

    @SETTINGS
    @given(problems(), dtypes)
    def check(case: Case, dtype: torch.dtype) -> None:
        arguments = case.arguments(dtype)
        step = arguments._replace(input=arguments.input[0])
        new_h, new_cell = lltm.lltm_cell(*step, backend=backend)
        assert bool((new_h.abs() <= 1).all())
        slack = 1e-6 * (1 + arguments.c.abs())
        assert bool((new_cell >= arguments.c - case.alpha - slack).all())

    check()
