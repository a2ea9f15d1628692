"""Whether a step can become a kernel: run once on small tensors, every operation looked at."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from lltm import contract
from lltm.cells import _operations
from lltm.cells._errors import StepError

ELEMENTS = 3
"""Of the tensors that a step is tried with."""
OUTSIDE = (
    "the step uses a tensor that is not an argument of it; a number can be a keyword argument, and "
    "what is learnt for each unit a state that the step returns as it is"
)
_SHAPES = {torch.Size([ELEMENTS]), torch.Size([])}
_NOT_THE_USERS = (*contract.LIBRARIES, threading.__file__)  # the last is below all that traces
_BRANCHES = (
    "takes the value of a tensor ({name}), so that another value could take another path; choose "
    "between two results with torch.where"
)
_CHANGES = (
    "changes a tensor in place ({name}); return new tensors instead, such as c = c + x for c += x"
)
_REFUSED = {
    **dict.fromkeys((Tensor.__setitem__, Tensor.apply_, Tensor.map_), _CHANGES),
    **dict.fromkeys(
        (
            Tensor.__array__,
            Tensor.__bool__,
            Tensor.__complex__,
            Tensor.__float__,
            Tensor.__int__,
            Tensor.__index__,
            Tensor.__contains__,
            Tensor.is_nonzero,
            torch.is_nonzero,
            Tensor.item,
            Tensor.tolist,
            Tensor.numpy,
        ),
        _BRANCHES,
    ),
}
"""What torch would report in other words."""


def users_line() -> str | None:
    """``file:line`` of the user's code that is running, if any is."""
    return _innermost(traceback.walk_stack(sys._getframe()))


def users_line_of(error: BaseException) -> str | None:
    """``file:line`` of the user's code that raised an error, or called what did."""
    return _innermost(reversed([*traceback.walk_tb(error.__traceback__)]))


def _innermost(frames: Iterable[tuple[FrameType, int]]) -> str | None:
    """The first line outside torch and this package."""
    for frame, line in frames:
        if not frame.f_code.co_filename.startswith(_NOT_THE_USERS):
            return f"{frame.f_code.co_filename}:{line}"
    return None


def allowed() -> str:
    """What a step can use, as a sentence."""
    return f"A step can use +, -, *, /, comparisons and {_operations.function_names()}"


def _refusal(problem: str) -> StepError:
    """With the user's line, and what can be used."""
    return StepError(f"{users_line()}: the step {problem}. {allowed()}")


def takes_value(name: str) -> StepError:
    """For what would branch on a value of a tensor, or compute with it."""
    return _refusal(_BRANCHES.format(name=name))


class _Functions(TorchFunctionMode):
    """Finds what takes the values or changes them, by what its author wrote."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function in _REFUSED:
            raise _refusal(_REFUSED[function].format(name=function.__name__.strip("_")))
        return function(*args, **(kwargs or {}))


class _Operations(TorchDispatchMode):
    """Finds operations that have no entry, change something, or are not elementwise."""

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = operation.name().split("::")[1]
        if operation._schema.is_mutable:
            raise _refusal(_CHANGES.format(name=name))
        if name == "lift_fresh":
            raise StepError(
                f"{users_line()}: the step makes a tensor of a value (torch.tensor: {name}); write "
                f"the number, or torch.full_like(x, number) where a tensor is needed"
            )
        if operation not in _operations.TABLE or operation in _operations.DERIVATIVES_ONLY:
            raise _refusal(f"uses {name}, which is not elementwise or has no text in C++")
        if not {each.shape for each in args if isinstance(each, Tensor)} <= _SHAPES:
            raise StepError(f"{users_line()}: {OUTSIDE}")
        result = operation(*args, **(kwargs or {}))
        shapes = {each.shape for each in _tensors(result)}
        if not shapes <= _SHAPES:
            raise _refusal(
                f"uses {name}, which gives a tensor of another shape than the state's, "
                f"{[list(shape) for shape in shapes]}; a step is elementwise"
            )
        _check_kinds(operation, args, result)
        return result


def _check_kinds(operation: Any, args: Sequence[Any], result: Any) -> None:
    """Raise StepError for another dtype, with a line that is lost where a new state has it."""
    if operation in _operations.ALIASES:
        return
    takes_mask = any(isinstance(each, Tensor) and each.dtype == torch.bool for each in args)
    gives_mask = _tensors(result)[0].dtype == torch.bool
    try:
        _operations.check_kinds(operation, gives_mask, takes_mask)
    except _operations.Unsupported as error:
        raise cannot_be_used(users_line(), operation, error) from None


def cannot_be_used(line: str | None, operation: Any, reason: _operations.Unsupported) -> StepError:
    """For an operation that has an entry."""
    name = operation.name().split("::")[1]
    return StepError(f"{line}: {name} cannot be used here: {reason}")


def _tensors(result: Any) -> list[Tensor]:
    """Without log_sigmoid's buffer, which may be empty."""
    first = result[0] if isinstance(result, tuple) else result
    return [first] if isinstance(first, Tensor) else []


def new_states(result: Any, states: int, where: str) -> tuple[Tensor, ...]:
    """What a step returned, as a tuple; a single state may come alone."""
    found = (result,) if isinstance(result, Tensor) else result
    if not isinstance(found, (tuple, list)) or not all(isinstance(s, Tensor) for s in found):
        got = contract.describe(result)
        raise StepError(f"{where}: the step must return a tuple of tensors, got {got}")
    if len(found) != states:
        raise StepError(
            f"{where}: the step must return {states} state{'s' * (states > 1)}, as states={states} "
            f"says, got {len(found)}"
        )
    return tuple(found)


def where_defined(step: Callable[..., Any]) -> str:
    """``file:line`` of the function that a step is, wraps, or calls as an object of a class."""
    function = inspect.unwrap(step)
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    kind = type(function)
    found = (function, getattr(kind, "forward", None), kind.__call__)  # forward: a module's
    codes = (getattr(each, "__code__", None) for each in found)
    code = next(filter(None, codes), None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(step)


def failure(step: Callable[..., Any], what: str, error: Exception) -> StepError:
    """For an error that a step raised, or torch did for it."""
    line = users_line_of(error) or where_defined(step)
    name = getattr(step, "__name__", type(step).__name__)
    return StepError(f"{line}: the step {name} {what}: {type(error).__name__}: {error}")


def _call(pieces: Sequence[int], states: int, scalars: Mapping[str, float]) -> str:
    """What a step is called with."""
    names = ("z_input", "z_recurrent", "state") if len(pieces) > 1 else ("z", "state")
    counts = zip((*pieces, states), names, strict=True)
    tensors = (f"{count} in {name}" for count, name in counts)
    numbers = (f"{name}={value}" for name, value in scalars.items())
    return ", ".join((f"tensors of shape [{ELEMENTS}]", *tensors, *numbers))


def check_step(
    step: Callable[..., Any], pieces: Sequence[int], states: int, scalars: dict[str, float]
) -> None:
    """Raise StepError unless the step can become a kernel.

    Args:
        step: as :func:`lltm.cells.define` gets it.
        pieces: how many tensors are in each of its arguments before the states.
        states: number of states.
        scalars: its keyword arguments.
    """
    generator = torch.Generator().manual_seed(0)

    def drawn(count: int) -> tuple[Tensor, ...]:
        return tuple(
            torch.rand(ELEMENTS, generator=generator, dtype=torch.float64, device="cpu")
            for _ in range(count)
        )

    arguments = [drawn(count) for count in (*pieces, states)]
    where = where_defined(step)
    with _Functions(), _Operations():  # type: ignore[no-untyped-call]  # torch annotates neither
        try:
            result = step(*arguments, **scalars)
        except StepError:
            raise
        except Exception as error:
            what = f"fails, called with {_call(pieces, states, scalars)}"
            raise failure(step, what, error) from error
    for index, state in enumerate(new_states(result, states, where)):
        if state.shape != (ELEMENTS,) or state.dtype != torch.float64:
            raise StepError(
                f"{where}: the step must return states of the shape and dtype it gets, got "
                f"{list(state.shape)} of {state.dtype} for state {index}, not {[ELEMENTS]} of "
                f"{torch.float64}"
            )
