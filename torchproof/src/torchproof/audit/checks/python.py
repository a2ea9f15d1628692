"""Which Python it can load in."""

import re
from pathlib import PurePath

from packaging.tags import Tag
from packaging.version import Version

from torchproof import config
from torchproof.audit import abi3
from torchproof.audit.outcome import Outcome, Subject, failed, judged, listed, not_run

INITS = ("PyInit", "PyModExport")
CPYTHON = re.compile(r"cp3(\d+)")
MODULE = re.compile(r"(?P<name>[^.]+)\.(?:abi3|cpython-\d+[a-z]*-.+)\.so")


def _abi3_tags(subject: Subject) -> list[Tag]:
    return [tag for tag in subject.artifact.tags if tag.abi == "abi3"]


def _levels(tags: list[Tag]) -> list[str]:
    """The CPythons that the tags name: "3.10" of cp310-abi3, none of py3-abi3."""
    return [f"3.{match[1]}" for tag in tags if (match := CPYTHON.fullmatch(tag.interpreter))]


def python_abi3(subject: Subject) -> Outcome:
    """A library that says abi3 keeps to the limited API."""
    wheel = _abi3_tags(subject)
    python = subject.facts.python
    if python == "none":
        return not_run("no Python API", "it does not use Python's C API")
    if python != "abi3" and not wheel:
        return not_run(python, "it does not claim abi3")
    baseline = min(_levels(wheel), key=Version, default=config.audit().abi3)
    verdict = abi3.check(subject.elf, baseline)
    found = f"uses CPython {verdict.computed}"
    if verdict.foreign:
        found = f"outside the limited API: {listed(verdict.foreign)}"
    return judged(verdict.sound, found, f"abi3 of CPython {baseline}")


def python_tag(subject: Subject) -> Outcome:
    """The Python a wheel or row claims is the one the library was built for."""
    found, wheel = subject.facts.python, _abi3_tags(subject)
    if wheel and not _levels(wheel):
        unknown = sorted(f"{tag.interpreter}-abi3" for tag in wheel)
        return failed(", ".join(unknown), "cp310-abi3 or the like: no installer takes another")
    claims = {_claimed(tag.interpreter, tag.abi) for tag in subject.artifact.tags}
    declared = {subject.policy.python} if subject.policy.python else claims
    if not declared:
        return not_run(found, "neither a wheel's tag nor the row claims a Python")
    wanted = " or ".join(sorted(declared))
    if found == "none" and subject.policy.python is None:
        # Another library of the wheel may be the reason for its tag.
        needless = "none" not in claims and not any(f.python != "none" for _, f in subject.others)
        return judged(not needless, "none in any library" if needless else found, wanted)
    if declared == {"none"} and len(_pythons_of_module(subject)) > 1:
        return not_run(found, "the wheel has this module for several Pythons")
    fits = found in declared or (found == "cpython" and any(c != "none" for c in declared))
    return judged(fits, found, wanted)


def _pythons_of_module(subject: Subject) -> set[str]:
    """The files of a module in the artifact, of which each Python takes its own."""
    path = PurePath(subject.member.name)
    module = MODULE.fullmatch(path.name)
    files = (PurePath(member.name) for member in subject.artifact.members)
    beside = (MODULE.fullmatch(file.name) for file in files if file.parent == path.parent)
    return {each.string for each in beside if each and module and each["name"] == module["name"]}


def module_init(subject: Subject) -> Outcome:
    """A file that is named as a module of Python has the init function of that name."""
    inits = [symbol.name for symbol in subject.elf.exported if symbol.name.startswith(INITS)]
    found = listed(inits) or "no init function"
    module = MODULE.fullmatch(subject.member.path.name)
    if module is None:
        return not_run(found, "it is not named as a module: no ABI is in its name")
    if subject.facts.python == "none":  # it may be for torch.ops.load_library alone
        return not_run(found, "it does not use Python's C API")
    wanted = _init_functions(module["name"])
    return judged(not wanted.isdisjoint(inits), found, " or ".join(sorted(wanted)))


def _init_functions(module: str) -> set[str]:
    """As PEP 489 spells it, and PEP 793 of CPython 3.15."""
    if module.isascii():
        return {f"{prefix}_{module}" for prefix in INITS}
    spelled = module.encode("punycode").decode("ascii").replace("-", "_")
    return {f"{prefix}U_{spelled}" for prefix in INITS}


def _claimed(interpreter: str, abi: str) -> str:
    if abi == "none":
        return "none"
    return "abi3" if abi == "abi3" else f"cpython-{abi.removeprefix('cp')}"
