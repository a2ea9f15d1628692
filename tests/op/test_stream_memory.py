"""What ``stream_step`` writes, it shares with nothing it reads; and autograd notices the write."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from lltm import LLTM, LLTMSequence

B, F, S = 2, 4, 4
SHAPES = {"input": (B, F), "bias": (3 * S,), "old_h": (B, S), "cell": (B, S), "new_h": (B, S)}
READ = ("input", "packed", "bias", "old_h")
PAIRS = [("cell", name) for name in READ] + [("new_h", name) for name in (*READ, "cell")]
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def elements(name: str) -> int:
    return torch.Size(SHAPES[name]).numel() if name in SHAPES else packed_elements()


def packed_elements() -> int:
    return torch.ops.lltm.pack(torch.zeros(3 * S, S + F)).numel()


@dataclass(frozen=True)
class Arguments:
    """Those of ``stream_step``, by name; ``places`` are theirs in one buffer of bytes."""

    dtype: torch.dtype
    places: dict[str, int]

    @staticmethod
    def apart(dtype: torch.dtype) -> Arguments:
        """A buffer's worth of room between any two."""
        room = 4 * elements("packed") * 8
        names = (*READ, "cell", "new_h")
        return Arguments(dtype, {name: room * (1 + at) for at, name in enumerate(names)})

    def dtype_of(self, name: str) -> torch.dtype:
        narrow = self.dtype == torch.bfloat16
        return torch.float32 if name == "packed" and narrow else self.dtype

    def size(self, name: str) -> int:
        return elements(name) * self.dtype_of(name).itemsize

    def moved(self, name: str, to: int) -> Arguments:
        return Arguments(self.dtype, self.places | {name: to})

    def tensors(self) -> dict[str, Tensor]:
        """In the buffer, where later ones overwrite the values of earlier ones."""
        end = max(place + self.size(name) for name, place in self.places.items())
        buffer = torch.zeros(end, dtype=torch.uint8)
        generator = torch.Generator().manual_seed(0)
        found = {}
        for name, place in self.places.items():
            flat = buffer[place : place + self.size(name)].view(self.dtype_of(name))
            weights = torch.randn(3 * S, S + F, generator=generator).to(self.dtype)
            packed = torch.ops.lltm.pack(weights)
            values = torch.randn(elements(name), generator=generator)
            flat.copy_(packed if name == "packed" else values)
            found[name] = flat.view(SHAPES.get(name, (-1,)))
        return found


def step(tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    order = ("input", "packed", "bias", "old_h", "cell", "new_h")
    torch.ops.lltm.stream_step(*(tensors[name] for name in order), 0.5)
    return tensors["new_h"], tensors["cell"]


def step_of_copies(tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    return step({name: tensor.clone() for name, tensor in tensors.items()})


def assert_right(tensors: dict[str, Tensor]) -> None:
    expected = step_of_copies(tensors)
    for actual, wanted in zip(step(tensors), expected, strict=True):
        assert torch.equal(actual, wanted)


# Overlaps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("written", "other"), PAIRS)
def test_every_overlap_is_refused(written: str, other: str, dtype: torch.dtype) -> None:
    apart = Arguments.apart(dtype)
    at, unit = apart.places[written], apart.dtype_of(other).itemsize
    first, last = at - apart.size(other) + unit, at + apart.size(written) - unit
    shifts = {first, first + unit, at - unit, at, at + unit, last}
    for place in sorted(place for place in shifts if first <= place <= last):
        tensors = apart.moved(other, place).tensors()
        before = {name: tensor.clone() for name, tensor in tensors.items()}
        sentence = f"{written} is written in place and must share no memory with {other}, got"
        with pytest.raises(RuntimeError, match=sentence):
            step(tensors)
        for name, tensor in tensors.items():
            assert torch.equal(tensor, before[name]), f"{name} was written"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("written", "other"), PAIRS)
def test_neighbours_do_not_overlap(written: str, other: str, dtype: torch.dtype) -> None:
    apart = Arguments.apart(dtype)
    at = apart.places[written]
    for place in (at - apart.size(other), at + apart.size(written)):
        assert_right(apart.moved(other, place).tensors())


@pytest.mark.parametrize("name", ["input", "bias", "old_h"])
def test_a_strided_argument_is_copied_before_anything_is_written(name: str) -> None:
    tensors = Arguments.apart(torch.float32).tensors()
    shape = SHAPES[name]
    wide = torch.randn(2 * torch.Size(shape).numel())
    tensors[name] = wide.view(*shape[:-1], 2 * shape[-1])[..., ::2]
    tensors["cell"] = wide[: B * S].view(B, S)
    expected = step_of_copies(tensors)
    for actual, wanted in zip(step(tensors), expected, strict=True):
        assert torch.equal(actual, wanted)


def test_what_is_not_written_may_overlap() -> None:
    tensors = Arguments.apart(torch.float32).tensors()
    tensors["old_h"] = tensors["input"]
    assert_right(tensors)


def test_nothing_shares_memory_with_nothing() -> None:
    tensors = Arguments.apart(torch.float32).tensors()
    empty = {name: tensors[name][:0] for name in ("input", "old_h", "cell", "new_h")}
    step(tensors | empty)


def test_a_stream_refuses_the_memory_that_it_is_about_to_write() -> None:
    stream = LLTM(S, S).stream(B)
    first = stream.step(torch.randn(B, S))
    stream.step(first)
    with pytest.raises(RuntimeError, match=r"new_h .* must share no memory with input.*clone"):
        stream.step(first)


def test_a_lower_layer_has_read_what_the_last_one_writes() -> None:
    module, input = LLTMSequence(S, S, num_layers=2), torch.randn(B, S)
    results = []
    for keep in (torch.Tensor.detach, torch.Tensor.clone):
        stream = module.stream(B)
        first = stream.step(input)
        kept = keep(first)
        stream.step(first)
        results.append(stream.step(kept))
    assert torch.equal(*results)


@pytest.mark.parametrize("bad", ["strided", "offset", "dtype"])
def test_packed_is_what_pack_made(bad: str) -> None:
    tensors = Arguments.apart(torch.float32).tensors()
    packed = tensors["packed"]
    tensors["packed"] = {
        "strided": packed.repeat_interleave(2)[::2],
        "offset": packed[1:],
        "dtype": packed.double(),
    }[bad]
    with pytest.raises(RuntimeError, match=r"packed must be what lltm::pack made .*, got"):
        step(tensors)


# Autograd ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["input", "packed", "bias", "old_h", "cell", "new_h"])
def test_what_requires_grad_is_refused_while_gradients_are_recorded(name: str) -> None:
    tensors = {key: t.clone() for key, t in Arguments.apart(torch.float32).tensors().items()}
    tensors[name].requires_grad_()
    with pytest.raises(NotImplementedError, match=r"stream_step has no derivative .*no_grad"):
        step(tensors)
    with torch.no_grad():
        assert_right(tensors)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_every_write_is_counted(mode: type) -> None:
    tensors = {key: t.clone() for key, t in Arguments.apart(torch.float32).tensors().items()}
    versions = {key: tensor._version for key, tensor in tensors.items()}
    with mode():
        step(tensors)
    written = {key for key, tensor in tensors.items() if tensor._version > versions[key]}
    assert written == {"cell", "new_h"}


@pytest.mark.parametrize("name", ["cell", "new_h"])
def test_a_write_over_what_autograd_saved_is_an_error(name: str) -> None:
    tensors = {key: t.clone() for key, t in Arguments.apart(torch.float32).tensors().items()}
    weight = torch.randn(B, S, requires_grad=True)
    product = (weight * tensors[name]).sum()
    step(tensors)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_a_write_over_a_result_of_a_stream_is_an_error() -> None:
    stream, weight = LLTM(F, S).stream(B), torch.randn(B, S, requires_grad=True)
    result = stream.step(torch.randn(B, F))
    product = (weight * result).sum()
    stream.step(torch.randn(B, F))
    product.backward(retain_graph=True)
    assert torch.equal(weight.grad, result)
    stream.step(torch.randn(B, F))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


# Views ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cell", "new_h"])
def test_a_negated_view_is_not_written(name: str) -> None:
    tensors = Arguments.apart(torch.float32).tensors()
    tensors[name] = torch._neg_view(tensors[name])
    with pytest.raises(RuntimeError, match=f"stream_step: {name} .* negated .*resolve_neg"):
        step(tensors)


@pytest.mark.parametrize("name", ["input", "packed", "bias", "old_h"])
def test_a_negated_view_is_read(name: str) -> None:
    tensors = Arguments.apart(torch.float32).tensors()
    expected = step_of_copies(tensors | {name: -tensors[name]})
    tensors[name] = torch._neg_view(tensors[name])
    for actual, wanted in zip(step(tensors), expected, strict=True):
        assert torch.equal(actual, wanted)


def test_a_conjugated_view_is_not_written() -> None:
    tensors = Arguments.apart(torch.float32).tensors()
    tensors["cell"] = tensors["cell"].to(torch.complex64).conj()
    with pytest.raises(RuntimeError, match=r"cell .* conjugated view, got one"):
        step(tensors)


# Devices ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["input", "packed", "bias", "old_h", "cell", "new_h"])
def test_a_meta_tensor_among_others_is_refused(name: str) -> None:
    tensors = Arguments.apart(torch.float32).tensors()
    tensors[name] = tensors[name].to("meta")
    with pytest.raises(RuntimeError, match=r"lltm::stream_step: .*meta"):
        step(tensors)


def test_meta_tensors_are_checked_as_others_are() -> None:
    tensors = {k: t.to("meta") for k, t in Arguments.apart(torch.float32).tensors().items()}
    step(tensors)
    for name, shape in {"new_h": (B, S + 1), "cell": (B + 1, S), "bias": (S,)}.items():
        with pytest.raises(RuntimeError, match=f"stream_step: {name} must have shape .* got"):
            step(tensors | {name: torch.zeros(shape, device="meta")})
    with pytest.raises(RuntimeError, match="cell is written in place and must be contiguous"):
        step(tensors | {"cell": torch.zeros(S, B, device="meta").mT})
    with pytest.raises(RuntimeError, match="packed must be what lltm::pack made"):
        step(tensors | {"packed": tensors["packed"][1:]})
    with pytest.raises(RuntimeError, match=r"weights must have shape \[3S, S \+ F\], got \[7, 9\]"):
        torch.ops.lltm.pack(torch.zeros(7, 9, device="meta"))
