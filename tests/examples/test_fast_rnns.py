from __future__ import annotations

import json
import shutil

import pytest

STEPS = 4


@pytest.fixture
def example(load):
    return load("fast_rnns")


@pytest.fixture
def problem(example):
    return example.Problem.make(STEPS, 2, 3, 5, "cpu")


def test_tells_the_story_in_two_tables(run, tmp_path):
    sizes = ("--sizes", str(STEPS), "2", "3", "5")
    output = run("fast_rnns", *sizes, "--rounds", "2", "--boxes", "50")
    assert "TorchScript, premultiplied 1.33 backward, 1.25 in all" in output

    folder = tmp_path / "fast_rnns_output"
    found = json.loads((folder / "table.json").read_text())
    rows = {row["name"]: row for row in found["lstm"]}
    assert rows["nn.LSTM"]["ratio"] == {"forward": 1.0, "backward": 1.0, "both": 1.0}
    assert ("torch.compile" in rows) == bool(shutil.which("c++"))
    sums = {name: row["sums_in_backward"] for name, row in rows.items()}
    assert sums["eager"] == sums["TorchScript"] == 2 * STEPS
    assert sums["TorchScript, premultiplied"] == 2 * STEPS
    assert sums["TorchScript, biases hoisted"] == sums["eager, biases hoisted"] == 1
    assert rows["TorchScript, premultiplied"]["reported"] == [1.33, 1.25]

    assert (folder / "table.svg").read_text().startswith("<?xml")
    assert "intersection over union of 50 boxes" in output
    assert (folder / "iou.json").exists()


def test_the_graph_is_fused_but_for_the_bias(example):
    graphs = example.graphs()
    assert "[" not in graphs["before"]
    assert graphs["before"].count("sigmoid") == 3
    for direction in ("after, forward", "after, backward"):
        assert graphs[direction].count("[") == 1
    outside = graphs["after, forward"].split("[")[0] + graphs["after, forward"].split("]")[1]
    assert set(outside.split()) == {"t", "mm"}
    assert "_grad_sum_to_size" in graphs["after, backward"].split("]")[1]


def test_a_loop_that_is_no_lstm_is_an_error(example, problem):
    def forgetful(input, h, c, w_ih, w_hh, b_ih, b_hh):
        return example.plain_loop(input, h, c, w_ih, 1.01 * w_hh, b_ih, b_hh)

    example.check(problem, {"right": example.plain_loop})
    with pytest.raises(AssertionError, match="forgetful is not"):
        example.check(problem, {"forgetful": forgetful})
