"""The compiled kernels of every cell, put through the checks of ``lltm.cells.prove``."""

from __future__ import annotations

import copy
import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from cells_cases import CELLS, EACH_CELL
from torch import Tensor

from lltm import cells
from lltm._compile import unavailable_reason
from lltm.cells import _kernels, _prove, _reference, formulas
from lltm.cells._kernel_checks import CHECKS, CheckError, equals_the_step
from lltm.cells._problem import Problem, results
from lltm.cells._run import run

pytestmark = [pytest.mark.subprocess, pytest.mark.usefixtures("compiled_cells")]


@pytest.mark.parametrize("check", CHECKS)
@EACH_CELL
def test_kernels(name: str, check: str) -> None:
    CHECKS[check](CELLS[name])


@EACH_CELL
def test_a_cell_uses_the_instructions_that_the_library_uses(name: str) -> None:
    ops = getattr(torch.ops, str(_kernels.namespace(CELLS[name])))
    assert ops.cpu_capability() == torch.ops.lltm.cpu_capability()


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("name", ["rnn_tanh", "gru", "lstm"])
def test_every_width_of_a_panel(name: str, heads: int) -> None:
    """Panels of one, two and three vectors, the last one full or not, in tiles of all rows; and
    weights that are read in place, of eight rows of all steps."""
    cell = dataclasses.replace(CELLS[name], heads=heads)
    for state in range(heads, 48, heads):
        for steps, batch in ((2, 1), (2, 2), (2, 4), (9, 1), (5, 2), (3, 3), (3, 4), (2, 9)):
            sizes = {"steps": steps, "batch": batch, "features": 3, "state": state}
            arguments = Problem(cell, **sizes).arguments()
            found = results(lambda each: run(cell, each), arguments)
            right = results(lambda each: _reference.sequence(cell, each), arguments)
            torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-10, msg=str(sizes))


def forwards(step: Callable[..., Any]) -> Callable[..., Any]:
    def forwarding(z: Sequence[Tensor], state: Sequence[Tensor]) -> Tensor:
        return step(z, state)

    forwarding.__name__ = step.__name__  # whose kernels are compiled
    return forwarding


def test_cells_of_one_factory_are_compiled_apart() -> None:
    """torch.compile takes functions that share their code for one function."""
    torch.compiler.reset()
    steps = [forwards(step) for step in (formulas.rnn_tanh, formulas.rnn_relu)]
    made = [cells.define(step, gates=1, states=1) for step in steps]
    layers = [cells.Sequence(cell, 3, 4) for cell in (*made, *copy.deepcopy(made))]
    compiled = torch.compile(lambda layer, x: layer(x)[0], fullgraph=True, backend="eager")
    x = torch.randn(5, 2, 3)
    for layer in layers:
        assert torch.equal(compiled(layer, x), layer(x)[0])


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    relu, tanh = formulas.RNN_RELU, formulas.RNN_TANH
    monkeypatch.setattr(_kernels, "_of_definitions", {relu: _kernels.namespace(tanh)})
    with pytest.raises(CheckError, match=r"an error of \S+ eps, eager has 0.0"):
        equals_the_step(relu, dtype=torch.float64, reset=False)


@pytest.mark.parametrize("check", ["same bits", "memory layouts"])
def test_a_nan_is_the_same_as_another(check: str) -> None:
    """Of a cell that overflows, here in 16 bits."""
    CHECKS[check](dataclasses.replace(formulas.LLTM, scalars=(("alpha", 1e9),)))


def test_prove_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    proof = cells.prove(CELLS["gru"])
    assert proof.passed
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(CHECKS) + 1
    assert lines[-1] == f"gru: {len(CHECKS)} of {len(CHECKS)} checks passed"
    assert any("bfloat16" in line and "eager" in line and "passed" in line for line in lines)


def test_prove_passes_whatever_the_default_device_is() -> None:
    with torch.device("meta"):
        assert cells.prove(CELLS["gru"]).passed


@pytest.mark.skipif(torch.cuda.is_available(), reason="not run: there is a GPU")
def test_no_check_is_reported_for_a_gpu_that_is_not_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ValueError, match="device must be cpu, as torch sees no GPU here, got cuda"):
        cells.prove(CELLS["gru"], "cuda")
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    "mode",
    [torch.no_grad, torch.inference_mode, functools.partial(torch.autocast, "cpu")],
    ids=["no_grad", "inference_mode", "autocast"],
)
def test_prove_finds_the_same_in_any_mode(
    mode: Callable[[], AbstractContextManager[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("forward, backward in float16", "single step", "second derivatives", "forward mode")
    monkeypatch.setattr(_prove, "CHECKS", {name: CHECKS[name] for name in names})
    with mode():
        assert cells.prove(CELLS["gru"]).passed


def test_prove_of_a_cell_without_kernels_does_not_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_kernels, "_of_definitions", {CELLS["gru"]: None})
    of_kernels = ("memory layouts", "same bits", "torch.library.opcheck")
    checks = {name: CHECKS[name] for name in ("vmap", *of_kernels)}
    monkeypatch.setattr(_prove, "CHECKS", checks)
    proof = cells.prove(CELLS["gru"])
    assert not proof.passed
    vmap, *others, end = capsys.readouterr().out.splitlines()
    assert "passed" in vmap
    assert len(others) == len(of_kernels)
    assert all("FAILED" in row and row.endswith("the cell has no kernels") for row in others)
    assert end == "gru: 1 of 4 checks passed; there are NO KERNELS, the reference was checked"


def wrong_shapes(cell: cells.Definition) -> list[tuple[str, tuple[int, ...], str]]:
    """Of arguments for T, B, F, S = 9, 5, 7, 20, and what is said of them."""
    count, rows, bias = cell.states, cell.gates * 20, cell.pre_activations * 20
    head = 20 // cell.heads
    states = f"states must have shape [N, B, S] with N = {count} and B = 5, got "
    joined = f"must have shape [G * S, S / heads + F] = [{rows}, {head + 7}], got "
    return [
        ("input", (5, 7), "input must have shape [T, B, F], got [5, 7]"),
        ("states", (count + 1, 5, 20), f"{states}[{count + 1}, 5, 20]"),
        ("states", (5, 20), f"{states}[5, 20]"),
        ("weights", (rows + 1, head + 7), f"weights {joined}[{rows + 1}, {head + 7}]"),
        ("bias", (bias + 1,), f"bias must have shape [P * S] = [{bias}], got [{bias + 1}]"),
        ("reset", (9, 4), "must be bool of shape [T, B] = [9, 5], got torch.bool [9, 4]"),
        (
            "reset_state",
            (count, 5, 19),
            f"shape [N, B, S] = [{count}, 5, 20], got [{count}, 5, 19]",
        ),
    ]


@EACH_CELL
def test_the_op_of_a_cell_refuses_shapes(name: str) -> None:
    """The kernels do, and the checks in Python on meta tensors, where no kernel looks at them."""
    given = Problem(CELLS[name]).arguments()
    op = getattr(torch.ops, str(_kernels.namespace(CELLS[name]))).sequence
    for argument, shape, message in wrong_shapes(CELLS[name]):
        like = getattr(given, argument)
        broken = given._replace(**{argument: torch.zeros(shape, dtype=like.dtype)})
        with pytest.raises(RuntimeError, match=f"{argument} must"):
            op(*broken)
        with pytest.raises(RuntimeError, match=re.escape(message)):
            run(CELLS[name], broken)
        meta = [each.to("meta") if isinstance(each, Tensor) else each for each in broken]
        with pytest.raises(RuntimeError, match=re.escape(message)):
            op(*meta)


@pytest.mark.parametrize(
    ("argument", "shape", "message"),
    [
        ("states", (1, 5, 41), "S = 41 must be a multiple of heads = 2"),
        ("weights", (60, 7), "must have shape [G * S, S / heads + F] = [60, 27], got [60, 7]"),
        ("input_weights", (60, 7), "shape [G * S, S / heads] = [60, 20], got [60, 27]"),
    ],
)
def test_the_op_of_a_cell_takes_its_heads_from_the_weights(
    argument: str, shape: tuple[int, ...], message: str
) -> None:
    """On meta tensors, where no kernel looks at them; the GRU's weights are [60, 27]."""
    given = Problem(CELLS["gru"]).arguments()
    broken = given._replace(**{argument: torch.zeros(shape)})
    meta = [value.to("meta") if hasattr(value, "to") else value for value in broken]
    op = getattr(torch.ops, str(_kernels.namespace(CELLS["gru"]))).sequence
    with pytest.raises(RuntimeError, match=re.escape(message)):
        op(*meta)


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("weights", torch.zeros(1, 1), "weights must have shape [3S, S / H + F]"),
        ("input_weights", torch.zeros(3, 7), "input_weights must have shape [3S, F]"),
        ("input_weights", torch.zeros(60, 7), "weights must have shape [3S, S / H] with H heads"),
        ("bias", torch.zeros(5), "bias must have shape [6S] or [1, 6S]"),
        ("states", torch.zeros(9, 5, 20), "states must have shape [N, B, S]"),
        ("scalars", [1.0], "scalars must have 0 numbers, got 1"),
        ("reset", torch.zeros(9, 5), "reset must be bool, got float32"),
        ("reset", torch.zeros(4, 5, dtype=torch.bool), "reset must have shape [T, B]"),
        ("reset_state", torch.zeros(1, 5, 19), "reset_state must have shape [N, B, S]"),
    ],
)
def test_the_kernels_name_a_wrong_argument(argument: str, value: Any, message: str) -> None:
    given = Problem(CELLS["gru"], dtype=torch.float32).arguments()
    op = getattr(torch.ops, str(_kernels.namespace(CELLS["gru"]))).sequence
    with pytest.raises(RuntimeError, match=re.escape(message)):
        op(*given._replace(**{argument: value}))


@EACH_CELL
def test_what_no_row_needs_and_what_backward_needs_change_nothing(name: str) -> None:
    given = Problem(CELLS[name], dtype=torch.float32).arguments(reset=False)
    never = given._replace(reset=torch.zeros(given.input.shape[:2], dtype=torch.bool))
    ops = getattr(torch.ops, str(_kernels.namespace(CELLS[name])))
    expected = ops.sequence(*given)
    for found in (ops.sequence(*never), ops.sequence_forward(*given.of_backward())):
        assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize(
    ("torch_version", "platform", "reason"),
    [
        ("2.9.1+cpu", "linux", "torch 2.9.1+cpu has no stable ABI; install torch 2.10 or newer"),
        ("2.13.0", "win32", "kernels are compiled on Linux and macOS only"),
    ],
)
def test_where_nothing_can_be_compiled_it_says_why(
    monkeypatch: pytest.MonkeyPatch, torch_version: str, platform: str, reason: str
) -> None:
    monkeypatch.setattr("torch.__version__", torch_version)
    monkeypatch.setattr("sys.platform", platform)
    found = unavailable_reason()
    monkeypatch.undo()
    assert found == reason
