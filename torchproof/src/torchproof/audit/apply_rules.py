"""Hold an artifact to a policy: open it, read each library, apply every rule."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from torchproof.audit import elf, facts
from torchproof.audit.against import resolve
from torchproof.audit.artifact import Artifact, ArtifactError, Member, named_torch, opened
from torchproof.audit.checks.system import bundled_torch
from torchproof.audit.elf import Elf
from torchproof.audit.elf_file import NotElfError
from torchproof.audit.facts import Facts
from torchproof.audit.findings import Finding, LibraryReport, Report
from torchproof.audit.outcome import Outcome, Subject, listed, not_run
from torchproof.audit.policy import Policy, default_policy
from torchproof.audit.rules import RULES, Rule
from torchproof.audit.torches import Torch, find_torch
from torchproof.files import sha256


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
        report = judge(artifact, held_to, torches)
    return replace(report, sha256=sha256(path) if path.is_file() else None)


def judge(artifact: Artifact, policy: Policy, torches: list[Torch]) -> Report:
    """Audit the libraries of an artifact that is open, or installed.

    Raises:
        ArtifactError: none can be read.
    """
    read, unreadable = _read_all(artifact)
    return Report(
        artifact=artifact.name,
        sha256=None,
        policy=policy,
        libraries=tuple(_library(artifact, m, policy, torches, read) for m in read),
        unreadable=unreadable,
    )


def _read_all(artifact: Artifact) -> tuple[dict[Member, tuple[Elf, Facts]], tuple[str, ...]]:
    """Each library that can be read, and a sentence for each that cannot."""
    read, unreadable = {}, []
    for member in artifact.members:
        try:
            elf_file = elf.read(member.path)
        except (NotElfError, OSError) as error:
            unreadable.append(f"{member.name} is no readable shared library: {error}")
        else:
            read[member] = elf_file, facts.derive(elf_file, member.name)
    if not read:
        text = f"{listed(unreadable)}; build it again"
        raise ArtifactError(text if text.startswith(artifact.name) else f"{artifact.name}: {text}")
    return read, tuple(unreadable)


def _library(
    artifact: Artifact,
    member: Member,
    policy: Policy,
    torches: list[Torch],
    read: Mapping[Member, tuple[Elf, Facts]],
) -> LibraryReport:
    elf_file, derived = read[member]
    others = tuple(facts for other, facts in read.items() if other != member)
    siblings = [other.path for other, _ in others]
    built_on = policy.torch or artifact.torch or named_torch(member.name)
    uses_torch = derived.binding != "none" and not member.is_torch
    verdicts = tuple(
        resolve(elf_file, derived, torch, built_on, siblings)
        for torch in (torches if uses_torch else ())
    )
    subject = Subject(artifact, member, elf_file, derived, policy, verdicts, others)
    outcomes = ((rule, _outcome(rule, subject)) for rule in RULES)
    return LibraryReport(
        name=member.name,
        facts=derived,
        findings=tuple(
            Finding(rule.id, o.status, o.found, o.expected, rule.why, rule.fix)
            for rule, o in outcomes
        ),
        verdicts=verdicts,
    )


def _outcome(rule: Rule, subject: Subject) -> Outcome:
    """A library of torch that was packed along is wrong as a whole: nothing else is asked of it."""
    if subject.member in subject.artifact.bundled and rule.check is not bundled_torch:
        return not_run("a library of torch", "bundled-torch already fails")
    return rule.check(subject)
