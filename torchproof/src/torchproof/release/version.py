"""The version: what says it besides its source, and whether all of it agrees."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import keepachangelog
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)

from torchproof import config
from torchproof.config import ROOT, project
from torchproof.errors import TorchproofError

CHANGELOG = ROOT / "CHANGELOG.md"
# Where a project has them; GitHub and Zenodo read the citation.
RECIPE = "recipe/recipe.yaml"
CITATION = ROOT / "CITATION.cff"


class ReleaseError(TorchproofError):
    """What keeps this from being a release, in one sentence that names the file."""


@dataclass(frozen=True)
class Place:
    """A place that says a version; None where it says none."""

    name: str
    version: str | None


def places(dist: Path | None = None, tag: str | None = None) -> Iterator[Place]:
    """Every place but the source that names the version.

    Args:
        dist: a folder of wheels and sdists; their file names say a version each.
        tag: the tag of the release, "v0.1.0".
    """
    if (ROOT / RECIPE).is_file():
        yield Place(RECIPE, config.recipe_version())
    yield Place(f"{CHANGELOG.name}, its newest entry", next(iter(entries()), None))
    if cited := _of_citation():
        yield Place(CITATION.name, cited)
    for path in sorted(dist.iterdir()) if dist else ():
        yield Place(path.name, _of_file(path))
    if tag is not None:
        yield Place(f"the tag {tag}", tag[1:] if tag.startswith("v") else None)


def disagreements(dist: Path | None = None, tag: str | None = None) -> list[str]:
    """A sentence for every place whose version is not that of the source."""
    version = config.version()
    return [
        f"{place.name}: expected version {version}, as in {project().version}; "
        f"found {place.version or 'none'}"
        for place in places(dist, tag)
        if place.version != version
    ]


def entries(*, unreleased: bool = False) -> dict[str, dict[str, list[str]]]:
    """The changelog: its released versions, newest first, each with its sections.

    Args:
        unreleased: what is not released yet, too, as "unreleased".
    """
    document = keepachangelog.to_dict(_changelog().splitlines(), show_unreleased=unreleased)
    return {
        version: {name: lines for name, lines in sections.items() if name != "metadata"}
        for version, sections in document.items()
    }


def notes(version: str) -> str:
    """The text of a version's entry, as it was written."""
    entry = rf"^## \[?{re.escape(version)}\]?(?=\s).*?\n(.*?)(?=^## |\Z)"
    found = re.search(entry, _changelog(), re.M | re.S)
    if found is None:
        raise ReleaseError(f"{CHANGELOG.name}: expected an entry [{version}], found none")
    return found.group(1).strip() + "\n"


def _changelog() -> str:
    if not CHANGELOG.is_file():
        raise ReleaseError(f"{CHANGELOG.name} is not there; a release has an entry in it")
    return config.read_text(CHANGELOG)


def _of_citation() -> str | None:
    text = config.read_text(CITATION) if CITATION.is_file() else ""
    found = re.search(r"^version:\s*[\"']?([^\"'\s#]+)", text, re.M)
    return found.group(1) if found else None


def _of_file(path: Path) -> str | None:
    try:
        if path.suffix == ".whl":
            return parse_wheel_filename(path.name)[1].public
        if path.name.endswith(".tar.gz"):
            return str(parse_sdist_filename(path.name)[1])
    except (InvalidSdistFilename, InvalidWheelFilename) as error:
        raise ReleaseError(f"{path.name}: {error}; take it out") from error
    return None
