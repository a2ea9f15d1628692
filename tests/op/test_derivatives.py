"""Derivatives of every kind, for every subset of arguments that asks and every form of the bias.

Numerical checks run in float64 on small problems. Values lie apart from z = 0 where alpha is not 1,
because elu' jumps there.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import cases
import pytest
import torch
import torch.utils.checkpoint
from cases import BIASES, Arguments, Case
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OPS = ("cell", "sequence")
CHECKED = {
    "cell": Case("checked", 2, 3, 2, alpha=0.7, values="apart"),
    "sequence": Case("checked", 2, 1, 2, steps=2, alpha=0.7, values="apart"),
}


def _subsets() -> Iterator[tuple[str, tuple[bool, ...]]]:
    for bias in BIASES:
        for needs in itertools.product((False, True), repeat=5):
            if any(needs) and not (bias == "absent" and needs[2]):
                yield bias, needs


def _ids(value: object) -> str | None:
    if isinstance(value, tuple):
        return "".join(letter if need else "-" for letter, need in zip("xwbhc", value, strict=True))
    return None


SUBSETS = tuple(_subsets())


def _function(
    case: Case, arguments: Arguments, backend: str
) -> tuple[Callable[..., tuple[Tensor, ...]], tuple[Tensor, ...]]:
    """The op as a function of the tensors that ask, and these tensors."""
    tensors = list(arguments[:5])
    asking = [index for index, t in enumerate(tensors) if t is not None and t.requires_grad]

    def function(*changed: Tensor) -> tuple[Tensor, ...]:
        full = list(tensors)
        for index, tensor in zip(asking, changed, strict=True):
            full[index] = tensor
        return case.function(*full, arguments.alpha, backend=backend)

    return function, tuple(tensors[index] for index in asking)


def _case(op: str, bias: str) -> Case:
    return replace(CHECKED[op], bias=bias) if bias != "absent" else _without_bias(op)


def _without_bias(op: str) -> Case:
    """Without a bias to hold z apart from 0: alpha 1, whose elu' has no jump."""
    return replace(CHECKED[op], bias="absent", values="normal", alpha=1.0)


@pytest.mark.parametrize(("bias", "needs"), SUBSETS, ids=_ids)
@pytest.mark.parametrize("op", OPS)
def test_gradcheck(op: str, bias: str, needs: tuple[bool, ...], backend: str) -> None:
    case = _case(op, bias)
    function, inputs = _function(case, case.arguments(torch.float64).leaves(needs), backend)
    assert gradcheck(function, inputs, check_batched_grad=all(needs))


@pytest.mark.parametrize(("bias", "needs"), SUBSETS, ids=_ids)
@pytest.mark.parametrize("op", OPS)
def test_gradgradcheck(op: str, bias: str, needs: tuple[bool, ...], backend: str) -> None:
    case = _case(op, bias)
    function, inputs = _function(case, case.arguments(torch.float64).leaves(needs), backend)
    assert gradgradcheck(function, inputs, fast_mode=not all(needs))


@pytest.mark.parametrize(("bias", "needs"), SUBSETS, ids=_ids)
@pytest.mark.parametrize("op", OPS)
def test_forward_mode(op: str, bias: str, needs: tuple[bool, ...], backend: str) -> None:
    """torch.func.jvp equals the reference's."""
    case = _case(op, bias)
    function, primals = _function(case, case.arguments(torch.float64).leaves(needs), backend)
    reference, _ = _function(case, case.arguments(torch.float64).leaves(needs), "reference")
    primals = tuple(primal.detach() for primal in primals)
    tangents = cases.cotangents(primals)
    actual = torch.func.jvp(function, primals, tangents)
    expected = torch.func.jvp(reference, primals, tangents)
    for a, e in zip(itertools.chain(*actual), itertools.chain(*expected), strict=True):
        cases.assert_close(a, e, "jvp")


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("op", OPS)
def test_forward_mode_gradcheck(op: str, bias: str, backend: str) -> None:
    """Dual tensors against numerical derivatives, and forward over reverse."""
    case = _case(op, bias)
    function, inputs = _function(case, case.arguments(torch.float64).leaves(), backend)
    assert gradcheck(function, inputs, check_forward_ad=True, check_backward_ad=False)


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("op", OPS)
def test_forward_over_reverse(op: str, bias: str, backend: str) -> None:
    """A Hessian-vector product: jvp of grad."""
    case = _case(op, bias)

    def product(name: str) -> Tensor:
        function, inputs = _function(case, case.arguments(torch.float64).leaves(), name)
        primals = tuple(tensor.detach() for tensor in inputs)
        gradient = torch.func.grad(lambda *t: cases.loss(function(*t)), argnums=1)
        return torch.func.jvp(gradient, primals, cases.cotangents(primals))[1]

    cases.assert_close(product(backend), product("reference"), "Hessian-vector product")


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("op", OPS)
def test_bias_gradient_has_the_shape_of_the_bias(op: str, bias: str, backend: str) -> None:
    """The historic extension gave a [1, 3S] gradient for a [3S] bias."""
    arguments = _case(op, bias).arguments().leaves()
    outputs = CHECKED[op].function(*arguments, backend=backend)
    cases.loss(outputs).backward()
    if arguments.bias is not None:
        assert arguments.bias.grad is not None
        assert arguments.bias.grad.shape == arguments.bias.shape


@pytest.mark.parametrize("op", OPS)
def test_third_order(op: str, backend: str) -> None:
    """Derivatives go on: the third order equals the reference's."""
    case = CHECKED[op]

    def third(name: str) -> Tensor:
        arguments = case.arguments(torch.float64).leaves()
        value = cases.loss(case.function(*arguments, backend=name))
        for _ in range(3):
            (gradient,) = torch.autograd.grad(value, arguments.weights, create_graph=True)
            value = gradient.square().sum()
        return gradient

    cases.assert_close(third(backend), third("reference"), "third derivative")


@pytest.mark.parametrize("op", OPS)
def test_second_order_under_hooks_on_saved_tensors(op: str, backend: str) -> None:
    """A penalty on a gradient, within a checkpoint or with what is saved on the CPU."""
    case = _case(op, "row")
    function, inputs = _function(case, case.arguments(torch.float64).leaves(), backend)

    def penalty(*tensors: Tensor) -> Tensor:
        value = sum(output.square().sum() for output in function(*tensors))
        gradients = torch.autograd.grad(value, tensors, create_graph=True)
        return torch.stack([each.square().sum() for each in gradients]).sum()

    expected = torch.autograd.grad(penalty(*inputs), inputs)
    with torch.autograd.graph.save_on_cpu():
        saved = torch.autograd.grad(penalty(*inputs), inputs)
    checkpointed = torch.utils.checkpoint.checkpoint(penalty, *inputs, use_reentrant=False)
    again = torch.autograd.grad(checkpointed, inputs)
    torch.testing.assert_close(saved, expected)
    torch.testing.assert_close(again, expected)


# torch.func -------------------------------------------------------------------------------------

TRANSFORMS: dict[str, Callable[..., Callable[..., Tensor]]] = {
    "grad": torch.func.grad,
    "jacrev": torch.func.jacrev,
    "jacfwd": torch.func.jacfwd,
    "hessian": torch.func.hessian,
    "grad(grad)": lambda f, argnums: torch.func.grad(
        lambda *t: torch.func.grad(f, argnums=argnums)(*t).square().sum(), argnums=argnums
    ),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("op", OPS)
def test_transforms(op: str, bias: str, transform: str, backend: str) -> None:
    case = _case(op, bias)
    arguments = case.arguments(torch.float64)
    names = [n for n in cases.TENSOR_NAMES[op] if n != "bias" or arguments.bias is not None]
    function, tensors = _function(case, arguments.leaves(), backend)
    reference, _ = _function(case, arguments.leaves(), "reference")
    tensors = tuple(tensor.detach() for tensor in tensors)
    for index, name in enumerate(names):

        def scalar(*t: Tensor, of: Callable[..., tuple[Tensor, ...]] = function) -> Tensor:
            return cases.loss(of(*t))

        def expected_scalar(*t: Tensor) -> Tensor:
            return scalar(*t, of=reference)

        actual = TRANSFORMS[transform](scalar, argnums=index)(*tensors)
        expected = TRANSFORMS[transform](expected_scalar, argnums=index)(*tensors)
        cases.assert_close(actual, expected, f"{transform} in {name}")


MAPPED_DIMS = [
    dims for dims in itertools.product((None, 0), repeat=5) if any(dim is not None for dim in dims)
]


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("op", OPS)
def test_vmap(op: str, bias: str, backend: str) -> None:
    """Every subset of mapped arguments, mapped in front."""
    case = _case(op, bias)
    samples = [replace(case, name=f"sample {i}").arguments(torch.float64) for i in range(3)]
    for dims in MAPPED_DIMS:
        if bias == "absent" and dims[2] is not None:
            continue
        actual, expected = _mapped(case, samples, dims, backend)
        for a, e in zip(actual, expected, strict=True):
            cases.assert_close(a, e, f"vmap over {dims}")


def _mapped(
    case: Case, samples: list[Arguments], dims: tuple[int | None, ...], backend: str
) -> tuple[tuple[Tensor, ...], list[Tensor]]:
    stacked: list[Tensor | None] = []
    for index, dim in enumerate(dims):
        column = [sample[index] for sample in samples]
        stacked.append(column[0] if dim is None else torch.stack(column, dim=dim))

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        return case.function(*tensors, case.alpha, backend=backend)

    actual = torch.vmap(function, in_dims=dims)(*stacked)
    unmapped = []
    for i in range(len(samples)):
        picked = [
            samples[0][index] if dim is None else samples[i][index]
            for index, dim in enumerate(dims)
        ]
        unmapped.append(case.reference(*picked, case.alpha))
    return actual, [torch.stack(column) for column in zip(*unmapped, strict=True)]


INNER_DIMS = {
    "cell": ((1, None, None, 1, 1), (1, 1, 1, 1, 1), (-1, None, 1, -1, -1), (2, 2, 1, 2, 2)),
    "sequence": ((1, None, None, 1, 1), (3, 1, 1, 1, 1), (-1, None, 1, -1, -1), (2, 2, None, 0, 1)),
}


@pytest.mark.parametrize(("op", "dims"), [(op, dims) for op in OPS for dims in INNER_DIMS[op]])
def test_vmap_over_inner_dimensions(op: str, dims: tuple[int | None, ...], backend: str) -> None:
    case = CHECKED[op]
    samples = [replace(case, name=f"sample {i}").arguments(torch.float64) for i in range(3)]
    actual, expected = _mapped(case, samples, dims, backend)
    for a, e in zip(actual, expected, strict=True):
        cases.assert_close(a, e, f"vmap over {dims}")


@pytest.mark.parametrize("op", OPS)
def test_nested_vmap(op: str, backend: str) -> None:
    case = CHECKED[op]
    arguments = case.arguments(torch.float64)
    inputs = torch.stack([arguments.input * scale for scale in torch.linspace(0, 1, 6)])
    inputs = inputs.unflatten(0, (2, 3))

    def function(tensor: Tensor) -> tuple[Tensor, ...]:
        return case.function(tensor, *arguments[1:], backend=backend)

    actual = torch.vmap(torch.vmap(function))(inputs)
    expected = [case.reference(t, *arguments[1:]) for t in inputs.flatten(0, 1)]
    for a, e in zip(actual, zip(*expected, strict=True), strict=True):
        cases.assert_close(a.flatten(0, 1), torch.stack(e), "nested vmap")


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("op", OPS)
def test_per_sample_gradients(op: str, bias: str, backend: str) -> None:
    """vmap(grad): one gradient of the parameters per sample, as differential privacy wants."""
    case = _case(op, bias)
    samples = [replace(case, name=f"sample {i}").arguments(torch.float64) for i in range(3)]
    parameters = samples[0]
    inputs = torch.stack([sample.input for sample in samples])

    def scalar(weights: Tensor, tensor: Tensor) -> Tensor:
        args = (tensor, weights, parameters.bias, parameters.h, parameters.c, case.alpha)
        return cases.loss(case.function(*args, backend=backend))

    actual = torch.vmap(torch.func.grad(scalar), in_dims=(None, 0))(parameters.weights, inputs)
    for gradient, tensor in zip(actual, inputs, strict=True):
        leaves = parameters._replace(input=tensor).leaves()
        expected = cases.reference_gradients(case, leaves)[1]
        cases.assert_close(gradient, expected, "per-sample gradient of weights")


@pytest.mark.parametrize("op", OPS)
def test_batched_cotangents(op: str, backend: str) -> None:
    """autograd.grad(is_grads_batched=True): vmap over the backward alone."""
    case = CHECKED[op]
    arguments = case.arguments(torch.float64).leaves()
    outputs = case.function(*arguments, backend=backend)
    seeds = [torch.randn(4, *output.shape).to(output) for output in outputs]
    actual = torch.autograd.grad(
        outputs, arguments.tensors(), seeds, is_grads_batched=True, retain_graph=True
    )
    for i in range(4):
        expected = torch.autograd.grad(
            case.reference(*arguments), arguments.tensors(), [seed[i] for seed in seeds]
        )
        for a, e in zip(actual, expected, strict=True):
            cases.assert_close(a[i], e, "batched cotangent")


# What has no derivative says so -----------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
def test_raw_forward_refuses_to_be_differentiated(op: str) -> None:
    case = cases.SMALL[op]
    with pytest.raises(NotImplementedError, match=rf"call lltm::{op}, or detach"):
        case.raw("_forward")(*case.arguments().leaves())
    saved = case.raw("_forward")(*case.arguments())
    assert not any(tensor.requires_grad for tensor in saved)


@pytest.mark.parametrize("op", OPS)
def test_raw_backward_refuses_torch_func(op: str) -> None:
    case = cases.SMALL[op]
    arguments = case.arguments()
    results = case.raw("_forward")(*arguments)
    outputs = len(cases.OUTPUT_NAMES[op])
    saved = results[1:] if op == "cell" else (results[0], *results[outputs:])
    seeds = cases.cotangents(results[:outputs])

    def gradient(weights: Tensor) -> Tensor:
        args = (arguments.input, weights, arguments.bias, arguments.h, arguments.c)
        needs = [True, False, False, False, False]
        return case.raw("_backward")(*seeds, *args, *saved, case.alpha, needs)[0].sum()

    with pytest.raises(NotImplementedError, match=f"transform lltm::{op} itself"):
        torch.func.grad(gradient)(arguments.weights)
