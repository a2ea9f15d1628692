"""Train an sLSTM and a cell of your own side by side, and plot how both learn.

The cell is written here, as one elementwise step in PyTorch; ``lltm.cells`` compiles its forward
and backward kernels when the training begins. Both learn to guess the next character of the text
that ``examples/train.py`` teaches.

    python examples/two_cells.py
    python examples/two_cells.py --steps 400 --state-size 128 --out results
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from shared.options import folder, positive
from shared.picture import picture
from torch import Tensor, nn
from torch.nn import functional as F
from train import ALPHABET, Settings, draw

from lltm import cells

FEATURES = 32
HEADS = 4


def leaky(z: tuple[Tensor, ...], state: tuple[Tensor, ...], *, floor: float = 0.05) -> Tensor:
    """A unit with one gate: it forgets as much as it learns, and always a little."""
    forget, candidate = z
    (h,) = state
    rate = floor + (1 - floor) * torch.sigmoid(forget)
    return h + rate * (torch.tanh(candidate) - h)


LEAKY = cells.define(leaky, gates=2, states=1)


class CharacterModel(nn.Module):
    """Guesses the next character of a text from those before it, with any recurrent layer."""

    def __init__(self, rnn: cells.Sequence) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(ALPHABET), FEATURES)
        self.rnn = rnn
        self.head = nn.Linear(rnn.state_size, len(ALPHABET))

    def forward(self, codes: Tensor) -> Tensor:
        """``codes`` [T, B] -> scores of the next character [T, B, len(ALPHABET)]."""
        output, _ = self.rnn(self.embedding(codes))
        return self.head(output)


def train(rnn: cells.Sequence, settings: Settings) -> list[float]:
    """The loss of every step."""
    model = CharacterModel(rnn)
    optimizer = torch.optim.Adam(model.parameters(), settings.learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=settings.steps)
    generator = torch.Generator().manual_seed(settings.seed)
    losses = []
    for _ in range(settings.steps):
        batch = draw(settings, generator)
        loss = F.cross_entropy(model(batch[:-1]).flatten(0, 1), batch[1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def plot(losses: dict[str, list[float]], path: Path) -> None:
    """The loss of each cell over the steps, as SVG."""
    with picture(path, (7, 4)) as axes:
        for name, values in losses.items():
            axes.plot(range(1, len(values) + 1), values, label=name)
        axes.set_xlabel("step")
        axes.set_ylabel("cross-entropy, nats a character")
        axes.legend()


def main(arguments: list[str] | None = None) -> None:
    """Train both, and compare."""
    parser = argparse.ArgumentParser(description="Train an sLSTM and a cell of your own.")
    parser.add_argument("--steps", type=positive, default=150)
    parser.add_argument("--state-size", type=positive, default=64, help=f"a multiple of {HEADS}")
    parser.add_argument("--out", type=folder, default=Path("two_cells_output"))
    options = parser.parse_args(arguments)
    if options.state_size % HEADS:
        parser.error(f"--state-size must be a multiple of {HEADS}, got {options.state_size}")
    options.out.mkdir(parents=True, exist_ok=True)
    settings = Settings(options.steps, options.state_size, learning_rate=1e-2)
    losses = {}
    for name, make in {
        "sLSTM": lambda: cells.SLSTM(FEATURES, settings.state_size, heads=HEADS),
        "leaky": lambda: cells.Sequence(LEAKY, FEATURES, settings.state_size),
    }.items():
        torch.manual_seed(settings.seed)
        rnn = make()
        cells.prepare(rnn.cell)  # so that it is no part of the time
        begin = time.perf_counter()
        losses[name] = train(rnn, settings)
        first, last = losses[name][0], losses[name][-1]
        seconds = time.perf_counter() - begin
        print(f"{name}: loss {first:.3f} -> {last:.3f} in {seconds:.1f} s")
    plot(losses, options.out / "loss.svg")
    (options.out / "loss.json").write_text(json.dumps(losses, indent=1) + "\n", encoding="utf-8")
    print(f"the losses are in {options.out / 'loss.json'}, their picture is loss.svg beside it")


if __name__ == "__main__":
    main()
