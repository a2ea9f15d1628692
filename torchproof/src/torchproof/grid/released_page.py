"""The page of a grid over released wheels: what loads where, why, and who predicted it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from torchproof.files import read_json, write_atomically, write_json
from torchproof.grid import picture
from torchproof.grid.crossload import Grid, Line
from torchproof.grid.released import Absent
from torchproof.grid.table import markdown
from torchproof.grid.trials import LOADS, NOT_RUN, REFUSES, LibraryTrial

RUNS_ON = {
    "cpu": "a CPU build",
    "stubbed": "a CUDA build on link stubs, without a GPU",
    "real": "a CUDA build",
}
# Of a message, in characters.
LONGEST = 160


@dataclass(frozen=True)
class Heading:
    """What a page is of: its title, the wheels in a few words, and the command that makes it."""

    title: str
    wheels: str
    command: str


def write(path: Path, grid: Grid, absent: Sequence[Absent], heading: Heading) -> None:
    """Write the page, and beside it its picture and its JSON."""
    picture_of, twin = path.with_suffix(".svg"), path.with_suffix(".json")
    write_atomically(picture_of, picture.svg(grid, heading.title))
    beside = {"heading": vars(heading), "absent": [vars(each) for each in absent]}
    write_json(twin, {**grid.to_dict(), **beside})
    write_atomically(path, page(grid, absent, heading, (picture_of.name, twin.name)))


def differing(path: Path) -> list[str]:
    """The files of a page, itself and its picture, that are not what its JSON makes of them."""
    data = read_json(path.with_suffix(".json"))
    grid, heading = Grid.from_dict(data), Heading(**data["heading"])
    absent = [Absent(**each) for each in data["absent"]]
    with TemporaryDirectory() as folder:
        again = Path(folder, path.name)
        write(again, grid, absent, heading)
        pairs = [(path.with_suffix(end), again.with_suffix(end)) for end in (".md", ".svg")]
        return [str(now) for now, made in pairs if _read(now) != made.read_bytes()]


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def page(grid: Grid, absent: Sequence[Absent], heading: Heading, beside: tuple[str, str]) -> str:
    """The page's Markdown."""
    return "\n".join(
        [
            f"# {heading.title}",
            "",
            *_introduction(grid, heading, beside),
            "",
            markdown(grid),
            *_legend(),
            "",
            "## Why",
            "",
            *(text for line in grid.lines for text in (*_why(line), "")),
            "## A second opinion",
            "",
            *_second_opinions(grid),
            *(["", "## Not in the grid", ""] if absent or grid.refused else []),
            *(f"- {each.name}: {each.reason}" for each in absent),
            *(f"- {each.name}: {each.error}" for each in grid.refused),
            "",
        ]
    )


def _introduction(grid: Grid, heading: Heading, beside: tuple[str, str]) -> Iterator[str]:
    trials = [trial for cell in grid.cells for trial in cell.trials if trial.outcome != NOT_RUN]
    wrong = sum(not trial.as_predicted for trial in trials)
    python = next(iter(grid.environments.values())).python
    yield f"{heading.wheels}, each really loaded into each torch, beside what torchproof predicted"
    yield "from the files alone. The audit predicts the library, and what the metadata declares the"
    yield "package. Each is tried in a process of its own."
    yield ""
    yield f"![{heading.title}]({beside[0]})"
    yield ""
    yield f"{len(grid.cells)} cells on CPython {python}, in which {len(trials)} libraries and"
    yield f"packages were tried, {wrong} not as predicted. `{heading.command}`"
    yield f"makes this page, its picture and [its data]({beside[1]})."
    yield ""
    yield "| torch | runs on |"
    yield "|---|---|"
    for each in grid.environments.values():
        yield f"| {each.torch} | {RUNS_ON[each.flavour]} |"


def _legend() -> Iterator[str]:
    yield "*works*: the package is imported, and a program that uses it computes the right result."
    yield "*imports*: it is imported, and no program uses it."
    yield "*refuses*: importing it raises. *wrong*: it is imported, and the program raises.  "
    yield "*unsupported*: its metadata declares other torches, or it was made by another release of"
    yield "CUDA than this torch, so nothing is promised."
    yield "*unsafe*: every symbol is there, but the library was made for another torch."


def _why(line: Line) -> Iterator[str]:
    declares = (
        f"declares torch{line.wheel.declares}" if line.wheel.declares else "declares no torch"
    )
    yield f"### {line.wheel.name}"
    yield ""
    yield f"The wheel {declares}."
    yield ""
    for name, trials in _by_library(line).items():
        yield f"- `{name}` {'; '.join(_grouped(trials))}"
    packages: dict[str, list[str]] = defaultdict(list)
    for cell in line.cells:
        packages[_found(cell.package.outcome, cell.package.message)].append(cell.torch)
    found = (f"{text} in torch {', '.join(torches)}" for text, torches in packages.items())
    yield f"- the package {'; '.join(found)}"


def _by_library(line: Line) -> dict[str, list[tuple[str, LibraryTrial]]]:
    found: dict[str, list[tuple[str, LibraryTrial]]] = defaultdict(list)
    for cell in line.cells:
        for library in cell.libraries:
            found[library.name].append((cell.torch, library))
    return found


def _grouped(trials: Iterable[tuple[str, LibraryTrial]]) -> Iterator[str]:
    groups: dict[str, list[str]] = defaultdict(list)
    for torch, library in trials:
        reason = "" if library.predicted == library.outcome == LOADS else library.reason
        groups[_found(library.outcome, reason)].append(torch)
    for text, torches in groups.items():
        yield f"{text} in torch {', '.join(torches)}"


def _found(outcome: str, message: str) -> str:
    line = message.split("\n", maxsplit=1)[0]
    first = line if len(line) <= LONGEST else f"{line[:LONGEST]}..."
    fence = "`` " if "`" in first else "`"
    return f"{outcome} ({fence}{first}{fence[::-1]})" if first else outcome


def _second_opinions(grid: Grid) -> Iterator[str]:
    tried = [
        (line.wheel.name, cell.torch, library)
        for line in grid.lines
        for cell in line.cells
        for library in cell.libraries
        if library.second and library.outcome in {LOADS, REFUSES}
    ]
    if not tried:
        yield "None: torch-abi-audit, if it is installed, predicts of the stable ABI alone."
        return
    other = [each for each in tried if (each[2].second == LOADS) != (each[2].outcome == LOADS)]
    right = sum(library.as_predicted for _, _, library in other)
    yield "torch-abi-audit says from which torch on the stable functions are there that a library"
    yield f"uses. That is a prediction for {len(tried)} of the loads above."
    if not other:
        yield "The loader did the same in all."
        return
    yield f"In {len(other)} of them the loader did otherwise, because a library needs more than"
    yield "torch's stable functions; torchproof, which resolves every symbol and library, was right"
    yield f"in {right} of these:"
    yield ""
    yield "| wheel | library | torch | torch-abi-audit | torchproof | the loader |"
    yield "|---|---|---|---|---|---|"
    for wheel, torch, library in other:
        ours = f"{library.predicted}: {library.reason}"
        name = library.name.rpartition("/")[2]
        second = library.second
        yield f"| {wheel} | `{name}` | {torch} | {second} | {ours} | {library.outcome} |"
