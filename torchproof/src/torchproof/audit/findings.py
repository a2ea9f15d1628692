"""The result of an audit, as plain data, as JSON and as a table."""

import dataclasses
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchproof import terminal
from torchproof.audit.against import Verdict
from torchproof.audit.facts import Facts
from torchproof.audit.outcome import Status, listed
from torchproof.audit.policy import Policy
from torchproof.audit.symbols import brief

COLOURS = {
    "passed": "green",
    "failed": "bold red",
    "not run": "dim",
    "loads": "green",
    "fails": "bold red",
    "unsafe": "bold yellow",
}


@dataclass(frozen=True)
class Finding:
    """What one rule found in one library."""

    rule: str
    status: Status
    found: str
    expected: str
    why: str
    fix: str


@dataclass(frozen=True)
class LibraryReport:
    """One library: its facts, every rule's finding, and its verdict in each torch named."""

    name: str
    facts: Facts
    findings: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The rules that it breaks."""
        return tuple(finding for finding in self.findings if finding.status == "failed")


@dataclass(frozen=True)
class Report:
    """The audit of one artifact.

    Attributes:
        artifact: its file name.
        sha256: the hash of the file; None for a folder.
        policy: what it was held to.
        libraries: one report for each extension or plain library in it.
        unreadable: a sentence for each library that could not be read.
    """

    artifact: str
    sha256: str | None
    policy: Policy
    libraries: tuple[LibraryReport, ...]
    unreadable: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every library was read and no rule failed."""
        return not self.unreadable and not any(library.failed for library in self.libraries)

    def failed_rules(self) -> tuple[str, ...]:
        """The ids of the rules that failed, each once."""
        return tuple(dict.fromkeys(f.rule for library in self.libraries for f in library.failed))

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {**dataclasses.asdict(self), "ok": self.ok, "failed": list(self.failed_rules())}


@dataclass(frozen=True)
class Refusal:
    """An input that could not be audited; `error` is one sentence."""

    artifact: str
    error: str

    @property
    def ok(self) -> bool:
        """Never."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """The refusal as JSON values."""
        return {**dataclasses.asdict(self), "ok": self.ok}


def to_json(reports: Iterable[Report | Refusal]) -> str:
    """The machine-readable twin of the tables."""
    return json.dumps([report.to_dict() for report in reports], indent=1)


def render(report: Report, console: Console) -> None:
    """Write an artifact's audit as tables."""
    console.rule(Text(report.artifact, style="bold"))
    if report.sha256:
        console.print(Text(f"sha256 {report.sha256}", style="dim"))
    for library in report.libraries:
        console.print(_facts_table(library))
        console.print(_findings_table(library))
        console.print(_not_run_table(library))
        if library.verdicts:
            console.print(_verdicts_table(library))
        for finding in library.failed:
            console.print(_advice(finding))
    for sentence in report.unreadable:
        console.print(Text(sentence, style="bold red"))
    console.print(_summary(report))


def _facts_table(library: LibraryReport) -> Table:
    table = Table(box=None, show_header=False, title=library.name, title_justify="left")
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _facts_rows(library.facts):
        table.add_row(name, Text(value))
    return table


def _facts_rows(facts: Facts) -> Iterator[tuple[str, str]]:
    yield "binding", facts.binding
    if facts.torch_cxx:
        yield "tied to torch", f"by {listed(facts.torch_cxx, brief)}"
    if facts.lowest_torch:
        yield "lowest torch", f"{facts.lowest_torch}, from {len(facts.shims)} stable functions"
    yield "Python", facts.python
    needs = facts.needs
    versions = {"GLIBC": needs.glibc, "GLIBCXX": needs.glibcxx, "CXXABI": needs.cxxabi}
    yield "needs", ", ".join(f"{name} {value or '-'}" for name, value in versions.items())
    systems = ", ".join(facts.oldest_systems) or "no release that is known"
    yield "oldest systems", f"{systems} ({facts.manylinux})"
    yield "compiler", str(facts.compiler or "not named")
    if facts.cuda_images:
        made = f", made by CUDA {', '.join(facts.cuda_releases)}" if facts.cuda_releases else ""
        yield "device code", ", ".join(facts.cuda_images) + made


def _findings_table(library: LibraryReport) -> Table:
    table = terminal.table("rule", "status", folded=("found", "held to"))
    for finding in library.findings:
        if finding.status != "not run":
            status = Text(finding.status, style=COLOURS[finding.status])
            table.add_row(finding.rule, status, Text(finding.found), Text(finding.expected))
    return table


def _not_run_table(library: LibraryReport) -> Table:
    table = terminal.table("not run", folded=("because", "found"), style="dim")
    for finding in library.findings:
        if finding.status == "not run":
            table.add_row(finding.rule, Text(finding.expected), Text(finding.found))
    return table


def _verdicts_table(library: LibraryReport) -> Table:
    table = terminal.table("torch", "verdict", folded=("reason",))
    for verdict in library.verdicts:
        outcome = Text(verdict.outcome, style=COLOURS[verdict.outcome])
        table.add_row(verdict.torch, outcome, Text(verdict.reason))
    return table


def _advice(finding: Finding) -> Text:
    return Text.assemble(
        (f"{finding.rule}: ", "bold red"), f"{finding.why} ", (finding.fix, "bold")
    )


def _summary(report: Report) -> Text:
    count = dict.fromkeys(("passed", "failed", "not run"), 0)
    for library in report.libraries:
        for finding in library.findings:
            count[finding.status] += 1
    text = ", ".join(f"{number} {status}" for status, number in count.items())
    text += f", {len(report.unreadable)} unreadable" if report.unreadable else ""
    return Text(f"{report.artifact}: {text}", style="green" if report.ok else "bold red")
