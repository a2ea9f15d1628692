"""Rows: from the lines of `matrix.toml` to single combinations, and from those to this machine."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torchproof.config import HOME, HOST, ConfigError, Matrix, RowSpec, Torch, project, series
from torchproof.machine.inventory import CompilerFound, Interpreter, Machine
from torchproof.machine.levels import unavailable_reason
from torchproof.rows.combination import Combination

SELECTABLE = (*(field.name for field in dataclasses.fields(Combination)), "packages", "id")


@dataclass(frozen=True, kw_only=True)
class Row(Combination):
    """One combination; until placed, python may be "running", compiler "default" or "each"."""

    packages: str
    tier: str
    reason: str
    line: int

    @property
    def id(self) -> str:
        """A name for files and tables: torch2.13.0-py3.11-stable-g++-12-cpu."""
        cuda = self.cuda if self.cuda == "cpu" else f"cuda{self.cuda}"
        odd = "-real" if self.packages == "real" else ""
        odd += f"-{self.platform}" if self.platform != HOME else ""
        odd += f"-{self.level}" if self.level != HOST else ""
        odd += f"-{self.system}" if self.system != HOST else ""
        return f"torch{self.torch}-py{self.python}-{self.binding}-{self.compiler}-{cuda}{odd}"


@dataclass(frozen=True)
class Placed:
    """A row on this machine: the programs it uses, or why it cannot run here.

    `python` runs it, and `build_python` builds its wheel; `fetchable`: a run of the row fetches
    what is missing.
    """

    row: Row
    python: Interpreter | None = None
    build_python: Interpreter | None = None
    compiler: CompilerFound | None = None
    missing: str = ""
    fetchable: bool = False


def releases(matrix: Matrix, name: str, binding: str, python: str) -> list[Torch]:
    """The torch releases that `name`, a version or a word of `matrix.toml`, stands for."""
    supporting = matrix.supporting(binding)
    if name == "oldest":
        return [supporting[0]]
    if name == "newest":
        return [supporting[-1]]
    if name == "headers":
        return [matrix.headers]
    if name == "all":
        return [r for r in supporting if python == "running" or python in r.every_python]
    return [matrix.release(name)]


def expand_line(matrix: Matrix, spec: RowSpec) -> Iterator[Row]:
    """The rows one line stands for."""
    for name, python, binding, compiler, cuda, platform, level, system in itertools.product(
        *(spec.torch, spec.python, spec.binding, spec.compiler, spec.cuda, spec.platform),
        *(spec.level, spec.system),
    ):
        try:
            found = releases(matrix, name, binding, python)
        except KeyError:
            known = ", ".join(release.series for release in matrix.torch)
            raise ConfigError(
                f"line {spec.line}: there is no torch {name!r}; name one of {known}, oldest, "
                "newest, headers or all"
            ) from None
        for release in found:
            yield Row(
                torch=release.version,
                python=python,
                binding=binding,
                compiler=compiler,
                cuda=cuda,
                packages=spec.packages,
                suite=spec.suite,
                tier=spec.tier,
                reason=spec.reason,
                line=spec.line,
                platform=platform,
                level=level,
                system=system,
            )


def tiers_within(matrix: Matrix, name: str) -> tuple[str, ...]:
    """The tier `name` and every tier it includes."""
    includes = {tier.name: tier.includes for tier in matrix.tiers}
    found = [name]
    for tier in found:  # which grows as it is read
        if tier not in includes:
            raise ConfigError(f"there is no tier {tier!r}; the tiers are {', '.join(includes)}")
        found += [other for other in includes[tier] if other not in found]
    return tuple(found)


def expand(matrix: Matrix, tier: str) -> tuple[Row, ...]:
    """The rows of a tier, each once and with the largest suite of its lines, in their order."""
    within = tiers_within(matrix, tier)
    size = {suite.name: -place for place, suite in enumerate(matrix.suites)}
    rows: dict[str, Row] = {}
    for spec in matrix.rows:
        if spec.tier in within:
            for row in expand_line(matrix, spec):
                known = rows.setdefault(row.id, row)
                if size[row.suite] > size[known.suite]:
                    rows[row.id] = row
    return tuple(rows.values())


def place(matrix: Matrix, rows: Iterable[Row], machine: Machine) -> tuple[Placed, ...]:
    """Put rows on this machine; `missing` states what it lacks, never left out."""
    placed: dict[str, Placed] = {}
    for row in rows:
        for here in _place(matrix, row, machine):
            placed.setdefault(here.row.id, here)
    return tuple(placed.values())


def _place(matrix: Matrix, row: Row, machine: Machine) -> Iterator[Placed]:
    if _is_emulated(matrix, row, machine):
        row = _on_running(row, machine)
        emulated = machine.emulating(row.platform)
        if emulated is None or emulated.python(row.python) is None:
            command = f"`torchproof interpreters {row.python} --emulate {row.platform}`"
            missing = f"no CPython {row.python} of {row.platform} is emulated here: {command}"
            yield Placed(row, missing=missing, fetchable=True)
            return
        machine = emulated
    if row.platform != machine.platform:
        missing = f"this machine is {machine.platform}, not {row.platform}"
        yield Placed(row, missing=missing)
        return
    row = _on_running(row, machine)
    python = machine.python(row.python, row.system)
    supported = [c for c in machine.compilers if _supports(matrix, c)]
    if row.compiler == "each":
        compilers = [c.label for c in supported] or ["g++"]
    elif row.compiler == "default":
        compilers = [machine.default.label if machine.default else "g++"]
    else:
        compilers = [row.compiler]
    for label in compilers:
        compiler = next((c for c in supported if c.label == label), None)
        here = dataclasses.replace(row, compiler=label)
        placed = Placed(here, python, _build_python(matrix, here, machine), compiler)
        yield dataclasses.replace(placed, missing=_missing(matrix, placed, machine))


def _on_running(row: Row, machine: Machine) -> Row:
    """The row with the series of the machine's Python where it names none."""
    running = series(machine.running.version)
    return dataclasses.replace(row, python=running) if row.python == "running" else row


def _build_python(matrix: Matrix, row: Row, machine: Machine) -> Interpreter | None:
    """The row's own CPython, else, where the wheel serves any, one that has the torch to build on.

    A new CPython has wheels of the newest torch alone.
    """
    with_wheel = matrix.built_on(row.binding, row.torch).every_python
    if row.python in with_wheel:
        return machine.python(row.python, row.system)
    return machine.python_among(with_wheel, row.system) if project().any_python else None


def _is_emulated(matrix: Matrix, row: Row, machine: Machine) -> bool:
    """Whether a row runs under QEMU: one of another platform, or of an emulated processor."""
    if matrix.emulator(row.platform) is None:
        return False
    level = matrix.level(row.level)
    other = row.platform not in (machine.platform, HOME)
    return other or (level is not None and bool(level.emulated))


def _supports(matrix: Matrix, compiler: CompilerFound) -> bool:
    return any(
        family.name == compiler.name and family.oldest <= compiler.major <= family.newest
        for family in matrix.compilers
    )


def _missing(matrix: Matrix, placed: Placed, machine: Machine) -> str:
    row, python, compiler = placed.row, placed.python, placed.compiler
    if row.python not in matrix.release(row.torch).every_python:
        return f"torch {row.torch} has no wheel for CPython {row.python}"
    if python is None:
        return _no_python(row)
    if placed.build_python is None:
        return _no_build_python(matrix.built_on(row.binding, row.torch), row.python)
    if compiler is None:
        absent = f"no {row.compiler} on this machine, or one outside the bounds of matrix.toml"
        command = f"torchproof compilers --tier {row.tier}"
        return absent if python.emulation else f"{absent}: `{command}` installs what is missing"
    if row.cuda != "cpu" and (machine.nvcc is None or machine.nvcc.release != row.cuda):
        return f"no nvcc of CUDA {row.cuda} on this machine"
    return unavailable_reason(matrix.level(row.level), machine.processor)


def _no_python(row: Row) -> str:
    if row.system == HOST:
        command = f"torchproof interpreters {row.python}"
        return f"no CPython {row.python} on this machine: `{command}` fetches one"
    command = f"torchproof interpreters {row.python} --on {row.system} --source TREE"
    needed = f"`{command}` builds one from CPython's sources"
    return f"no CPython {row.python} on {row.system}: {needed}"


def _no_build_python(torch: Torch, python: str) -> str:
    absent = (
        f"torch {torch.version}, which the wheel is built on, has no wheel for CPython {python}"
    )
    if not project().any_python:
        return absent
    command = f"`torchproof interpreters {torch.pythons[-1]}` fetches one"
    return f"{absent}, nor for another on this machine: {command}"


def select(rows: Iterable[Placed], choice: str) -> tuple[Placed, ...]:
    """The rows that `--select` keeps: "torch=2.15,python=3.12"; a key given twice means either."""
    rows = tuple(rows)
    wanted: dict[str, set[str]] = {}
    for part in choice.split(","):
        key, _, value = part.partition("=")
        if key not in SELECTABLE or not value:
            raise ConfigError(
                f"--select takes key=value with a key of {', '.join(SELECTABLE)}; got {part!r}"
            )
        wanted.setdefault(key, set()).add(value)
    kept = tuple(placed for placed in rows if all(_is(placed.row, k, v) for k, v in wanted.items()))
    if not kept:
        raise ConfigError(
            f"--select {choice} leaves none of the {len(rows)} rows of this tier, which "
            "`torchproof list` shows"
        )
    return kept


def _is(row: Row, key: str, values: set[str]) -> bool:
    value = str(getattr(row, key))
    return value in values or (key == "torch" and series(value) in values)
