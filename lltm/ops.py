"""The ops beyond their kernels: fakes, autograd, autocast and vmap, side by side per op.

The schemas and the kernels are in ``csrc/``. Reverse-mode first derivatives are kernels too
(``cell_backward``, ``sequence_backward``). Whatever is rarer - forward mode, second and higher
orders, ``torch.func`` transforms - is the derivative of :mod:`lltm.reference`: right by
construction, at the speed of plain PyTorch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lltm import _dispatch, _kernel_ops, _stream_ops, contract, reference
from lltm._kernel_ops import KernelOps

TENSOR_ARGUMENTS = 5
"""input, weights, bias, hidden state, cell state: the arguments that can have a gradient."""


@dataclass(frozen=True)
class Family(KernelOps):
    """One of the LLTM's ops.

    Attributes:
        reference: the op in plain PyTorch.
        check: raises where an argument breaks the contract.
        check_backward: the same for ``name_backward``.
        outputs: how many tensors the op returns.
        empty_outputs: unfilled outputs for the op's arguments.
        empty_saved: unfilled tensors that ``name_forward`` returns behind the outputs.
        saved_outputs: indices into what ``name_forward`` returns of the tensors backward needs.
        batch_dims: position of ``B`` in each tensor argument, ``None`` for weights and bias.
        output_batch_dims: position of ``B`` in each output and saved tensor.
    """

    reference: Callable[..., tuple[Tensor, ...]]
    check: Callable[..., None]
    check_backward: Callable[..., None]
    outputs: int
    empty_outputs: Callable[..., tuple[Tensor, ...]]
    empty_saved: Callable[..., tuple[Tensor, ...]]
    saved_outputs: tuple[int, ...]
    batch_dims: tuple[int | None, ...]
    output_batch_dims: tuple[int, ...]


def _empty_cell(input: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    return input.new_empty(h.shape), input.new_empty(h.shape)


def _empty_cell_saved(input: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    batch, state = h.shape
    return (input.new_empty((batch, 3 * state)),)


def _empty_sequence(input: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    output = input.new_empty((input.shape[0], *h.shape))
    return output, input.new_empty(h.shape), input.new_empty(h.shape)


def _empty_sequence_saved(input: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    steps, (batch, state) = input.shape[0], h.shape
    return input.new_empty((steps, batch, state)), input.new_empty((steps, batch, 3 * state))


def families(namespace: str) -> tuple[Family, Family]:
    """The two ops of a namespace."""
    cell = Family(
        name="cell",
        namespace=namespace,
        reference=reference.cell,
        check=contract.check_cell,
        check_backward=contract.check_cell_backward,
        outputs=2,
        empty_outputs=_empty_cell,
        empty_saved=_empty_cell_saved,
        saved_outputs=(1, 2),
        batch_dims=(0, None, None, 0, 0),
        output_batch_dims=(0, 0, 0),
    )
    sequence = Family(
        name="sequence",
        namespace=namespace,
        reference=reference.sequence,
        check=contract.check_sequence,
        check_backward=contract.check_sequence_backward,
        outputs=3,
        empty_outputs=_empty_sequence,
        empty_saved=_empty_sequence_saved,
        saved_outputs=(0, 3, 4),
        batch_dims=(1, None, None, 0, 0),
        output_batch_dims=(1, 0, 0, 1, 1),
    )
    return cell, sequence


# Fake -------------------------------------------------------------------------------------------


def _fake(family: Family, saves: bool) -> Callable[..., tuple[Tensor, ...]]:
    def fake(*args: Any) -> tuple[Tensor, ...]:
        family.check(*args)
        input, _, _, h, *_ = args
        outputs = family.empty_outputs(input, h)
        return outputs + family.empty_saved(input, h) if saves else outputs

    return fake


def _fake_backward(family: Family) -> Callable[..., tuple[Tensor, ...]]:
    def fake(*args: Any) -> tuple[Tensor, ...]:
        family.check_backward(*args)
        tensors = args[family.outputs : family.outputs + TENSOR_ARGUMENTS]
        like = tensors[0]
        return tuple(
            like.new_empty(tensor.shape if need else (0,))
            for tensor, need in zip(tensors, args[-1], strict=True)
        )

    return fake


# Autograd ---------------------------------------------------------------------------------------


class _Function(torch.autograd.Function):
    """Reverse mode through the fused kernels; ``family`` says which."""

    @staticmethod
    def forward(ctx: Any, family: Family, *args: Any) -> tuple[Tensor, ...]:
        with torch._C._AutoDispatchBelowAutograd():
            results: tuple[Tensor, ...] = family.forward(*args)
        ctx.family = family
        ctx.alpha = args[TENSOR_ARGUMENTS]
        ctx.set_materialize_grads(False)
        saved = [results[index] for index in family.saved_outputs]
        ctx.save_for_backward(*args[:TENSOR_ARGUMENTS], *saved)
        return results[: family.outputs]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        edges = iter(ctx.next_functions)
        needs = [_dispatch.is_asked_for(tensor, edges) for tensor in saved[:TENSOR_ARGUMENTS]]
        gradients = ctx.family.backward(*grads, *saved, ctx.alpha, needs)
        wanted = (d if need else None for d, need in zip(gradients, needs, strict=True))
        return None, *wanted, None


_apply = _dispatch.single_level(_Function)


def _autograd(family: Family) -> Callable[..., tuple[Tensor, ...]]:
    op = family.op()

    def autograd(
        input: Tensor,
        weights: Tensor,
        bias: Tensor | None,
        h: Tensor,
        c: Tensor,
        alpha: float = 1.0,
    ) -> tuple[Tensor, ...]:
        args = (input, weights, bias, h, c, alpha)
        reverse = torch.is_grad_enabled() and torch._C._any_requires_grad(*args)
        transformed = torch._C._are_functorch_transforms_active()
        if _dispatch.forward_mode() or (transformed and (reverse or _dispatch.has_tangent(args))):
            family.check(*args)
            return family.reference(*args)
        if reverse:
            outputs: tuple[Tensor, ...] = _apply(family, *args)
            return outputs
        with torch._C._AutoDispatchBelowAutograd():
            results: tuple[Tensor, ...] = op(*args)
            return results

    return autograd


def _autograd_backward(family: Family) -> Callable[..., tuple[Tensor, ...]]:
    def differentiable(*args: Any) -> tuple[Tensor, ...]:
        """By the inputs: the saved activations in ``args`` are functions of them, and not used."""
        grads = args[: family.outputs]
        tensors = args[family.outputs : family.outputs + TENSOR_ARGUMENTS]
        alpha, needs = args[-2:]
        every = range(TENSOR_ARGUMENTS)
        return _kernel_ops.gradients(family.reference, (*tensors, alpha), every, needs, grads)

    known = family.autograd_backward(differentiable)

    def autograd(*args: Any) -> tuple[Tensor, ...]:
        if len(args[-1]) != TENSOR_ARGUMENTS:  # of which native's conversion names no argument
            contract.check_needs(f"{family.name}_backward", args[-1], None)
        return known(*args)

    return autograd


# Autocast ---------------------------------------------------------------------------------------


def _autocast(family: Family, suffix: str, device: str) -> Callable[..., tuple[Tensor, ...]]:
    op = family.op(suffix)

    def autocast(*args: Any) -> tuple[Tensor, ...]:
        with torch.autocast(device, enabled=False):
            results: tuple[Tensor, ...] = op(*_dispatch.autocast_arguments(device, args))
            return results

    return autocast


# vmap -------------------------------------------------------------------------------------------


def _vmap(family: Family, suffix: str) -> Callable[..., Any]:
    op = family.op(suffix)

    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        if in_dims[1] is not None or in_dims[2] is not None:
            return _dispatch.each(op, info.batch_size, in_dims, args)
        rows = [
            _dispatch.fold(arg, dim, batch_dim, info.batch_size)
            for arg, dim, batch_dim in zip(args, in_dims, family.batch_dims, strict=False)
        ]
        outputs = op(*rows, *args[TENSOR_ARGUMENTS:])
        unfolded = tuple(
            output.unflatten(
                dim, (info.batch_size, -1) if output.shape[dim] else (info.batch_size, 0)
            )
            for output, dim in zip(outputs, family.output_batch_dims, strict=False)
        )
        return unfolded, family.output_batch_dims[: len(unfolded)]

    return vmap


# Composed ops -----------------------------------------------------------------------------------


def _traced(family: Family) -> Callable[..., tuple[Tensor, ...]]:
    """What a compiler traces in the place of the composed C++ op, which asks for sizes as numbers.

    The same ATen operations; here sizes stay symbols, so that a new size is no new graph.
    """

    def traced(
        input: Tensor,
        weights: Tensor,
        bias: Tensor | None,
        h: Tensor,
        c: Tensor,
        alpha: float = 1.0,
    ) -> tuple[Tensor, ...]:
        family.check(input, weights, bias, h, c, alpha)
        return family.reference(input, weights, bias, h, c, alpha)

    return traced


# Registration -----------------------------------------------------------------------------------

_libraries: list[torch.library.Library] = []


def register(namespace: str, native: bool) -> None:
    """Give the ops that a library has defined in ``namespace`` all that is not a kernel.

    Args:
        namespace: the library's, ``lltm`` for the installed one.
        native: whether the library brings reverse-mode autograd of its own.
    """
    library = torch.library.Library(namespace, "IMPL")
    _libraries.append(library)
    _stream_ops.register(namespace, library)
    names = [f"{op}{suffix}" for op in ("cell", "sequence") for suffix in _dispatch.SUFFIXES]
    _dispatch.refuse_layouts(library, namespace, (*names, "pack", "stream_step"))
    for family in families(namespace):
        for suffix, saves in (("", False), ("_forward", True)):
            name = f"{namespace}::{family.name}{suffix}"
            torch.library.register_fake(name, _fake(family, saves), lib=library)
            torch.library.register_vmap(name, _vmap(family, suffix), lib=library)
        backward = f"{namespace}::{family.name}_backward"
        torch.library.register_fake(backward, _fake_backward(family), lib=library)
        torch.library.register_vmap(
            backward, _dispatch.vmap_one_by_one(family.op("_backward")), lib=library
        )
        if native:
            composite = torch._C.DispatchKey.CompositeImplicitAutograd
            family.op("_aten").py_impl(composite)(_traced(family))
        else:
            library.impl(family.name, _autograd(family), "Autograd")
            _dispatch.add_reverse(family.op(), functools.partial(_apply, family))
        library.impl(f"{family.name}_forward", family.autograd_forward(), "Autograd")
        library.impl(f"{family.name}_backward", _autograd_backward(family), "Autograd")
        for key, device in _dispatch.AUTOCAST_DEVICES.items():
            for suffix in ("", "_aten") if native else ("",):
                library.impl(family.name + suffix, _autocast(family, suffix, device), key)


def register_missing_cuda(namespace: str, reason: str) -> None:
    """Answer CUDA tensors with ``reason`` where no CUDA kernels are registered.

    Raises:
        RuntimeError: later, by the ops: ``reason``, with the name of the op.
    """
    library = torch.library.Library(namespace, "IMPL")
    _libraries.append(library)

    def refusing(name: str) -> Callable[..., Any]:
        def refuse(*args: Any) -> Any:
            raise RuntimeError(f"{namespace}::{name}: {reason}")

        return refuse

    for family in families(namespace):
        for suffix in _dispatch.SUFFIXES:
            library.impl(family.name + suffix, refusing(family.name + suffix), "CUDA")
