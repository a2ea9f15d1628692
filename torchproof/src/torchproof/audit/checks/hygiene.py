"""What it does to the process it is loaded into, and what it keeps for a debugger."""

from torchproof.audit import symbols
from torchproof.audit.elf import Symbol
from torchproof.audit.outcome import Outcome, Subject, judged, listed, matches, not_run


def executable_stack(subject: Subject) -> Outcome:
    """The stack stays data."""
    found = "executable" if subject.elf.executable_stack else "not executable"
    return judged(not subject.elf.executable_stack, found, "not executable")


def relro(subject: Subject) -> Outcome:
    """Relocated data is read-only once it is loaded."""
    found = "none" if not subject.elf.relro else "full" if subject.elf.bind_now else "partial"
    return judged(subject.elf.relro, found, "partial or full")


def text_relocations(subject: Subject) -> Outcome:
    """Code is never written to."""
    found = "present" if subject.elf.text_relocations else "none"
    return judged(not subject.elf.text_relocations, found, "none")


def exports(subject: Subject) -> Outcome:
    """It exports its init function, what its own package takes from it, and nothing else."""
    if subject.facts.binding == "none" and subject.facts.python == "none":
        return not_run("a plain library", "exporting is what a plain library is for")
    wanted = {symbol.name for elf, _ in subject.others for symbol in elf.undefined}
    strange = [
        symbol.name
        for symbol in subject.elf.exported
        if symbol.name not in wanted and not _may_export(symbol, subject)
    ]
    found = listed(strange, symbols.brief) or "init function at most"
    return judged(not strange, found, "the init function, or what its package uses")


def _may_export(symbol: Symbol, subject: Subject) -> bool:
    """Symbols of std are in every library, weak ones of torch's and pybind11's headers in most.

    Only the headers of the stable ABI hide what they define.
    """
    inline = subject.facts.binding != "stable"
    return (
        matches(symbol.name, ("PyInit_*", *subject.policy.exports))
        or symbols.is_std(symbol.name)
        or (inline and symbol.weak and symbols.is_torch_inline(symbol.name))
    )


def debug_info(subject: Subject) -> Outcome:
    """A debug build holds what a debugger needs."""
    parts = {"symbol table": subject.elf.symbol_table, "debug information": subject.elf.debug_info}
    found = " and ".join(name for name, there in parts.items() if there) or "stripped"
    if not subject.policy.debug:
        return not_run(found, "it is not declared a debug build")
    return judged(all(parts.values()), found, " and ".join(parts))
