"""A grid as it grows: wheels, one after another, into every torch."""

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchproof.files import sha256
from torchproof.grid.prober import Prober
from torchproof.grid.trials import GridCell
from torchproof.grid.wheel_file import GridError, Wheel
from torchproof.machine.environments import Environment


@dataclass(frozen=True)
class Line:
    """A wheel, and a cell a torch."""

    wheel: Wheel
    sha256: str
    cells: tuple[GridCell, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.wheel.name,
            "built_on": self.wheel.built_on,
            "declares": self.wheel.declares,
            "sha256": self.sha256,
            "cells": [cell.to_dict() for cell in self.cells],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Line":
        """From its JSON values: what a table needs of the wheel, and its cells."""
        declares, built_on = value["declares"], value["built_on"]
        wheel = Wheel(Path(), value["name"], (), declares, "", built_on=built_on)
        return cls(wheel, value["sha256"], tuple(map(GridCell.from_dict, value["cells"])))


@dataclass(frozen=True)
class Refused:
    """A wheel that could not be tried; `error` is one sentence."""

    name: str
    error: str


@dataclass(frozen=True)
class Grid:
    """Lines, what they were tried in, and the wheels that have none."""

    environments: Mapping[str, Environment]
    lines: tuple[Line, ...]
    refused: tuple[Refused, ...] = ()

    @property
    def cells(self) -> tuple[GridCell, ...]:
        """All, a line after another."""
        return tuple(cell for line in self.lines for cell in line.cells)

    @property
    def proven(self) -> bool:
        """Whether every wheel and cell was tried, and none was other than predicted."""
        return not self.refused and all(cell.as_predicted and cell.run for cell in self.cells)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "torches": list(self.environments),
            "environments": [
                {"torch": each.torch, "python": each.python, "runs_on": each.flavour}
                for each in self.environments.values()
            ],
            "wheels": [line.to_dict() for line in self.lines],
            "refused": [vars(each) for each in self.refused],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Grid":
        """From its JSON values."""
        each = (
            Environment(Path(), found["torch"], found["python"], found["runs_on"])
            for found in value["environments"]
        )
        environments = dict(zip(value["torches"], each, strict=True))
        refused = tuple(Refused(**found) for found in value.get("refused", ()))
        return cls(environments, tuple(map(Line.from_dict, value["wheels"])), refused)


def lines(
    wheels: Iterable[Wheel], environments: Mapping[str, Environment], prober: Prober
) -> Iterator[Line | Refused]:
    """A line a wheel, as soon as its cells are known; one that is damaged does not end the grid."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for wheel in wheels:

            def probe(torch: str, wheel: Wheel = wheel) -> GridCell:
                installed = prober.install(wheel, environments[torch])
                return prober.cell(installed, environments[torch], torch)

            try:
                yield Line(wheel, sha256(wheel.path), tuple(pool.map(probe, environments)))
            except GridError as error:
                yield Refused(wheel.path.name, str(error))
