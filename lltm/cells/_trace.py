"""From a step to its formula: what PyTorch does for it and for its derivative, traced."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lltm.cells._check import (
    OUTSIDE,
    failure,
    takes_value,
    users_line,
    users_line_of,
    where_defined,
)
from lltm.cells._definition import Definition
from lltm.cells._errors import StepError
from lltm.cells._formula import Builder, Formula
from lltm.cells._scalars import NEAR, OTHER_SCALARS, OTHER_TENSORS, Probe, Scalars


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
        builder = Builder(where_defined(self.definition.step), self.scalars, rounded, promoted)
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


def _formula(graph: Any, builder: Builder, pre: int, states: int) -> Formula:
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
