from __future__ import annotations

import json

import pytest
import torch
from torch.autograd import gradcheck


@pytest.fixture
def example(load):
    return load("lltm_from_scratch")


def test_builds_checks_and_times_every_step(run, tmp_path):
    output = run("lltm_from_scratch", "--rounds", "3")

    first, unchanged, changed = output.split("just in time, ")[1:4]
    assert all(name in first for name in ("binding.cpp", "cell.cpp", "scratch_jit.so"))
    assert "ninja: no work to do." in unchanged
    changed = changed.split("ahead of time:")[0]
    assert "cell.cpp" in changed
    assert "binding.cpp" not in changed
    assert "steps checked, each against the one before" in output

    folder = tmp_path / "lltm_from_scratch_output"
    table = json.loads((folder / "table.json").read_text())
    gpu = torch.cuda.is_available()
    for row in table["steps"]:
        if row["device"] == "cpu" or gpu:
            assert row["forward"] > 0
            assert row["backward"] > 0
        else:
            assert row["obstacle"] == "not run: no GPU"
    reported = [row["reported"] for row in table["steps"]]
    assert [506, 445] in reported
    assert [349, 444] in reported
    assert reported[-3:] == [[188, 411], [150, 393], [129, 305]]
    assert ("not run: no GPU" in output) == (not gpu)
    assert (folder / "table.svg").read_text().startswith("<?xml")


def test_the_python_module_is_the_tutorials(example):
    module = example.LLTM(4, 3).double()
    tensors = [torch.randn(2, n, dtype=torch.float64, requires_grad=True) for n in (4, 3, 3)]
    assert gradcheck(lambda x, h, c: module(x, (h, c)), tensors)


def test_a_step_that_differs_is_an_error(example):
    def wrong(*arguments):
        new_h, new_cell = example.python_cell(*arguments)
        return new_h, 1.001 * new_cell

    right = example.Step("right", example.python_cell, "cpu", None)
    with pytest.raises(AssertionError, match="wrong"):
        example.check([right, example.Step("wrong", wrong, "cpu", None)])


def test_a_step_without_its_machine_says_so(example, monkeypatch):
    step = example.Step("CUDA kernel", example.fused_cell("cuda"), "cuda", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert example.obstacle(step) == "not run: no GPU"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(example.lltm.backends, "available", lambda: ())
    assert example.obstacle(step) == "not run: this lltm was built without CUDA"
