"""Levels: rows whose libraries are held to less than the processor has."""

from collections.abc import Mapping

from torchproof.config import Level
from torchproof.machine.processor import Processor

# MKL is held only on processors of its maker, and reports what it likes on others.
ADVISORY = ("MKL",)
# By which a script of machine.emulation chooses the processor that QEMU emulates.
CPU = "QEMU_CPU"


def environment(level: Level | None) -> dict[str, str]:
    """The variables that hold the libraries to a level; none for the processor's own."""
    if level is None:
        return {}
    emulated = {CPU: level.emulated} if level.emulated else {}
    return dict(each.split("=", 1) for each in level.environment) | emulated


def unavailable_reason(level: Level | None, processor: Processor) -> str:
    """Why a level cannot be run on a processor; empty where it can."""
    if level is None or level.emulated:
        return ""
    if missing := _missing(level, processor):
        return f"the level {level.name} needs {', '.join(missing)}, which {processor.title} lacks"
    if is_own(level, processor):
        return (
            f"{processor.title} has no {' or '.join(level.above)} that the level {level.name} "
            f"would hold back: the rows at host ran at that level"
        )
    return ""


def is_own(level: Level, processor: Processor) -> bool:
    """Whether all that the processor has is the level's: its rows at host run at it."""
    more = any(name in processor.instruction_sets for name in level.above)
    return not (level.emulated or more or _missing(level, processor))


def _missing(level: Level, processor: Processor) -> list[str]:
    return [name for name in level.needs if name not in processor.instruction_sets]


def beyond(level: Level | None, in_use: Mapping[str, str | None]) -> dict[str, str]:
    """The libraries that use more than a level has, and what each reports."""
    hidden = level.hidden if level else ()
    return {
        library: report
        for library, report in in_use.items()
        if report is not None and any(word in report.upper() for word in hidden)
    }
