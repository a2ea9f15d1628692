"""The checks that a cell's kernels go through, by :func:`lltm.cells.prove` and in our tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lltm.cells import _kernels
from lltm.cells._contract import Arguments
from lltm.cells._definition import Definition
from lltm.cells._problem import (
    Function,
    Problem,
    of_kernels,
    of_reference,
    present,
    results,
    with_tensors,
)
from lltm.cells._run import run, run_step
from lltm.cells._step import StepArguments

SLACK = {torch.float64: 64.0, torch.float32: 8.0, torch.bfloat16: 2.0, torch.float16: 2.0}
"""Epsilons of the largest element that an error may have beyond twice eager's. In float64 there is
nothing more exact to compare with, and the error is the difference from eager."""
EPISODES = {"": (False, False), ", with resets": (True, False), ", with reset_state": (True, True)}
"""How a check's name ends: whether rows start again, and whether from states of their own."""
Check = Callable[..., str]
"""``check(cell, device)``: what was measured or compared; raises where it does not pass."""


class CheckError(AssertionError):
    """A check did not pass; the message says what was found."""


def _error(actual: Sequence[Tensor], exact: Sequence[Tensor], dtype: torch.dtype) -> float:
    """The largest, in epsilons of the dtype times each tensor's largest element."""
    worst = 0.0
    for found, right in zip(actual, exact, strict=True):
        if right.numel():
            scale = max(float(right.abs().max()), torch.finfo(dtype).tiny)
            miss = float((found.double() - right.double()).abs().nan_to_num(torch.inf).max())
            worst = max(worst, miss / scale / torch.finfo(dtype).eps)
    return worst


def is_as_near_as_eager(function: Function, cell: Definition, given: Arguments) -> str:
    """Outputs and gradients are those of the step; returns how far they and eager's are off."""
    wide = [each.double() for each in present(given)]
    exact = results(of_reference(cell), with_tensors(given, wide))
    dtype = given.input.dtype
    found = _error(results(function, given), exact, dtype)
    eager = _error(results(of_reference(cell), given), exact, dtype)
    limit = 2 * eager + SLACK[dtype]
    if not found <= limit:
        raise CheckError(f"an error of {found:.1f} eps, eager has {eager:.1f}")
    return f"{found:.1f} eps" if dtype == torch.float64 else f"{found:.1f} eps, eager {eager:.1f}"


def equals_the_step(
    cell: Definition,
    device: str = "cpu",
    *,
    dtype: torch.dtype,
    reset: bool,
    start: bool = True,
    **problem: Any,
) -> str:
    """The kernels do, for one problem."""
    given = Problem(cell, dtype=dtype, device=device, **problem).arguments(reset, start)
    return is_as_near_as_eager(of_kernels(cell), cell, given)


FEW_STEPS, FEW_ROWS = 2, 3
"""So few that packing the weights would take longer than reading them where they are."""


def in_every_dtype(cell: Definition, device: str = "cpu", **problem: Any) -> str:
    """A problem of another form equals the step, too."""
    for dtype in SLACK:
        equals_the_step(cell, device, dtype=dtype, reset=True, **problem)
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in SLACK)


def weights_apart(cell: Definition, device: str = "cpu") -> str:
    """The same with the input's weights in a tensor of their own, as torch's modules have them."""
    few = Problem(cell, FEW_STEPS, FEW_ROWS, device=device)
    for problem in (Problem(cell, device=device), few):
        given = problem.arguments()
        parts = given.weights.tensor_split([given.state_columns()], dim=1)
        leaves = [part.clone().requires_grad_() for part in parts]
        apart = given._replace(weights=leaves[0], input_weights=leaves[1])
        joined = given._replace(weights=given.weights.clone().requires_grad_())
        with torch.no_grad():  # where nothing joins them
            torch.testing.assert_close(run(cell, apart), run(cell, joined))
        (expected,) = _weight_gradients(cell, joined, [joined.weights])
        found = torch.cat(_weight_gradients(cell, apart, leaves), dim=1)
        torch.testing.assert_close(found, expected)
    return "values, gradients"


def _weight_gradients(
    cell: Definition, arguments: Arguments, leaves: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    output, last = run(cell, arguments)
    return torch.autograd.grad(output.square().sum() + last.square().sum(), leaves)


def single_step(cell: Definition, device: str = "cpu") -> str:
    """A step by itself, as lltm.cells.Cell takes it, equals the step, too."""
    _namespace(cell, device)
    given = Problem(cell, steps=1, device=device).arguments(reset=False)

    def step(arguments: Arguments) -> tuple[Tensor, Tensor]:
        states, shape = arguments.states.unbind(), arguments.states.shape
        of = arguments.weights, arguments.bias, states, arguments.scalars, shape
        taken = run_step(cell, StepArguments(arguments.input[0], *of))
        if taken is None:
            raise CheckError("a step by itself takes a sequence's way")
        last = torch.stack(taken)
        return last[:1], last

    with torch._C.DisableTorchFunction():  # a default device is a mode, which is to see each call
        found = results(step, given)
    expected = results(of_reference(cell), given)
    torch.testing.assert_close(found, expected)
    return "values, gradients"


def _are_same(found: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    """Whether all shapes and values are equal, those that have overflowed to NaN among them."""
    exactly = partial(torch.allclose, rtol=0.0, atol=0.0, equal_nan=True)
    return all(f.shape == r.shape and exactly(f, r) for f, r in zip(found, right, strict=True))


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "strided": lambda x: torch.stack([x, x], -1)[..., 0],
    "expanded": lambda x: x.narrow(max(0, x.dim() - 2), 0, 1).expand_as(x),
    "offset": lambda x: torch.cat([x.flatten()[:1], x.flatten()])[1:].view_as(x),
}


def _namespace(cell: Definition, device: str) -> str:
    """Of its kernels: what only they promise cannot be asked of torch's own operations."""
    namespace: str | None = _kernels.namespace(cell, device)
    if namespace is None:
        raise CheckError("the cell has no kernels")
    return namespace


def _contiguous(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _each(change: Callable[[Tensor], Tensor], values: Iterable[Any]) -> list[Any]:
    """With every tensor changed."""
    return [change(each) if isinstance(each, Tensor) else each for each in values]


def takes_any_layout(cell: Definition, device: str = "cpu") -> str:
    """The same bits however arguments and the gradients of results lie in memory."""
    _namespace(cell, device)
    for dtype, (name, layout) in itertools.product(SLACK, LAYOUTS.items()):
        given = Problem(cell, dtype=dtype, device=device).arguments()
        seeds = run(cell, given)
        laid_out, of_seeds = _each(layout, given), _each(layout, seeds)
        found = results(of_kernels(cell), Arguments(*laid_out), of_seeds)
        plain, of_seeds = _each(_contiguous, laid_out), _each(_contiguous, of_seeds)
        right = results(of_kernels(cell), Arguments(*plain), of_seeds)
        if not _are_same(found, right):
            raise CheckError(f"other values for {name} arguments in {dtype}")
    return ", ".join(LAYOUTS)


def _of_tensors(cell: Definition, given: Arguments) -> Callable[..., tuple[Tensor, Tensor]]:
    """The kernels as a function of those tensors that there are."""
    return lambda *tensors: run(cell, with_tensors(given, tensors))


def _checked_by_autograd(
    check: Callable[..., bool], cell: Definition, device: str, **options: Any
) -> str:
    problem = Problem(cell, steps=3, batch=2, features=2, state=4, device=device)
    for episodes in EPISODES.values():
        given = problem.arguments(*episodes)
        leaves = [each.requires_grad_() for each in present(given)]
        check(_of_tensors(cell, given), leaves, **options)
    return f"{sum(each.numel() for each in leaves)} inputs"


def gradcheck(cell: Definition, device: str = "cpu") -> str:
    """First derivatives are those of finite differences."""
    return _checked_by_autograd(torch.autograd.gradcheck, cell, device)


def gradgradcheck(cell: Definition, device: str = "cpu") -> str:
    """Second derivatives, too."""
    return _checked_by_autograd(torch.autograd.gradgradcheck, cell, device, fast_mode=True)


def forward_mode(cell: Definition, device: str = "cpu") -> str:
    """Forward-mode derivatives, too."""
    options = {"check_forward_ad": True, "check_backward_ad": False, "fast_mode": True}
    return _checked_by_autograd(torch.autograd.gradcheck, cell, device, **options)


def _mapped(cell: Definition, given: Arguments, *names: str) -> None:
    """Over some arguments, and the same backwards."""

    def output(*mapped: Tensor) -> Tensor:
        changed: dict[str, Any] = dict(zip(names, mapped, strict=True))
        return run(cell, given._replace(**changed))[0]

    stacked = [torch.stack([each, each.flip(0)]) for each in (getattr(given, n) for n in names)]
    expected = [output(*each) for each in zip(*stacked, strict=True)]
    torch.testing.assert_close(torch.func.vmap(output)(*stacked), torch.stack(expected))


def vmap(cell: Definition, device: str = "cpu") -> str:
    """Mapped over inputs, over weights, and over where and how episodes begin."""
    for episodes in EPISODES.values():
        given = Problem(cell, device=device).arguments(*episodes)
        _mapped(cell, given, "input")
        _mapped(cell, given, "input", "weights")
    _mapped(cell, given, "reset")
    _mapped(cell, given, "input", "states", "reset", "reset_state")
    return "inputs, weights, resets"


def _bits(cell: Definition, threads: int, dtype: torch.dtype, device: str) -> list[Tensor]:
    torch.set_num_threads(threads)
    return results(of_kernels(cell), Problem(cell, 12, 65, 33, 132, dtype, device).arguments())


def same_bits_on_any_threads(cell: Definition, device: str = "cpu") -> str:
    """One thread and four give the same bits, twice, in every dtype."""
    _namespace(cell, device)
    before = torch.get_num_threads()
    try:
        for dtype in SLACK:
            expected = _bits(cell, 1, dtype, device)
            for threads in (1, 4):
                if not _are_same(_bits(cell, threads, dtype, device), expected):
                    raise CheckError(f"other bits on {threads} threads in {dtype}")
    finally:
        torch.set_num_threads(before)
    return "1 and 4 threads"


def opcheck(cell: Definition, device: str = "cpu") -> str:
    """Torch's own checks of a custom op."""
    op = getattr(torch.ops, _namespace(cell, device)).sequence.default
    for episodes in EPISODES.values():
        given = Problem(cell, dtype=torch.float32, device=device).arguments(*episodes)
        for each in present(given):
            each.requires_grad_()
        checked = torch.library.opcheck(op, tuple(given))
    return ", ".join(checked)


def _compiles(cell: Definition, given: Arguments) -> None:
    class Module(torch.nn.Module):
        def forward(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
            return run(cell, with_tensors(given, tensors))

    torch.compiler.reset()  # of the graphs of other cells, of which it keeps a few
    compiled: Any = torch.compile(Module(), fullgraph=True, backend="aot_eager")
    found = results(lambda arguments: compiled(*present(arguments)), given)
    torch.testing.assert_close(found, results(of_kernels(cell), given))
    tensors = tuple(present(given))
    exported = torch.export.export(Module(), tensors).module()
    torch.testing.assert_close(exported(*tensors), run(cell, given))


def compiles(cell: Definition, device: str = "cpu") -> str:
    """torch.compile traces it, forward and backward, into a graph, and torch.export a program."""
    for episodes in EPISODES.values():
        _compiles(cell, Problem(cell, device=device).arguments(*episodes))
    return "torch.compile, torch.export"


def _checks_of_values() -> dict[str, Check]:
    return {
        f"forward, backward in {str(dtype).removeprefix('torch.')}{ending}": partial(
            equals_the_step, dtype=dtype, reset=reset, start=start
        )
        for dtype in SLACK
        for ending, (reset, start) in EPISODES.items()
    }


CHECKS: dict[str, Check] = {
    **_checks_of_values(),
    "few rows": partial(in_every_dtype, steps=FEW_STEPS, batch=FEW_ROWS),
    "no bias": partial(in_every_dtype, bias=False),
    "weights apart": weights_apart,
    "single step": single_step,
    "memory layouts": takes_any_layout,
    "first derivatives": gradcheck,
    "second derivatives": gradgradcheck,
    "forward mode": forward_mode,
    "vmap": vmap,
    "same bits": same_bits_on_any_threads,
    "torch.library.opcheck": opcheck,
    "one graph": compiles,
}
