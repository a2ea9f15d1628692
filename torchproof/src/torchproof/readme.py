"""The README's table of what is supported, made from matrix.toml, and a check of its drift."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchproof import config
from torchproof.files import write_atomically
from torchproof.plan import expand

if TYPE_CHECKING:
    from torchproof.config import Matrix, Torch

PATH = config.ROOT / "README.md"
BEGIN = "<!-- made from matrix.toml by `nox -s matrix -- --write` -->"
END = "<!-- end -->"


def table(matrix: Matrix) -> str:
    """A line a torch, newest first: its bindings, its Pythons, and the tiers that prove them."""
    lines = [
        "| torch | CPython | stable wheel | native build | proven in tier |",
        "|---|---|---|---|---|",
        *(_line(matrix, release) for release in reversed(matrix.torch)),
    ]
    compilers = " and ".join(f"{c.name} {c.oldest} to {c.newest}" for c in matrix.compilers)
    cuda = ", ".join(cuda.version for cuda in matrix.cuda)
    proven = ", ".join(p.name for p in matrix.platforms if p.proven)
    declared = ", ".join(p.name for p in matrix.platforms if not p.proven)
    facts = [
        f"Compilers: {compilers}. CUDA: {cuda}. Platforms: {proven}.",
        f"Declared, and not run until a runner proves them: {declared}.",
    ]
    return "\n".join([*lines, "", *facts]) + "\n"


def _line(matrix: Matrix, release: Torch) -> str:
    pythons = f"{release.pythons[0]} to {release.pythons[-1]}"
    stable = "yes" if release in matrix.supporting("stable") else "no, too old for it"
    tiers = [
        tier.name
        for tier in matrix.tiers
        if any(r.torch == release.version for r in expand(matrix, tier.name))
    ]
    proven = tiers[0] if tiers else "none"
    return f"| {release.series} | {pythons} | {stable} | yes | {proven} |"


def render(matrix: Matrix, text: str) -> str:
    """The README with its table made anew.

    Raises:
        ConfigError: the marks that the table stands between are gone.
    """
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise config.ConfigError(f"README.md: expected the marks {BEGIN!r} and {END!r}")
    return f"{head}{begin}\n{table(matrix)}{end}{tail}"


def write() -> None:
    """Write the committed README anew."""
    write_atomically(PATH, render(config.load(), PATH.read_text(encoding="utf-8")))


def check() -> tuple[str, ...]:
    """How the committed README departs from matrix.toml, in one sentence."""
    text = PATH.read_text(encoding="utf-8")
    if render(config.load(), text) == text:
        return ()
    return ("README.md: its table has drifted from matrix.toml; run `nox -s matrix -- --write`",)
