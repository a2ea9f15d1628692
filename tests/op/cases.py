"""The one case list and the one tolerance table: every check and every benchmark feeds from here.

A :class:`Case` is a named problem: sizes, bias form, memory layout and values. ``case.arguments()``
makes its tensors, the same ones in every process and in every dtype (drawn in float64 from a seed
that is the case's name, then rounded).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

import lltm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TENSOR_NAMES = {
    "cell": ("input", "weights", "bias", "old_h", "old_cell"),
    "sequence": ("input", "weights", "bias", "h0", "c0"),
}
OUTPUT_NAMES = {"cell": ("new_h", "new_cell"), "sequence": ("output", "h_n", "c_n")}
DEVICE = "cpu"
"""Where cases make their tensors; the backend fixtures change it for a test."""
BIASES = ("flat", "row", "absent")
"""[3S], [1, 3S], None."""


# Tolerances -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tolerance:
    """``|actual - expected| <= rtol * |expected| + atol * max(1, largest finite |expected|)``.

    The absolute part scales with the tensor because its elements are sums over batch, time or
    features: what cancels to a small element keeps the rounding error of the large terms.
    """

    rtol: float
    atol: float


TOLERANCES: dict[torch.dtype, Tolerance] = {
    torch.float64: Tolerance(rtol=1e-12, atol=1e-14),
    torch.float32: Tolerance(rtol=1e-5, atol=3e-6),
    # bfloat16 has 8 significant bits, float16 has 11. The reference rounds after every operation,
    # the kernels once, and over 64 steps these roundings add up.
    torch.bfloat16: Tolerance(rtol=3e-2, atol=3e-2),
    torch.float16: Tolerance(rtol=4e-3, atol=5e-3),
}
DTYPES = tuple(TOLERANCES)


def assert_close(actual: Tensor, expected: Tensor, what: str) -> None:
    """Equal within the table: shape, dtype, infinities and nans included."""
    finite = expected.detach()[torch.isfinite(expected.detach())]
    scale = max(1.0, float(finite.abs().max())) if finite.numel() else 1.0
    tolerance = TOLERANCES[expected.dtype]
    torch.testing.assert_close(
        actual,
        expected,
        rtol=tolerance.rtol,
        atol=tolerance.atol * scale,
        equal_nan=True,
        msg=lambda message: f"{what}: {message}",
    )


def assert_as_right(actual: Tensor, reference: Tensor, exact: Tensor, what: str) -> None:
    """Within the table of the truth, or of what the reference itself misses it by.

    Args:
        actual: what a backend gave.
        reference: what the reference gave in the same dtype.
        exact: what the reference gives in float64 for the same inputs.
        what: names the tensor in a failure.
    """
    rounded = exact.to(reference.dtype)
    missed = torch.nan_to_num(reference.double() - rounded.double(), posinf=0, neginf=0)
    miss = float(missed.abs().max()) if missed.numel() else 0.0
    finite = torch.nan_to_num(exact, posinf=0, neginf=0)
    scale = max(1.0, float(finite.abs().max())) if finite.numel() else 1.0
    tolerance = TOLERANCES[reference.dtype]
    torch.testing.assert_close(
        actual,
        rounded,
        rtol=tolerance.rtol,
        atol=tolerance.atol * scale + miss,
        equal_nan=True,
        msg=lambda message: f"{what}: {message}",
    )


# Cases ------------------------------------------------------------------------------------------


class Arguments(NamedTuple):
    """What an op is called with, in its order."""

    input: Tensor
    weights: Tensor
    bias: Tensor | None
    h: Tensor
    c: Tensor
    alpha: float

    def tensors(self) -> list[Tensor]:
        """The tensors there are: without ``bias`` where it is absent."""
        return [value for value in self[:5] if value is not None]

    def map(self, function: Callable[[Tensor], Tensor]) -> Arguments:
        """Apply ``function`` to every tensor."""
        mapped = (None if value is None else function(value) for value in self[:5])
        return Arguments(*mapped, self.alpha)

    def leaves(self, needs: tuple[bool, ...] = (True,) * 5) -> Arguments:
        """The same tensors as autograd leaves, their layout kept; ``needs`` says which ask."""
        tensors = (
            None if value is None else value.detach().requires_grad_(need)
            for value, need in zip(self[:5], needs, strict=True)
        )
        return Arguments(*tensors, self.alpha)


@dataclass(frozen=True)
class Case:
    """One problem for ``lltm_cell`` (``steps`` is ``None``) or ``lltm_sequence``.

    Attributes:
        name: unique within its op; also the seed of its values.
        batch: B.
        features: F.
        state: S.
        steps: T, ``None`` for the cell.
        bias: one of :data:`BIASES`.
        alpha: the ELU's scale.
        layout: one of :data:`LAYOUTS`: how every tensor lies in memory.
        values: one of :data:`VALUES`: what the tensors hold.
    """

    name: str
    batch: int
    features: int
    state: int
    steps: int | None = None
    bias: str = "flat"
    alpha: float = 1.0
    layout: str = "contiguous"
    values: str = "normal"

    @property
    def op(self) -> str:
        """``cell`` or ``sequence``."""
        return "cell" if self.steps is None else "sequence"

    @property
    def function(self) -> Callable[..., tuple[Tensor, ...]]:
        """The public function."""
        return lltm.lltm_cell if self.steps is None else lltm.lltm_sequence

    @property
    def reference(self) -> Callable[..., tuple[Tensor, ...]]:
        """The definition of correct."""
        return lltm.reference.cell if self.steps is None else lltm.reference.sequence

    def raw(self, suffix: str = "") -> Any:
        """``torch.ops.lltm.<op><suffix>``, its default overload."""
        return getattr(torch.ops.lltm, self.op + suffix).default

    def arguments(self, dtype: torch.dtype = torch.float32, device: str | None = None) -> Arguments:
        """Make the tensors, on ``device`` or else on :data:`DEVICE`."""
        device = device or DEVICE
        generator = torch.Generator().manual_seed(zlib.crc32(f"{self.op} {self.name}".encode()))

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        batch, features, state = self.batch, self.features, self.state
        rows = (batch,) if self.steps is None else (self.steps, batch)
        drawn = Arguments(
            input=normal(*rows, features),
            weights=normal(3 * state, state + features) / max(1, state + features) ** 0.5,
            bias=None if self.bias == "absent" else normal(3 * state),
            h=normal(batch, state).tanh(),
            c=normal(batch, state),
            alpha=self.alpha,
        )
        valued = VALUES[self.values](drawn, generator)
        if self.bias == "row" and valued.bias is not None:
            valued = valued._replace(bias=valued.bias.unsqueeze(0))
        return valued.map(lambda tensor: LAYOUTS[self.layout](tensor.to(device, dtype)))


# Values: change what the tensors hold.


def _normal(drawn: Arguments, generator: torch.Generator) -> Arguments:
    return drawn


def _zero(drawn: Arguments, generator: torch.Generator) -> Arguments:
    """z = 0 exactly, where elu' must be alpha."""
    bias = None if drawn.bias is None else torch.zeros_like(drawn.bias)
    return drawn._replace(weights=torch.zeros_like(drawn.weights), bias=bias)


def _large(drawn: Arguments, generator: torch.Generator) -> Arguments:
    """|z| in 100..300, where exp(z) overflows float32; both signs at every gate."""
    assert drawn.bias is not None
    size = drawn.bias.shape[0]
    magnitude = 130 + 140 * torch.rand(size, generator=generator, dtype=torch.float64)
    sign = 1.0 - 2.0 * torch.randint(2, (size,), generator=generator)
    return drawn._replace(bias=magnitude * sign)


def _plant(tensor: Tensor, value: float) -> Tensor:
    """Put ``value`` into the first column of the second to last row, its negative into the last."""
    planted = tensor.clone()
    planted[..., -2, 0] = value
    planted[..., -1, 0] = -value
    return planted


def _inf(drawn: Arguments, generator: torch.Generator) -> Arguments:
    """Infinite inputs in two rows, infinite states in the first; the rest stays finite."""
    c = drawn.c.clone()
    c[0, 0], c[0, -1] = float("inf"), float("-inf")
    return drawn._replace(input=_plant(drawn.input, float("inf")), c=c)


def _inf_bias(drawn: Arguments, generator: torch.Generator) -> Arguments:
    """z is -inf, finite or inf at every gate, in all combinations."""
    assert drawn.bias is not None
    state = drawn.bias.shape[0] // 3
    kinds = torch.tensor([float("-inf"), 0.0, float("inf")], dtype=torch.float64)
    index = torch.arange(state)
    gates = [kinds[index % 3], kinds[index // 3 % 3], kinds[index // 9 % 3]]
    return drawn._replace(bias=torch.cat(gates))


def _nan(drawn: Arguments, generator: torch.Generator) -> Arguments:
    c = drawn.c.clone()
    c[0, 0] = float("nan")
    return drawn._replace(input=_plant(drawn.input, float("nan")), c=c)


def _apart(drawn: Arguments, generator: torch.Generator) -> Arguments:
    """z on both sides of zero but not near it: with alpha other than 1, elu' jumps there by
    1 - alpha, and in a narrow dtype rounding alone would decide the side."""
    assert drawn.bias is not None
    return drawn._replace(weights=0.1 * drawn.weights, bias=drawn.bias + drawn.bias.sign())


def _tiny(drawn: Arguments, generator: torch.Generator) -> Arguments:
    """z near zero on both sides, where elu must not lose its digits to exp(z) - 1."""
    apart = _apart(drawn, generator)
    return apart._replace(weights=1e-3 * apart.weights, bias=1e-3 * apart.bias, c=1e-3 * apart.c)


VALUES: dict[str, Callable[[Arguments, torch.Generator], Arguments]] = {
    "normal": _normal,
    "zero": _zero,
    "large": _large,
    "inf": _inf,
    "inf_bias": _inf_bias,
    "nan": _nan,
    "apart": _apart,
    "tiny": _tiny,
}


# Layouts: the same numbers, elsewhere in memory.


def _strided(tensor: Tensor) -> Tensor:
    """Every second element of a wider buffer."""
    wide = tensor.new_full((*tensor.shape[:-1], 2 * tensor.shape[-1]), float("nan"))
    wide[..., ::2] = tensor
    return wide[..., ::2]


def _transposed(tensor: Tensor) -> Tensor:
    """Column-major in the last two dimensions."""
    return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor


def _expanded(tensor: Tensor) -> Tensor:
    """The first row repeated with stride 0 (a vector keeps its values)."""
    return tensor[..., :1, :].expand_as(tensor) if tensor.dim() > 1 else tensor


def _offset(tensor: Tensor) -> Tensor:
    """One element behind the start of a buffer: aligned to no vector."""
    buffer = tensor.new_full((tensor.numel() + 1,), float("nan"))
    buffer[1:] = tensor.reshape(-1)
    return buffer[1:].view(tensor.shape)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": Tensor.contiguous,
    "strided": _strided,
    "transposed": _transposed,
    "expanded": _expanded,
    "offset": _offset,
}


# The list.


def _cell_cases() -> Iterator[Case]:
    yield Case("1x1x1", 1, 1, 1)
    yield Case("empty_batch", 0, 3, 4)
    yield Case("no_features", 3, 0, 4)
    for state in (2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65):
        yield Case(f"state_{state}", 3, 5, state)
    for batch in (2, 4, 7, 8, 9, 16, 31, 64, 65, 128, 255, 256, 257):
        yield Case(f"batch_{batch}", batch, 6, 11)
    for batch in (7, 16):  # more terms than the kernels sum at a time
        yield Case(f"deep_{batch}", batch, 250, 50)
    for batch in (1, 15, 40):  # more columns than kernels take at a time, and weights than a cache
        yield Case(f"wide_{batch}", batch, 150, 300)
    yield Case("blocks_600", 600, 6, 210)  # more blocks of rows than a test has threads
    yield Case("tutorial", 16, 32, 128)
    yield Case("few_terms", 3, 1000, 90)  # whose products are written in pieces of rows
    yield Case("one_term_more", 3, 16, 17)  # than a vector of pairs has
    yield from _variants(Case("", 5, 7, 27))


def _sequence_cases() -> Iterator[Case]:
    yield Case("1x1x1x1", 1, 1, 1, steps=1)
    yield Case("no_steps", 3, 5, 4, steps=0)
    yield Case("no_steps_empty_batch", 0, 5, 4, steps=0)
    yield Case("one_step", 3, 5, 4, steps=1)
    yield Case("empty_batch", 0, 3, 4, steps=5)
    yield Case("no_features", 3, 0, 4, steps=5)
    yield Case("no_features_in_steps", 8, 0, 4, steps=5)  # of rows enough to multiply their input
    for state in (3, 7, 8, 9, 16, 17, 33):
        yield Case(f"state_{state}", 3, 5, state, steps=4)
    for batch in (2, 8, 31, 257):
        yield Case(f"batch_{batch}", batch, 6, 11, steps=3)
    yield Case("few_rows", 2, 37, 140, steps=4)  # so few that the weights are read in place
    yield Case("long", 2, 3, 5, steps=64)
    yield Case("deep", 7, 140, 140, steps=3)
    yield Case("tutorial", 16, 32, 128, steps=8)
    yield from _variants(Case("", 5, 7, 27, steps=6))


def _variants(case: Case) -> Iterator[Case]:
    for bias in BIASES:
        yield replace(case, name=f"bias_{bias}", bias=bias)
    for alpha in (0.0, 0.25, 3.0):
        yield replace(case, name=f"alpha_{alpha:g}", alpha=alpha, values="apart")
    for layout in LAYOUTS:
        yield replace(case, name=f"layout_{layout}", layout=layout)
        yield replace(case, name=f"layout_{layout}_row", layout=layout, bias="row")
    for values in VALUES:
        yield replace(case, name=f"values_{values}", values=values)
    for values in ("zero", "large", "tiny"):
        yield replace(case, name=f"values_{values}_alpha", values=values, alpha=0.5)


CELL_CASES: tuple[Case, ...] = tuple(_cell_cases())
SEQUENCE_CASES: tuple[Case, ...] = tuple(_sequence_cases())
CASES: tuple[Case, ...] = (*CELL_CASES, *SEQUENCE_CASES)

SMALL = {
    "cell": Case("small", 2, 3, 2),
    "sequence": Case("small", 2, 3, 2, steps=3),
}
"""For checks that cost much per element: numerical derivatives, tracing, mapping."""


def sized(*sizes: int) -> Case:
    """Of B, F, S or of T, B, F, S, which name it."""
    steps = sizes[0] if len(sizes) > 3 else None
    return Case("x".join(map(str, sizes)), *sizes[-3:], steps=steps)


BENCHMARK_CASES: tuple[Case, ...] = (
    sized(16, 32, 128),
    sized(1, 32, 128),
    sized(64, 256, 512),
    sized(64, 1024, 1024),
    sized(256, 64, 64),
    sized(64, 16, 32, 128),
    sized(64, 16, 128, 256),
    sized(64, 1, 256, 512),
    sized(32, 64, 512, 512),
    sized(256, 8, 64, 96),
)
"""B x F x S and T x B x F x S; the first of each is the tutorial's."""


def identify(value: object) -> str | None:
    """Pytest id of a parameter."""
    if isinstance(value, Case):
        return f"{value.op}-{value.name}"
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, lltm.backends.Backend):
        return value.name
    return None


# Derivatives ------------------------------------------------------------------------------------


def cotangents(outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """One fixed cotangent per output, made without a random operation, which vmap refuses."""
    return tuple(
        torch.arange(1, output.numel() + 1, dtype=torch.float64)
        .mul(0.7 + index)
        .cos()
        .reshape(output.shape)
        .to(output.device, output.dtype)
        for index, output in enumerate(outputs)
    )


def loss(outputs: tuple[Tensor, ...]) -> Tensor:
    """A scalar whose gradient in the outputs is :func:`cotangents`."""
    pairs = zip(outputs, cotangents(outputs), strict=True)
    return torch.stack([(output * cotangent).sum() for output, cotangent in pairs]).sum()


def gradients(outputs: tuple[Tensor, ...], arguments: Arguments) -> list[Tensor]:
    """Gradients of :func:`loss` in every tensor argument that asks; a missing one is an error."""
    asking = [tensor for tensor in arguments.tensors() if tensor.requires_grad]
    return list(torch.autograd.grad(loss(outputs), asking))


def expected_outputs(case: Case, arguments: Arguments) -> tuple[Tensor, ...]:
    """The reference's; of the 16-bit dtypes in float64, rounded at the end.

    In its own 16 bits the reference rounds after every operation, and torch's product may let the
    nan of a row into another one (``leaks.py``).
    """
    dtype = arguments.input.dtype
    if dtype.itemsize > 2:
        return case.reference(*arguments)
    return tuple(exact.to(dtype) for exact in case.reference(*arguments.map(Tensor.double)))


def reference_gradients(case: Case, arguments: Arguments) -> list[Tensor]:
    """What :func:`gradients` must give: zeros where the reference does not use an argument."""
    asking = [tensor for tensor in arguments.tensors() if tensor.requires_grad]
    outputs = case.reference(*arguments)
    return list(torch.autograd.grad(loss(outputs), asking, materialize_grads=True))
