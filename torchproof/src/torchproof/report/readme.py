"""The README's tables of what is supported and what is proven where, and a check of their drift."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchproof import config
from torchproof.files import write_atomically
from torchproof.report import proofs
from torchproof.rows.plan import expand

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torchproof.config import Matrix, Torch
    from torchproof.report.proofs import Proof, Record

PATH = config.ROOT / "README.md"
BEGIN = "<!-- made from matrix.toml and docs/proofs by `nox -s matrix -- --write` -->"
END = "<!-- end -->"


def tables(matrix: Matrix, records: Sequence[Record]) -> str:
    """A line a torch, newest first, and one a processor."""
    lines = [
        "| torch | its CPythons | stable wheel | native build | in tier | proven on |",
        "|---|---|---|---|---|---|",
        *(_line(matrix, release, records) for release in reversed(matrix.torch)),
    ]
    compilers = " and ".join(f"{c.name} {c.oldest} to {c.newest}" for c in matrix.compilers)
    cuda = ", ".join(cuda.version for cuda in matrix.cuda)
    proven = ", ".join(p.name for p in matrix.platforms if p.proven)
    declared = ", ".join(p.name for p in matrix.platforms if not p.proven)
    facts = [
        f"Compilers: {compilers}. CUDA: {cuda}. Platforms: {proven}.",
        f"Declared, and not run until a runner proves them: {declared}.",
    ]
    return "\n".join([*lines, "", *_processors(records), "", *facts]) + "\n"


def _processors(records: Sequence[Record]) -> Iterator[str]:
    if not records:
        yield "No processor has a record: `nox -s matrix -- --record` makes one."
        return
    tiers = " | ".join(f"tier `{tier}`" for tier in proofs.TIERS)
    yield f"| processor | caches | {tiers} |"
    yield f"|---|---|{'---|' * len(proofs.TIERS)}"
    for record in records:
        on = record.processor
        cells = [_proof(record.tiers.get(tier)) for tier in proofs.TIERS]
        caches = on.cache_sizes or "not reported"
        yield f"| **{on.title}** ({on.details}) | {caches} | {' | '.join(cells)} |"


def _proof(proof: Proof | None) -> str:
    if proof is None:
        return "not recorded"
    levels = ", ".join(f"{count} at {level}" for level, count in proof.levels.items())
    absent = f", {len(proof.not_run)} not run" if proof.not_run else ""
    age = "" if proof.current else "; **older than the kernels**"
    pythons = ", ".join(sorted(proof.python, key=config.number))
    return f"{proof.date}, {proof.commit[:7]}: CPython {pythons}; rows {levels}{absent}{age}"


def _proven_on(release: Torch, records: Sequence[Record]) -> str:
    found = {
        record.processor.title: any(proof.current for proof in proofs_of_it)
        for record in records
        if (proofs_of_it := [p for p in record.tiers.values() if release.version in p.torch])
    }
    return ", ".join(
        title if current else f"{title} (older kernels)" for title, current in found.items()
    )


def _line(matrix: Matrix, release: Torch, records: Sequence[Record]) -> str:
    plain = f"{release.pythons[0]} to {release.pythons[-1]}"
    pythons = ", ".join([plain, *release.freethreaded])
    stable = "yes" if release in matrix.supporting("stable") else "no, too old for it"
    tiers = [
        tier.name
        for tier in matrix.tiers
        if any(r.torch == release.version for r in expand(matrix, tier.name))
    ]
    tier, proven = tiers[0] if tiers else "none", _proven_on(release, records) or "no record"
    return f"| {release.series} | {pythons} | {stable} | yes | {tier} | {proven} |"


def render(matrix: Matrix, records: Sequence[Record], text: str) -> str:
    """The README with its tables rebuilt.

    Raises:
        ConfigError: the marks around the tables are gone.
    """
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise config.ConfigError(f"README.md: expected the marks {BEGIN!r} and {END!r}")
    return f"{head}{begin}\n{tables(matrix, records)}{end}{tail}"


def write() -> None:
    """Write the committed README."""
    text = PATH.read_text(encoding="utf-8")
    write_atomically(PATH, render(config.load(), proofs.read_all(), text))


def check() -> tuple[str, ...]:
    """How the committed README departs from what it is made from, in one sentence."""
    text = PATH.read_text(encoding="utf-8")
    if render(config.load(), proofs.read_all(), text) == text:
        return ()
    return (
        "README.md: its tables differ from matrix.toml, docs/proofs or the age of the kernels; "
        "run `nox -s matrix -- --write`",
    )
