"""Which torch it can load in: the binding, the stable functions, the linked libraries."""

import re

from packaging.version import Version

from torchproof.audit import shims, symbols
from torchproof.audit.artifact import is_torch_library
from torchproof.audit.outcome import Outcome, Subject, failed, judged, listed, not_run, passed


def binding(subject: Subject) -> Outcome:
    """The binding that was declared is the one that was built."""
    facts, declared = subject.facts, subject.policy.binding
    count = len(facts.torch_cxx)
    found = f"{facts.binding}: {count} C++ symbols of torch" if count else facts.binding
    if declared is None:
        return not_run(found, "no binding is declared")
    if facts.binding == "none" and any(of.binding == declared for _, of in subject.others):
        return not_run(found, "another library of the package uses torch")
    if declared == "stable" and count:
        return failed(f"{found}, {listed(facts.torch_cxx, symbols.brief)}", declared)
    return judged(facts.binding == declared, found, declared)


def stable_target(subject: Subject) -> Outcome:
    """Every stable function is there in the lowest torch that is declared."""
    facts, target = subject.facts, subject.policy.target
    if not facts.shims:
        return not_run(facts.binding, "it uses no function of torch's stable C API")
    unknown = [name for name, since in facts.shims.items() if since is None]
    if unknown:
        return failed(f"{listed(unknown)}: in no torch that shims.json knows", f"torch {target}")
    found = f"needs torch {facts.lowest_torch}" if facts.lowest_torch else "native"
    if target is None:
        return not_run(found, "no lowest torch is declared (--target)")
    newer = {
        since: [name for name, first in facts.shims.items() if first == since]
        for since in sorted({s for s in facts.shims.values() if s}, key=Version, reverse=True)
        if Version(since) > Version(target)
    }
    detail = "; ".join(f"{listed(names)} is of torch {since}" for since, names in newer.items())
    return failed(detail, f"torch {target}") if newer else passed(found, f"torch {target}")


def torch_linked(subject: Subject) -> Outcome:
    """Every library of torch that it takes symbols from is a NEEDED entry."""
    facts = subject.facts
    if facts.binding == "none":
        return not_run("no symbol of torch", "it uses no torch")
    known = shims.table()
    devices = {known[name].device for name in facts.shims if name in known} - {None}
    devices |= {"cuda" for name in facts.torch_cxx if re.search(r"\b(?:c10|at)::cuda::", name)}
    found = [name for name in _brought(subject) if is_torch_library(name)]
    linked = bool(found) and all(any(f"_{of}" in name for name in found) for of in devices)
    wanted = " and ".join(f"libtorch_{of}.so" for of in sorted(filter(None, devices)))
    return judged(linked, ", ".join(found) or "none", wanted or "a library of torch")


def _brought(subject: Subject) -> list[str]:
    """The libraries that it needs, and those that libraries of its package need for it."""
    package = {elf.path.name: elf.needed for elf, _ in subject.others}
    names = [*subject.facts.needed]
    for name in names:
        names += (each for each in package.get(name, ()) if each not in names)
    return names


def torch_python(subject: Subject) -> Outcome:
    """It names torch's Python binding as NEEDED only where it uses Python."""
    facts = subject.facts
    linked = [name for name in facts.needed if name.startswith("libtorch_python")]
    uses = facts.python != "none" or any("THP" in name for name in facts.torch_cxx)
    found = f"{listed(linked) or 'not linked'}, {'some' if uses else 'no'} symbol of Python"
    return judged(uses or not linked, found, "not linked without a symbol of Python")


TORCH_CUDA = "libtorch_cuda.so"


def loads(subject: Subject) -> Outcome:
    """It loads, safely, in every torch that was named."""
    if subject.facts.binding == "none":
        return not_run("no symbol of torch", "it uses no torch")
    if not subject.verdicts:
        return not_run("no torch named", "name installations with --against")
    # A package may keep its CUDA code apart, and open it beside a torch with CUDA alone.
    apart = any(TORCH_CUDA not in facts.needed for _, facts in subject.others)
    without = [v.torch for v in subject.verdicts if apart and v.missing[:1] == (TORCH_CUDA,)]
    judged_in = [v for v in subject.verdicts if v.torch not in without]
    if not judged_in:
        return not_run(f"{', '.join(without)}: no CUDA", "another library of the package serves it")
    torches = {
        outcome: [v.torch for v in judged_in if v.outcome == outcome]
        for outcome in ("loads", "fails", "unsafe")
    }
    found = "; ".join(f"{outcome} in {', '.join(of)}" for outcome, of in torches.items() if of)
    return judged(not torches["fails"] and not torches["unsafe"], found, "loads in each")
