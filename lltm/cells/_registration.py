"""A cell's ops beyond their kernels: fakes, autograd and vmap, as :mod:`lltm.ops` has the LLTM's.

Reverse-mode first derivatives are kernels; whatever is rarer is the derivative of the step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lltm import _dispatch, _kernel_ops
from lltm._kernel_ops import KernelOps
from lltm.cells import _contract, _reference
from lltm.cells._contract import Arguments
from lltm.cells._definition import Definition

RESULTS = 2
"""output [T, B, S] and last [N, B, S]."""
BATCH_DIMS = (1, None, None, 1, None, 1, 1, None)
"""Of each argument; None where no dimension is the batch."""
PASSED_TO_BACKWARD = Arguments._fields.index("input_weights")
"""The arguments that all three ops have, the first ones."""
DIFFERENTIABLE = (0, 1, 2, 3, 6)
"""Of Arguments, those that ``sequence_backward`` has a gradient for: :meth:`Arguments.tensors`."""
SAVED_BATCH_DIMS = (1, 1, 2, 1)
"""Of what sequence_forward returns."""


@dataclass(frozen=True)
class CellOps(KernelOps):
    """The ops of one functor, which ``definition`` has; another one may differ in heads.

    Attributes:
        definition: of the cell.
    """

    definition: Definition

    def checked(self, arguments: Arguments) -> Definition:
        """The cell with as many heads as the weights have."""
        width = arguments.state_columns()
        heads = arguments.states.shape[-1] // width if width > 0 else 1
        definition = replace(self.definition, heads=max(1, heads))
        _contract.check(definition, arguments)
        return definition

    def reference(self, *args: Any) -> tuple[Tensor, Tensor]:
        """In plain PyTorch, after the checks."""
        arguments = Arguments(*args)
        return _reference.sequence(self.checked(arguments), arguments)


# Fake -------------------------------------------------------------------------------------------


def _fake(cell: CellOps, kept: int | None) -> Callable[..., tuple[Tensor, ...]]:
    def fake(*args: Any) -> tuple[Tensor, ...]:
        arguments = Arguments(*args)
        cell.checked(arguments)
        input, states = arguments.input, arguments.states
        steps, (count, batch, state) = input.shape[0], states.shape
        made = input.new_empty((steps, batch, state)), input.new_empty(states.shape)
        if kept is None:
            return made
        saved = input.new_empty((steps, batch, kept * state))
        return *made, input.new_empty((steps, count - 1, batch, state)), saved

    return fake


def _fake_backward(cell: CellOps, kept: int) -> Callable[..., tuple[Tensor, ...]]:
    def fake(*args: Any) -> tuple[Tensor, ...]:
        end = RESULTS + PASSED_TO_BACKWARD
        arguments, needs = Arguments(*args[RESULTS:end]), args[-1]
        definition = cell.checked(arguments)
        grads, saved = args[:RESULTS], args[end:-1]
        _contract.check_backward(definition, arguments, kept, grads, saved, needs)
        like = arguments.input
        return tuple(
            like.new_empty(tensor.shape if need and tensor is not None else (0,))
            for tensor, need in zip(arguments.tensors(), needs, strict=True)
        )

    return fake


# Autograd ---------------------------------------------------------------------------------------


class _Function(torch.autograd.Function):
    """Reverse mode through the kernels."""

    @staticmethod
    def forward(ctx: Any, cell: CellOps, *args: Any) -> tuple[Tensor, Tensor]:
        with torch._C._AutoDispatchBelowAutograd():
            output, last, states_all, saved = cell.forward(*args)
        ctx.cell, ctx.scalars = cell, args[4]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*args[:4], *args[5:], output, states_all, saved)
        return output, last

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        *tensors, reset, reset_state, output, states_all, saved = ctx.saved_tensors
        edges = iter(ctx.next_functions)
        of = [_dispatch.is_asked_for(tensor, edges) for tensor in (*tensors, reset, reset_state)]
        needs = [*of[:4], of[5]]
        gradients = ctx.cell.backward(
            *grads, *tensors, ctx.scalars, reset, reset_state, output, states_all, saved, needs
        )
        wanted = [d if need else None for d, need in zip(gradients, needs, strict=True)]
        return None, *wanted[:4], None, None, wanted[4]


_apply = _dispatch.single_level(_Function)


def _reverse(cell: CellOps, *args: Any) -> tuple[Tensor, ...]:
    results: tuple[Tensor, ...] = _apply(cell, *Arguments(*args).of_backward())
    return results


def _autograd(cell: CellOps) -> Callable[..., tuple[Tensor, ...]]:
    op = cell.op()

    def autograd(*args: Any) -> tuple[Tensor, ...]:
        arguments = Arguments(*args)
        tensors = (*arguments.tensors(), arguments.input_weights)
        reverse = torch.is_grad_enabled() and torch._C._any_requires_grad(*tensors)
        transformed = torch._C._are_functorch_transforms_active()
        if _dispatch.forward_mode() or (
            transformed and (reverse or _dispatch.has_tangent(tensors))
        ):
            return cell.reference(*args)
        if reverse:
            return _reverse(cell, *args)
        with torch._C._AutoDispatchBelowAutograd():
            results: tuple[Tensor, ...] = op(*args)
            return results

    return autograd


def _autograd_backward(cell: CellOps) -> Callable[..., tuple[Tensor, ...]]:
    def differentiable(*args: Any) -> tuple[Tensor, ...]:
        inputs = args[RESULTS : RESULTS + PASSED_TO_BACKWARD]
        return _kernel_ops.gradients(
            cell.reference, inputs, DIFFERENTIABLE, args[-1], args[:RESULTS]
        )

    return cell.autograd_backward(differentiable)


# vmap -------------------------------------------------------------------------------------------


def _vmap(cell: CellOps, suffix: str) -> Callable[..., Any]:
    op = cell.op(suffix)

    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        parameters = (*in_dims[1:3], *in_dims[PASSED_TO_BACKWARD:])
        if any(dim is not None for dim in parameters):
            return _dispatch.each(op, info.batch_size, in_dims, args)
        rows = [
            _dispatch.fold(arg, dim, batch_dim, info.batch_size) if batch_dim is not None else arg
            for arg, dim, batch_dim in zip(args, in_dims, BATCH_DIMS, strict=False)
        ]
        outputs = op(*rows)
        dims = SAVED_BATCH_DIMS[: len(outputs)]
        unfolded = tuple(
            output.unflatten(dim, (info.batch_size, output.shape[dim] // info.batch_size))
            for output, dim in zip(outputs, dims, strict=True)
        )
        return unfolded, dims

    return vmap


_libraries: list[torch.library.Library] = []


def register(namespace: str, definition: Definition, kept: int) -> None:
    """Give the ops that a library has defined in ``namespace`` all that is not a kernel."""
    library = torch.library.Library(namespace, "IMPL")
    _libraries.append(library)
    cell = CellOps(namespace, "sequence", definition)
    for suffix, count in (("", None), ("_forward", kept)):
        name = f"{namespace}::sequence{suffix}"
        torch.library.register_fake(name, _fake(cell, count), lib=library)
        torch.library.register_vmap(name, _vmap(cell, suffix), lib=library)
    backward = f"{namespace}::sequence_backward"
    torch.library.register_fake(backward, _fake_backward(cell, kept), lib=library)
    torch.library.register_vmap(
        backward, _dispatch.vmap_one_by_one(cell.op("_backward")), lib=library
    )
    _dispatch.refuse_layouts(
        library, namespace, [f"sequence{suffix}" for suffix in _dispatch.SUFFIXES]
    )
    library.impl("sequence", _autograd(cell), "Autograd")
    _dispatch.add_reverse(cell.op(), functools.partial(_reverse, cell))
    library.impl("sequence_forward", cell.autograd_forward(), "Autograd")
    library.impl("sequence_backward", _autograd_backward(cell), "Autograd")
