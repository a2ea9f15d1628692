"""Wheels that others have released: a list of them, and what each is tried with."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from torchproof import config
from torchproof.grid.wheel_file import GridError, Wheel, read_wheel
from torchproof.machine.processes import Processes, reason_in

LIMIT_S = 600.0


@dataclass(frozen=True)
class Released:
    """A line of a list.

    Attributes:
        wheel: what pip downloads, `torchvision==0.25.0`.
        smoke: a program that computes something with it, and raises where the result is wrong.
        package: a program that imports it, where its first folder is not it.
        uses: patterns of the libraries that this needs.
    """

    wheel: str
    line: int
    smoke: str = ""
    package: str = ""
    uses: tuple[str, ...] = ("*",)


@dataclass(frozen=True)
class Absent:
    """What is missing in a list, and why."""

    name: str
    reason: str
    line: int


@dataclass(frozen=True)
class ReleasedList:
    """A file of them; `torch` names the releases that they are tried in."""

    torch: tuple[str, ...]
    wheels: tuple[Released, ...]
    absent: tuple[Absent, ...]


def read(path: Path) -> ReleasedList:
    """Read a list."""
    if not path.exists():
        raise GridError(f"{path} does not exist; name a list of wheels, *.toml")
    text = config.read_text(path)
    try:
        source = config.Source.of(text)
        return ReleasedList(
            torch=tuple(source.document.get("torch", ())),
            wheels=config.read_rows(source, "wheels", Released),
            absent=config.read_rows(source, "absent", Absent),
        )
    except config.ConfigError as error:
        raise config.ConfigError(f"{path}: {error}") from None


def download(each: Released, folder: Path, processes: Processes) -> Wheel:
    """The wheel, by pip, or as it is there from another time."""
    name, _, version = each.wheel.partition("==")
    found = sorted(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
        ended = processes.run(
            [*command, "--dest", folder, each.wheel],
            log=folder / "download.log",
            limit=LIMIT_S,
            cwd=folder,
        )
        found = sorted(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
        if not found:
            raise GridError(
                f"line {each.line}: pip fetched no wheel of {each.wheel} for this Python: "
                f"{ended.explain(LIMIT_S)}{reason_in(folder / 'download.log')}"
            )
    wheel = read_wheel(found[0])
    package = each.package or wheel.package
    return replace(wheel, name=each.wheel, package=package, smoke=each.smoke, uses=each.uses)
