"""The ops behind the public ones: what they refuse, what they save, and how they round it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import cases
import pytest
import torch
from cases import BIASES, Case
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

OPS = ("cell", "sequence")
CASES = {"cell": Case("raw", 3, 4, 5), "sequence": Case("raw", 3, 4, 5, steps=2)}
NAMES = {
    "cell": (
        *("grad_new_h", "grad_new_cell"),
        *cases.TENSOR_NAMES["cell"],
        *("new_cell", "gates"),
    ),
    "sequence": (
        *("grad_output", "grad_h_n", "grad_c_n"),
        *cases.TENSOR_NAMES["sequence"],
        *("output", "cells", "gates"),
    ),
}
"""Tensor arguments of ``<op>_backward``."""
EVERY = [True] * 5


@dataclass(frozen=True)
class Backward:
    """A call of ``<op>_backward``: ``tensors`` by name, and which gradients it is to compute."""

    case: Case
    tensors: dict[str, Tensor | None]

    @staticmethod
    def of(case: Case, dtype: torch.dtype = torch.float32) -> Backward:
        arguments = case.arguments(dtype)
        results = case.raw("_forward")(*arguments)
        count = len(cases.OUTPUT_NAMES[case.op])
        saved = results[1:] if case.op == "cell" else (results[0], *results[count:])
        values = (*cases.cotangents(results[:count]), *arguments[:5], *saved)
        return Backward(case, dict(zip(NAMES[case.op], values, strict=True)))

    def but(self, **changed: Tensor | None) -> Backward:
        return replace(self, tensors=self.tensors | changed)

    def map(self, function: Callable[[Tensor], Tensor]) -> Backward:
        return self.but(**{k: t if t is None else function(t) for k, t in self.tensors.items()})

    def run(self, needs: list[bool] = EVERY) -> tuple[Tensor, ...]:
        result: tuple[Tensor, ...] = self.case.raw("_backward")(
            *self.tensors.values(), self.case.alpha, needs
        )
        return result


@pytest.mark.parametrize("op", OPS)
def test_vmap_of_backward(op: str) -> None:
    one = Backward.of(CASES[op], torch.float64)
    scales = torch.linspace(-1, 1, 3, dtype=torch.float64)
    names = [name for name, tensor in one.tensors.items() if tensor is not None]

    def gradients(scale: Tensor) -> tuple[Tensor, ...]:
        return one.but(**{name: one.tensors[name] * scale for name in names[:2]}).run()

    for found, *expected in zip(
        torch.vmap(gradients)(scales), *map(gradients, scales), strict=True
    ):
        torch.testing.assert_close(found, torch.stack(expected))


TENSORS = tuple((op, name) for op in OPS for name in NAMES[op])


# Checks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("op", "name"), TENSORS)
def test_a_shape_that_does_not_fit(op: str, name: str) -> None:
    fine = Backward.of(CASES[op])
    tensor = fine.tensors[name]
    assert tensor is not None
    if name not in ("input", "old_h", "h0"):  # they say what the others must fit
        for bad in (tensor[..., 1:], tensor.repeat_interleave(2, -1), tensor[None, None]):
            sentence = rf"lltm::{op}_backward: {name} must have .*, got {_pattern(bad)}"
            with pytest.raises(RuntimeError, match=sentence):
                fine.but(**{name: bad}).run()
            with pytest.raises(RuntimeError, match=sentence):
                fine.map(lambda t: t.to("meta")).but(**{name: bad.to("meta")}).run()
    with pytest.raises(RuntimeError, match=rf"lltm::{op}_backward: .* must have .*, got \["):
        fine.but(**{name: tensor[:-1]}).run()


def _pattern(tensor: Tensor) -> str:
    return str(list(tensor.shape)).replace("[", r"\[").replace("]", r"\]")


@pytest.mark.parametrize("what", ["device", "dtype", "layout"])
@pytest.mark.parametrize(("op", "name"), TENSORS)
def test_a_tensor_of_another_kind(op: str, name: str, what: str) -> None:
    fine = Backward.of(CASES[op])
    tensor = fine.tensors[name]
    assert tensor is not None
    bad = {"device": tensor.to("meta"), "dtype": tensor.half(), "layout": tensor.to_sparse()}[what]
    other = r"\w+" if name == "input" else name
    expected = "be a dense tensor .strided." if what == "layout" else f"the {what} of input"
    with pytest.raises(RuntimeError, match=rf"lltm::{op}_backward: {other} must .*{expected}.*got"):
        fine.but(**{name: bad}).run()


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("op", OPS)
def test_which_gradients_are_needed(op: str, device: str) -> None:
    fine = Backward.of(CASES[op]).map(lambda t: t.to(device))
    for needs in ([True] * 4, [True] * 6, []):
        sentence = f"{op}_backward: needs_input_grad must have 5 entries, got {len(needs)}"
        with pytest.raises(RuntimeError, match=sentence):
            fine.run(needs)
    with pytest.raises(RuntimeError, match="gradient of bias, which is None"):
        fine.but(bias=None).run()


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "sparse": Tensor.to_sparse,
    "mkldnn": Tensor.to_mkldnn,
    "quantized": lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8),
    "nested": lambda t: torch.nested.nested_tensor([t, t]),
}


@pytest.mark.filterwarnings("ignore")  # torch warns that some layouts are prototypes or deprecated
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("position", [0, 1, 3, 4])
@pytest.mark.parametrize("op", OPS)
def test_another_layout(op: str, position: int, layout: str, backend: str) -> None:
    if layout == "mkldnn" and cases.DEVICE != "cpu":
        pytest.skip("not run: torch has MKL-DNN tensors on a CPU alone")
    broken = list(CASES[op].arguments())
    broken[position] = LAYOUTS[layout](broken[position])
    name = cases.TENSOR_NAMES[op][position]
    with pytest.raises(
        RuntimeError, match=rf"lltm::{op}(_aten)?: {name} must be a dense tensor .*, got"
    ):
        CASES[op].function(*broken, backend=backend)


def test_sizes_whose_product_is_no_number() -> None:
    """An expanded tensor has any size, without the memory."""

    def expanded(*shape: int) -> Tensor:
        return torch.zeros(()).expand(shape)

    def sequence(steps: int, batch: int, features: int, state: int) -> tuple[Tensor, ...]:
        weights, h = expanded(3 * state, state + features), expanded(batch, state)
        results: tuple[Tensor, ...] = torch.ops.lltm.sequence_forward(
            expanded(steps, batch, features), weights, None, h, h
        )
        return results

    for sizes in ((2**40, 2**22, 0, 1), (1, 2, 2**61, 1), (1, 1, 2**31, 2**29)):
        with pytest.raises(RuntimeError, match=r"must have fewer than 2\^63 bytes each, got T ="):
            sequence(*sizes)
    with pytest.raises(RuntimeError, match=r"could not allocate .*|can't allocate memory"):
        sequence(2**50, 1, 0, 2)
    output, _, _, cells, gates = sequence(2**62, 0, 3, 4)
    assert output.shape == cells.shape == (2**62, 0, 4)
    assert gates.shape == (2**62, 0, 12)


@pytest.mark.parametrize("sizes", [(0, 4, 5), (3, 0, 5), (3, 4, 0)], ids=["B", "F", "S"])
@pytest.mark.parametrize("op", OPS)
def test_a_size_of_nothing(op: str, sizes: tuple[int, int, int]) -> None:
    """A tensor without elements has no memory, and no copy may begin there."""
    case = replace(CASES[op], batch=sizes[0], features=sizes[1], state=sizes[2])
    arguments = case.arguments().leaves()
    outputs = case.function(*arguments)
    for actual, expected in zip(outputs, case.reference(*arguments), strict=True):
        cases.assert_close(actual, expected, op)
    expected = cases.reference_gradients(case, arguments)
    for actual, wanted in zip(cases.gradients(outputs, arguments), expected, strict=True):
        cases.assert_close(actual, wanted, op)


# Results ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["strided", "transposed", "offset"])
@pytest.mark.parametrize(("op", "name"), TENSORS)
def test_any_layout_in_memory(op: str, name: str, layout: str) -> None:
    fine = Backward.of(CASES[op])
    tensor = fine.tensors[name]
    assert tensor is not None
    moved = fine.but(**{name: cases.LAYOUTS[layout](tensor)})
    for actual, expected in zip(moved.run(), fine.run(), strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("op", OPS)
def test_fakes_have_the_shapes_of_the_results(op: str, bias: str) -> None:
    call = Backward.of(replace(CASES[op], bias=bias))
    for needs in itertools.product((False, True), repeat=5):
        if bias == "absent" and needs[2]:
            continue
        faked = call.map(lambda t: t.to("meta")).run(list(needs))
        for fake, real in zip(faked, call.run(list(needs)), strict=True):
            assert fake.is_meta
            assert (fake.shape, fake.dtype) == (real.shape, real.dtype)


@pytest.mark.parametrize("dtype", cases.DTYPES, ids=cases.identify)
def test_without_steps_the_gradients_of_the_states_pass_through(dtype: torch.dtype) -> None:
    """And are zero where there is none, whatever was in their memory before."""
    case = replace(CASES["sequence"], steps=0)
    call = Backward.of(case, dtype)
    for _ in range(8):
        torch.full((case.batch, case.state), float("nan"), dtype=dtype)
        d_h0, d_c0 = call.but(grad_h_n=None, grad_c_n=None).run()[-2:]
        assert not d_h0.any()
        assert not d_c0.any()
    d_h0, d_c0 = call.run()[-2:]
    assert torch.equal(d_h0, call.tensors["grad_h_n"])
    assert torch.equal(d_c0, call.tensors["grad_c_n"])


# Rounding ---------------------------------------------------------------------------------------
# A step reads the hidden state that the step before it stored, rounded: else what backward
# recomputes from, and what a caller gets who cuts a sequence in two, would be of another function.

NARROW = (torch.bfloat16, torch.float16)
ROUNDED = Case("rounded", 4, 0, 96, steps=6)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_a_sequence_cut_in_two_is_the_same_sequence(dtype: torch.dtype) -> None:
    """Bit for bit; without features, as their product may be summed in another order.

    A candidate of zero leaves the cell as it is: between steps it is carried unrounded, but from
    call to call as it is stored.
    """
    arguments = ROUNDED.arguments(dtype)
    arguments.weights[2 * ROUNDED.state :] = 0
    arguments.bias[2 * ROUNDED.state :] = 0
    whole = ROUNDED.raw()(*arguments)
    first = ROUNDED.raw()(*arguments._replace(input=arguments.input[:3]))
    second = ROUNDED.raw()(*arguments._replace(input=arguments.input[3:], h=first[1], c=first[2]))
    assert torch.equal(torch.cat([first[0], second[0]]), whole[0])
    assert torch.equal(second[1], whole[1])
    assert torch.equal(second[2], whole[2])


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_gradients_flow_back_as_they_are_stored(dtype: torch.dtype) -> None:
    """``d_z`` of a step is made of the rounded ``d_z`` of the step after it.

    Weights of the input that are the identity make ``d_input`` show ``d_z``.
    """
    batch, state = 16, 96
    case = Case("shown", batch, 3 * state, state, steps=2)
    call = Backward.of(case, dtype)
    weights = call.tensors["weights"].clone()
    weights[:, state:] = torch.eye(3 * state)
    call = call.but(weights=weights)
    shown = call.run()[0].double()
    wide = {name: t.double() for name, t in call.tensors.items()}
    d_h = wide["grad_output"][0] + shown[1] @ wide["weights"][:, :state]
    # The same step alone: its cell's gradient, not rounded either, is of the step after it.
    d_c = _d_cell(wide, 1, _grad_h_of_the_last(wide), wide["grad_c_n"])
    expected = _d_z(wide, 0, d_h, d_c).to(dtype).double()
    same = (expected == shown[0]).double().mean()
    assert same > 0.99, f"{float(same):.1%} of d_z are as the definition has them"


def _grad_h_of_the_last(t: dict[str, Tensor]) -> Tensor:
    return t["grad_output"][-1] + t["grad_h_n"]


def _d_cell(t: dict[str, Tensor], step: int, d_h: Tensor, d_c: Tensor) -> Tensor:
    output_gate = t["gates"][step].chunk(3, dim=-1)[1]
    return d_c + d_h * output_gate * (1 - t["cells"][step].tanh().square())


def _d_z(t: dict[str, Tensor], step: int, d_h: Tensor, d_c: Tensor) -> Tensor:
    input_gate, output_gate, z = t["gates"][step].chunk(3, dim=-1)
    d_cell = _d_cell(t, step, d_h, d_c)
    candidate = torch.nn.functional.elu(z)
    return torch.cat(
        [
            d_cell * candidate * input_gate * (1 - input_gate),
            d_h * t["cells"][step].tanh() * output_gate * (1 - output_gate),
            d_cell * input_gate * torch.where(z > 0, 1.0, z.exp()),
        ],
        dim=-1,
    )
