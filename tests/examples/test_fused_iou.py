from __future__ import annotations

import json
import shutil

import pytest
import torch


@pytest.fixture
def example(load):
    return load("fused_iou")


def test_is_one_kernel_forward_and_one_backward(run, tmp_path):
    output = run("fused_iou", "--rounds", "2", "--boxes", "50")
    assert "intersection over union of 50 boxes" in output

    folder = tmp_path / "fused_iou_output"
    rows = {row["name"]: row for row in json.loads((folder / "iou.json").read_text())["iou"]}
    assert rows["eager"]["ratio"] == {"forward": 1.0, "backward": 1.0, "both": 1.0}
    assert ("torch.compile" in rows) == bool(shutil.which("c++"))
    if "torch.compile" in rows:
        assert rows["torch.compile"]["kernels"] == 2, "one forward, one backward"
    assert (folder / "iou.svg").read_text().startswith("<?xml")


def test_of_known_boxes(example):
    def box(*values):
        return [torch.tensor([value]) for value in values]

    same = example.iou(*box(0.0, 0.0, 2.0, 3.0), *box(0.0, 0.0, 2.0, 3.0))
    apart = example.iou(*box(0.0, 0.0, 1.0, 1.0), *box(5.0, 5.0, 1.0, 1.0))
    half = example.iou(*box(0.0, 0.0, 2.0, 1.0), *box(1.0, 0.0, 2.0, 1.0))
    torch.testing.assert_close(torch.cat([same, apart, half]), torch.tensor([1.0, 0.0, 1 / 3]))


def test_is_differentiable(example):
    arguments = [each.detach().double().requires_grad_() for each in example.boxes(4, "cpu")]
    assert torch.autograd.gradcheck(example.iou, arguments)


def test_a_fused_function_that_differs_is_an_error(example):
    def generous(*arguments):
        return 1.01 * example.iou(*arguments)

    with pytest.raises(AssertionError, match="generous is not iou"):
        example.check({"generous": generous}, example.boxes(50, "cpu"))
