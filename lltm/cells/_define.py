"""From a step to a cell, with everything refused that no kernel can do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from typing import Any

from lltm import contract
from lltm.cells._check import check_step, where_defined
from lltm.cells._definition import Definition, scalars_of
from lltm.cells._errors import StepError
from lltm.cells._functor import check_unchanged, functor
from lltm.cells._sequence import Sequence
from lltm.cells._tracer import apart


def _check_names(step: Callable[..., Any], scalars: tuple[tuple[str, float], ...]) -> None:
    """A module would take the number for its own argument, and the step never see it."""
    own = inspect.signature(Sequence.__init__).parameters  # Cell's are among them
    taken = {name for name, each in own.items() if each.kind is not each.VAR_KEYWORD}
    for name, _ in scalars:
        if name in taken:
            raise StepError(
                f"{where_defined(step)}: {name} cannot be a keyword argument of the step, as "
                f"Sequence and Cell have an argument of that name; call it another, such as "
                f"{name}_value"
            )


def define(
    step: Callable[..., Any], *, gates: int, states: int, split: bool = False, heads: int = 1
) -> Definition:
    """Make a recurrent cell from its step.

    The pre-activations ``z`` are the weights' product with the hidden state and the input; the step
    says what becomes of one element of them. It is plain PyTorch on tensors of one shape, without
    in-place changes and without branches on their values, and returns the new states. What else it
    reads, a global or an attribute, is a constant of its kernels.

    Args:
        step: ``step(z, state, *, scalar=1.0) -> new_state``: ``z`` is a tuple of ``gates`` tensors,
            ``state`` and the result are tuples of ``states`` tensors, the hidden state first. With
            ``split`` it is ``step(z_input, z_recurrent, state)``. Numbers that may change without
            compiling again are keyword-only arguments with defaults.
        gates: number of gates, each with ``S`` rows in the weights.
        states: number of states.
        split: give the step the input's share of ``z`` and the recurrent one apart.
        heads: number of blocks of the recurrent weights, which are then block-diagonal.

    Returns:
        The cell. Nothing is compiled yet: its first call does that, or ``prepare``.

    Raises:
        StepError: the step is not elementwise, changes a tensor in place, takes the value of a
            tensor, compares or rounds a keyword argument, depends on its tensors' shape or dtype,
            or uses an operation that has no text in C++; names the operation and its line. Or a
            keyword argument has the name of one of the modules', or no finite number as default; or
            what the step reads has changed since it was first defined. Or the step raises an error,
            or torch.func does for it, which is the cause of this one.
        TypeError, ValueError: an argument is not what it should be.

    Example:
        >>> def decaying(z, state, *, rate=0.5):
        ...     return rate * state[0] + torch.tanh(z[0])
        >>> cell = lltm.cells.define(decaying, gates=1, states=1)
        >>> rnn = lltm.cells.Sequence(cell, input_features=3, state_size=8)
        >>> output, (h,) = rnn(torch.randn(5, 2, 3))
        >>> output.shape
        torch.Size([5, 2, 8])
    """
    if not callable(step):
        raise TypeError(f"step must be a function, got {type(step).__name__}")
    if hasattr(step, "_torchdynamo_orig_callable"):
        raise TypeError(
            f"step must be a function as it is written, got a result of torch.compile, {step!r}; "
            f"give define the function itself, which it compiles"
        )
    if not isinstance(step, Hashable):
        raise TypeError(
            f"step must be hashable, as its kernels are found by it, and {type(step).__name__} is "
            f"not; a dataclass is with @dataclass(frozen=True)"
        )
    for name, value in (("gates", gates), ("states", states), ("heads", heads)):
        contract.check_size(name, value)
    definition = Definition(step, gates, states, bool(split), heads, scalars_of(step))
    _check_names(step, definition.scalars)
    apart(check_step, step, definition.pieces, states, dict(definition.scalars))
    check_unchanged(definition)
    functor(definition)
    return definition
