"""Teach an LLTM the Zen of Python by heart, with every backend, and compare what they learned.

A character model: an embedding, one ``lltm.LLTMSequence``, a linear layer. The text is the one that
``import this`` prints. The losses of all backends are plotted side by side; they are the same.

    python examples/train.py                                        every backend in turn
    python examples/train.py --backend fused                        one of them
    torchrun --nproc-per-node 2 examples/train.py                   the batch split over processes

A run that was stopped, or killed, goes on from its last checkpoint when it is started again.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from shared.options import DEVICES, device_here, folder, positive
from shared.picture import picture
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import lltm

# Training amplifies rounding: after some hundred steps a float32 loss depends on the order of every
# sum. In float64 the backends stay together to the end, so a difference is a fault. A generous
# epsilon in Adam helps: it keeps near-zero gradients from being blown up to full steps.
DTYPE = torch.float64
ADAM_EPSILON = 1e-4


@dataclass(frozen=True)
class Settings:
    """What makes a run the run it is; a checkpoint belongs to exactly one."""

    steps: int
    state_size: int
    window: int = 28
    """Characters that the model reads before it guesses; the length of a training sequence."""
    batch_size: int = 32
    learning_rate: float = 2e-2
    """At the first step; it falls in a straight line to nothing at the last."""
    seed: int = 0


@dataclass
class Run:
    """How far a training has come: all that a checkpoint holds."""

    model: CharacterModel
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    generator: torch.Generator
    losses: list[float]


# Data and model ---------------------------------------------------------------------------------


def zen() -> str:
    """The text of PEP 20, which every Python carries, in rot13 and a module that prints it."""
    with contextlib.redirect_stdout(io.StringIO()):
        import this  # noqa: PLC0415 - it prints when it is imported
    return "".join(this.d.get(character, character) for character in this.s)


TEXT = zen()
ALPHABET = sorted(set(TEXT))
CODES = torch.tensor([ALPHABET.index(character) for character in TEXT])


class CharacterModel(nn.Module):
    """Guesses the next character of a text from those before it."""

    def __init__(self, state_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(ALPHABET), 32)
        self.rnn = lltm.LLTMSequence(32, state_size)
        self.head = nn.Linear(state_size, len(ALPHABET))

    def forward(self, codes: Tensor) -> Tensor:
        """``codes`` [T, B] -> scores of the next character [T, B, len(ALPHABET)]."""
        output, _ = self.rnn(self.embedding(codes.to(self.head.weight.device)))
        return self.head(output)


def draw(settings: Settings, generator: torch.Generator) -> Tensor:
    """A batch of stretches of the text, one character longer than a window: [T + 1, B]."""
    last = len(CODES) - settings.window
    starts = torch.randint(last, (settings.batch_size,), generator=generator)
    return CODES[starts + torch.arange(settings.window + 1).unsqueeze(1)]


@torch.no_grad()
def accuracy(model: CharacterModel, window: int) -> float:
    """The part of the text's characters that the model guesses right from the window before."""
    windows = CODES.unfold(0, window + 1, 1).t()  # [T + 1, number of windows]
    guesses = model(windows[:-1])[-1].argmax(dim=-1).cpu()
    return (guesses == windows[-1]).double().mean().item()


@torch.no_grad()
def recite(model: CharacterModel, window: int, length: int) -> str:
    """Give the model the first window of the text and let it go on by itself."""
    codes = CODES[:window].tolist()
    while len(codes) < length:
        scores = model(torch.tensor(codes[-window:]).unsqueeze(1))
        codes.append(int(scores[-1, 0].argmax()))
    return "".join(ALPHABET[code] for code in codes)


# Checkpoints ------------------------------------------------------------------------------------


def start(settings: Settings, device: str) -> Run:
    """A run of no steps yet."""
    torch.manual_seed(settings.seed)
    model = CharacterModel(settings.state_size).to(device, DTYPE)
    optimizer = torch.optim.Adam(model.parameters(), settings.learning_rate, eps=ADAM_EPSILON)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=settings.steps)
    generator = torch.Generator().manual_seed(settings.seed)
    return Run(model, optimizer, schedule, generator, [])


def save(run: Run, settings: Settings, path: Path) -> None:
    """Write a checkpoint. Whoever is killed while writing leaves the one before it untouched."""
    unfinished = path.with_suffix(".unfinished")
    torch.save(
        {
            "settings": asdict(settings),
            "model": run.model.state_dict(),
            "optimizer": run.optimizer.state_dict(),
            "schedule": run.schedule.state_dict(),
            "generator": run.generator.get_state(),
            "losses": run.losses,
        },
        unfinished,
    )
    unfinished.replace(path)


def resume(settings: Settings, device: str, path: Path) -> Run:
    """The run that a checkpoint holds, or a new one where there is none."""
    run = start(settings, device)
    if not path.exists():
        return run
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise SystemExit(f"{path} is damaged ({error}); delete it to start again") from None
    if saved["settings"] != asdict(settings):
        raise SystemExit(
            f"{path} was made with {saved['settings']}, this run has {asdict(settings)}; "
            "choose another --out, or the settings of the checkpoint"
        )
    run.model.load_state_dict(saved["model"])
    run.optimizer.load_state_dict(saved["optimizer"])
    run.schedule.load_state_dict(saved["schedule"])
    run.generator.set_state(saved["generator"])
    run.losses.extend(saved["losses"])
    return run


# Training ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def computing_with(backend: str) -> Iterator[None]:
    """Let lltm's modules compute with this backend."""
    before = lltm.backends.DEFAULT
    lltm.backends.DEFAULT = backend
    try:
        yield
    finally:
        lltm.backends.DEFAULT = before


def step(run: Run, parallel: nn.Module, settings: Settings) -> None:
    """One step of the optimiser; of the batch, each process takes its share of the columns."""
    batch = draw(settings, run.generator)
    share = batch.chunk(processes(), dim=1)[rank()]
    scores = parallel(share[:-1])
    loss = F.cross_entropy(scores.flatten(0, 1), share[1:].flatten().to(scores.device))
    run.optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(run.model.parameters(), max_norm=1.0)
    run.optimizer.step()
    run.schedule.step()
    run.losses.append(mean_over_processes(loss.detach()))


def train(run: Run, settings: Settings, path: Path, bar: Progress) -> None:
    """Train to the last step, counting those before the checkpoint."""
    parallel = DistributedDataParallel(run.model) if processes() > 1 else run.model
    done = len(run.losses)
    task = bar.add_task(path.stem, total=settings.steps, completed=done, loss=float("nan"))
    while len(run.losses) < settings.steps:
        step(run, parallel, settings)
        bar.update(task, completed=len(run.losses), loss=run.losses[-1])
        if rank() == 0 and len(run.losses) in (*range(0, settings.steps, 50), settings.steps):
            save(run, settings, path)


# Processes: one, unless torchrun started this script ---------------------------------------------


@contextlib.contextmanager
def process_group() -> Iterator[None]:
    """Join the processes that torchrun started, and leave none of the group's threads behind."""
    # Functions in there take the group as a default argument. DistributedDataParallel imports it,
    # too: after the group was made, it would keep the group's threads until the process ends.
    import torch.distributed.nn  # noqa: F401, PLC0415 - for that, and wanted only here

    distributed.init_process_group("gloo")
    try:
        yield
    finally:
        distributed.destroy_process_group()


def rank() -> int:
    """Which process this is."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def processes() -> int:
    """How many there are."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def mean_over_processes(value: Tensor) -> float:
    """The mean of a number that each process has its own of."""
    if processes() > 1:
        distributed.all_reduce(value)
    return value.item() / processes()


# Results ----------------------------------------------------------------------------------------


def plot(losses: dict[str, list[float]], path: Path) -> None:
    """The loss of each backend over the steps, as SVG; thick lines first, so that all are seen."""
    with picture(path, (7, 4)) as axes:
        for place, (name, values) in enumerate(losses.items()):
            width = 1.5 + 3 * (len(losses) - 1 - place)
            axes.plot(range(1, len(values) + 1), values, label=name, linewidth=width)
        axes.set_xlabel("step")
        axes.set_ylabel("cross-entropy, nats a character")
        axes.set_yscale("log")
        axes.legend()


def compare(losses: dict[str, list[float]]) -> dict[str, float]:
    """Each backend's largest relative distance from the first; raises where it is no rounding."""
    first = torch.tensor(next(iter(losses.values())), dtype=DTYPE)
    distances = {}
    for name, values in losses.items():
        own = torch.tensor(values, dtype=DTYPE)
        distances[name] = ((own - first).abs() / first).max().item()
        torch.testing.assert_close(own, first, msg=lambda text, name=name: f"{name}: {text}")
    return distances


def report(losses: dict[str, list[float]], seconds: dict[str, float], out: Path) -> None:
    """Table, plot and their machine-readable twin."""
    distances = compare(losses)
    table = Table("backend", "first loss", "last loss", "seconds", "largest relative difference")
    for name, values in losses.items():
        numbers = (f"{values[0]:.6f}", f"{values[-1]:.6f}", f"{seconds[name]:.1f}")
        table.add_row(name, *numbers, f"{distances[name]:.1e}")
    Console().print(table)
    plot(losses, out / "loss.svg")
    results = {"losses": losses, "seconds": seconds, "differences": distances}
    (out / "loss.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"the losses are in {out / 'loss.json'}, their picture is {out / 'loss.svg'}")


def main(arguments: list[str] | None = None) -> None:
    """Train with each backend, compare, and recite."""
    parser = argparse.ArgumentParser(description="Teach an LLTM the Zen of Python by heart.")
    parser.add_argument("--device", type=device_here, choices=DEVICES, default="cpu")
    parser.add_argument("--backend", action="append", help="default: each one for the device")
    parser.add_argument("--steps", type=positive, default=250)
    parser.add_argument("--state-size", type=positive, default=128)
    parser.add_argument("--out", type=folder, default=Path("train_output"), help="results go here")
    options = parser.parse_args(arguments)
    fitting = [each.name for each in lltm.backends.available() if options.device in each.devices]
    for name in options.backend or ():
        if name not in fitting:
            parser.error(f"--backend must be one of {', '.join(fitting)}, got {name}")
    settings = Settings(options.steps, options.state_size)
    if settings.batch_size % processes():
        parser.error(
            f"the processes share a batch of {settings.batch_size} evenly: --nproc-per-node must "
            f"divide it, got {processes()}"
        )
    options.out.mkdir(parents=True, exist_ok=True)

    losses: dict[str, list[float]] = {}
    seconds: dict[str, float] = {}
    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, disable=rank() != 0) as bar:
        for name in options.backend or fitting:
            path = options.out / f"{name}.pt"
            run = resume(settings, options.device, path)
            begin = time.perf_counter()
            with computing_with(name):
                train(run, settings, path, bar)
            losses[name], seconds[name] = run.losses, time.perf_counter() - begin
    if rank() == 0:
        report(losses, seconds, options.out)
        with computing_with(name):
            right = accuracy(run.model, settings.window)
            text = recite(run.model, settings.window, length=200)
        print(f"characters guessed right from the {settings.window} before them: {right:.1%}")
        print(f"recited, from the first {settings.window} characters:\n{text}")


if __name__ == "__main__":
    with process_group() if distributed.is_torchelastic_launched() else contextlib.nullcontext():
        main()
