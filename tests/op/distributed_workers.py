"""What each of two processes runs; spawned processes import this file by name."""

from __future__ import annotations

import copy
import gc
import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cases
import torch
import torch.distributed as dist
from cells_cases import CELLS
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import lltm
from lltm import cells

WORLD = 2
BATCH, STEPS, FEATURES, STATE = 6, 4, 3, 8


class Model(nn.Module):
    """The sequence module, then the cell: both kinds of module are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.sequence = lltm.LLTMSequence(FEATURES, STATE, num_layers=2)
        self.cell = lltm.LLTM(STATE, STATE)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.sequence(x)
        new_h, new_cell = self.cell(output[-1])
        return (new_h * new_cell).sum(dim=1)


class CellModel(nn.Module):
    """The same of a cell of ``lltm.cells``."""

    def __init__(self, cell: cells.Definition) -> None:
        super().__init__()
        self.sequence = cells.Sequence(cell, FEATURES, STATE, num_layers=2)
        self.cell = cells.Cell(cell, STATE, STATE)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.sequence(x)
        return self.cell(output[-1])[0].sum(dim=1)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "LLTMSequence": Model,
    **{name: partial(CellModel, cell) for name, cell in CELLS.items()},
}


def _made(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]()


def _input() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(STEPS, BATCH, FEATURES, generator=generator)


def _expected(name: str) -> list[Tensor]:
    """Gradients of one process that sees the whole batch."""
    model = _made(name)
    model(_input()).mean().backward()
    return [parameter.grad for parameter in model.parameters()]


def _share(rank: int) -> Tensor:
    return _input().chunk(WORLD, dim=1)[rank]


def _assert_gradients(parameters: list[Tensor], expected: list[Tensor], what: str) -> None:
    for actual, e in zip(parameters, expected, strict=True):
        assert actual.grad is not None
        gradient = actual.grad
        full = gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
        cases.assert_close(full, e, what)


def _data_parallel(name: str, rank: int) -> None:
    model = DistributedDataParallel(_made(name))
    model(_share(rank)).mean().backward()
    _assert_gradients(list(model.parameters()), _expected(name), "DistributedDataParallel")


def _fully_sharded(name: str, rank: int) -> None:
    mesh = init_device_mesh("cpu", (WORLD,))
    model = copy.deepcopy(_made(name))
    for part in (model.sequence, model.cell):
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model(_share(rank)).mean().backward()
    _assert_gradients(list(model.parameters()), _expected(name), "FSDP2")


WRAPPERS = {"DistributedDataParallel": _data_parallel, "FSDP2": _fully_sharded}
CHECKS = {
    f"{wrapper} {model}": partial(WRAPPERS[wrapper], model)
    for wrapper, model in itertools.product(WRAPPERS, MODELS)
}


def _wrong(check: str, rank: int) -> str:
    try:
        CHECKS[check](rank)
    except AssertionError as error:
        return str(error) or "an assertion"
    return ""


def run(rank: int, folder: str) -> None:
    """Join the other process through gloo, then compare gradients with a single process's.

    What is wrong, by check, goes to ``RANK.json``; any other error ends both processes.
    """
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=WORLD)
    try:
        wrong = {check: _wrong(check, rank) for check in CHECKS}
    finally:
        dist.destroy_process_group()
        # What was trained has the group in cycles. While they are there its threads are, too, and
        # one that frees a tensor when the interpreter has ended aborts the process.
        gc.collect()
    Path(folder, f"{rank}.json").write_text(json.dumps(wrong), encoding="utf-8")
