"""CUDA kernels of ``lltm.cells``: compiled by nvcc, registered, chosen by the tensors' device.

What needs a GPU is not run without one, and says so. The kernels' arithmetic without a GPU is in
tests/cuda_shim/test_cells.py.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from cells_cases import CELLS, EACH_CELL
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from lltm import _jit_cuda, cells
from lltm.cells import _cuda, _kernels, formulas
from lltm.cells._functor import functor

pytestmark = [
    pytest.mark.subprocess,
    pytest.mark.usefixtures("compiler"),
]


def cuda_kernel_of(namespace: str) -> bool:
    name = f"{namespace}::sequence_backward"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA"))


def test_the_gpu_programs_are_named_as_torch_names_them() -> None:
    assert _cuda.images("8.0; 9.0a,12.0+PTX") == ("sm_80", "sm_90a", "sm_120", "compute_120")
    with pytest.raises(ValueError, match=r"'sm_90' is no GPU architecture; write 9\.0 or 12\.0"):
        _cuda.images("sm_90")


class Called(TorchDispatchMode):
    """The names of the ops that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.names.append(operation.name())
        return operation(*args, **(kwargs or {}))


@pytest.mark.skipif(torch.version.cuda is None, reason="not run: torch has no CUDA")
@pytest.mark.parametrize("kernels", [False, True])
def test_a_cuda_tensor_goes_to_cuda_kernels_where_there_are_some(
    kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = _kernels.namespace(formulas.RNN_TANH)
    monkeypatch.setattr(_kernels, "_on_cuda", {namespace: True} if kernels else {})
    monkeypatch.setattr(_kernels, "_warned", set())
    monkeypatch.setattr(_jit_cuda, "unavailable_reason", lambda: "there is no nvcc")
    with FakeTensorMode(), Called() as called, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rnn = cells.RNN(3, 4, device="cuda").requires_grad_(False)
        for _ in range(2):
            output, h = rnn(torch.randn(5, 2, 3, device="cuda"))
    assert output.device.type == h.device.type == "cuda"
    assert called.names.count(f"{namespace}::sequence") == 2 * kernels
    messages = [str(each.message) for each in caught]
    assert sum("on CUDA tensors" in message for message in messages) == (not kernels)
    assert all("there is no nvcc" in each for each in messages if "on CUDA tensors" in each)


@pytest.mark.skipif(_jit_cuda.home() is None, reason="not run: there is no nvcc")
@pytest.mark.skipif(torch.version.cuda is None, reason="not run: torch has no CUDA")
def test_cuda_kernels_are_compiled_without_a_gpu_and_registered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = formulas.RNN_RELU
    namespace = _kernels.namespace(cell)
    assert namespace is not None
    assert not cuda_kernel_of(namespace)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    build = _kernels.CellBuild.of(cell, functor(cell), ("sm_90",))
    library = build.finished_library()
    assert "compiling rnn_relu for sm_90, once" in capsys.readouterr().err
    assert build.finished_library() == library
    assert not capsys.readouterr().err
    torch.ops.load_library(library)
    assert cuda_kernel_of(namespace)


@pytest.mark.skipif(
    (reason := _jit_cuda.unavailable_reason()) is not None, reason=f"not run: {reason}"
)
@EACH_CELL
def test_kernels_on_a_gpu(name: str) -> None:
    proof = cells.prove(CELLS[name], "cuda")
    assert proof.passed, str(proof)
