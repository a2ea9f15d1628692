"""The README's tables of what is supported and what is proven where, and a check of their drift."""

from collections.abc import Iterator, Sequence

from torchproof import config
from torchproof.config import HOME, HOST, Level, Matrix, number
from torchproof.files import write_atomically
from torchproof.machine.levels import is_own
from torchproof.machine.processor import Processor
from torchproof.report import proofs
from torchproof.report.proofs import Proof, ProvenRow, Record
from torchproof.rows.plan import expand_line
from torchproof.rows.results import NOT_RUN

PATH = config.ROOT / "README.md"
BEGIN = "<!-- made from matrix.toml and docs/proofs by `torchproof run --write` -->"
END = "<!-- end -->"
NO_WHEEL = "—"


def tables(matrix: Matrix, records: Sequence[Record]) -> str:
    """What has passed on each torch and CPython, on what else, and on which processors."""
    rows = [row for record in records for row in record.rows]
    compilers = " and ".join(f"{c.name} {c.oldest} to {c.newest}" for c in matrix.compilers)
    built = {version for spec in matrix.rows for version in spec.cuda} - {"cpu"}
    cuda = f" CUDA: {', '.join(cuda.version for cuda in matrix.cuda)}." if built else ""
    first, *beside = _bindings(matrix)
    builds = {"stable": "the stable wheel", "native": "a native build"}
    by = f"{builds[first]}{', in the last column with a native build' if beside else ''}"
    largest = matrix.suites[0].name
    facts = [
        f"{largest}: the suite `{largest}`, all that is tested of an artifact, has passed on "
        f"{HOME} with {by}. {NOT_RUN}: it has not, with these kernels; in "
        "brackets is what has passed instead. —: there is no wheel.",
        f"Compilers: {compilers}.{cuda}",
    ]
    parts = (_releases(matrix, rows), facts[:1], _targets(matrix, records), _processors(records))
    texts = ("\n".join(part) for part in (*parts, facts[1:]))
    return "\n\n".join(filter(None, texts)) + "\n"


def _releases(matrix: Matrix, rows: Sequence[ProvenRow]) -> Iterator[str]:
    """A line a torch, newest first."""
    pythons = sorted({p for release in matrix.torch for p in release.every_python}, key=number)
    first, *beside = _bindings(matrix)
    last = [f"{binding} build" for binding in beside]
    columns = ["torch", *(f"CPython {python}" for python in pythons), *last]
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    supporting = matrix.supporting(first)
    plain = [row for row in rows if _is_plain(row)]
    for release in reversed(matrix.torch):
        own = [row for row in plain if row.torch == release.version]
        cells = [
            _cell(matrix, [r for r in own if (r.binding, r.python) == (first, python)])
            if python in release.every_python and release in supporting
            else NO_WHEEL
            for python in pythons
        ]
        native = [row for row in own if row.binding == "native"]
        cells += [_cell(matrix, native, name_python=True) for _ in last]
        yield f"| {release.series} | {' | '.join(cells)} |"


def _bindings(matrix: Matrix) -> list[str]:
    """Those that the project has, the one of most columns first; a new matrix has no row yet."""
    stated = {binding for spec in matrix.rows for binding in spec.binding}
    return [binding for binding in ("stable", "native") if binding in stated] or ["stable"]


def _is_plain(row: ProvenRow) -> bool:
    return (row.platform, row.level, row.system, row.cuda) == (HOME, HOST, HOST, "cpu")


def _cell(matrix: Matrix, rows: Sequence[ProvenRow], *, name_python: bool = False) -> str:
    """The largest suite where it has passed with these kernels, else that it was not run."""
    largest = matrix.suites[0].name
    passed = [row for row in rows if row.current and row.suite == largest]
    pythons = sorted({row.python for row in passed or rows}, key=number)
    on = f" on CPython {', '.join(pythons)}" if name_python and pythons else ""
    if passed:
        return largest + on
    lesser = _suite(matrix, rows)
    return NOT_RUN if lesser == NOT_RUN else f"{NOT_RUN} ({lesser}{on})"


def _suite(matrix: Matrix, rows: Sequence[ProvenRow]) -> str:
    """The largest suite that has passed with these kernels, and a larger one with older ones."""
    order = [suite.name for suite in matrix.suites]
    known = [row for row in rows if row.suite in order]
    now = min((order.index(row.suite) for row in known if row.current), default=len(order))
    once = min((order.index(row.suite) for row in known if not row.current), default=len(order))
    found = [order[now]] if now < len(order) else []
    found += [f"{order[once]} with older kernels"] if once < now else []
    return "; ".join(found) or NOT_RUN


def _targets(matrix: Matrix, records: Sequence[Record]) -> Iterator[str]:
    """A line for each other platform, level and system."""
    platforms = [each.name for each in matrix.platforms if each.name != HOME]
    rows = [(record.processor, row) for record in records for row in record.rows]
    found = {
        **{name: [each for each in rows if each[1].platform == name] for name in platforms},
        **{level.name: _at(matrix, level, rows) for level in matrix.levels},
        **{each.name: [at for at in rows if at[1].system == each.name] for each in matrix.systems},
    }
    if found:
        yield "| platform, level or system | passed | newest run of each processor |"
        yield "|---|---|---|"
    for name, on in found.items():
        yield f"| {name} | {_passed(matrix, on)} |"
    if matrix.levels:
        yield ""
        yield "A level: rows were held to it, or ran on a processor that has no more."


def _at(
    matrix: Matrix, level: Level, rows: Sequence[tuple[Processor, ProvenRow]]
) -> list[tuple[Processor, ProvenRow]]:
    """Those held to a level, and the same builds on processors that it could not hold back."""
    lines = (spec for spec in matrix.rows if level.name in spec.level)
    builds = {(row.torch, row.binding) for spec in lines for row in expand_line(matrix, spec)}

    def own(processor: Processor, row: ProvenRow) -> bool:
        return _is_plain(row) and not row.emulator and is_own(level, processor)

    return [
        (processor, row)
        for processor, row in rows
        if row.level == level.name or (own(processor, row) and (row.torch, row.binding) in builds)
    ]


def _passed(matrix: Matrix, found: Sequence[tuple[Processor, ProvenRow]]) -> str:
    """The builds, each with its suite, and the newest run of each processor."""
    if not found:
        return f"{NOT_RUN} | {NOT_RUN}"
    builds: dict[str, list[ProvenRow]] = {}
    for _, row in found:
        name = f"torch {config.series(row.torch)}, CPython {row.python}, {row.binding}"
        builds.setdefault(name, []).append(row)
    passed = "; ".join(f"{name} ({_suite(matrix, rows)})" for name, rows in builds.items())
    newest = {
        processor.title + (f" (emulated by {row.emulator})" if row.emulator else ""): row
        for processor, row in sorted(found, key=lambda each: (each[1].current, each[1].date))
    }
    runs = [
        f"{name}, {row.date}, {row.commit[:7]}"
        for name, row in sorted(newest.items())
        if row.current
    ]
    # docs/proofs has their dates and commits: of another day's kernels the names are enough.
    older = [name for name, row in sorted(newest.items()) if not row.current]
    runs += [f"older kernels: {', '.join(older)}"] if older else []
    return f"{passed} | {'; '.join(runs)}"


def _processors(records: Sequence[Record]) -> Iterator[str]:
    if not records:
        yield "No processor has a record: `torchproof run --record` makes one."
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


def render(matrix: Matrix, records: Sequence[Record], text: str) -> str:
    """The README with its tables rebuilt."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise config.ConfigError(f"README.md: expected the marks {BEGIN!r} and {END!r}")
    return f"{head}{begin}\n{tables(matrix, records)}{end}{tail}"


def has_tables() -> bool:
    """Whether the project's README has the mark of the tables; their end is anybody's comment."""
    return PATH.is_file() and BEGIN in config.read_text(PATH)


def write() -> None:
    """Write the committed README."""
    text = config.read_text(PATH)
    write_atomically(PATH, render(config.load(), proofs.read_all(), text))


def check() -> tuple[str, ...]:
    """How the committed README departs from what it is made from, in one sentence."""
    text = config.read_text(PATH)
    if render(config.load(), proofs.read_all(), text) == text:
        return ()
    return (
        "README.md: its tables differ from matrix.toml, docs/proofs or the age of the kernels; "
        "run `torchproof run --write`",
    )
