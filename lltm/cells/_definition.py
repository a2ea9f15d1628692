"""A recurrent cell as its author writes it: a step, and how many gates and states it has."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from lltm import contract
from lltm.cells._check import new_states, where_defined
from lltm.cells._errors import StepError

_steps: dict[int, Callable[..., Any]] = {}
"""By its id, which is no other's while the step is here."""


@dataclass(frozen=True)
class Definition:
    """What :func:`lltm.cells.define` returns, and ``Sequence`` and ``Cell`` are made from.

    Attributes:
        step: elementwise PyTorch, ``step(z, state)``, or ``step(z_input, z_recurrent, state)``
            where ``split``.
        gates: ``G``: the weights have ``G * S`` rows.
        states: ``N``; the first is the hidden state ``h``, which the weights multiply.
        split: whether the step gets the input's share of the pre-activations and the recurrent
            one apart.
        heads: blocks of the recurrent weights, which are block-diagonal; 1 for full ones.
        scalars: the step's keyword arguments, name and default.
        form: the step, by its id, and all else that the kernels are for, as text: where a compiler
            guards a function, it compares the code alone, which those of one factory share.
    """

    step: Callable[..., Any]
    gates: int
    states: int
    split: bool
    heads: int
    scalars: tuple[tuple[str, float], ...]
    form: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _steps[id(self.step)] = self.step
        form = f"{id(self.step)} {self.gates} {self.states} {int(self.split)}"
        object.__setattr__(self, "form", form)

    def __reduce__(self) -> tuple[Any, ...]:
        """Made again, as the copy of a step has another id."""
        values = (getattr(self, each.name) for each in fields(self) if each.init)
        return type(self), tuple(values)

    @staticmethod
    def of_form(form: str) -> Definition:
        """The cell of a form, with one head and its scalars' own defaults, which no kernel has."""
        step, gates, states, split = map(int, form.split())
        found = _steps[step]
        return Definition(found, gates, states, bool(split), 1, scalars_of(found))

    @property
    def name(self) -> str:
        """The step's name."""
        return str(getattr(self.step, "__name__", "step"))

    @property
    def pieces(self) -> tuple[int, ...]:
        """How many tensors are in each of the step's arguments before the states."""
        return (self.gates, self.gates) if self.split else (self.gates,)

    @property
    def pre_activations(self) -> int:
        """``P``: a bias has ``P * S`` elements."""
        return 2 * self.gates if self.split else self.gates

    def advance(
        self, z: Sequence[Tensor], state: Sequence[Tensor], scalars: Sequence[float]
    ) -> tuple[Tensor, ...]:
        """One step for pre-activations that are known: ``P`` and ``N`` tensors, to ``N``.

        Tensors that the step makes itself, such as ``torch.where(x > 0, 1.0, 0.5)``, are float32,
        and so are their products with 16-bit ones: the new states have the dtype of the old ones.
        """
        split = (tuple(z[: self.gates]), tuple(z[self.gates :]))
        named = dict(zip(dict(self.scalars), scalars, strict=True))
        result = self.step(*split[: len(self.pieces)], tuple(state), **named)
        made = new_states(result, self.states, where_defined(self.step))
        return tuple(each.to(state[0].dtype) for each in made)

    def scalar_values(self, given: Mapping[str, float]) -> tuple[float, ...]:
        """The defaults, but what is given.

        Raises:
            TypeError: a name that the step does not have, or what is no number.
            ValueError: a number that is not finite.
        """
        known = dict(self.scalars)
        for name, value in given.items():
            if name not in known:
                has = ", ".join(known) if known else "none"
                raise TypeError(
                    f"{self.name} has no scalar {name!r}; it has: {has} (the arguments behind the "
                    f"step's *)"
                )
            contract.check_number(name, value)
            if not contract.is_finite(value):
                raise ValueError(f"{name} must be finite, got {value}")
        return tuple(float(given.get(name, default)) for name, default in known.items())


def check_cell(cell: object) -> None:
    """Raise TypeError for what is no cell: its step, say, or a module of it."""
    if not isinstance(cell, Definition):
        raise TypeError(f"cell must be what lltm.cells.define() returns, got {type(cell).__name__}")


def scalars_of(step: Callable[..., Any]) -> tuple[tuple[str, float], ...]:
    """A step's keyword arguments, name and default."""
    try:
        parameters = inspect.signature(step).parameters.values()
    except ValueError:  # of what is written in C
        raise TypeError(
            f"step must be a function written in Python, got {step!r}; call that in one"
        ) from None
    found = []
    for parameter in parameters:
        if parameter.kind is not parameter.KEYWORD_ONLY:
            continue
        if not isinstance(parameter.default, numbers.Real):
            raise StepError(
                f"{where_defined(step)}: {parameter.name} is a keyword argument of the step and "
                f"must have a number as its default, such as {parameter.name}=1.0"
            )
        value = _as_float(parameter.default)
        if not math.isfinite(value):
            raise StepError(
                f"{where_defined(step)}: {parameter.name} is a keyword argument of the step and "
                f"must have a finite number as its default, got {value}; a large one, such as "
                f"{parameter.name}=1e30, does for a bound that is none"
            )
        found.append((parameter.name, value))
    return tuple(found)


def _as_float(number: numbers.Real) -> float:
    try:
        return float(number)
    except OverflowError:  # of an int
        return math.inf
