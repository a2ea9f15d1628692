"""The ops beyond their kernels: fakes, autograd, autocast and vmap, side by side per op.

The schemas and the kernels are in ``csrc/``. Reverse-mode first derivatives are kernels too
(``cell_backward``, ``sequence_backward``). Whatever is rarer - forward mode, second and higher
orders, ``torch.func`` transforms - is the derivative of :mod:`lltm.reference`: right by
construction, at the speed of plain PyTorch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet
from torch.autograd import forward_ad
from torch.overrides import has_torch_function

from lltm import contract, reference

SUFFIXES = ("", "_forward", "_backward")
"""Of the ops behind a public one."""
AUTOCAST_DEVICES = {"AutocastCPU": "cpu", "AutocastCUDA": "cuda"}
TENSOR_ARGUMENTS = 5
"""input, weights, bias, hidden state, cell state: the arguments that can have a gradient."""
STREAM_WRITTEN = {4: "cell", 5: "new_h"}
"""The arguments that ``stream_step`` writes, by position."""


@dataclass(frozen=True)
class Family:
    """One op with the kernels behind it: ``name``, ``name_forward``, ``name_backward``.

    Attributes:
        name: the op's name.
        namespace: where its library registered it.
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

    name: str
    namespace: str
    reference: Callable[..., tuple[Tensor, ...]]
    check: Callable[..., None]
    check_backward: Callable[..., None]
    outputs: int
    empty_outputs: Callable[..., tuple[Tensor, ...]]
    empty_saved: Callable[..., tuple[Tensor, ...]]
    saved_outputs: tuple[int, ...]
    batch_dims: tuple[int | None, ...]
    output_batch_dims: tuple[int, ...]

    def op(self, suffix: str = "") -> Any:
        """The registered overload ``name + suffix``."""
        return getattr(getattr(torch.ops, self.namespace), self.name + suffix).default

    @functools.cached_property
    def forward(self) -> Any:
        """``name_forward``, looked up once."""
        return self.op("_forward")

    @functools.cached_property
    def backward(self) -> Callable[..., tuple[Tensor, ...]]:
        """``name_backward``, called the short way."""
        return direct(self.op("_backward"))


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
    def fake(
        input: Tensor,
        weights: Tensor,
        bias: Tensor | None,
        h: Tensor,
        c: Tensor,
        alpha: float = 1.0,
    ) -> tuple[Tensor, ...]:
        family.check(input, weights, bias, h, c, alpha)
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


def _fake_pack(weights: Tensor) -> Tensor:
    elements, dtype = contract.check_pack(weights)
    return weights.new_empty(elements, dtype=dtype)


def _fake_stream_step(
    input: Tensor,
    packed: Tensor,
    bias: Tensor | None,
    old_h: Tensor,
    cell: Tensor,
    new_h: Tensor,
    alpha: float = 1.0,
) -> None:
    """It returns nothing and changes no shape."""
    contract.check_stream_step(input, packed, bias, old_h, cell, new_h, alpha)


# The short way -----------------------------------------------------------------------------------
# Autograd in Python costs a small cell's call a tenth where all it does is to pass the call on, and
# so does the dispatcher's way to it.

_reverse: dict[Any, Callable[..., Any]] = {}
"""By op what reverse mode calls, where autograd is in Python."""
_USUAL = DispatchKeySet(DispatchKey.BackendSelect).add(DispatchKey.ADInplaceOrView)


def add_reverse(op: Any, reverse: Callable[..., Any]) -> None:
    """Note what the op's autograd, in Python, calls where a gradient is wanted."""
    _reverse[op] = reverse


def _is_autograd_first() -> bool:
    """Whether no mode, tracer, transform or cast is to see a call before autograd does."""
    usual = torch._C._dispatch_tls_local_include_set() == _USUAL
    return usual and not torch._C._is_any_autocast_enabled()


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


# Autograd ---------------------------------------------------------------------------------------


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
        needs = [is_asked_for(tensor, edges) for tensor in saved[:TENSOR_ARGUMENTS]]
        gradients = ctx.family.backward(*grads, *saved, ctx.alpha, needs)
        wanted = (d if need else None for d, need in zip(gradients, needs, strict=True))
        return None, *wanted, None


_apply = single_level(_Function)


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
        if forward_mode() or (transformed and (reverse or has_tangent(args))):
            family.check(*args)
            return family.reference(*args)
        if reverse:
            outputs: tuple[Tensor, ...] = _apply(family, *args)
            return outputs
        with torch._C._AutoDispatchBelowAutograd():
            results: tuple[Tensor, ...] = op(*args)
            return results

    return autograd


def _autograd_forward(family: Family) -> Callable[..., tuple[Tensor, ...]]:
    op = family.op("_forward")

    def autograd(*args: Any) -> tuple[Tensor, ...]:
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*args):
            raise NotImplementedError(
                f"{op.name()} is the kernel behind {family.op().name()} and has no derivative of "
                f"its own; call {family.op().name()}, or detach its arguments"
            )
        refuse_tangents(op, args, f"call {family.op().name()}, which has one")
        with torch._C._AutoDispatchBelowAutograd():
            results: tuple[Tensor, ...] = op(*args)
            return results

    return autograd


def _autograd_backward(family: Family) -> Callable[..., tuple[Tensor, ...]]:
    op = family.op("_backward")

    def autograd(*args: Any) -> tuple[Tensor, ...]:
        if len(args[-1]) != TENSOR_ARGUMENTS:  # of which native's conversion names no argument
            contract.check_needs(f"{family.name}_backward", args[-1], None)
        reverse = torch.is_grad_enabled() and torch._C._any_requires_grad(*args[:-1])
        if reverse or (is_transformed() and has_tangent(args)):
            return _differentiable_backward(family, args)
        with torch._C._AutoDispatchBelowAutograd():
            results: tuple[Tensor, ...] = op(*args)
            return results

    return autograd


def _differentiable_backward(family: Family, args: Sequence[Any]) -> tuple[Tensor, ...]:
    """The gradients as the vector-Jacobian product of the reference, itself differentiable.

    The saved activations in ``args`` are functions of the inputs, so they are not used: gradients
    of these gradients reach the inputs only.
    """
    if torch._C._are_functorch_transforms_active():
        raise NotImplementedError(
            f"{family.op('_backward').name()} cannot be differentiated inside a torch.func "
            f"transform; transform {family.op().name()} itself"
        )
    grads = args[: family.outputs]
    inputs = list(args[family.outputs : family.outputs + TENSOR_ARGUMENTS])
    alpha, needs = args[-2:]
    wanted = [index for index, need in enumerate(needs) if need]

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        full = list(inputs)
        for index, tensor in zip(wanted, tensors, strict=True):
            full[index] = tensor
        return family.reference(*full, alpha)

    outputs, pullback, *_ = torch.func.vjp(function, *(inputs[index] for index in wanted))
    cotangents = tuple(
        torch.zeros_like(output) if grad is None else grad
        for output, grad in zip(outputs, grads, strict=True)
    )
    gradients = iter(pullback(cotangents))
    return tuple(next(gradients) if need else inputs[0].new_empty(0) for need in needs)


# stream_step, pack ------------------------------------------------------------------------------
# The former writes two of its arguments, and torch has no fallback that knows what that means.


def _autograd_stream_step(op: Any) -> Callable[..., None]:
    def autograd(*args: Any) -> None:
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*args):
            raise NotImplementedError(
                f"{op.name()} has no derivative and writes cell and new_h in place; call it under "
                f"torch.no_grad(), or detach what requires grad"
            )
        refuse_tangents(op, args, "call lltm::cell, which has one")
        with torch._C._AutoDispatchBelowAutograd():
            op(*args)

    return autograd


def _autograd_pack(op: Any) -> Callable[[Tensor], Tensor]:
    def autograd(weights: Tensor) -> Tensor:
        contract.check_types("pack", ("weights",), (weights,))
        if torch.is_grad_enabled() and weights.requires_grad:
            raise NotImplementedError(
                f"{op.name()} has no derivative; call it under torch.no_grad(), or detach weights"
            )
        refuse_tangents(op, (weights,), "call lltm::cell with the weights, which has one")
        with torch._C._AutoDispatchBelowAutograd():
            packed: Tensor = op(weights)
            return packed

    return autograd


def _versioned_stream_step(op: Any) -> Callable[..., None]:
    """Count the write, so that autograd notices what it saved and what is no longer there."""

    def versioned(*args: Any) -> None:
        with torch._C._AutoDispatchBelowADInplaceOrView():
            op(*args)
        torch.autograd.graph.increment_version([args[index] for index in STREAM_WRITTEN])

    return versioned


def _resolved_stream_step(op: Any) -> Callable[..., None]:
    """For views whose values are negated or conjugated when they are read."""

    def resolved(*args: Any) -> None:
        for index, name in STREAM_WRITTEN.items():
            if args[index].is_neg() or args[index].is_conj():
                raise RuntimeError(
                    f"{op.name()}: {name} is written in place and must not be a negated or "
                    f"conjugated view, got one; call resolve_neg() or resolve_conj() on it first"
                )
        op(*(a.resolve_conj().resolve_neg() if isinstance(a, Tensor) else a for a in args))

    return resolved


def _register_stream(namespace: str, library: torch.library.Library) -> None:
    op = getattr(torch.ops, namespace).stream_step.default
    pack = getattr(torch.ops, namespace).pack.default
    torch.library.register_fake(f"{namespace}::pack", _fake_pack, lib=library)
    library.impl("pack", _autograd_pack(pack), "Autograd")
    torch.library.register_fake(f"{namespace}::stream_step", _fake_stream_step, lib=library)
    library.impl("stream_step", _autograd_stream_step(op), "Autograd")
    library.impl("stream_step", _versioned_stream_step(op), "ADInplaceOrView")
    for key in ("Conjugate", "Negative"):
        library.impl("stream_step", _resolved_stream_step(op), key)


# Autocast ---------------------------------------------------------------------------------------


def autocast_arguments(device: str, args: Sequence[Any]) -> list[Any]:
    """Cast as torch does for its own recurrent cells: float tensors but float64 to autocast's."""
    dtype = torch.get_autocast_dtype(device)
    return [
        arg.to(dtype)
        if isinstance(arg, Tensor) and arg.is_floating_point() and arg.dtype != torch.float64
        else arg
        for arg in args
    ]


def _autocast(family: Family, suffix: str, device: str) -> Callable[..., tuple[Tensor, ...]]:
    op = family.op(suffix)

    def autocast(*args: Any) -> tuple[Tensor, ...]:
        with torch.autocast(device, enabled=False):
            results: tuple[Tensor, ...] = op(*autocast_arguments(device, args))
            return results

    return autocast


# vmap -------------------------------------------------------------------------------------------


def _vmap(family: Family, suffix: str) -> Callable[..., Any]:
    op = family.op(suffix)

    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        if in_dims[1] is not None or in_dims[2] is not None:
            return each(op, info.batch_size, in_dims, args)
        rows = [
            fold(arg, dim, batch_dim, info.batch_size)
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
                contract.check_dense(op.name().split("::")[1], name, value)
        raise AssertionError("one of them brought the call here")

    return refuse


def refuse_layouts(library: torch.library.Library, namespace: str, names: Sequence[str]) -> None:
    """Answer sparse, nested, quantized and MKL-DNN tensors with the name of the argument."""
    for name in names:
        op = getattr(getattr(torch.ops, namespace), name).default
        for key in LAYOUT_KEYS:
            library.impl(name, _refusing_layouts(op), key)


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
    _register_stream(namespace, library)
    names = [f"{op}{suffix}" for op in ("cell", "sequence") for suffix in SUFFIXES]
    refuse_layouts(library, namespace, (*names, "pack", "stream_step"))
    for family in families(namespace):
        for suffix, saves in (("", False), ("_forward", True)):
            name = f"{namespace}::{family.name}{suffix}"
            torch.library.register_fake(name, _fake(family, saves), lib=library)
            torch.library.register_vmap(name, _vmap(family, suffix), lib=library)
        backward = f"{namespace}::{family.name}_backward"
        torch.library.register_fake(backward, _fake_backward(family), lib=library)
        torch.library.register_vmap(backward, vmap_one_by_one(family.op("_backward")), lib=library)
        if native:
            composite = torch._C.DispatchKey.CompositeImplicitAutograd
            family.op("_aten").py_impl(composite)(_traced(family))
        else:
            library.impl(family.name, _autograd(family), "Autograd")
            add_reverse(family.op(), functools.partial(_apply, family))
        library.impl(f"{family.name}_forward", _autograd_forward(family), "Autograd")
        library.impl(f"{family.name}_backward", _autograd_backward(family), "Autograd")
        for key, device in AUTOCAST_DEVICES.items():
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
        for suffix in SUFFIXES:
            library.impl(family.name + suffix, refusing(family.name + suffix), "CUDA")
