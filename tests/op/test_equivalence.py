"""Every backend, dtype and case equals lltm.reference: outputs and all gradients."""

from __future__ import annotations

import cases
import leaks
import pytest
import torch
from cases import CASES, DTYPES, Case

import lltm

ids = cases.identify


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_forward(case: Case, dtype: torch.dtype, compiled_backend: str) -> None:
    arguments = case.arguments(dtype)
    leaks.skip_if_inherited(case, dtype, compiled_backend)
    expected = cases.expected_outputs(case, arguments)
    actual = case.function(*arguments, backend=compiled_backend)
    for name, a, e in zip(cases.OUTPUT_NAMES[case.op], actual, expected, strict=True):
        cases.assert_close(a, e, name)


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize("case", [case for case in CASES if case.steps != 0], ids=ids)
def test_gradients(case: Case, dtype: torch.dtype, compiled_backend: str) -> None:
    leaks.skip_if_inherited(case, dtype, compiled_backend)
    leaks.skip_if_torch_loses_infinity(case, dtype, compiled_backend)
    arguments = case.arguments(dtype).leaves()
    outputs = case.function(*arguments, backend=compiled_backend)
    expected = cases.reference_gradients(case, arguments)
    exact = cases.reference_gradients(case, arguments.map(torch.Tensor.double).leaves())
    actual = cases.gradients(outputs, arguments)
    names = [n for n in cases.TENSOR_NAMES[case.op] if n != "bias" or arguments.bias is not None]
    for name, a, e, x in zip(names, actual, expected, exact, strict=True):
        if dtype.itemsize == 2:  # the reference's own roundings add up: judge both by the truth
            cases.assert_as_right(a, e, x, f"gradient of {name}")
        else:
            cases.assert_close(a, e, f"gradient of {name}")


def test_no_steps_pass_gradients_through(backend: str) -> None:
    """With T = 0 the last states are the initial ones and nothing else has an influence."""
    arguments = Case("no_steps", 3, 5, 4, steps=0).arguments().leaves()
    output, h_n, c_n = lltm.lltm_sequence(*arguments, backend=backend)
    assert output.shape == (0, 3, 4)
    seeds = [torch.rand_like(h_n), torch.rand_like(c_n)]
    d_input, d_weights, d_bias, d_h0, d_c0 = torch.autograd.grad(
        (h_n, c_n), arguments.tensors(), seeds, materialize_grads=True
    )
    assert d_input.shape == (0, 3, 5)
    assert torch.equal(d_h0, seeds[0])
    assert torch.equal(d_c0, seeds[1])
    assert not d_weights.any()
    assert not d_bias.any()


@pytest.mark.parametrize("batch", range(1, 258))
def test_every_batch_size(batch: int, compiled_backend: str) -> None:
    for steps in (None, 2):
        case = Case(f"every_batch_{batch}", batch, 3, 5, steps=steps)
        arguments = case.arguments().leaves()
        expected = case.reference(*arguments)
        actual = case.function(*arguments, backend=compiled_backend)
        for a, e in zip(actual, expected, strict=True):
            cases.assert_close(a, e, f"batch {batch}")
        expected_gradients = cases.reference_gradients(case, arguments)
        for a, e in zip(cases.gradients(actual, arguments), expected_gradients, strict=True):
            cases.assert_close(a, e, f"gradient, batch {batch}")


def test_batch_beyond_a_grid_dimension(compiled_backend: str) -> None:
    """The historic kernels put the batch on gridDim.y and failed above 65535 rows."""
    case = Case("batch_70000", 70_000, 1, 2)
    arguments = case.arguments()
    expected = case.reference(*arguments)
    for a, e in zip(case.function(*arguments, backend=compiled_backend), expected, strict=True):
        cases.assert_close(a, e, "batch 70000")


# Rows of the weights that are whole lines of a cache or not; more terms than are summed at once.
@pytest.mark.parametrize(("batch", "features"), [(20, 64), (20, 61), (140, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=ids)
def test_gradient_larger_than_caches(
    batch: int, features: int, dtype: torch.dtype, compiled_backend: str
) -> None:
    """Such a gradient of the weights may be written around them."""
    case = Case(f"large_{batch}_{features}", batch, features, 1024)
    arguments = case.arguments(dtype).leaves()
    actual = cases.gradients(case.function(*arguments, backend=compiled_backend), arguments)
    expected = cases.reference_gradients(case, arguments)
    for a, e in zip(actual, expected, strict=True):
        cases.assert_close(a, e, case.name)


@pytest.mark.parametrize("op", ["cell", "sequence"])
def test_gradients_of_one_output_alone(op: str, compiled_backend: str) -> None:
    """An output that takes no part in the loss has no cotangent at all, not a zero one."""
    case = cases.SMALL[op]
    arguments = case.arguments(torch.float64).leaves()
    for index in range(len(cases.OUTPUT_NAMES[op])):
        output = case.reference(*arguments)[index]
        expected = torch.autograd.grad(output.sum(), arguments.tensors(), materialize_grads=True)
        output = case.function(*arguments, backend=compiled_backend)[index]
        actual = torch.autograd.grad(output.sum(), arguments.tensors())
        for a, e in zip(actual, expected, strict=True):
            cases.assert_close(a, e, cases.OUTPUT_NAMES[op][index])


@pytest.mark.parametrize("op", ["cell", "sequence"])
def test_shared_storage_between_arguments(op: str, compiled_backend: str) -> None:
    """One tensor as both states, and views of one buffer, are read and never written."""
    case = Case("aliased", 3, 4, 4, steps=None if op == "cell" else 3)
    arguments = case.arguments()
    arguments = arguments._replace(c=arguments.h)
    before = arguments.map(torch.clone)
    actual = case.function(*arguments, backend=compiled_backend)
    for a, e in zip(actual, case.reference(*before), strict=True):
        cases.assert_close(a, e, "aliased states")
    for name, now, then in zip(
        cases.TENSOR_NAMES[op], arguments.tensors(), before.tensors(), strict=True
    ):
        assert torch.equal(now, then), f"{name} was written to"
