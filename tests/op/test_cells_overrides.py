"""Tensor subclasses and modes see a cell's ops as a whole, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cells_cases import CELLS, EACH_CELL
from test_overrides import Dispatched, Named, Wrapped
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lltm import cells
from lltm.cells._contract import Arguments
from lltm.cells._problem import Problem, of_kernels, of_reference, results, with_tensors

pytestmark = [
    pytest.mark.subprocess,
    pytest.mark.usefixtures("compiled_cells"),
    EACH_CELL,
]


def given(name: str) -> Arguments:
    return Problem(CELLS[name], steps=3, batch=2, features=3, state=4).arguments()


def last_parts(names: list[str]) -> list[str]:
    """Of ops, whose namespaces have a hash of the cell's text."""
    return [name.split("::")[-1] for name in names]


@pytest.mark.parametrize("position", range(5))
def test_torch_function_of_a_subclass(name: str, position: int) -> None:
    """Any argument's override gets the op, and the default keeps the subclass."""
    tensors = list(given(name).tensors())
    tensors[position] = tensors[position].as_subclass(Named)
    Named.called = []
    outputs = of_kernels(CELLS[name])(with_tensors(given(name), tensors))
    ops = [each for each in Named.called if isinstance(each, torch._ops.OpOverload)]
    assert last_parts([op.name() for op in ops]) == ["sequence"]
    assert all(type(output) is Named for output in outputs)
    plain = tuple(output.as_subclass(Tensor) for output in outputs)
    torch.testing.assert_close(plain, of_reference(CELLS[name])(given(name)))


def test_a_module_keeps_a_subclass(name: str) -> None:
    rnn, x = cells.Sequence(CELLS[name], 3, 8), torch.randn(4, 2, 3)
    Named.called = []
    output, states = rnn(x.as_subclass(Named))
    assert all(type(each) is Named for each in (output, *states))
    assert torch.equal(output.as_subclass(Tensor), rnn(x)[0])


def test_torch_function_mode(name: str) -> None:
    called: list[str] = []

    class Mode(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            if isinstance(func, torch._ops.OpOverload):
                called.append(func.name())
            return func(*args, **(kwargs or {}))

    with Mode():
        of_kernels(CELLS[name])(given(name))
    assert last_parts(called) == ["sequence"]


def test_torch_dispatch_of_a_wrapper(name: str) -> None:
    """Gradients come back wrapped, and are those of plain tensors."""
    arguments = given(name)
    weights = [torch.randn(3, 2, 4, dtype=torch.float64), torch.randn_like(arguments.states)]
    expected = results(of_reference(CELLS[name]), arguments, weights)
    leaves = [Wrapped(each.clone().requires_grad_()) for each in arguments.tensors()]
    Wrapped.seen = []
    outputs = of_kernels(CELLS[name])(with_tensors(arguments, leaves))
    gradients = torch.autograd.grad(outputs, leaves, [Wrapped(weight) for weight in weights])
    assert {"sequence_forward", "sequence_backward"} <= set(last_parts(Wrapped.seen))
    assert all(isinstance(each, Wrapped) for each in (*outputs, *gradients))
    torch.testing.assert_close([each.inner for each in (*outputs, *gradients)], expected)


def test_torch_dispatch_mode(name: str) -> None:
    with Dispatched() as mode:
        results(of_kernels(CELLS[name]), given(name))
    assert {"sequence_forward", "sequence_backward"} <= set(last_parts(mode.seen))
