"""From a step to its forward and backward formulas: one list of elementwise operations."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from operator import getitem
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lltm.cells import _operations
from lltm.cells._check import (
    OUTSIDE,
    allowed,
    cannot_be_used,
    failure,
    takes_value,
    users_line,
    users_line_of,
    where_defined,
)
from lltm.cells._definition import Definition
from lltm.cells._errors import StepError
from lltm.cells._scalars import NEAR, OTHER_SCALARS, OTHER_TENSORS, Probe, Scalars

aten = torch.ops.aten


# Values -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Value:
    """One number of the formula.

    Attributes:
        name: what C++ calls it.
        text: what it is computed by; empty for what comes from outside.
        inputs: names of the values in ``text``.
        is_mask: whether it is true or false.
        is_zero: whether it is the constant 0.
        from_gradient: whether it depends on a gradient.
        line: the user's.
    """

    name: str
    text: str = ""
    inputs: tuple[str, ...] = ()
    is_mask: bool = False
    is_zero: bool = False
    from_gradient: bool = False
    line: str = field(default="", compare=False)


@dataclass(frozen=True)
class Formula:
    """A step and its derivative.

    Attributes:
        values: every value by its name, in an order in which they can be computed; first what
            comes from outside: ``z[0]``.., ``state[0]``.., ``grad_state[0]``..
        states: the new states' names.
        d_z: the names of the pre-activations' gradients.
        d_state: the names of the old states' gradients.
    """

    values: dict[str, Value]
    states: tuple[str, ...]
    d_z: tuple[str, ...]
    d_state: tuple[str, ...]


class _Builder:
    """Turns a traced graph's nodes into values; equal ones become one.

    ``rounded``: whether numbers are as torch has them where it computes in float32, its default,
    what is made of numbers and masks alone. Results are not: a product of two such numbers is one
    in the dtype of the tensors. Without, a formula is the same whatever that default is.

    ``promoted``: whether torch's default dtype is wider than the tensors', which are then converted
    to it where they meet such numbers, and the new states back.
    """

    def __init__(self, where: str, scalars: Scalars, rounded: bool, promoted: bool) -> None:
        self.where = where
        self.scalars = scalars
        self.rounded = rounded
        self.promoted = promoted
        self.values: dict[str, Value] = {}
        self.names: dict[Any, str] = {}  # of a node's value
        self.known: dict[str, str] = {}  # name by text

    def outside(self, node: Any, name: str) -> None:
        self.values[name] = Value(name, from_gradient=name.startswith("grad"))
        self.names[node] = name

    def add(self, node: Any) -> None:
        """A node that calls an operation."""
        if node.target is getitem:  # of log_sigmoid's output and buffer
            self.names[node] = self.names[node.args[0]]
            return
        arguments = self._arguments(node)
        target = node.target
        is_same = target in _operations.ALIASES or (self.promoted and self._is_promotions(node))
        if is_same or self._is_times_one(target, arguments):
            self.names[node] = self.names[node.args[0]]
            return
        if target not in _operations.TABLE:
            name = target.name().split("::")[1]
            raise StepError(
                f"{self.line_of(node)}: the derivative of the step uses {name}, "
                f"which has no text in C++; write the step with other operations. {allowed()}"
            )
        is_mask = _dtype(node) == torch.bool
        try:
            _operations.check_kinds(target, is_mask, self._has_mask(node))
            if self.rounded:
                self._check_dtype(node)
            text = _operations.TABLE[target](arguments)
        except _operations.Unsupported as error:
            raise cannot_be_used(self.line_of(node), target, error) from None
        if (exp := self._exp_of_expm1(target, arguments)) is not None:
            text = exp
        if text in self.known:
            self.names[node] = self.known[text]
            return
        inputs = tuple(name for name in self.values if _mentions(text, name))
        self.values[node.name] = Value(
            name=node.name,
            text=text,
            inputs=inputs,
            is_mask=is_mask,
            is_zero=text in ("V{}", "V{} + Scalar(0)"),
            from_gradient=any(self.values[name].from_gradient for name in inputs),
            line=self.line_of(node),
        )
        self.names[node] = self.known[text] = node.name

    def line_of(self, node: Any) -> str:
        """The user's; for an operation of a derivative that torch has, that of the step's."""
        lines = (each.meta.get("line") for each in (node, *reversed(node.all_input_nodes)))
        return next(filter(None, lines), self.where)

    def _arguments(self, node: Any) -> dict[str, Any]:
        """By the schema's names, with defaults, as texts."""
        found = {}
        for argument, given in _operations.arguments(node.target, node.args, node.kwargs):
            wants_mask = _operations.takes_mask(node.target, argument.name)
            counts = isinstance(given, bool) and "bool" not in str(argument.type)
            value = int(given) if counts else given
            found[argument.name] = self._text(value, wants_mask, _computed_in(node))
        return found

    def _text(self, value: Any, wants_mask: bool, dtype: torch.dtype) -> Any:
        if isinstance(value, torch.fx.Node):
            name = self.names[value]
            return _operations.as_wanted(name, self.values[name].is_mask, wants_mask)
        if isinstance(value, numbers.Real) and not isinstance(value, bool):
            return self._number(float(value), dtype)
        return value

    def _number(self, value: float, dtype: torch.dtype) -> str:
        if not self.rounded or dtype is not torch.float32:
            return self.scalars.text_of(value)
        if value in self.scalars.texts:
            return f"Scalar(static_cast<float>({self.scalars.texts[value]}))"
        return self.scalars.text_of(torch.tensor(value, dtype=dtype).item())

    @staticmethod
    def _check_dtype(node: Any) -> None:
        given = (*node.args, *node.kwargs.values())
        written = [float(each) for each in given if isinstance(each, numbers.Real)]
        _operations.check_dtype(node.target, _dtype(node), written)

    def _is_promotions(self, node: Any) -> bool:
        """A conversion of a result back to the tensors' dtype, or of its gradient to the wider."""
        if node.target is not aten._to_copy.default:
            return False
        (source,) = node.all_input_nodes
        old, new = _dtype(source), _dtype(node)
        is_of_gradient = self.values[self.names[source]].from_gradient
        floats = old.is_floating_point and new.is_floating_point
        return floats and (is_of_gradient or new.itemsize < old.itemsize)

    @staticmethod
    def _is_times_one(target: Any, arguments: dict[str, Any]) -> bool:
        exact = (aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar)
        if target is aten.pow.Tensor_Scalar:
            return bool(arguments["exponent"] == _operations.ONE)
        return target in exact and bool(arguments["other"] == _operations.ONE)

    def _exp_of_expm1(self, target: Any, arguments: dict[str, Any]) -> str | None:
        """Torch differentiates expm1 into expm1(x) + 1, which has lost exp(x) where x is low."""
        ones = _operations.ONE, _operations.ONE
        adds = target in (aten.add.Tensor, aten.add.Scalar)
        if not adds or (arguments["other"], arguments["alpha"]) != ones:
            return None
        value = self.values.get(arguments["self"])
        text = "" if value is None else value.text
        return text.replace("expm1", "exp", 1) if text.startswith("Math::expm1(") else None

    def _has_mask(self, node: Any) -> bool:
        return any(self.values[self.names[each]].is_mask for each in node.all_input_nodes)


def _dtype(node: Any) -> torch.dtype:
    """Of a node's value; of log_sigmoid's first one."""
    value = node.meta["val"]
    first: Tensor = value[0] if isinstance(value, tuple) else value
    return first.dtype


def _computed_in(node: Any) -> torch.dtype:
    """The dtype of a node's value, or of what is compared."""
    dtype, operands = _dtype(node), node.all_input_nodes
    return _dtype(operands[0]) if dtype == torch.bool and operands else dtype


def _mentions(text: str, name: str) -> bool:
    """Whether a text has a name in it, as a whole word."""
    start = text.find(name)
    while start >= 0:
        before, after = text[start - 1 : start], text[start + len(name) : start + len(name) + 1]
        if not (before.isalnum() or before in ("_", ":") or after.isalnum() or after in ("_", "(")):
            return True
        start = text.find(name, start + 1)
    return False


# Tracing ----------------------------------------------------------------------------------------


def trace(definition: Definition) -> tuple[Formula, Formula]:
    """The formula of a step and its derivative, as it is written and as kernels have it.

    Raises:
        StepError: an operation of the derivative has no text in C++, or a scalar decides what the
            step does.
    """
    try:
        traced = _trace(definition, NEAR)
    except StepError:
        raise
    except Exception as error:
        what = "cannot be differentiated by torch.func"
        raise failure(definition.step, what, error) from error
    formula = traced.formula()
    if line := departure(formula, definition, OTHER_SCALARS):
        raise StepError(f"{line}: {_why_another(formula, definition)}")
    for probe in OTHER_TENSORS:
        if line := departure(formula, definition, probe):
            raise StepError(
                f"{line}: the step depends on the shape or dtype of its tensors, and its kernels "
                f"are the same for all; use a number, or a keyword argument"
            )
    return formula, traced.formula(rounded=True)


@dataclass(frozen=True)
class _Traced:
    """A graph, what its numbers stand for, and the dtype of its tensors."""

    definition: Definition
    scalars: Scalars
    graph: Any
    dtype: torch.dtype

    def formula(self, *, rounded: bool = False) -> Formula:
        promoted = torch.promote_types(self.dtype, torch.get_default_dtype()) != self.dtype
        builder = _Builder(where_defined(self.definition.step), self.scalars, rounded, promoted)
        return _formula(
            self.graph, builder, self.definition.pre_activations, self.definition.states
        )


def _why_another(formula: Formula, definition: Definition) -> str:
    """What may be wrong with a step that has another formula for other scalars."""
    if not definition.scalars or departure(formula, definition):
        return (
            "the step is another one each time that it is called, as with a random number, and its "
            "kernels compute one; let nothing in it change"
        )
    return (
        "a scalar of the step is used in a way that cannot be followed; use +, -, * and / on it, "
        "and pass it to operations, such as torch.exp(torch.full_like(x, rate)) for math.exp(rate)"
    )


def departure(formula: Formula, definition: Definition, probe: Probe = NEAR) -> str | None:
    """The line at which a step computes something else than ``trace`` has found, if it does.

    Args:
        formula: what it has found.
        definition: the step.
        probe: what the step is traced with here.
    """
    where = where_defined(definition.step)
    try:
        other = _trace(definition, probe).formula()
    except StepError:
        raise
    except Exception as error:  # as of math.log, of a negative number
        return users_line_of(error) or where
    if other == formula:
        return None
    longer, shorter = sorted((other, formula), key=lambda each: -len(each.values))
    pairs = zip_longest(longer.values.values(), shorter.values.values())
    return next((one.line for one, same in pairs if one != same and one.line), where)


def _trace(definition: Definition, probe: Probe) -> _Traced:
    scalars, values = probe.scalars(definition)
    pre, states = definition.pre_activations, definition.states

    # In one argument, as make_fx wraps what takes any number in a function without a file.
    def joint(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        def step(*primals: Tensor) -> tuple[Tensor, ...]:
            return definition.advance(primals[:pre], primals[pre:], values)

        with _Lines():  # type: ignore[no-untyped-call]  # torch does not annotate it
            outputs, pullback, *_ = torch.func.vjp(step, *tensors[: pre + states])
            return (*outputs, *pullback(tuple(tensors[pre + states :])))

    generator = torch.Generator().manual_seed(0)
    tensors = [
        torch.rand(probe.elements, generator=generator, dtype=probe.dtype)
        for _ in range(pre + 2 * states)
    ]
    graph = _graph(joint, tensors)
    return _Traced(definition, scalars, graph, probe.dtype)


def _without_search_for_nan() -> contextlib.AbstractContextManager[None]:
    """Anomaly mode's search takes values, which a trace does not have.

    The mode is all threads': it is left alone where it does not search, as another thread may begin
    to meanwhile.
    """
    if torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled():
        return torch.autograd.set_detect_anomaly(True, check_nan=False)
    return contextlib.nullcontext()


def _note_line(line: str | None) -> None:
    """At the nodes that the graph being traced has got since this was last called."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode  # noqa: PLC0415 - as below

    mode = get_proxy_mode()
    assert mode is not None
    for node in reversed(mode.tracer.graph.nodes):
        if "line" in node.meta:
            return
        node.meta["line"] = line


class _Lines(TorchDispatchMode):
    """Notes the line of each operation, within what is traced."""

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if torch.Tag.data_dependent_output in operation.tags:
            raise takes_value("item")
        result = operation(*args, **(kwargs or {}))
        _note_line(users_line())
        return result


class _SameLines(torch.fx.Interpreter):
    """Runs a graph so that what is traced of it has its lines."""

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        _note_line(n.meta.get("line"))
        return result


def _graph(joint: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
    """The operations of a step and of its derivative, without one in place."""
    from torch.fx.experimental.proxy_tensor import make_fx  # noqa: PLC0415 - imports half of torch

    with _without_search_for_nan():
        traced = make_fx(joint)(tensors)
    # Apart, as torch does not functionalize the torch.autograd.Function that a step may call.
    functional: Callable[..., Any] = torch.func.functionalize(
        _SameLines(traced).run, remove="mutations"
    )
    graph = make_fx(functional)(tensors).graph
    graph.eliminate_dead_code()
    return graph


def _formula(graph: Any, builder: _Builder, pre: int, states: int) -> Formula:
    outside = iter(_outside(pre, states))
    results: list[str] = []
    for node in graph.nodes:
        if node.op == "placeholder":
            builder.outside(node, next(outside))
        elif node.op == "call_function":
            builder.add(node)
        elif node.op == "output":
            results = [builder.names[each] for each in node.args[0]]
        else:
            raise StepError(f"{builder.line_of(node)}: {OUTSIDE}")
    return Formula(
        values=builder.values,
        states=tuple(results[:states]),
        d_z=tuple(results[states : states + pre]),
        d_state=tuple(results[states + pre :]),
    )


def _outside(pre: int, states: int) -> Iterator[str]:
    yield from (f"z[{index}]" for index in range(pre))
    yield from (f"state[{index}]" for index in range(states))
    yield from (f"grad_state[{index}]" for index in range(states))
