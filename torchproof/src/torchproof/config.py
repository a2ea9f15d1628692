"""`matrix.toml` as frozen tables: what is named there, and on which line.

Standard library only (`tomli` on CPython 3.10), so that every consumer can read the file.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import typing
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

if typing.TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

from torchproof.errors import TorchproofError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "matrix.toml"


def find_root(start: Path) -> Path:
    """The nearest folder upward from `start` that has a matrix.toml; `start` where none has."""
    start = start.resolve()
    return next((f for f in (start, *start.parents) if (f / FILE).is_file()), start)


# The project that the working directory is in.
ROOT = find_root(Path.cwd())
PATH = ROOT / FILE
# The platform of a row that names none.
HOME = "linux-x86_64"
# The level and the system of a row that names none: all that the processor has, and this system.
HOST = "host"
STRING_OR_COMMENT = re.compile(r'"[^"]*"|#.*')


class ConfigError(TorchproofError, ValueError):
    """`matrix.toml` cannot be read; the message names the line and the rule."""


def series(version: str) -> str:
    """What decides compatibility: "2.13" of "2.13.0", "3.14t" of the free-threaded "3.14.7t"."""
    freethreaded = "t" if version.endswith("t") else ""
    return ".".join(version.removesuffix("t").split(".")[:2]) + freethreaded


def number(version: str) -> tuple[int, ...]:
    """A version as numbers, to be compared: "2.13" -> (2, 13); "3.14t" is just above "3.14"."""
    try:
        parts = tuple(int(part) for part in version.removesuffix("t").split("."))
    except ValueError:
        raise ConfigError(
            f"{version!r} is no version: expected numbers with points, such as 2.13.0"
        ) from None
    return (*parts, 0) if version.endswith("t") else parts


@dataclass(frozen=True)
class Stable:
    """The stable wheel: the oldest torch it loads on and the torch it is compiled against."""

    target: str
    headers: str


@dataclass(frozen=True)
class Torch:
    """A torch release, the Pythons it has wheels for, its C++ standard and its default CUDA.

    `freethreaded` names CPythons without a GIL, "3.14t"; conda packages are for `pythons` alone.
    """

    version: str
    pythons: tuple[str, ...]
    cxx: int
    cuda: str
    line: int
    freethreaded: tuple[str, ...] = ()

    @property
    def every_python(self) -> tuple[str, ...]:
        """The plain CPythons, then the free-threaded ones."""
        return self.pythons + self.freethreaded

    @property
    def series(self) -> str:
        """The release series, "2.13"."""
        return series(self.version)


@dataclass(frozen=True)
class Compiler:
    """A compiler family, its supported majors, and the first whose C++20 is enough for torch."""

    name: str
    oldest: int
    newest: int
    cxx20: int
    line: int


@dataclass(frozen=True)
class Cuda:
    """A CUDA toolkit release: its oldest driver, newest host compilers, and what it builds for."""

    version: str
    driver: str
    gxx: int
    clangxx: int
    architectures: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class Platform:
    """A platform wheels are built for.

    Attributes:
        runner: the hosted machine that builds and tests there.
        image: the container its wheel is built in, pinned by digest; "" for none.
        proven: whether a runner's run has passed; until then its rows may fail.
    """

    name: str
    runner: str
    image: str
    proven: bool
    line: int


@dataclass(frozen=True)
class Suite:
    """A selection of the tests: paths and arguments for pytest, and a time limit in minutes."""

    name: str
    paths: tuple[str, ...]
    line: int
    arguments: tuple[str, ...] = ()
    minutes: int = 20


@dataclass(frozen=True)
class Tier:
    """A named set of rows."""

    name: str
    line: int
    includes: tuple[str, ...] = ()
    spans_torch: bool = False


@dataclass(frozen=True)
class Level:
    """A processor that a row pretends to have.

    Attributes:
        needs: the instruction sets that it has.
        above: those that it lacks; where the processor has none of them, the level is its own.
        hidden: words that no library's report of what it uses may contain.
        environment: `NAME=value`, what holds the libraries to it.
        emulated: the processor that qemu-user emulates for it, by its name there; "" for none.
    """

    name: str
    hidden: tuple[str, ...]
    line: int
    needs: tuple[str, ...] = ()
    above: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    emulated: str = ""


@dataclass(frozen=True)
class Emulator:
    """A program of qemu-user, which runs a platform's programs on another processor.

    Attributes:
        platform: whose programs it runs.
        program: its name.
        cpu: the processor that it emulates where no level names another.
        debian: the platform's name in Debian's archive.
        triplet: the platform's name in those of its compilers and folders.
        loader: the file that starts its programs.
    """

    platform: str
    program: str
    cpu: str
    debian: str
    triplet: str
    loader: str
    line: int


@dataclass(frozen=True)
class Copy:
    """A file of this tool that the project carries a copy of."""

    path: str
    of: str
    line: int


@dataclass(frozen=True)
class Conda:
    """A project's conda packages: those of each binding, that of the tests, and their proofs.

    Attributes:
        tests: the package that installs the suites below share/NAME, NAME being the project's.
        proofs: a folder of tests that `nox -s conda` runs against what it has built.
    """

    stable: str = ""
    native: str = ""
    tests: str = ""
    proofs: str = ""

    @property
    def packages(self) -> tuple[str, ...]:
        """Every package, in the order they are built in."""
        return tuple(filter(None, (self.stable, self.tests, self.native)))


@dataclass(frozen=True)
class Environment:
    """What the environment of a build says: for each binding, without CUDA and with it."""

    stable: dict[str, str] = field(default_factory=dict)
    native: dict[str, str] = field(default_factory=dict)
    cpu: dict[str, str] = field(default_factory=dict)
    cuda: dict[str, str] = field(default_factory=dict)

    def of(self, binding: str, cuda: str) -> dict[str, str]:
        """The variables of one build."""
        return {**getattr(self, binding), **(self.cpu if cuda == "cpu" else self.cuda)}


@dataclass(frozen=True)
class ExternalCheck:
    """Something that no row runs, and a command that runs it on another machine."""

    what: str
    command: str
    reason: str
    line: int = 0


@dataclass(frozen=True)
class Project:
    """What the tool cannot know of a project by itself; paths are from its root.

    Attributes:
        name: of the distribution, and of the package that users import.
        library: below site-packages; it registers the ops.
        version: a file with a line `__version__ = "..."`.
        sources: what a wheel is made of; `generated`: below them, made by a build.
        kernels: the part of the sources that computes: what is proven or timed is so of these.
        tests: what else decides a row's result.
        benchmarks: files for pytest-benchmark, which a row runs as its last phase.
        groups: the dependency groups of pyproject.toml that every environment holds.
        locks: a folder of the versions and hashes that environments install; `nox -s lock`.
        instruction_set: a Python expression for the instruction set that the library uses.
        requires: what else every environment holds, as pip takes it.
        smoke: a Python file with two functions, each of which raises where the extension is
            wrong: by_import() uses it as users do; by_loader() through torch.ops alone, and may be
            missing.
        guarded: whether importing the package raises an ImportError of one line in a torch that its
            library is not for.
        made: modules of the project that make committed files, each with check() and write().
        build: environment variables.
    """

    name: str
    library: str
    version: str
    sources: tuple[str, ...]
    kernels: tuple[str, ...]
    tests: tuple[str, ...]
    smoke: str
    generated: tuple[str, ...] = ()
    benchmarks: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    locks: str = ""
    requires: tuple[str, ...] = ()
    guarded: bool = False
    instruction_set: str = ""
    made: tuple[str, ...] = ()
    build: Environment = field(default_factory=Environment)
    conda: Conda = field(default_factory=Conda)


@dataclass(frozen=True)
class System:
    """Another distribution's C library and what goes with it, on which a row's CPython starts.

    Attributes:
        suite: the Debian release, as its archive names it.
        packages: those whose libraries a CPython, torch and the extension take from the system.
    """

    name: str
    suite: str
    packages: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class Ceilings:
    """Symbol versions of a system."""

    glibc: str
    glibcxx: str
    cxxabi: str


@dataclass(frozen=True)
class FloorOfCxx17:
    """Compilers."""

    gcc: str
    clang: str


@dataclass(frozen=True)
class Audit:
    """What the audit checks binaries against, beside the tables of torch, compilers and CUDA.

    Attributes:
        gcc_abi: no torch was ever built with an older C++ ABI.
        abi3: the limited API that a bare .abi3.so is checked against.
        cxx11_abi_since: the first torch whose wheels have _GLIBCXX_USE_CXX11_ABI=1.
        ceilings: the newest symbol versions that a binary may need.
        cxx17: the first compilers fit for the headers of a torch that is C++17.
        ptx: the PTX ISA that each CUDA release writes.
        distributions: the C library of each release of a distribution.
    """

    gcc_abi: str
    abi3: str
    cxx11_abi_since: str
    ceilings: Ceilings
    cxx17: FloorOfCxx17
    ptx: dict[str, str]
    distributions: dict[str, dict[str, str]]


@dataclass(frozen=True)
class CondaVariants:
    """What the conda packages are built for.

    Attributes:
        platforms: conda's names of the platforms every variant is rendered for.
        cuda: the CUDA releases that have a variant, one a major.
        glibc: the oldest C library the packages run on, of Linux.
        torch_below: the first torch the stable package does not claim.
    """

    platforms: tuple[str, ...]
    cuda: tuple[str, ...]
    glibc: str
    torch_below: str


@dataclass(frozen=True)
class RowSpec:
    """A line of `rows`: every combination of its values is a row."""

    tier: str
    torch: tuple[str, ...]
    python: tuple[str, ...]
    binding: tuple[str, ...]
    compiler: tuple[str, ...]
    suite: str
    line: int
    cuda: tuple[str, ...] = ("cpu",)
    packages: str = "stubs"
    platform: tuple[str, ...] = (HOME,)
    level: tuple[str, ...] = (HOST,)
    system: tuple[str, ...] = (HOST,)
    reason: str = ""


@dataclass(frozen=True)
class Known:
    """What is known of torch, compilers, CUDA, platforms and emulators."""

    torch: tuple[Torch, ...]
    compilers: tuple[Compiler, ...]
    cuda: tuple[Cuda, ...]
    platforms: tuple[Platform, ...]
    emulators: tuple[Emulator, ...]


@dataclass(frozen=True)
class Matrix(Known):
    """The whole file, and what is known beside it."""

    stable: Stable
    suites: tuple[Suite, ...]
    tiers: tuple[Tier, ...]
    rows: tuple[RowSpec, ...]
    levels: tuple[Level, ...] = ()
    systems: tuple[System, ...] = ()
    copies: tuple[Copy, ...] = ()
    external_checks: tuple[ExternalCheck, ...] = ()

    def release(self, name: str) -> Torch:
        """The torch release called `name`, "2.13" or "2.13.0"; KeyError when there is none."""
        for release in self.torch:
            if name in (release.version, release.series):
                return release
        raise KeyError(name)

    def supporting(self, binding: str) -> tuple[Torch, ...]:
        """The torch releases `binding` is offered for, oldest first."""
        floor = self.stable.target if binding == "stable" else "0"
        return tuple(release for release in self.torch if number(release.version) >= number(floor))

    def architectures(self, cuda: str) -> tuple[str, ...]:
        """What a CUDA release builds for, as torch spells it; nothing for "cpu"."""
        return next((row.architectures for row in self.cuda if row.version == cuda), ())

    @property
    def headers(self) -> Torch:
        """The torch release the stable wheel is compiled against, and `nox -s tests` installs."""
        return self.release(self.stable.headers)

    @property
    def pythons(self) -> tuple[str, ...]:
        """Every Python some torch release has a wheel for, oldest first."""
        return tuple(
            sorted({python for release in self.torch for python in release.pythons}, key=number)
        )

    def platform(self, name: str) -> Platform:
        """The platform called `name`."""
        return next(platform for platform in self.platforms if platform.name == name)

    def emulator(self, platform: str) -> Emulator | None:
        """What runs a platform's programs on another processor; None where nothing does."""
        return next((each for each in self.emulators if each.platform == platform), None)

    def suite(self, name: str) -> Suite:
        """The suite called `name`."""
        return next(suite for suite in self.suites if suite.name == name)

    def system(self, name: str) -> System | None:
        """The system called `name`; None for the machine's own."""
        return next((system for system in self.systems if system.name == name), None)

    def level(self, name: str) -> Level | None:
        """The level called `name`; None for the processor's own."""
        return next((level for level in self.levels if level.name == name), None)


Table = TypeVar("Table")


@dataclass(frozen=True)
class Source:
    """The text of a file, and what it holds."""

    text: str
    document: dict[str, Any]

    @staticmethod
    def of(text: str) -> Source:
        """Parse a text; ConfigError where it is not TOML."""
        try:
            return Source(text, tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"not TOML: {error}") from None

    def rows(self, name: str) -> list[tuple[dict[str, Any], int]]:
        """Each row of an array, and its line.

        Raises:
            ConfigError: it is no array of inline tables.
        """
        rows = self.document.get(name, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ConfigError(f"{name!r} must be an array of tables: {name} = [ {{ ... }}, ... ]")
        return list(zip(rows, _lines_of(self.text, name), strict=True))

    def line_of(self, header: str, key: str | None = None) -> int:
        """The line of a section's header, or of a key below it; the header's where it has none."""
        lines = [line.split("#")[0].strip() for line in self.text.splitlines()]
        start = next((at for at, line in enumerate(lines, 1) if line.split(" =")[0] == header), 0)
        for at, line in enumerate(lines[start:], start + 1):
            if line.startswith("[") and header.startswith("["):
                break
            if key and line.partition("=")[0].strip() == key:
                return at
        return start


@lru_cache
def facts() -> Source:
    """What is true for every project: torch, compilers, CUDA, distributions."""
    return Source.of((Path(__file__).parent / "data" / "facts.toml").read_text(encoding="utf-8"))


def _table(
    kind: type[Table], values: Mapping[str, Any], line: int, at: Mapping[str, int] | None = None
) -> Table:
    """One table as a dataclass; a string stands for a list of one.

    Args:
        kind: the dataclass.
        values: what the table holds.
        line: of the table.
        at: the lines of its keys, where they have lines of their own.
    """
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]  # TypeVar of dataclasses
    types = typing.get_type_hints(kind)
    given = dict(values, line=line) if "line" in fields else dict(values)
    at = at or {}
    for unknown in given.keys() - fields.keys():
        known = ", ".join(sorted(fields.keys() - {"line"}))
        raise ConfigError(
            f"line {at.get(unknown, line)}: unknown key {unknown!r}; the keys here are {known}"
        )
    for name, declared in fields.items():
        if name in given:
            given[name] = _value(name, types[name], given[name], at.get(name, line))
        elif {declared.default, declared.default_factory} == {dataclasses.MISSING}:
            raise ConfigError(f"line {line}: the key {name!r} is missing")
    return kind(**given)


def _value(name: str, expected: Any, value: Any, line: int) -> Any:
    """A value as a field's type has it."""
    if expected == tuple[str, ...]:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise ConfigError(f"line {line}: {name} must be a string or a list of strings")
        return tuple(items)
    if isinstance(expected, type) and dataclasses.is_dataclass(expected):
        if not isinstance(value, dict):
            raise ConfigError(f"line {line}: {name} must be a table")
        return _table(expected, value, line)
    if typing.get_origin(expected) is dict:
        if not isinstance(value, dict):
            raise ConfigError(f"line {line}: {name} must be a table")
        inner = typing.get_args(expected)[1]
        return {key: _value(f"{name}.{key}", inner, held, line) for key, held in value.items()}
    if type(value) is not expected:
        raise ConfigError(
            f"line {line}: {name} must be a {expected.__name__}, "
            f"got {type(value).__name__} {value!r}"
        )
    return value


def _lines_of(text: str, name: str) -> Iterator[int]:
    """The line of each inline table in the array `name`; TOML keeps an inline table on one line."""
    depth = 0
    for at, line in enumerate(text.splitlines(), start=1):
        plain = STRING_OR_COMMENT.sub("", line)
        opens = depth == 0 and plain.replace(" ", "").startswith(f"{name}=[")
        if opens or depth > 0:
            nested = 0
            for character in plain:
                nested += {"{": 1, "}": -1}.get(character, 0)
                if character == "{" and nested == 1:
                    yield at
            depth += plain.count("[") - plain.count("]")
            if depth == 0:
                return


# The arrays of matrix.toml, and the key that names a row of those that a project adds to.
ARRAYS: dict[str, tuple[type, str | None]] = {
    "torch": (Torch, "version"),
    "compilers": (Compiler, "name"),
    "cuda": (Cuda, "version"),
    "platforms": (Platform, "name"),
    "emulators": (Emulator, "platform"),
    "suites": (Suite, None),
    "tiers": (Tier, None),
    "rows": (RowSpec, None),
    "levels": (Level, None),
    "systems": (System, None),
    "copies": (Copy, None),
    "external_checks": (ExternalCheck, None),
}
SECTIONS: dict[str, type] = {"project": Project, "audit": Audit, "conda": CondaVariants}


def _array(source: Source, name: str) -> tuple[Any, ...]:
    """The rows of an array: those of the facts, as the project changes them, and its own."""
    kind, key = ARRAYS[name]
    rows = source.rows(name)
    if key is None:
        return tuple(_table(kind, row, line) for row, line in rows)
    merged = {row[key]: (row, 0) for row, _ in facts().rows(name)}
    for row, line in rows:
        if key in row:  # the others are of no use where it is no text
            _value(key, str, row[key], line)
        known, _ = merged.get(row.get(key), ({}, 0))
        merged[row.get(key)] = ({**known, **row}, line)
    found: Iterator[Any] = (_table(kind, row, line) for row, line in merged.values())
    return tuple(sorted(found, key=lambda row: number(row.version)) if key == "version" else found)


def tables(source: Source, name: str, kind: type[Table]) -> tuple[Table, ...]:
    """The rows of an array of another file; ConfigError names the line of a wrong key."""
    return tuple(_table(kind, row, line) for row, line in source.rows(name))


def known() -> Known:
    """The facts alone."""
    nothing = Source("", {})
    names = [field.name for field in dataclasses.fields(Known)]
    return Known(**{name: _array(nothing, name) for name in names})


def loads(text: str) -> Matrix:
    """Parse the text of a `matrix.toml`.

    Raises:
        ConfigError: the text is not TOML, or a table has a missing, unknown or mistyped key.
    """
    source = Source.of(text)
    check_names(source)
    if not isinstance(source.document.get("stable"), dict):
        raise ConfigError("the table 'stable' is missing: stable = { target = ..., headers = ... }")
    for name in SECTIONS.keys() & source.document.keys():
        section(source, name)
    return Matrix(
        stable=_table(Stable, source.document["stable"], source.line_of("stable")),
        **{name: _array(source, name) for name in ARRAYS},
    )


def check_names(source: Source) -> None:
    """Every table of the file is one that there is; else ConfigError."""
    known = {"stable", *ARRAYS, *SECTIONS}
    for name in source.document.keys() - known:
        line = source.line_of(f"[{name}]") or source.line_of(name)
        raise ConfigError(
            f"line {line}: unknown table {name!r}; the tables are {', '.join(sorted(known))}"
        )


def section(source: Source, name: str) -> Any:
    """A section, which may add to the facts' own; ConfigError names the line of a wrong key."""
    kind, header = SECTIONS[name], f"[{name}]"
    values = source.document.get(name, {})
    if not isinstance(values, dict):
        raise ConfigError(f"line {source.line_of(name)}: {name!r} must be a section: {header}")
    at = {key: source.line_of(header, key) for key in values}
    return _table(kind, {**facts().document.get(name, {}), **values}, source.line_of(header), at)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, on any CPython the project supports."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def load(path: Path = PATH) -> Matrix:
    """Read a `matrix.toml`; ConfigError names the file and the line."""
    text = _text(path)
    try:
        return loads(text)
    except ConfigError as error:
        raise ConfigError(f"{path.name}: {error}") from None


@lru_cache
def project(path: Path = PATH) -> Project:
    """The section `[project]`; ConfigError names the file and the line."""
    return typing.cast("Project", _section_of(path, _text(path), "project"))


@lru_cache
def audit(path: Path = PATH) -> Audit:
    """What binaries are checked against; the facts' own where there is no project."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return typing.cast("Audit", _section_of(path, text, "audit"))


def conda(path: Path = PATH) -> CondaVariants:
    """The section `[conda]`; ConfigError names the file and the line."""
    found: CondaVariants = _section_of(path, _text(path), "conda")
    return found


def _section_of(path: Path, text: str, name: str) -> Any:
    try:
        return section(Source.of(text), name)
    except ConfigError as error:
        raise ConfigError(f"{path.name}: [{name}]: {error}") from None


def _text(path: Path) -> str:
    if not path.is_file():
        raise ConfigError(
            f"no {FILE} in {path.parent} or above it: run this in a folder of the project, "
            "or write one"
        )
    return path.read_text(encoding="utf-8")
