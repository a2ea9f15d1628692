"""Tensor subclasses, modes and look-alikes are honoured as torch's own functions honour them."""

from __future__ import annotations

import warnings
from typing import Any

import cases
import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import lltm

OPS = ("cell", "sequence")


class Named(Tensor):
    """Overrides functions: notes which were called on it."""

    called: list[Any]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        cls.called.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("position", range(5))
@pytest.mark.parametrize("op", OPS)
def test_torch_function_of_a_subclass(op: str, position: int, backend: str) -> None:
    """Any argument's override gets the whole call, and the default keeps the subclass."""
    case = cases.SMALL[op]
    arguments = list(case.arguments())
    arguments[position] = arguments[position].as_subclass(Named)
    Named.called = []
    outputs = case.function(*arguments, backend=backend)
    assert Named.called[0] is case.function
    assert all(type(output) is Named for output in outputs)
    expected = case.reference(*case.arguments())
    for a, e in zip(outputs, expected, strict=True):
        cases.assert_close(a.as_subclass(Tensor), e, "subclass")


class LookAlike:
    """No tensor at all, but a type that answers for one, as lltm_cell(LookAlike(), ...)."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return func, kwargs


@pytest.mark.parametrize("op", OPS)
def test_torch_function_of_a_look_alike(op: str) -> None:
    case = cases.SMALL[op]
    arguments = [*case.arguments()]
    arguments[3] = LookAlike()
    answer = case.function(*arguments, backend="reference")
    assert answer == (case.function, {"backend": "reference"})


@pytest.mark.parametrize("op", OPS)
def test_torch_function_mode(op: str, backend: str) -> None:
    called = []

    class Mode(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            called.append(func)
            return func(*args, **(kwargs or {}))

    case = cases.SMALL[op]
    arguments = case.arguments()
    with Mode():
        outputs = case.function(*arguments, backend=backend)
    assert called[0] is case.function
    for a, e in zip(outputs, case.reference(*arguments), strict=True):
        cases.assert_close(a, e, "mode")


class Wrapped(Tensor):
    """A wrapper subclass: holds a plain tensor and runs every op on it, noting the ops."""

    inner: Tensor
    seen: list[str]

    @staticmethod
    def __new__(cls, inner: Tensor) -> Wrapped:
        made: Wrapped = Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            dtype=inner.dtype,
            device=inner.device,
            requires_grad=inner.requires_grad,
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        cls.seen.append(func.name())
        unwrap = torch.utils._pytree.tree_map_only
        result = func(
            *unwrap(Wrapped, lambda t: t.inner, args),
            **unwrap(Wrapped, lambda t: t.inner, kwargs or {}),
        )
        return unwrap(Tensor, Wrapped, result)


@pytest.mark.parametrize("op", OPS)
def test_torch_dispatch_of_a_wrapper(op: str, backend: str) -> None:
    """A wrapper sees the op as a whole, forward and backward, and gradients come back wrapped."""
    case = cases.SMALL[op]
    plain = case.arguments()
    leaves = plain.map(lambda t: Wrapped(t.clone().requires_grad_()))
    Wrapped.seen = []
    outputs = case.function(*leaves, backend=backend)
    assert all(isinstance(output, Wrapped) for output in outputs)
    if backend == "fused":
        assert f"lltm::{op}_forward" in Wrapped.seen
    for a, e in zip(outputs, case.reference(*plain), strict=True):
        cases.assert_close(a.inner, e, "wrapped output")
    seeds = [Wrapped(seed) for seed in cases.cotangents(case.reference(*plain))]
    gradients = torch.autograd.grad(outputs, leaves.tensors(), seeds)
    if backend == "fused":
        assert f"lltm::{op}_backward" in Wrapped.seen
    for a, e in zip(gradients, cases.reference_gradients(case, plain.leaves()), strict=True):
        assert isinstance(a, Wrapped)
        cases.assert_close(a.inner, e, "wrapped gradient")


class Dispatched(TorchDispatchMode):
    """Notes the name of each op that is dispatched under it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.seen.append(func.name())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("op", OPS)
def test_torch_dispatch_mode(op: str) -> None:
    case = cases.SMALL[op]
    with Dispatched() as mode:
        outputs = case.function(*case.arguments().leaves(), backend="fused")
        cases.loss(outputs).backward()
    assert {f"lltm::{op}_forward", f"lltm::{op}_backward"} <= set(mode.seen)


def _traced_by_jit(function: Any, args: tuple[Any, ...]) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        graph = torch.jit.trace(function, args).graph
    return [node.kind() for node in graph.nodes()]


def _traced_before_autograd(function: Any, args: tuple[Any, ...]) -> list[str]:
    nodes = make_fx(function, pre_dispatch=True)(*args).graph.nodes
    return [node.target.name() for node in nodes if hasattr(node.target, "name")]


@pytest.mark.parametrize("trace", [_traced_by_jit, _traced_before_autograd])
@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("op", OPS)
def test_a_tracer_sees_the_op(op: str, needs: bool, trace: Any) -> None:
    """And not the kernels behind it, whether gradients are wanted or not."""
    case = cases.SMALL[op]
    arguments = case.arguments().leaves() if needs else case.arguments()
    *tensors, alpha = arguments

    def function(*args: Tensor) -> tuple[Tensor, ...]:
        return case.function(*args, alpha, backend="fused")

    names = [name for name in trace(function, tuple(tensors)) if name.startswith("lltm::")]
    assert names == [f"lltm::{op}"]


class Differentiating(Tensor):
    """Overrides functions, and differentiates in them what did not need a gradient outside."""

    gradient: Tensor

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            leaf = torch.ones(3, requires_grad=True)
            (cls.gradient,) = torch.autograd.grad((leaf * leaf).sum(), leaf)
            return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("op", OPS)
def test_an_override_can_differentiate(op: str) -> None:
    """It runs where its caller is, not behind autograd."""
    arguments = list(cases.SMALL[op].arguments())
    row = lltm.backends.get("fused")
    Differentiating.gradient = torch.zeros(3)
    getattr(row, op)(arguments[0].as_subclass(Differentiating), *arguments[1:])
    assert torch.equal(Differentiating.gradient, torch.full((3,), 2.0))
