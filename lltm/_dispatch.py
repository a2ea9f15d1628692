"""What an op needs of torch's dispatcher, whichever op it is: the LLTM's, a stream's, a cell's.

The short way past it, reverse and forward mode, autocast, vmap, and tensors of other layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet
from torch.autograd import forward_ad
from torch.overrides import has_torch_function

from lltm import contract

SUFFIXES = ("", "_forward", "_backward")
"""Of an op and the kernels behind it."""
AUTOCAST_DEVICES = {"AutocastCPU": "cpu", "AutocastCUDA": "cuda"}

# The short way -----------------------------------------------------------------------------------
# Autograd in Python costs a small cell's call a tenth where all it does is to pass the call on, and
# so does the dispatcher's way to it.

_reverse: dict[Any, Callable[..., Any]] = {}
"""By op what reverse mode calls, where autograd is in Python."""
_USUAL = DispatchKeySet(DispatchKey.BackendSelect).add(DispatchKey.ADInplaceOrView)


def device_type(tensor: Tensor) -> str:
    """``tensor.device.type``, which is slow to make where the caches hold other things."""
    return "cpu" if tensor.is_cpu else tensor.device.type


def add_reverse(op: Any, reverse: Callable[..., Any]) -> None:
    """Note what the op's autograd, in Python, calls where a gradient is wanted."""
    _reverse[op] = reverse


def _is_autograd_first() -> bool:
    """Whether no mode, tracer, transform or cast is to see a call before autograd does."""
    usual = torch._C._dispatch_tls_local_include_set() == _USUAL
    return usual and not torch._C._is_any_autocast_enabled()


def is_recorded() -> bool:
    """Whether autograd, a compiler or a tracer keeps the operations that run.

    torch.jit traces twice, once without gradients, and wants the same operations of both.
    """
    recorded: bool = (
        torch.is_grad_enabled() or torch.compiler.is_compiling() or torch._C._is_tracing()
    )
    return recorded


def is_plain(args: Sequence[Any]) -> bool:
    """Whether autograd alone has a say in a call before its kernel."""
    if torch.compiler.is_compiling() or is_transformed() or has_torch_function(args):
        return False
    return not torch.is_grad_enabled() or _is_autograd_first()


def direct(op: Any) -> Callable[..., Any]:
    """``op``, past the dispatcher's way through autograd in Python where that changes nothing.

    Under torch.compile it changes something: Dynamo traces the op, not this short cut.
    """
    reverse = _reverse.get(op, op)

    def call(*args: Any) -> Any:
        if not is_plain(args):
            return op(*args)
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*args):
            return reverse(*args)
        with torch._C._AutoDispatchBelowAutograd():
            return op(*args)

    return call


# Reverse mode -------------------------------------------------------------------------------------


def is_asked_for(tensor: Tensor | None, edges: Iterator[tuple[Any, int]]) -> bool:
    """Whether the backward pass under way wants this argument's gradient.

    ``autograd.grad`` may name a few of those that require grad, which is all that
    ``ctx.needs_input_grad`` knows. Asked about a leaf that is named, the engine raises, which takes
    a tenth of a small cell's backward: leaves are taken to be wanted, and all that require grad
    where a compiler traces the pass, which has no engine to ask.

    Args:
        tensor: the argument.
        edges: of the graph, one for each argument that is a tensor; taken from here.
    """
    if tensor is None:
        return False
    node, _ = next(edges)
    if node is None or tensor.is_leaf or torch.compiler.is_compiling():
        return node is not None
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # no engine is under way
        return True


def single_level(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """``function.apply`` without what it does for ``torch.func``.

    No transform comes this far, and asking every argument about them takes a twentieth of a small
    cell's call.
    """
    parent: Any = super(torch.autograd.Function, function)
    apply: Callable[..., Any] = parent.apply
    return apply


def vjp(
    function: Callable[..., Sequence[Tensor]],
    tensors: Sequence[Tensor],
    cotangents: Sequence[Tensor | None],
) -> tuple[Tensor, ...]:
    """``function``'s vector-Jacobian product, itself differentiable where gradients are recorded.

    By autograd, as torch.func refuses to work under hooks on saved tensors, such as a checkpoint's.

    Args:
        function: of ``tensors``.
        tensors: each has a gradient, even where one is computed from another.
        cotangents: of the results; None for zeros.
    """
    recording = torch.is_grad_enabled()
    with torch.enable_grad():
        inputs = [tensor.view_as(tensor) for tensor in tensors]
        for each in inputs:
            if not each.requires_grad:
                each.requires_grad_()
        outputs = function(*inputs)
    reached = [
        (output, cotangent)
        for output, cotangent in zip(outputs, cotangents, strict=True)
        if cotangent is not None and output.requires_grad
    ]
    if not reached:
        return tuple(map(torch.zeros_like, tensors))
    return torch.autograd.grad(
        [output for output, _ in reached],
        inputs,
        [cotangent for _, cotangent in reached],
        create_graph=recording,
        materialize_grads=True,
    )


# Forward mode -------------------------------------------------------------------------------------


def forward_mode() -> bool:
    """Whether a level of forward-mode differentiation is open."""
    return forward_ad._current_level >= 0


def has_tangent(args: Sequence[Any]) -> bool:
    """A compiled graph enters forward mode without the level that Python counts."""
    return any(
        isinstance(arg, Tensor) and forward_ad.unpack_dual(arg, level=0).tangent is not None
        for arg in args
    )


def is_transformed() -> bool:
    """Whether forward mode or a transform of ``torch.func`` is under way."""
    return forward_mode() or torch._C._are_functorch_transforms_active()


def refuse_tangents(op: Any, args: Sequence[Any], instead: str) -> None:
    """Name the argument that is differentiated forward: the result's tangent would be zero.

    Raises:
        NotImplementedError: an argument has a tangent.
    """
    if not is_transformed():
        return
    for argument, value in zip(op._schema.arguments, args, strict=False):
        if has_tangent((value,)):
            raise NotImplementedError(
                f"{op.name()} has no forward-mode derivative, and {argument.name} has a tangent; "
                f"{instead}"
            )


# Autocast -----------------------------------------------------------------------------------------


def casts(device: str) -> bool:
    """Whether autocast is on for a device."""
    return device in AUTOCAST_DEVICES.values() and torch.is_autocast_enabled(device)


def autocast_arguments(device: str, args: Sequence[Any]) -> list[Any]:
    """Cast as torch does for its own recurrent cells: float tensors but float64 to autocast's."""
    dtype = torch.get_autocast_dtype(device)
    return [
        arg.to(dtype)
        if isinstance(arg, Tensor) and arg.is_floating_point() and arg.dtype != torch.float64
        else arg
        for arg in args
    ]


# vmap ---------------------------------------------------------------------------------------------


def fold(arg: Tensor | None, dim: int | None, batch_dim: int | None, size: int) -> Tensor | None:
    """Make the mapped dimension part of the batch: ``[N, .., B, ..]`` to ``[.., N * B, ..]``."""
    if arg is None or batch_dim is None:
        return arg
    stacked = arg.unsqueeze(0).expand(size, *arg.shape) if dim is None else arg.movedim(dim, 0)
    return stacked.movedim(0, batch_dim).flatten(batch_dim, batch_dim + 1)


def vmap_one_by_one(op: Any) -> Callable[..., Any]:
    """The vmap rule of an op that is called for each mapped index."""

    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        return each(op, info.batch_size, in_dims, args)

    return vmap


def each(op: Any, size: int, in_dims: Sequence[Any], args: Sequence[Any]) -> Any:
    """One call per mapped index, stacked: for mapped weights no kernel can share work."""
    results = [
        op(
            *(
                arg.select(dim, index) if isinstance(dim, int) else arg
                for arg, dim in zip(args, in_dims, strict=True)
            )
        )
        for index in range(size)
    ]
    stacked = [torch.stack(column) for column in zip(*results, strict=True)]
    return tuple(stacked), (0,) * len(stacked)


# Other layouts ----------------------------------------------------------------------------------

LAYOUT_KEYS = (
    *("SparseCPU", "SparseCsrCPU", "MkldnnCPU", "QuantizedCPU", "NestedTensorCPU"),
    *("SparseCUDA", "SparseCsrCUDA", "QuantizedCUDA", "NestedTensorCUDA"),
)


def _refusing_layouts(op: Any) -> Callable[..., Any]:
    """Names the argument, which torch's own refusal does not."""
    names = [argument.name for argument in op._schema.arguments]

    def refuse(*args: Any) -> Any:
        for name, value in zip(names, args, strict=False):
            if isinstance(value, Tensor):
                contract.check_dense(f"lltm::{op.name().split('::')[1]}", name, value)
        raise AssertionError("one of them brought the call here")

    return refuse


def refuse_layouts(library: torch.library.Library, namespace: str, names: Sequence[str]) -> None:
    """Answer sparse, nested, quantized and MKL-DNN tensors with the name of the argument."""
    for name in names:
        op = getattr(getattr(torch.ops, namespace), name).default
        for key in LAYOUT_KEYS:
            library.impl(name, _refusing_layouts(op), key)
