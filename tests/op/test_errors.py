"""Bad input raises an error that names the argument, what was expected and what came."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cases
import numpy as np
import pytest
import torch
from installed_copy import InstalledCopy

import lltm

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cases import Arguments

OPS = ("cell", "sequence")
H = {"cell": "old_h", "sequence": "h0"}
C = {"cell": "old_cell", "sequence": "c0"}


@dataclass(frozen=True)
class Fault:
    """A broken argument and the words its error must hold.

    ``{h}`` and ``{c}`` stand for the op's names of the states.
    """

    name: str
    breaks: Callable[[Arguments], Arguments]
    words: tuple[str, ...]


def _fault(name: str, field: str, change: Callable[[Any], Any], *words: str) -> Fault:
    return Fault(name, lambda args: args._replace(**{field: change(getattr(args, field))}), words)


# SMALL is B, F, S = 2, 3, 2 (and T = 3): weights [6, 5].
FAULTS = (
    _fault("input_rank_1", "input", lambda t: t.flatten(), "input must have", "dimensions ["),
    _fault(
        "input_rank_4",
        "input",
        lambda t: t[None, None],
        "input must have",
        "dimensions [",
        "[1, 1, ",
    ),
    _fault("input_scalar", "input", lambda t: t.sum(), "input must have", "dimensions [", "got []"),
    _fault(
        "input_features",
        "input",
        lambda t: t[..., :-1],
        "weights must have shape",
        "[6, 4]",
        "[6, 5]",
    ),
    _fault(
        "input_batch", "input", lambda t: t[..., :1, :], "{h} must have shape", "[1, 2]", "[2, 2]"
    ),
    _fault(
        "weights_rows", "weights", lambda t: t[:-1], "weights must have shape", "[6, 5]", "[5, 5]"
    ),
    _fault(
        "weights_columns",
        "weights",
        lambda t: t[:, 1:],
        "weights must have shape",
        "[6, 5]",
        "[6, 4]",
    ),
    _fault(
        "weights_rank",
        "weights",
        lambda t: t[None],
        "weights must have shape",
        "[6, 5]",
        "[1, 6, 5]",
    ),
    _fault(
        "weights_transposed",
        "weights",
        lambda t: t.mT,
        "weights must have shape",
        "[6, 5]",
        "[5, 6]",
    ),
    _fault(
        "bias_size",
        "bias",
        lambda t: t[1:],
        "bias must have shape",
        "[3S] or [1, 3S]",
        "[6]",
        "[5]",
    ),
    _fault("bias_column", "bias", lambda t: t[:, None], "bias must have shape", "[1, 6]", "[6, 1]"),
    _fault("bias_rank", "bias", lambda t: t[None, None], "bias must have shape", "[1, 1, 6]"),
    _fault("bias_scalar", "bias", lambda t: t.sum(), "bias must have shape", "got []"),
    _fault("h_rank", "h", lambda t: t[0], "{h} must have 2 dimensions [B, S]", "got [2]"),
    _fault("h_batch", "h", lambda t: t[:1], "{h} must have shape [B, S]", "[2, 2]", "[1, 2]"),
    _fault("c_batch", "c", lambda t: t[:1], "{c} must have shape [B, S]", "[2, 2]", "[1, 2]"),
    _fault("c_state", "c", lambda t: t[:, :1], "{c} must have shape [B, S]", "[2, 2]", "[2, 1]"),
    _fault("c_rank", "c", lambda t: t[None], "{c} must have shape [B, S]", "[1, 2, 2]"),
    _fault("weights_dtype", "weights", torch.Tensor.double, "weights must have the dtype of input"),
    _fault("bias_dtype", "bias", torch.Tensor.half, "bias must have the dtype of input"),
    _fault("h_dtype", "h", torch.Tensor.bfloat16, "{h} must have the dtype of input"),
    _fault("c_dtype", "c", torch.Tensor.double, "{c} must have the dtype of input"),
    _fault(
        "alpha_negative", "alpha", lambda _: -0.5, "alpha must be finite and not negative", "-0.5"
    ),
    _fault(
        "alpha_inf", "alpha", lambda _: float("inf"), "alpha must be finite and not negative", "inf"
    ),
    _fault(
        "alpha_nan", "alpha", lambda _: float("nan"), "alpha must be finite and not negative", "nan"
    ),
    _fault("alpha_beyond_float32", "alpha", lambda _: 1e300, "alpha must be at most 3.4", "1e+300"),
    *(
        Fault(
            f"all_{dtype}".replace("torch.", ""),
            lambda args, dtype=dtype: args.map(lambda t: t.to(dtype)),
            ("input must be float32, float64, bfloat16 or float16",),
        )
        for dtype in (torch.int64, torch.int8, torch.bool, torch.complex64)
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("op", OPS)
def test_broken_argument(op: str, fault: Fault, backend: str) -> None:
    case = cases.SMALL[op]
    broken = fault.breaks(case.arguments())
    with pytest.raises(RuntimeError) as raised:
        case.function(*broken, backend=backend)
    message = str(raised.value)
    assert f"lltm::{op}" in message
    assert ", got " in message
    for words in fault.words:
        assert words.format(h=H[op], c=C[op]) in message


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("op", OPS)
def test_broken_argument_while_recording_gradients(op: str, fault: Fault, backend: str) -> None:
    """Autograd's own road to the kernels says the same."""
    case = cases.SMALL[op]
    broken = fault.breaks(case.arguments())
    if broken.input.is_floating_point():
        broken = broken.leaves()
    with pytest.raises(RuntimeError, match=rf"lltm::{op}.*, got "):
        case.function(*broken, backend=backend)


NOT_TENSORS = [
    (position, value)
    for position in range(5)
    for value in (None, 1.5, [1.0, 2.0], "text")
    if not (position == 2 and value is None)  # an absent bias is no error
]


@pytest.mark.parametrize(("position", "value"), NOT_TENSORS)
@pytest.mark.parametrize("op", OPS)
def test_not_a_tensor(op: str, value: object, position: int, backend: str) -> None:
    case = cases.SMALL[op]
    broken = list(case.arguments())
    broken[position] = value
    name = cases.TENSOR_NAMES[op][position]
    with pytest.raises(TypeError, match=rf"{name} must be a Tensor.*got {type(value).__name__}"):
        case.function(*broken, backend=backend)


@pytest.mark.parametrize("position", [0, 1, 3, 4])
@pytest.mark.parametrize("op", OPS)
def test_raw_op_without_a_tensor(op: str, position: int) -> None:
    """torch hands None to a kernel as an undefined tensor."""
    case = cases.SMALL[op]
    broken = list(case.arguments())
    broken[position] = None
    name = cases.TENSOR_NAMES[op][position]
    for suffix in ("", "_forward"):
        with pytest.raises(RuntimeError, match=rf"{name} must be a Tensor, got None"):
            case.raw(suffix)(*broken)


@pytest.mark.parametrize("op", OPS)
def test_alpha_may_be_as_large_as_float64_holds(op: str, backend: str) -> None:
    case = cases.SMALL[op]
    arguments = case.arguments(torch.float64)._replace(alpha=1e300)
    for a, e in zip(
        case.function(*arguments, backend=backend), case.reference(*arguments), strict=True
    ):
        cases.assert_close(a, e, "alpha 1e300")


@pytest.mark.parametrize("op", OPS)
def test_alpha_is_not_a_number(op: str, backend: str) -> None:
    case = cases.SMALL[op]
    with pytest.raises((TypeError, RuntimeError), match=r"(?s)alpha.*float.*str|float.*alpha.*str"):
        case.function(*case.arguments()[:5], "1.0", backend=backend)


@pytest.mark.parametrize("position", range(1, 5))
@pytest.mark.parametrize("op", OPS)
def test_other_device(op: str, position: int, backend: str) -> None:
    case = cases.SMALL[op]
    broken = list(case.arguments())
    broken[position] = broken[position].to("meta")
    name = cases.TENSOR_NAMES[op][position]
    expected = rf"{name} must be on the device of input, {broken[0].device}, got meta"
    with pytest.raises(RuntimeError, match=expected):
        case.function(*broken, backend=backend)


def test_unknown_backend() -> None:
    arguments = cases.SMALL["cell"].arguments()
    with pytest.raises(ValueError, match=r"backend must be one of reference, .*, got 'tpu'"):
        lltm.lltm_cell(*arguments, backend="tpu")


def test_backend_not_carried_by_this_installation() -> None:
    absent = [row for row in lltm.backends.BACKENDS if not row.is_available()]
    assert absent, "before lltm.jit.load() no installation has every backend"
    with pytest.raises(ValueError, match=rf"backend '{absent[0].name}' .*; .*lltm.jit.load"):
        lltm.lltm_cell(*cases.SMALL["cell"].arguments(), backend=absent[0].name)


def test_backend_not_for_this_device() -> None:
    """A device that no backend computes on is named, with and without ``backend=``."""
    on_meta = cases.SMALL["cell"].arguments().input.to("meta")
    assert lltm.backends.select(None, on_meta).name == "fused"

    class Elsewhere(torch.Tensor):
        device = torch.device("xla")  # a device this torch has not

    with pytest.raises(ValueError, match=r"'fused' computes on cpu.*, input is on xla"):
        lltm.backends.select("fused", torch.ones(1).as_subclass(Elsewhere))
    with pytest.raises(ValueError, match="no backend of this installation computes on xla"):
        lltm.backends.select(None, torch.ones(1).as_subclass(Elsewhere))


SELECTED = "import lltm, torch; print(lltm.backends.select(None, torch.ones(1)).name)"


@pytest.mark.subprocess
def test_backend_from_the_environment(tmp_path: Path) -> None:
    copy = InstalledCopy.make(tmp_path)
    assert copy.run("-c", SELECTED, LLTM_BACKEND="reference").stdout == "reference\n"
    assert copy.run("-c", SELECTED, LLTM_BACKEND="").stdout == "fused\n"
    refused = copy.run("-c", SELECTED, LLTM_BACKEND="nonsense")
    assert refused.returncode == 1
    assert "LLTM_BACKEND must be one of reference, " in refused.stderr
    assert refused.stderr.endswith(", got 'nonsense'\n")


def test_a_named_backend_comes_before_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lltm.backends, "DEFAULT", "reference")
    assert lltm.backends.select("fused", torch.ones(1)).name == "fused"


# Modules ----------------------------------------------------------------------------------------

MODULE_FAULTS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "features": (
        lambda: lltm.LLTM(0, 2),
        ValueError,
        "input_features must be greater than zero, got 0",
    ),
    "features_type": (
        lambda: lltm.LLTM(1.0, 2),
        TypeError,
        "input_features must be an int, got float",
    ),
    "state": (
        lambda: lltm.LLTMSequence(2, -1),
        ValueError,
        "state_size must be greater than zero, got -1",
    ),
    "layers": (
        lambda: lltm.LLTMSequence(2, 2, 0),
        ValueError,
        "num_layers must be greater than zero, got 0",
    ),
    "alpha": (
        lambda: lltm.LLTM(2, 2, alpha=-1.0),
        ValueError,
        "alpha must be finite and not negative, got -1.0",
    ),
    "alpha_numpy": (  # which numpy compares in float32
        lambda: lltm.LLTM(2, 2, alpha=np.float32("inf")),
        ValueError,
        "alpha must be finite and not negative, got inf",
    ),
    "alpha_type": (
        lambda: lltm.LLTMSequence(2, 2, alpha="1"),
        TypeError,
        "alpha must be a float, got str",
    ),
    "alpha_as_bias": (
        lambda: lltm.LLTM(2, 2, 0.5),
        TypeError,
        "bias must be a bool, got float",
    ),
    "dropout_as_bias": (
        lambda: lltm.LLTMSequence(2, 2, 2, 0.5),
        TypeError,
        "bias must be a bool, got float",
    ),
    "batch_first_type": (
        lambda: lltm.LLTMSequence(2, 2, batch_first=None),
        TypeError,
        "batch_first must be a bool, got NoneType",
    ),
    "alpha_as_bidirectional": (
        lambda: lltm.LLTMSequence(2, 2, 1, True, False, 0.0, 0.5),
        TypeError,
        "bidirectional must be a bool, got float",
    ),
    "dtype": (
        lambda: lltm.LLTM(2, 2, dtype=torch.int32),
        ValueError,
        "dtype must be float32, float64, bfloat16 or float16, got torch.int32",
    ),
    "dropout_type": (
        lambda: lltm.LLTMSequence(2, 2, 2, dropout=None),
        TypeError,
        "dropout must be a float, got NoneType",
    ),
    "dropout": (
        lambda: lltm.LLTMSequence(2, 2, 2, dropout=1.5),
        ValueError,
        r"dropout must be a probability in [0, 1], got 1.5",
    ),
    "dropout_one_layer": (
        lambda: lltm.LLTMSequence(2, 2, dropout=0.5),
        UserWarning,
        "dropout=0.5 has no effect with num_layers=1",
    ),
    "no_tensor": (lambda: lltm.LLTM(3, 2)([1.0]), TypeError, "input must be a Tensor, got list"),
    "state_no_pair": (
        lambda: lltm.LLTM(3, 2)(torch.ones(2, 3), torch.ones(2, 2)),
        TypeError,
        "state must be a tuple (h, c) of two Tensors, got Tensor",
    ),
    "input_features_of_a_step": (
        lambda: lltm.LLTM(3, 2)(torch.ones(4, 5)),
        RuntimeError,
        "input must have input_features = 3 as its last size, got [4, 5]",
    ),
    "state_of_a_step": (
        lambda: lltm.LLTM(3, 2)(torch.ones(4, 3), (torch.ones(4, 5), torch.ones(4, 5))),
        RuntimeError,
        "state: h must have shape [4, 2], got [4, 5]",
    ),
    "input_features": (
        lambda: lltm.LLTMSequence(3, 2)(torch.ones(4, 2, 5)),
        RuntimeError,
        "input must have input_features = 3 as its last size, got [4, 2, 5]",
    ),
    "sparse": (
        lambda: lltm.LLTMSequence(3, 2)(torch.ones(4, 2, 3).to_sparse()),
        RuntimeError,
        "input must be a dense tensor (strided), got torch.sparse_coo",
    ),
    "nested": (
        lambda: lltm.LLTMSequence(3, 2, batch_first=True)(
            torch.nested.nested_tensor([torch.ones(4, 3), torch.ones(2, 3)], layout=torch.jagged)
        ),
        RuntimeError,
        "input must be a dense tensor, got nested; for rows of different lengths pass "
        "torch.nn.utils.rnn.pack_sequence",
    ),
    "input_rank": (
        lambda: lltm.LLTMSequence(3, 2)(torch.ones(1, 4, 2, 3)),
        RuntimeError,
        "input must have shape [T, B, F], or [T, F] unbatched, got [1, 4, 2, 3]",
    ),
    "input_rank_batch_first": (
        lambda: lltm.LLTMSequence(3, 2, batch_first=True)(torch.ones(3)),
        RuntimeError,
        "input must have shape [B, T, F], or [T, F] unbatched, got [3]",
    ),
    "sequence_no_tensor": (
        lambda: lltm.LLTMSequence(3, 2)("text"),
        TypeError,
        "input must be a Tensor or a PackedSequence, got str",
    ),
    "hx_shape": (
        lambda: lltm.LLTMSequence(3, 2)(
            torch.ones(4, 5, 3), (torch.ones(1, 5, 2), torch.ones(1, 4, 2))
        ),
        RuntimeError,
        "hx: state 1 must have shape [1, 5, 2], got [1, 4, 2]",
    ),
    "hx_unbatched": (
        lambda: lltm.LLTMSequence(3, 2)(
            torch.ones(4, 3), (torch.ones(1, 1, 2), torch.ones(1, 1, 2))
        ),
        RuntimeError,
        "hx: h must have shape [1, 2], got [1, 1, 2]",
    ),
    "hx_no_pair": (
        lambda: lltm.LLTMSequence(3, 2)(torch.ones(4, 5, 3), (torch.ones(1, 5, 2),)),
        TypeError,
        "hx must be a tuple of the cell's 2 states, a Tensor each, got (Tensor)",
    ),
}


@pytest.mark.parametrize("name", MODULE_FAULTS)
def test_module(name: str) -> None:
    call, kind, message = MODULE_FAULTS[name]
    with pytest.raises(kind, match=re.escape(message)):
        call()
