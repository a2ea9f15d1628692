"""What the fuzz of the raw ops draws, and how long it goes on.

The same cases each time; more of them, from LLTM_FUZZ_SEED on, for LLTM_FUZZ_SECONDS a search. Each
search appends a line to the file LLTM_FUZZ_LOG: its name, the cases it took, and how many of them
an op accepted.
"""

from __future__ import annotations

import os
import re
import time
from functools import wraps
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

MORE_S = float(os.environ.get("LLTM_FUZZ_SECONDS", "0"))
LOG = os.environ.get("LLTM_FUZZ_LOG")
SEED = int(os.environ.get("LLTM_FUZZ_SEED", "1"))
OF_NOTHING = re.compile("asks for the gradient of (bias|reset_state), which is None")
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
FLOATS = DTYPES[:4]
SETTINGS = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
MORE = settings(SETTINGS, derandomize=False, database=None, print_blob=True)
few = st.integers(0, 5)
# Beyond a vector, a tile and a panel of the kernels; small ones more often.
sizes = st.one_of(few, st.integers(0, 70))
steps = st.one_of(few, st.integers(0, 12))
alphas = st.one_of(st.floats(0, 4), st.sampled_from([-1.0, 1e300, float("inf"), float("nan")]))


def tensor(shape: tuple[int, ...], dtype: torch.dtype, transposed: bool = False) -> Tensor:
    """Positive and negative values below 1."""
    values = torch.arange(1, 1 + max(1, torch.Size(shape).numel()), dtype=torch.float64).sin()
    made = values[: torch.Size(shape).numel()].reshape(shape).to(dtype)
    return made.mT.contiguous().mT if transposed and made.dim() > 1 else made


def weights(shape: tuple[int, int], dtype: torch.dtype, transposed: bool = False) -> Tensor:
    """Such that pre-activations are no larger for more columns."""
    scaled = tensor(shape, torch.float64) / max(1, shape[1]) ** 0.5
    return scaled.mT.contiguous().mT.to(dtype) if transposed else scaled.to(dtype)


@st.composite
def anything(draw: Any) -> Tensor:
    """A tensor of any rank, dtype and layout."""
    shape = tuple(draw(st.lists(few, max_size=4)))
    return tensor(shape, draw(st.sampled_from(DTYPES)), draw(st.booleans()))


@st.composite
def something_else(draw: Any, right: Tensor | None) -> Tensor | None:
    """In the place of an argument that fits: anything, or itself with one thing changed."""
    kind = draw(st.sampled_from(["anything", "size", "dtype", "layout", "missing"]))
    if kind == "anything" or right is None:
        return draw(anything())
    if kind == "dtype":
        return right.to(draw(st.sampled_from(DTYPES)))
    if kind == "layout":
        return torch.stack([right, right], -1)[..., 0]
    if kind == "size" and right.dim():
        dim = draw(st.integers(0, right.dim() - 1))
        more = torch.cat([right, right.narrow(dim, 0, min(1, right.shape[dim]))], dim)
        return draw(st.sampled_from([more, right.narrow(dim, 0, max(0, right.shape[dim] - 1))]))
    return None


@st.composite
def replacing(draw: Any, arguments: list[Any]) -> list[Any]:
    """Arguments of which at most two are something else."""
    replaced = list(arguments)
    tensors = [at for at, value in enumerate(arguments) if not isinstance(value, (float, list))]
    for position in draw(st.lists(st.sampled_from(tensors), max_size=2)):
        replaced[position] = draw(something_else(arguments[position]))
    return replaced


def gradients_of(
    function: Callable[..., tuple[Tensor, ...]], tensors: list[Any], seeds: list[Any]
) -> list[Any]:
    """For each argument that there is, by PyTorch; without steps some outputs depend on none."""
    leaves = [None if each is None else each.detach().requires_grad_() for each in tensors]
    outputs = zip(function(*leaves), seeds, strict=True)
    of, cotangents = zip(*[pair for pair in outputs if pair[0].requires_grad], strict=True)
    there = [each for each in leaves if each is not None]
    found = iter(torch.autograd.grad(of, there, cotangents, materialize_grads=True))
    return [None if each is None else next(found) for each in leaves]


def explore(name: str, check: Callable[..., bool], *strategies: Any) -> None:
    """Check the cases of every run, and more of them while there is time.

    Args:
        name: of the search.
        check: returns whether an op accepted the arguments; raises where it is wrong.
        strategies: of the check's arguments.
    """
    checked = accepted = 0

    @wraps(check)  # Hypothesis reads the signature
    def counted(*arguments: Any, **named: Any) -> None:
        nonlocal checked, accepted
        checked += 1
        accepted += check(*arguments, **named)

    SETTINGS(given(*strategies)(counted))()
    end = time.monotonic() + MORE_S
    for number in count(SEED):
        if time.monotonic() >= end:
            break
        seed(number)(MORE(given(*strategies)(counted)))()
    if LOG:
        with Path(LOG).open("a", encoding="utf-8") as file:
            file.write(f"{name} {checked} {accepted}\n")


def attempt(op: Any, arguments: list[Any]) -> tuple[Tensor, ...] | None:
    """Call; what an error says must be the op's own words."""
    try:
        results: tuple[Tensor, ...] | Tensor | None = op(*arguments)
    except (RuntimeError, TypeError) as error:
        message = str(error)
        name = op.name().rpartition("::")[2].removesuffix("_forward").removesuffix("_backward")
        assert f"lltm::{name}" in message, message
        expected_and_got = " must " in message and ", got " in message
        assert expected_and_got or OF_NOTHING.search(message), message
        return None
    if results is None:
        return ()
    return (results,) if isinstance(results, Tensor) else tuple(results)
