"""A formula: the values of a step and of its derivative, each with its text in C++."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, field
from operator import getitem
from typing import Any

import torch
from torch import Tensor

from lltm.cells import _operations
from lltm.cells._check import allowed, cannot_be_used
from lltm.cells._errors import StepError
from lltm.cells._scalars import Scalars

aten = torch.ops.aten


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


class Builder:
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
