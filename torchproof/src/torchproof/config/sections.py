"""The sections of matrix.toml: `[project]`, `[audit]` and `[conda]`."""

from dataclasses import dataclass, field, fields
from typing import Any

from torchproof.config.versions import is_version
from torchproof.errors import WrongKeyError


def _check_versions(table: Any) -> None:
    """Each text of a table is a version; else WrongKeyError names it."""
    for each in fields(table):
        value = getattr(table, each.name)
        if isinstance(value, str) and not is_version(value):
            raise WrongKeyError(each.name, f"must be a version such as 2.28, got {value!r}")


@dataclass(frozen=True)
class Conda:
    """A project's conda packages: those of each binding, that of the tests, and their proofs.

    Attributes:
        tests: the package that installs the suites below share/NAME, NAME being the project's.
        proofs: a folder of tests that `torchproof conda` runs against what it has built.
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
class Project:
    """What the tool cannot know of a project by itself; paths are from its root.

    Attributes:
        name: of the distribution, and of the package that users import.
        sources: what a wheel is made of; `generated`: below them, made by a build.
        kernels: the part of the sources that computes: what is proven or timed is so of these.
        tests: what else decides a row's result.
        benchmarks: files for pytest-benchmark, which a row runs as its last phase.
        groups: the dependency groups of pyproject.toml that every environment holds.
        locks: a folder of the versions and hashes that environments install; `torchproof lock`.
        campaigns: those whose figures, in docs/campaigns, the report shows.
        instruction_set: a Python expression for the instruction set that the library uses.
        requires: what else every environment holds, as pip takes it.
        version: a file with a line `__version__ = "..."`, for conda packages and releases.
        smoke: a Python file with two functions, each of which raises where the extension is
            wrong: by_import() uses it as users do; by_loader() through torch.ops alone, and may be
            missing.
        any_python: whether a wheel serves every CPython: its libraries take no symbol of Python.
        guarded: whether importing the package raises an ImportError of one line in a torch that its
            library is not for.
        made: modules of the project that make committed files, each with check() and write().
        build: environment variables.
    """

    name: str
    sources: tuple[str, ...]
    kernels: tuple[str, ...]
    tests: tuple[str, ...]
    smoke: str
    version: str = ""
    generated: tuple[str, ...] = ()
    benchmarks: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    locks: str = ""
    campaigns: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    any_python: bool = False
    guarded: bool = False
    instruction_set: str = ""
    made: tuple[str, ...] = ()
    build: Environment = field(default_factory=Environment)
    conda: Conda = field(default_factory=Conda)


@dataclass(frozen=True)
class Ceilings:
    """Symbol versions of a system."""

    glibc: str
    glibcxx: str
    cxxabi: str

    def __post_init__(self) -> None:
        _check_versions(self)


@dataclass(frozen=True)
class FloorOfCxx17:
    """Compilers."""

    gcc: str
    clang: str

    def __post_init__(self) -> None:
        _check_versions(self)


@dataclass(frozen=True)
class Audit:
    """What the audit checks binaries against, beside the tables of torch, compilers and CUDA.

    Attributes:
        gcc_abi: no torch was ever built with an older C++ ABI.
        abi3: the limited API that a bare .abi3.so is checked against.
        cxx11_abi_since: the first torch whose wheels have _GLIBCXX_USE_CXX11_ABI=1.
        cxx17_since: the first torch whose headers are C++17.
        ceilings: the newest symbol versions that a binary may need.
        cxx17: the first compilers fit for the headers of a torch that is C++17.
        ptx: the PTX ISA that each CUDA release writes.
        distributions: the C library of each release of a distribution.
        needed: libraries that the project's may link besides the allow-list, as shell patterns.
        exports: symbols that they may export besides the allow-list, as shell patterns.
    """

    gcc_abi: str
    abi3: str
    cxx11_abi_since: str
    cxx17_since: str
    ceilings: Ceilings
    cxx17: FloorOfCxx17
    ptx: dict[str, str]
    distributions: dict[str, dict[str, str]]
    needed: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_versions(self)


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

    def __post_init__(self) -> None:
        _check_versions(self)
