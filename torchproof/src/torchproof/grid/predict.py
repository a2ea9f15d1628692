"""What a wheel will do in a torch, from its files alone."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from torchproof.audit import ArtifactError, audit
from torchproof.audit.policy import default_policy
from torchproof.config import series
from torchproof.grid.trials import FAILS, LOADS, SEVERITY, UNSAFE, UNSUPPORTED, WORKS
from torchproof.grid.wheel import GridError, Wheel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchproof.audit import Verdict
    from torchproof.machine.environments import Environment


def libraries(wheel: Wheel, environment: Environment) -> dict[str, Verdict]:
    """The audit's verdict on each library that uses torch, by its path in the wheel.

    Raises:
        GridError: the wheel cannot be read.
    """
    policy = default_policy()
    if wheel.built_on:
        policy = replace(policy, torch=series(wheel.built_on))
    try:
        report = audit(wheel.path, policy, [environment.site_packages])
    except ArtifactError as error:
        if "no ELF" in str(error):
            return {}
        raise GridError(str(error)) from error
    return {found.name: verdict for found in report.libraries for verdict in found.verdicts}


def package(wheel: Wheel, torch: str, verdicts: Mapping[str, Verdict]) -> tuple[str, str]:
    """What importing and using the package will do, and why."""
    used = [
        (verdict.outcome, f"{name}: {verdict.reason}")
        for name, verdict in verdicts.items()
        if any(fnmatch(name, pattern) for pattern in wheel.uses)
    ]
    worst, reason = max(
        used, key=lambda each: SEVERITY.index(each[0]), default=(LOADS, "no library needs torch")
    )
    if worst == FAILS:
        return FAILS, reason
    if not wheel.admits(torch):
        return UNSUPPORTED, f"its metadata declares torch{wheel.declares}"
    return (UNSAFE, reason) if worst == UNSAFE else (WORKS, reason)
