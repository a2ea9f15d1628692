"""Hold an artifact to a policy: open it, read each library, apply every rule."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from matrix.audit import elf, facts
from matrix.audit.against import resolve
from matrix.audit.artifact import ArtifactError, opened
from matrix.audit.fatbin import FatbinError
from matrix.audit.policy import default_policy
from matrix.audit.report import Finding, LibraryReport, Report
from matrix.audit.rules import RULES, Subject, is_torch_library
from matrix.audit.torches import find_torch

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from matrix.audit.artifact import Artifact, Member
    from matrix.audit.policy import Policy
    from matrix.audit.torches import Torch


def audit(path: Path, policy: Policy | None = None, against: Iterable[Path] = ()) -> Report:
    """Audit a library, wheel, folder or conda package.

    Args:
        path: the artifact.
        policy: what it is held to; the project's ceilings alone when None.
        against: installed torches to resolve it in, as find_torch() takes them.

    Raises:
        ArtifactError: the artifact cannot be read.
        NotTorchError: a folder named in `against` holds no torch.
    """
    held_to = policy or default_policy()
    torches = [find_torch(place) for place in against]
    with opened(path) as artifact:
        own = [member for member in artifact.members if is_torch_library(member)]
        rest = [member for member in artifact.members if member not in own]
        return Report(
            artifact=artifact.name,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None,
            policy=held_to,
            libraries=tuple(_library(artifact, m, held_to, torches) for m in rest or own),
            skipped={m.name: "it is a library of torch itself" for m in (own if rest else ())},
        )


def _library(
    artifact: Artifact, member: Member, policy: Policy, torches: list[Torch]
) -> LibraryReport:
    try:
        facts_of_elf = elf.read(member.path)
        derived = facts.derive(facts_of_elf, member.name)
    except (elf.NotElfError, FatbinError) as error:
        raise ArtifactError(f"{artifact.name}: {member.name}: {error}") from error
    siblings = [other.path for other in artifact.members]
    built_on = policy.torch or artifact.torch
    verdicts = tuple(resolve(facts_of_elf, derived, t, built_on, siblings) for t in torches)
    subject = Subject(artifact, member, facts_of_elf, derived, policy, verdicts)
    outcomes = ((rule, rule.check(subject)) for rule in RULES)
    return LibraryReport(
        name=member.name,
        facts=derived,
        findings=tuple(
            Finding(rule.id, o.status, o.found, o.expected, rule.why, rule.fix)
            for rule, o in outcomes
        ),
        verdicts=verdicts,
    )
