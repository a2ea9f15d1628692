"""The op under torch's own tools: opcheck, fakes, autocast, inference mode, checkpointing."""

from __future__ import annotations

from typing import Any

import cases
import pytest
import torch
from cases import CASES, DTYPES, Arguments, Case
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils.checkpoint import checkpoint

import lltm

OPS = ("cell", "sequence")
ids = cases.identify
NAMESPACE_OPS = [
    name
    for name in ("cell", "sequence", "cell_aten", "sequence_aten")
    if hasattr(torch.ops.lltm, name)
]


# opcheck ----------------------------------------------------------------------------------------


@pytest.mark.compile
@pytest.mark.parametrize("bias", cases.BIASES)
@pytest.mark.parametrize("recording", [False, True], ids=["plain", "recording"])
@pytest.mark.parametrize("name", NAMESPACE_OPS)
def test_opcheck(name: str, recording: bool, bias: str) -> None:
    op = name.removesuffix("_aten")
    arguments = Case("opcheck", 2, 3, 4, steps=None if op == "cell" else 3, bias=bias).arguments()
    overload = getattr(torch.ops.lltm, name).default
    torch.library.opcheck(overload, arguments.leaves() if recording else arguments)


@pytest.mark.compile
@pytest.mark.parametrize("bias", cases.BIASES)
@pytest.mark.parametrize("op", OPS)
def test_opcheck_of_the_kernels(op: str, bias: str) -> None:
    case = Case("opcheck", 2, 3, 4, steps=None if op == "cell" else 3, bias=bias)
    arguments = case.arguments()
    torch.library.opcheck(case.raw("_forward"), arguments)
    results = case.raw("_forward")(*arguments)
    count = len(cases.OUTPUT_NAMES[op])
    saved = results[1:] if op == "cell" else (results[0], *results[count:])
    seeds = cases.cotangents(results[:count])
    needs = [True, True, bias != "absent", False, True]
    given = (*seeds, *arguments[:5], *saved, case.alpha, needs)
    torch.library.opcheck(case.raw("_backward"), given)
    torch.library.opcheck(case.raw("_backward"), (None, *given[1:]))


def test_every_op_is_checked() -> None:
    """A new op without a check here is an oversight."""
    library = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("lltm::")]
    checked = {f"lltm::{name}" for name in NAMESPACE_OPS}
    checked |= {f"lltm::{op}{suffix}" for op in OPS for suffix in ("_forward", "_backward")}
    checked |= {"lltm::pack", "lltm::stream_step"}  # in test_stream.py
    assert set(library) == checked | {"lltm::cpu_capability"}


# Fakes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_fake_tensors(case: Case, backend: str) -> None:
    """Shapes, dtypes, strides and devices are known without computing, gradients too."""
    arguments = case.arguments().leaves()
    real = case.function(*arguments, backend=backend)
    with FakeTensorMode() as mode:
        faked = arguments.map(mode.from_tensor)
        fake = case.function(*faked, backend=backend)
        recorded = [output for output in fake if output.requires_grad]
        seeds = [torch.empty_like(output) for output in recorded]
        gradients = torch.autograd.grad(recorded, faked.tensors(), seeds, allow_unused=True)
    for actual, expected in zip(fake, real, strict=True):
        assert actual.shape == expected.shape
        assert actual.dtype == expected.dtype
        assert actual.device == expected.device
        assert actual.stride() == expected.stride() or not actual.numel()
    for gradient, tensor in zip(gradients, faked.tensors(), strict=True):
        assert gradient is None or gradient.shape == tensor.shape


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize("op", OPS)
def test_meta_tensors(op: str, dtype: torch.dtype, backend: str) -> None:
    case = cases.SMALL[op]
    arguments = case.arguments(dtype, device="meta").leaves()
    outputs = case.function(*arguments, backend=backend)
    assert all(output.is_meta and output.dtype == dtype for output in outputs)
    sum(output.sum() for output in outputs).backward()
    for tensor in arguments.tensors():
        assert tensor.grad is not None
        assert tensor.grad.is_meta
        assert tensor.grad.shape == tensor.shape


# Autocast ---------------------------------------------------------------------------------------


def _autocast_reference(case: Case, arguments: Arguments) -> tuple[Tensor, ...]:
    """Everything in bfloat16, as torch casts for a recurrent cell."""
    return case.reference(*arguments.map(Tensor.bfloat16))


@pytest.mark.parametrize("bias", cases.BIASES)
@pytest.mark.parametrize("op", OPS)
def test_autocast(op: str, bias: str, backend: str) -> None:
    case = Case("autocast", 3, 4, 5, steps=None if op == "cell" else 3, bias=bias)
    arguments = case.arguments().leaves()
    with torch.autocast(cases.DEVICE, torch.bfloat16):
        outputs = case.function(*arguments, backend=backend)
    expected = _autocast_reference(case, arguments)
    for a, e in zip(outputs, expected, strict=True):
        assert a.dtype == torch.bfloat16
        cases.assert_close(a, e, "autocast")
    gradients = cases.gradients(outputs, arguments)
    wanted = torch.autograd.grad(cases.loss(expected), arguments.tensors())
    for gradient, tensor, e in zip(gradients, arguments.tensors(), wanted, strict=True):
        assert gradient.dtype == torch.float32
        assert gradient.shape == tensor.shape
        cases.assert_close(gradient.bfloat16(), e.bfloat16(), "gradient under autocast")


@pytest.mark.parametrize("op", OPS)
def test_autocast_mixes_what_the_layers_below_left(op: str, backend: str) -> None:
    """Inputs already in bfloat16 beside float32 parameters are the usual case."""
    case = cases.SMALL[op]
    arguments = case.arguments()
    mixed = arguments._replace(input=arguments.input.bfloat16(), h=arguments.h.bfloat16())
    with torch.autocast(cases.DEVICE, torch.bfloat16):
        outputs = case.function(*mixed, backend=backend)
    for a, e in zip(outputs, _autocast_reference(case, mixed), strict=True):
        cases.assert_close(a, e, "mixed")


@pytest.mark.parametrize("op", OPS)
def test_autocast_leaves_float64_alone(op: str, backend: str) -> None:
    case = cases.SMALL[op]
    arguments = case.arguments(torch.float64)
    with torch.autocast(cases.DEVICE, torch.bfloat16):
        outputs = case.function(*arguments, backend=backend)
    for a, e in zip(outputs, case.reference(*arguments), strict=True):
        cases.assert_close(a, e, "float64")


@pytest.mark.parametrize("packed", [False, True])
def test_autocast_of_a_module(packed: bool, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lltm.backends, "DEFAULT", backend)
    module = lltm.LLTMSequence(3, 4, num_layers=2, bidirectional=True, device=cases.DEVICE)
    x: Any = torch.randn(5, 2, 3, device=cases.DEVICE)
    if packed:
        x = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3]))
    with torch.autocast(cases.DEVICE, torch.bfloat16):
        output, (h_n, c_n) = module(x)
    data = output.data if packed else output
    assert {data.dtype, h_n.dtype, c_n.dtype} == {torch.bfloat16}
    (data.float().sum() + c_n.float().sum()).backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in module.parameters())


# Modes and graphs -------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
def test_inference_mode(op: str, backend: str) -> None:
    case = cases.SMALL[op]
    with torch.inference_mode():
        arguments = case.arguments()
        outputs = case.function(*arguments, backend=backend)
    assert all(output.is_inference() for output in outputs)
    for a, e in zip(outputs, case.reference(*arguments), strict=True):
        cases.assert_close(a.clone(), e.clone(), "inference")


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("op", OPS)
def test_checkpoint(op: str, use_reentrant: bool, backend: str) -> None:
    case = cases.SMALL[op]
    arguments = case.arguments().leaves()

    def call(*args: Any) -> tuple[Tensor, ...]:
        return case.function(*args, backend=backend)

    outputs = checkpoint(call, *arguments, use_reentrant=use_reentrant)
    cases.loss(outputs).backward()
    expected = cases.reference_gradients(case, case.arguments().leaves())
    for tensor, e in zip(arguments.tensors(), expected, strict=True):
        cases.assert_close(tensor.grad, e, "checkpointed gradient")


@pytest.mark.parametrize("op", OPS)
def test_backward_twice(op: str, backend: str) -> None:
    """retain_graph keeps the saved tensors; without it the second backward says so."""
    case = cases.SMALL[op]
    arguments = case.arguments().leaves()
    value = cases.loss(case.function(*arguments, backend=backend))
    first = torch.autograd.grad(value, arguments.tensors(), retain_graph=True)
    second = torch.autograd.grad(value, arguments.tensors())
    for a, e in zip(second, first, strict=True):
        assert torch.equal(a, e)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(value, arguments.tensors())


@pytest.mark.parametrize("op", OPS)
def test_changed_in_place_after_forward(op: str, backend: str) -> None:
    """A saved tensor that was written to is an error, not a wrong gradient."""
    case = cases.SMALL[op]
    arguments = case.arguments().leaves((False, True, True, True, True))
    outputs = case.function(*arguments, backend=backend)
    with torch.no_grad():
        arguments.weights.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        cases.loss(outputs).backward()


@pytest.mark.parametrize("op", OPS)
def test_non_contiguous_cotangents(op: str, backend: str) -> None:
    case = Case("cotangents", 4, 3, 6, steps=None if op == "cell" else 3)
    arguments = case.arguments().leaves()
    expected = case.reference(*arguments)
    seeds = cases.cotangents(expected)
    for change in (
        lambda t: t.mT.contiguous().mT,
        lambda t: t[..., :1].expand_as(t),
        lambda t: torch.stack([t, t], dim=-1)[..., 0],
    ):
        changed = [change(seed) for seed in seeds]
        actual = torch.autograd.grad(
            case.function(*arguments, backend=backend), arguments.tensors(), changed
        )
        wanted = torch.autograd.grad(case.reference(*arguments), arguments.tensors(), changed)
        for a, e in zip(actual, wanted, strict=True):
            cases.assert_close(a, e, "non-contiguous cotangent")


@pytest.mark.parametrize("op", OPS)
def test_detach_and_hooks(op: str, backend: str) -> None:
    """Truncated backpropagation and tensor hooks work on the outputs."""
    case = cases.SMALL[op]
    arguments = case.arguments().leaves()
    outputs = case.function(*arguments, backend=backend)
    seen = []
    outputs[0].register_hook(lambda gradient: seen.append(gradient) or 2 * gradient)
    doubled = torch.autograd.grad(outputs[0].sum(), arguments.weights)[0]
    expected = torch.autograd.grad(case.reference(*arguments)[0].sum(), arguments.weights)[0]
    assert len(seen) == 1
    cases.assert_close(doubled, 2 * expected, "hooked")
