"""The libraries of a file, or of what is installed, each with the audit's verdict in one torch."""

import csv
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePath
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from torchproof.audit import LibraryReport, Report, elf
from torchproof.audit.apply_rules import judge
from torchproof.audit.artifact import (
    LIBRARY,
    Artifact,
    ArtifactError,
    Member,
    is_hollow,
    is_torch_library,
    named_torch,
    pinned_torch,
)
from torchproof.audit.elf_file import NotElfError
from torchproof.audit.isolated import Auditor
from torchproof.audit.policy import Policy
from torchproof.audit.text import shorten
from torchproof.audit.torches import Torch
from torchproof.doctor.diagnose import Diagnosis, complaint, diagnose
from torchproof.doctor.here import Here

LOADS, FAILS, NO_TORCH, NOT_RUN = "loads", "fails", "uses no torch", "not run"
LOADS_RULE = "loads"


@dataclass(frozen=True)
class Broken:
    """A rule of the audit that does not hold, beside what stops the library here."""

    rule: str
    found: str
    fix: str


@dataclass(frozen=True)
class Library:
    """One library, and what happens when it is loaded here.

    Attributes:
        package: what it is part of.
        name: its path inside that.
        outcome: "loads", "fails", "unsafe", "uses no torch", or "not run".
        reason: one sentence.
        diagnosis: why it does not load safely; None where it does.
        broken: what else the audit finds wrong with it.
    """

    package: str
    name: str
    outcome: str
    reason: str
    diagnosis: Diagnosis | None = None
    broken: tuple[Broken, ...] = ()


def of_file(path: Path, torch: Torch, here: Here) -> list[Library]:
    """The libraries of a wheel, library, folder or conda package.

    Raises:
        ArtifactError: it cannot be audited.
    """
    with Auditor(Policy(ceilings=here.system), [torch.path]) as auditor:
        report = auditor.audit(path)
    package = None
    if path.suffix == ".whl":
        package = str(parse_wheel_filename(path.name)[0])
    return [*_judged(report, here, package)]


def installed(torch: Torch, here: Here) -> list[Library]:
    """The libraries of every installed distribution that link against torch, but torch's own."""
    found: dict[str, list[Library]] = {}
    for distribution in distributions(path=[*here.packages]):
        try:
            name = canonicalize_name(distribution.metadata["Name"] or "")
            if name not in found and name != "torch":
                found[name] = [*_of_distribution(distribution, torch, here)]
        except (ValueError, csv.Error) as error:  # of text that no installer writes
            shown = _folder(distribution)
            reason = f"what pip wrote of it cannot be read: {shorten(error)}; install it again"
            found[shown] = [Library(shown, "", NOT_RUN, reason)]
    return [library for name in sorted(found) for library in found[name]]


def _of_distribution(distribution: Distribution, torch: Torch, here: Here) -> Iterator[Library]:
    members = tuple(_members(distribution))
    of_torch = any(need.name == "torch" for need in _requirements(distribution))
    linked = {member.name for member in members if _links_torch(member, unreadable=of_torch)}
    if not linked:
        return
    name, version = distribution.metadata["Name"], distribution.version
    shown = f"{name} {version}"
    artifact = Artifact(shown, members, torch=_declared_torch(distribution))
    try:
        report = judge(artifact, Policy(), [torch])
    except ArtifactError as error:
        yield Library(shown, "", FAILS, str(error))
        return
    for library in _judged(report, here, name):
        if library.name in linked or library.outcome != NO_TORCH:
            yield library


def _folder(distribution: Distribution) -> str:
    """The distribution of files that cannot be read, by the name of their folder."""
    try:
        parents = (file.parent.name for file in distribution.files or ())
        return next(name for name in parents if name.endswith((".dist-info", ".egg-info")))
    except (ValueError, csv.Error, StopIteration):
        return str(distribution.locate_file(""))


def _members(distribution: Distribution) -> Iterator[Member]:
    for file in _files(distribution):
        path = Path(str(distribution.locate_file(file)))
        if LIBRARY.fullmatch(file.name) and (elf.is_elf(path) or is_hollow(path)):
            yield Member(str(file), path)
    yield from _in_place(distribution)


def _files(distribution: Distribution) -> Iterable[PurePath]:
    """Its files; where `setup.py install` kept no list of them, those below its modules' names."""
    if any(map(distribution.read_text, ("RECORD", "installed-files.txt"))):
        return distribution.files or ()
    root = Path(str(distribution.locate_file("")))
    modules = filter(str.isidentifier, (distribution.read_text("top_level.txt") or "").split())
    found = (path for of in modules for to in (".*", "/**/*") for path in root.glob(f"{of}{to}"))
    return (path.relative_to(root) for path in sorted(found) if not path.is_symlink())


def _in_place(distribution: Distribution) -> Iterator[Member]:
    """The libraries that an editable install has beside its sources, and no RECORD names."""
    about = json.loads(distribution.read_text("direct_url.json") or "{}")
    if not about.get("dir_info", {}).get("editable"):
        return
    root = Path(url2pathname(urlsplit(about["url"]).path))
    for name, folders, files in os.walk(root):
        folder = Path(name)
        folders[:] = sorted(each for each in folders if not _is_made(folder / each))
        for path in (folder / file for file in sorted(files) if LIBRARY.fullmatch(file)):
            if elf.is_elf(path) and not path.is_symlink():
                yield Member(str(path.relative_to(root)), path)


def _is_made(folder: Path) -> bool:
    """Whether a folder of a project holds what nothing imports from there."""
    hidden = folder.name.startswith(".")
    return hidden or folder.name in {"build", "dist"} or (folder / "pyvenv.cfg").is_file()


def _links_torch(member: Member, *, unreadable: bool) -> bool:
    """Whether a library names one of torch's; `unreadable` is what is said of a damaged one."""
    try:
        return any(map(is_torch_library, elf.needed(member.path)))
    except (NotElfError, OSError):  # cut off, or a data file of that name
        return unreadable


def _declared_torch(distribution: Distribution) -> str | None:
    """The torch series that a distribution is for, by its version or by what it requires."""
    try:
        local = Version(distribution.version).local
    except InvalidVersion:
        local = None
    return named_torch(local or "") or pinned_torch(_requirements(distribution))


def _requirements(distribution: Distribution) -> Iterator[Requirement]:
    """What it requires; old packages have lines that no installer takes any more."""
    for line in distribution.requires or ():
        with suppress(InvalidRequirement):
            yield Requirement(line)


def _judged(report: Report, here: Here, package: str | None) -> Iterator[Library]:
    others = _for_other_torches(report, here)
    for library in report.libraries:
        if library.name in others:
            yield Library(report.artifact, library.name, NOT_RUN, others[library.name])
        else:
            yield _library(report.artifact, library, here, package)
    for sentence in report.unreadable:
        yield Library(report.artifact, "", FAILS, sentence)


def _for_other_torches(report: Report, here: Here) -> dict[str, str]:
    """The libraries that are not for this torch, where a package has one for each of several."""
    own = here.torch.series if here.torch else None
    named = {each.name: series for each in report.libraries if (series := named_torch(each.name))}
    if own not in named.values():
        return {}
    reason = "it is for torch {}, by its path, and the package has one for torch {}"
    return {name: reason.format(other, own) for name, other in named.items() if other != own}


def _library(artifact: str, library: LibraryReport, here: Here, package: str | None) -> Library:
    loads = next(finding for finding in library.findings if finding.rule == LOADS_RULE)
    if not library.verdicts:
        return Library(artifact, library.name, NO_TORCH, loads.expected)
    if loads.status == "not run":
        return Library(artifact, library.name, NOT_RUN, f"{loads.found}: {loads.expected}")
    (verdict,) = library.verdicts
    diagnosis = None
    if verdict.outcome != LOADS:
        diagnosis = diagnose(complaint(verdict), here, package)
    known = {LOADS_RULE, diagnosis.rule if diagnosis else LOADS_RULE}
    broken = (
        Broken(finding.rule, finding.found, finding.fix)
        for finding in library.failed
        if finding.rule not in known
    )
    return Library(
        artifact, library.name, verdict.outcome, verdict.reason, diagnosis, tuple(broken)
    )
