"""What a command line gets wrong is a sentence of argparse, for every example that has it."""

from __future__ import annotations

import sys

import pytest
import torch

TIMED = ("fast_rnns", "fused_iou", "lltm_from_scratch")
TRAINED = ("train", "two_cells")
COUNTS = [*((name, "--rounds") for name in TIMED), *((name, "--steps") for name in TRAINED)]


@pytest.fixture
def refusal(load, monkeypatch, capsys, tmp_path):
    """What an example answers to arguments, the last line of it."""
    monkeypatch.chdir(tmp_path)

    def refuse(name, *arguments):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
        with pytest.raises(SystemExit):
            load(name).main()
        return capsys.readouterr().err.splitlines()[-1]

    return refuse


@pytest.mark.parametrize(("name", "option"), COUNTS)
def test_nothing_to_do_is_refused(refusal, name, option):
    expected = f"{name}.py: error: argument {option}: must be at least 1, got 0"
    assert refusal(name, option, "0") == expected


def test_a_fraction_is_refused(refusal):
    assert "--boxes: must be a whole number, got '1.5'" in refusal("fused_iou", "--boxes", "1.5")


@pytest.mark.skipif(torch.cuda.is_available(), reason="not run: torch sees a GPU")
@pytest.mark.parametrize("name", ["fast_rnns", "fused_iou", "train"])
def test_a_gpu_that_is_not_there_is_refused(refusal, name):
    assert "--device: must be cpu here, got cuda: torch" in refusal(name, "--device", "cuda")


def test_a_file_is_no_folder_for_results(refusal, tmp_path):
    (tmp_path / "taken").write_text("")
    expected = "two_cells.py: error: argument --out: must be a folder, got the file taken"
    assert refusal("two_cells", "--out", "taken") == expected


def test_heads_that_do_not_fit_are_refused(refusal):
    expected = "two_cells.py: error: --state-size must be a multiple of 4, got 10"
    assert refusal("two_cells", "--state-size", "10") == expected


def test_processes_that_cannot_share_a_batch_are_refused(refusal, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    assert "a batch of 32 evenly: --nproc-per-node must divide it, got 3" in refusal("train")
