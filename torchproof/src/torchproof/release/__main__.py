"""`torchproof release`: build what is released into dist/, or check that it may be."""

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from torchproof import config, terminal
from torchproof.audit.apply_rules import audit
from torchproof.audit.artifact import ArtifactError
from torchproof.audit.policy import default_policy
from torchproof.errors import TorchproofError
from torchproof.files import write_atomically
from torchproof.release import platforms, sbom, tags, version
from torchproof.release.distributions import build, differences, epoch
from torchproof.release.version import ReleaseError

DIST = config.ROOT / "dist"
NOTES = config.ROOT / "build" / "notes.md"
SBOM = config.ROOT / "build" / "sbom"


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="torchproof release", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="the sdist and this platform's wheel, into dist/")
    check = commands.add_parser("check", help="versions, changelog, and the files in dist/")
    check.add_argument("--tag", help="the tag that is to be released, v0.1.0")
    check.add_argument(
        "--complete", action="store_true", help="dist/ must hold the sdist and every proven wheel"
    )
    check.add_argument("--json", action="store_true", help="print JSON on standard output")
    commands.add_parser("notes", help="the changelog's entry of this version, into build/notes.md")
    commands.add_parser("platforms", help="the platforms of matrix.toml, as JSON")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when nothing is wrong."""
    chosen = arguments(argv)
    console = terminal.console(stderr=True, soft_wrap=True)
    try:
        if chosen.command == "build":
            return build_release(console)
        if chosen.command == "platforms":
            print(json.dumps([asdict(platform) for platform in config.load().platforms]))
            return 0
        if chosen.command == "notes":
            return write_notes(console)
        return check_release(chosen, console)
    except TorchproofError as error:
        terminal.print_error(console, error)
        return 2


def build_release(console: Console) -> int:
    """Build, compare, tag, audit and describe; dist/ is replaced only by what passed."""
    with tempfile.TemporaryDirectory(prefix="torchproof-release-") as folder, epoch(config.ROOT):
        scratch = Path(folder)
        built = build(config.ROOT, scratch)
        if found := differences(built.wheel, built.from_tree):
            raise ReleaseError(
                "the wheel from the sdist is not the one from the tree, they differ in "
                + ", ".join(found)
            )
        tagged = tags.retag(built.wheel, scratch / "tagged")
        wheel = sbom.embed(tagged, scratch)
        objections = hold(wheel)
        if objections:
            raise ReleaseError(f"{wheel.name} may not be released: {'; '.join(objections)}")
        bill = sbom.document(wheel)
        for target in (DIST, SBOM):
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
        for path in (built.sdist, wheel):
            shutil.copy2(path, DIST)
        (SBOM / f"{wheel.name}.cdx.json").write_text(bill, encoding="utf-8")
    console.print("the wheel from the sdist equals the one from the tree, byte for byte")
    for path in (*sorted(DIST.iterdir()), *sorted(SBOM.iterdir())):
        console.print(f"{path.relative_to(config.ROOT)}  {path.stat().st_size / 1024:.0f} KiB")
    return 0


def hold(wheel: Path) -> list[str]:
    """What speaks against a wheel: its name is not what it is, or it breaks a rule.

    Those for macOS and Windows are not read.
    """
    if platforms.is_unread(wheel):
        return []
    matrix = config.load()
    policy = replace(
        default_policy(),
        binding="stable",
        target=matrix.stable.target,
        torch=matrix.stable.headers,
        python="none",
        cuda="cpu",
    )
    try:
        report = audit(wheel, policy)
        if report.unreadable:
            return [*report.unreadable]
        claimed, measured = tags.claimed(wheel), tags.measured(wheel)
    except (ArtifactError, ReleaseError) as error:
        return [str(error)]
    objections = [f"it breaks the audit's rule {rule}" for rule in report.failed_rules()]
    if claimed != measured:
        objections.insert(0, f"its name says {claimed}, auditwheel and abi3info say {measured}")
    return objections


def write_notes(console: Console) -> int:
    """Write what the changelog says of this version, as a release shows it."""
    write_atomically(NOTES, version.notes(config.version()))
    console.print(NOTES.relative_to(config.ROOT))
    return 0


def check_release(chosen: argparse.Namespace, console: Console) -> int:
    """Whether every place agrees on the version, and every wheel in dist/ is what its name says."""
    expected = config.version()
    dist = DIST if DIST.is_dir() else None
    found = version.disagreements(dist, chosen.tag)
    if not any(version.entries().get(expected, {}).values()):
        found.append(f"{version.CHANGELOG.name}: the entry {expected} says nothing of what changed")
    if chosen.tag and any(version.entries(unreleased=True).get("unreleased", {}).values()):
        found.append(
            f"{version.CHANGELOG.name}: [Unreleased] has changes, which {chosen.tag} would release "
            f"without a note; move them to the entry {expected}"
        )
    wheels = sorted(DIST.glob("*.whl")) if dist else []
    for wheel in wheels:
        found += [f"{wheel.name}: {objection}" for objection in hold(wheel)]
    if chosen.complete:
        found += platforms.missing(config.load(), sorted(DIST.glob("*")))
    if chosen.json:
        print(json.dumps({"version": expected, "problems": found}, indent=1))
    else:
        table = Table("place", "version", title=f"release {expected}")
        for place in version.places(dist, chosen.tag):
            table.add_row(place.name, place.version or "none")
        console.print(table)
    for problem in found:
        console.print(problem, style="red")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
