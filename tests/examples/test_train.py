from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import lltm

EXAMPLES = Path(__file__).parents[2] / "examples"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
QUICK = ("--state-size", "12", "--steps", "60")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
FIRST_SAVE = 50


def results(folder, out="train_output"):
    return json.loads((folder / out / "loss.json").read_text())


def test_learns_the_text(run, tmp_path):
    output = run("train", "--backend", "fused")
    assert "characters guessed right from the 28 before them: 98.7%" in output
    assert "\nFlat is better than nested.\n" in output
    losses = results(tmp_path)["losses"]["fused"]
    assert losses[-1] < 0.1 * losses[0]


def test_every_backend_learns_the_same(run, tmp_path):
    run("train", *QUICK)
    found = results(tmp_path)
    here = [each.name for each in lltm.backends.available() if "cpu" in each.devices]
    assert list(found["losses"]) == here
    assert max(found["differences"].values()) < 1e-9
    picture = (tmp_path / "train_output" / "loss.svg").read_text()
    assert picture.startswith("<?xml")


def test_every_backend_computes_in_its_turn(load):
    example = load("train")
    input = torch.ones(1, 1, 1)
    usual = lltm.backends.select(None, input)
    for backend in lltm.backends.available():
        if "cpu" in backend.devices:
            with example.computing_with(backend.name):
                assert lltm.backends.select(None, input) is backend
    assert lltm.backends.select(None, input) is usual


def test_a_backend_that_learns_something_else_is_an_error(load):
    example = load("train")
    with pytest.raises(AssertionError, match="fused"):
        example.compare({"reference": [2.0, 1.0], "fused": [2.0, 1.00001]})


def test_two_processes_learn_what_one_does(run, tmp_path):
    run("train", *QUICK, "--backend", "fused")
    alone = results(tmp_path)["losses"]["fused"]
    arguments = (*QUICK, "--backend", "fused", "--out", "together")
    run("train", *arguments, through=TORCHRUN)
    together = results(tmp_path, "together")["losses"]["fused"]
    torch.testing.assert_close(together, alone)


LEAVE = """
import os
from pathlib import Path
import torch, train
with train.process_group():
    torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
print([Path(task.path, "comm").read_text() for task in os.scandir("/proc/self/task")])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="not run: threads are listed in Linux's /proc")
def test_no_thread_of_the_process_group_is_left(tmp_path):
    """One that is, may end the process by SIGABRT when it exits, after all it did went well."""
    group = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    # lltm itself may be found by this path, too.
    paths = filter(None, (str(EXAMPLES), os.environ.get("PYTHONPATH")))
    environment = {**ENVIRONMENT, **group, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", LEAVE]
    left = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert "python" in left.stdout
    assert "gloo" not in left.stdout


KILLED = """
import os, runpy, signal, sys
saved = 0
def kill(event, arguments):
    global saved
    if event == "os.rename" and str(arguments[1]).endswith("fused.pt"):
        saved += 1
        if saved == 2:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(kill)
sys.argv.pop(0)
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""It ends when its second checkpoint is written, and not yet in the place of the first."""


def test_a_killed_run_goes_on_where_it_was(run, tmp_path):
    arguments = ("train", *QUICK[:2], "--steps", "120", "--backend", "fused")
    run(*arguments, "--out", "straight")
    run(*arguments, "--out", "killed", through=("-c", KILLED), fails=True)
    checkpoint = torch.load(tmp_path / "killed" / "fused.pt", weights_only=True)
    assert len(checkpoint["losses"]) == FIRST_SAVE

    run(*arguments, "--out", "killed")
    assert results(tmp_path, "killed")["losses"] == results(tmp_path, "straight")["losses"]


def test_a_checkpoint_of_another_run_is_refused(run):
    run("train", *QUICK, "--backend", "reference")
    output = run("train", "--state-size", "13", "--backend", "reference", fails=True)
    assert "was made with {'steps': 60, 'state_size': 12" in " ".join(output.split())
    assert "choose another --out" in output


def test_a_damaged_checkpoint_is_named(run, tmp_path):
    (tmp_path / "train_output").mkdir()
    (tmp_path / "train_output" / "reference.pt").write_bytes(b"not a checkpoint")
    output = run("train", *QUICK, "--backend", "reference", fails=True)
    assert "train_output/reference.pt is damaged" in output
    assert "delete it to start again" in output


def test_an_unknown_backend_is_named(run):
    output = run("train", "--backend", "abacus", fails=True)
    assert "--backend must be one of reference" in output
    assert "got abacus" in output
