"""What has no forward-mode derivative refuses a tangent by name; it never gives one of zero."""

from __future__ import annotations

from collections.abc import Callable

import cases
import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import lltm

B, F, S = 2, 3, 4
SHAPES = {
    "input": (B, F),
    "packed": None,
    "bias": (3 * S,),
    "old_h": (B, S),
    "cell": (B, S),
    "new_h": (B, S),
}
Function = Callable[[Tensor], object]


def with_dual_numbers(function: Function, primal: Tensor) -> None:
    with forward_ad.dual_level():
        function(forward_ad.make_dual(primal, torch.ones_like(primal)))


def with_jvp(function: Function, primal: Tensor) -> None:
    torch.func.jvp(function, (primal,), (torch.ones_like(primal),))


def with_jacfwd(function: Function, primal: Tensor) -> None:
    torch.func.jacfwd(function)(primal)


def with_linearize(function: Function, primal: Tensor) -> None:
    torch.func.linearize(function, primal)


def with_jvp_of_vmap(function: Function, primal: Tensor) -> None:
    stacked = torch.stack([primal, primal])
    torch.func.jvp(torch.vmap(function), (stacked,), (torch.ones_like(stacked),))


MODES = [with_dual_numbers, with_jvp, with_jacfwd, with_linearize]
modes = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.__name__)


def tensors() -> dict[str, Tensor]:
    """Arguments of ``stream_step``."""
    weights = torch.randn(3 * S, S + F)
    made = {name: torch.randn(shape) for name, shape in SHAPES.items() if shape}
    return {name: made.get(name, torch.ops.lltm.pack(weights)) for name in SHAPES}


@modes
@pytest.mark.parametrize("name", SHAPES)
def test_stream_step(name: str, mode: Callable[[Function, Tensor], None]) -> None:
    arguments = tensors()

    def step(value: Tensor) -> Tensor:
        given = {key: tensor.clone() for key, tensor in arguments.items()} | {name: value}
        torch.ops.lltm.stream_step(*given.values())
        return given["new_h"]

    with pytest.raises(
        NotImplementedError, match=f"lltm::stream_step .*, and {name} has a tangent"
    ):
        mode(step, arguments[name])


@pytest.mark.parametrize("mode", [*MODES, with_jvp_of_vmap], ids=lambda mode: mode.__name__)
def test_pack(mode: Callable[[Function, Tensor], None]) -> None:
    with pytest.raises(NotImplementedError, match=r"lltm::pack .*, and weights has a tangent"):
        mode(torch.ops.lltm.pack, torch.randn(3 * S, S + F))


def test_pack_has_no_reverse_mode_either() -> None:
    weights = torch.randn(3 * S, S + F, requires_grad=True)
    words = r"lltm::pack has no derivative.*no_grad"
    with pytest.raises(NotImplementedError, match=words):
        torch.ops.lltm.pack(weights)
    with pytest.raises(NotImplementedError, match=words):
        torch.func.grad(lambda w: torch.ops.lltm.pack(w).sum())(weights.detach())
    with torch.no_grad():
        assert torch.equal(torch.ops.lltm.pack(weights), torch.ops.lltm.pack(weights.detach()))


@modes
@pytest.mark.parametrize("position", range(5), ids=["input", "weights", "bias", "h", "c"])
@pytest.mark.parametrize("op", ["cell", "sequence"])
def test_raw_forward(op: str, position: int, mode: Callable[[Function, Tensor], None]) -> None:
    case = cases.SMALL[op]
    arguments = case.arguments()

    def forward(value: Tensor) -> Tensor:
        given = [*arguments[:position], value, *arguments[position + 1 :]]
        first: Tensor = case.raw("_forward")(*given)[0]
        return first

    with pytest.raises(
        NotImplementedError, match=f"{op}_forward .* has a tangent; call lltm::{op}"
    ):
        mode(forward, arguments[position])


STREAMED: dict[str, tuple[tuple[int, ...], Function]] = {
    "input": ((B, F), lambda value: stream().step(value)),
    "weights": ((3 * S, S + F), lambda value: lltm.LLTMStream([(value, None)], B)),
    "bias": ((3 * S,), lambda value: lltm.LLTMStream([(torch.ones(3 * S, S + F), value)], B)),
    "state": ((1, B, S), lambda value: stream().reset((value, value))),
}


def stream() -> lltm.LLTMStream:
    return lltm.LLTMStream([(torch.ones(3 * S, S + F), torch.ones(3 * S))], B)


@modes
@pytest.mark.parametrize("name", STREAMED)
def test_stream(name: str, mode: Callable[[Function, Tensor], None]) -> None:
    shape, function = STREAMED[name]

    def result(value: Tensor) -> Tensor:
        made = function(value)
        return made if isinstance(made, Tensor) else value

    words = f"LLTMStream has no derivative, and {name} has a tangent"
    with pytest.raises(NotImplementedError, match=words):
        mode(result, torch.randn(shape))


@pytest.mark.parametrize("name", STREAMED)
def test_a_stream_inside_func_grad(name: str) -> None:
    """Its result would be a constant, with a gradient of zero."""
    shape, function = STREAMED[name]

    def loss(value: Tensor) -> Tensor:
        made = function(value)
        return (made if isinstance(made, Tensor) else value).sum()

    words = f"LLTMStream has no derivative, and {name} is differentiated by torch.func"
    with pytest.raises(NotImplementedError, match=words):
        torch.func.grad(loss)(torch.randn(shape))


def test_what_has_no_tangent_is_computed() -> None:
    """Beside others that have, as in a function that is differentiated in part."""
    arguments = tensors()
    input = torch.randn(B, F)
    expected, streamed = arguments["new_h"].clone(), stream()
    torch.ops.lltm.stream_step(
        *(arguments | {"new_h": expected, "cell": arguments["cell"].clone()}).values()
    )
    first = streamed.step(input).clone()
    streamed.reset()

    def function(other: Tensor) -> Tensor:
        torch.ops.lltm.stream_step(*arguments.values())
        return other * 2 + streamed.step(input)

    result, tangent = torch.func.jvp(function, (torch.zeros(B, S),), (torch.ones(B, S),))
    assert torch.equal(arguments["new_h"], expected)
    assert torch.equal(result, first)
    assert torch.equal(tangent, torch.full((B, S), 2.0))


@pytest.mark.compile
def test_a_compiled_graph() -> None:
    streamed, input = stream(), torch.randn(B, F)

    def function(value: Tensor) -> Tensor:
        tangent: Tensor = torch.func.jvp(streamed.step, (value,), (value,))[1]
        return tangent

    with pytest.raises(Exception, match=r"has no .*derivative"):
        torch.compile(function, backend="aot_eager")(input)
