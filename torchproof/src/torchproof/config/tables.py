"""The arrays of matrix.toml, and the matrix that they make."""

from dataclasses import dataclass

from torchproof.config.versions import is_version, number, series
from torchproof.errors import WrongKeyError

# The platform of a row that names none.
HOME = "linux-x86_64"
# The level and the system of a row that names none: all that the processor has, and this system.
HOST = "host"


def _check_version(version: str) -> None:
    """A release is named by numbers alone: rows run on released ones."""
    if not is_version(version):
        problem = f"must be numbers with points, such as 2.13.0, got {version!r}"
        raise WrongKeyError("version", problem)


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

    def __post_init__(self) -> None:
        _check_version(self.version)

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

    def __post_init__(self) -> None:
        _check_version(self.version)


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
class ExternalCheck:
    """Something that no row runs, and a command that runs it on another machine."""

    what: str
    command: str
    reason: str
    line: int = 0


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
        """The torch release the stable wheel is compiled against."""
        return self.release(self.stable.headers)

    def built_on(self, binding: str, torch: str) -> Torch:
        """The torch release that a wheel for `torch` is compiled against."""
        return self.headers if binding == "stable" else self.release(torch)

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
