"""One step, ``lltm.cells.Cell``: it gives what a sequence of one gives, by a way of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from cells_cases import CELLS, EACH_CELL, assert_equal
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from lltm import cells
from lltm.cells import formulas

pytestmark = [pytest.mark.subprocess, pytest.mark.usefixtures("compiled_cells")]

F64 = torch.float64

Step = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True)
class Both:
    """A step, the sequence with the same parameters, and what they are given: an input, states."""

    step: cells.Cell
    sequence: cells.Sequence
    arguments: tuple[Tensor, ...]

    @staticmethod
    def of(name: str, dtype: torch.dtype = F64) -> Both:
        torch.manual_seed(0)
        cell = CELLS[name]
        step = cells.Cell(cell, 3, 8, dtype=dtype)
        sequence = cells.Sequence(cell, 3, 8, dtype=dtype)
        sequence.load_state_dict({"weight_l0": step.weights, "bias_l0": step.bias})
        input = torch.randn(4, 3, dtype=dtype)
        return Both(step, sequence, (input, *torch.randn(cell.states, 4, 8, dtype=dtype)))

    def ways(self) -> tuple[Step, Step]:
        """By the step and by the sequence, of an input and states to states."""

        def step(input: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
            return self.step(input, states)

        def sequence(input: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
            _, last = self.sequence(input.unsqueeze(0), tuple(s.unsqueeze(0) for s in states))
            return tuple(state.squeeze(0) for state in last)

        return step, sequence

    def parameters(self) -> tuple[list[Tensor], list[Tensor]]:
        return list(self.step.parameters()), list(self.sequence.parameters())


def loss(states: tuple[Tensor, ...]) -> Tensor:
    return torch.stack([state.sin().sum() for state in states]).sum()


@EACH_CELL
def test_one_step_is_a_sequence_of_one(name: str) -> None:
    both = Both.of(name)
    step, sequence = both.ways()
    assert_equal(step(*both.arguments), sequence(*both.arguments))
    once = both.step(both.arguments[0])
    assert_equal(once, tuple(s.squeeze(0) for s in both.sequence(both.arguments[0][None])[1]))


@pytest.mark.parametrize("grad_mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@EACH_CELL
def test_the_mode_changes_nothing_but_what_is_recorded(name: str, grad_mode: Any) -> None:
    both = Both.of(name, torch.float32)
    step, _ = both.ways()
    expected = step(*both.arguments)
    with grad_mode():
        found = step(*both.arguments)
        for state, same in zip(found, expected, strict=True):
            assert torch.equal(state, same)
            assert state.requires_grad == (grad_mode is torch.enable_grad)


@pytest.mark.parametrize("used", ["first", "last", "all"])
@EACH_CELL
def test_gradients(name: str, used: str) -> None:
    """Over two steps, by the states that are used."""
    both = Both.of(name)
    chosen = {"first": slice(1), "last": slice(-1, None), "all": slice(None)}[used]
    found = []
    for way, parameters in zip(both.ways(), both.parameters(), strict=True):
        arguments = [each.clone().requires_grad_() for each in both.arguments]
        states = way(arguments[0], *way(*arguments))
        found.append(torch.autograd.grad(loss(states[chosen]), [*arguments, *parameters]))
    assert_equal(*found)


@pytest.mark.parametrize("wanted", ["input", "one state", "weights"])
@EACH_CELL
def test_one_gradient_alone(name: str, wanted: str) -> None:
    both = Both.of(name)
    found = []
    for way, parameters in zip(both.ways(), both.parameters(), strict=True):
        arguments = [each.clone() for each in both.arguments]
        at = {"input": arguments[0], "one state": arguments[-1], "weights": parameters[0]}[wanted]
        for parameter in parameters:
            parameter.requires_grad_(False)
        at.requires_grad_()
        found.append(torch.autograd.grad(loss(way(*arguments)), at))
    assert_equal(*found)


@EACH_CELL
def test_without_states_and_gradients(name: str) -> None:
    both = Both.of(name)
    input = both.arguments[0].clone().requires_grad_()
    found = torch.autograd.grad(loss(both.step(input)), [input, *both.step.parameters()])
    last = both.sequence(input.unsqueeze(0))[1]
    assert_equal(found, torch.autograd.grad(loss(last), [input, *both.sequence.parameters()]))


@EACH_CELL
def test_gradients_of_gradients(name: str) -> None:
    both = Both.of(name)
    arguments = [each.clone().requires_grad_() for each in both.arguments]
    assert torch.autograd.gradcheck(both.ways()[0], arguments, fast_mode=True)
    assert torch.autograd.gradgradcheck(both.ways()[0], arguments, fast_mode=True)


def pushed_forward(way: Step, arguments: tuple[Tensor, ...]) -> Any:
    return torch.func.jvp(way, arguments, tuple(each.cos() for each in arguments))


def tangents(way: Step, arguments: tuple[Tensor, ...]) -> Any:
    with forward_ad.dual_level():
        states = way(*(forward_ad.make_dual(each, each.cos()) for each in arguments))
        return [forward_ad.unpack_dual(state).tangent for state in states]


def hessian(way: Step, arguments: tuple[Tensor, ...]) -> Any:
    rest = arguments[1:]
    return torch.func.hessian(lambda input: loss(way(input, *rest)))(arguments[0])


def mapped(way: Step, arguments: tuple[Tensor, ...]) -> Any:
    return torch.vmap(way)(*(torch.stack([each, -each]) for each in arguments))


def mapped_gradients(way: Step, arguments: tuple[Tensor, ...]) -> Any:
    gradient = torch.func.grad(lambda *each: loss(way(*each)))
    return torch.vmap(gradient)(*(torch.stack([each, -each]) for each in arguments))


def batched_cotangents(way: Step, arguments: tuple[Tensor, ...]) -> Any:
    leaves = [each.clone().requires_grad_() for each in arguments]
    states = way(*leaves)
    seeds = [torch.stack([torch.ones_like(state), state.detach()]) for state in states]
    return torch.autograd.grad(states, leaves, seeds, is_grads_batched=True)


@pytest.mark.parametrize(
    "transform",
    [pushed_forward, tangents, hessian, mapped, mapped_gradients, batched_cotangents],
)
@EACH_CELL
def test_transforms(name: str, transform: Callable[..., Any]) -> None:
    both = Both.of(name)
    found, expected = (transform(way, both.arguments) for way in both.ways())
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("transform", [tangents, mapped])
@EACH_CELL
def test_transforms_where_nothing_is_recorded(name: str, transform: Callable[..., Any]) -> None:
    both = Both.of(name)
    expected = transform(both.ways()[0], both.arguments)
    with torch.no_grad():
        torch.testing.assert_close(transform(both.ways()[0], both.arguments), expected)


@pytest.mark.compile
@EACH_CELL
def test_compiled(name: str) -> None:
    torch.compiler.reset()
    both = Both.of(name, torch.float32)
    step, _ = both.ways()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*both.arguments), step(*both.arguments))


@pytest.mark.filterwarnings("ignore")  # of torch.jit, which is deprecated
@EACH_CELL
def test_traced_by_jit(name: str) -> None:
    """Which traces once more without gradients, and compares."""
    step = Both.of(name).step
    input, other = torch.randn(4, 3, dtype=F64), torch.randn(2, 3, dtype=F64)
    traced = torch.jit.trace(step, (input,))
    assert_equal(traced(other), step(other))


@pytest.mark.compile
@EACH_CELL
def test_compiled_autograd(name: str) -> None:
    """Of two steps: the second one's states are no leaves of the graph."""
    torch.compiler.reset()
    both = Both.of(name)
    step, _ = both.ways()
    parameters, input = both.parameters()[0], both.arguments[0]
    expected = torch.autograd.grad(loss(step(input, *step(*both.arguments))), parameters)
    value = loss(step(input, *step(*both.arguments)))
    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(value.backward, backend="aot_eager")()
    assert_equal([parameter.grad for parameter in parameters], list(expected))


@pytest.mark.parametrize("grad", [False, True])
@EACH_CELL
def test_autocast(name: str, grad: bool) -> None:
    both = Both.of(name, torch.float32)
    step, sequence = both.ways()
    with torch.set_grad_enabled(grad), torch.autocast("cpu", torch.bfloat16):
        found, expected = step(*both.arguments), sequence(*both.arguments)
    for state, same in zip(found, expected, strict=True):
        assert state.dtype == torch.bfloat16
        assert torch.equal(state, same)


@EACH_CELL
def test_any_layout(name: str) -> None:
    both = Both.of(name)
    step, _ = both.ways()
    turned = [each.T.contiguous().T for each in both.arguments]
    assert not any(each.is_contiguous() for each in turned)
    assert_equal(step(*turned), step(*both.arguments))


@pytest.mark.parametrize("use_reentrant", [False, True])
@EACH_CELL
def test_checkpoint(name: str, use_reentrant: bool) -> None:
    both = Both.of(name)
    step, _ = both.ways()

    def two(*arguments: Tensor) -> Tensor:
        return loss(step(arguments[0], *step(*arguments)))

    arguments = [each.clone().requires_grad_() for each in both.arguments]
    checkpoint(two, *arguments, use_reentrant=use_reentrant).backward()
    expected = torch.autograd.grad(two(*arguments), arguments)
    assert_equal([each.grad for each in arguments], list(expected))


@EACH_CELL
def test_all_states_are_of_one_node(name: str) -> None:
    """What makes a step of a loop cheap: autograd sees one function in it."""
    both = Both.of(name)
    states = both.step(both.arguments[0], both.arguments[1:])
    (node,) = {state.grad_fn for state in states}
    inputs = [following for following, _ in node.next_functions if following is not None]
    assert {type(each).__name__ for each in inputs} == {"AccumulateGrad"}


@EACH_CELL
def test_a_change_in_place_is_noticed(name: str) -> None:
    both = Both.of(name)
    states = both.step(both.arguments[0], both.arguments[1:])
    after = loss(both.step(both.arguments[0], states))
    with torch.no_grad():
        states[0].add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        after.backward()


def test_no_rows() -> None:
    h, c = cells.Cell(formulas.LSTM, 3, 8)(torch.zeros(0, 3))
    assert h.shape == c.shape == (0, 8)


@pytest.mark.parametrize("grad", [False, True])
def test_a_wrapper_of_tensors_sees_the_op(grad: bool) -> None:
    seen = set()

    class Wrapper(torch.Tensor):
        """Is asked before every call of torch's."""

        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.add(getattr(func, "__name__", None))
            return super().__torch_function__(func, types, args, kwargs)

    step = cells.Cell(formulas.LSTM, 3, 8)
    with torch.set_grad_enabled(grad):
        h, c = step(torch.ones(2, 3).as_subclass(Wrapper))
        assert isinstance(h, Wrapper)
        assert torch.equal(c.as_subclass(Tensor), step(torch.ones(2, 3))[1])
    assert "sequence.default" in seen


def test_the_cells_heads_are_the_weights() -> None:
    """The op takes any number of heads, and would compute another cell."""
    step = cells.Cell(CELLS["slstm_heads"], 3, 8)
    step.weights = nn.Parameter(torch.zeros(32, 8 + 3))
    with pytest.raises(RuntimeError, match=re.escape("weights must have shape [G * S, S / heads")):
        step(torch.zeros(2, 3))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((3,), TypeError, "input must be a Tensor, got int"),
        ((torch.zeros(3),), RuntimeError, "input must have shape [B, 3], got [3]"),
        ((torch.zeros(2, 4),), RuntimeError, "input must have shape [B, 3], got [2, 4]"),
        (
            (torch.zeros(2, 3), torch.zeros(2, 8)),
            TypeError,
            "state must be a tuple of the cell's 2",
        ),
        ((torch.zeros(2, 3), ()), TypeError, "state must be a tuple of the cell's 2"),
        ((torch.zeros(2, 3), (0.0, 1.0)), TypeError, "state must be a tuple of the cell's 2"),
        (
            (torch.zeros(2, 3), (torch.zeros(2, 8), torch.zeros(1, 8))),
            RuntimeError,
            "state: state 1 must have shape [2, 8], got [1, 8]",
        ),
        (
            (torch.zeros(2, 3), (torch.zeros(2, 4), torch.zeros(2, 4))),
            RuntimeError,
            "state: h must have shape [2, 8], got [2, 4]",
        ),
        (
            (torch.zeros(2, 3, dtype=F64),),
            RuntimeError,
            "weights must have the dtype of input, torch.float64, got torch.float32",
        ),
    ],
)
def test_arguments_are_checked(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        cells.Cell(formulas.LSTM, 3, 8)(*arguments)
