"""A message to the rule it breaks: the first row of the table that fits."""

import csv
import re
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from inspect import getmodulename

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from torchproof.audit import Verdict, shims, symbols
from torchproof.audit.artifact import LIBRARY
from torchproof.audit.text import shorten
from torchproof.doctor.here import Here
from torchproof.doctor.symptoms import SYMPTOMS, Fix, Symptom

BARE_SYMBOL = re.compile(r"_Z\w+|(?:aoti_)?torch_\w+")
MODULE = re.compile(r"(?:site|dist)-packages/([A-Za-z_]\w*)")
PLACEHOLDER = "NAME"
COLOUR = re.compile(r"\x1b\[[\d;]*[mK]")  # of a terminal, which logs and CPython's tracebacks have


@dataclass(frozen=True)
class Diagnosis:
    """The rule that is broken, its cause in one sentence, and the commands that fix it."""

    rule: str
    cause: str
    fixes: tuple[Fix, ...]


def diagnose(text: str, here: Here, package: str | None = None) -> Diagnosis | None:
    """The diagnosis of a message, or of a symbol alone; None when no row of the table fits.

    It is about `package`, or, when that is None, about the one that the message names.
    """
    text = COLOUR.sub("", text).strip()
    if BARE_SYMBOL.fullmatch(text):
        text = f"undefined symbol: {text}"
    for symptom in SYMPTOMS:
        found = symptom.pattern.search(text)
        if found and symptom.applies(found.groupdict().get("symbol", ""), here):
            return _filled(symptom, found, text, here, package)
    return None


def complaint(verdict: Verdict) -> str:
    """What the loader prints where the audit's verdict comes true; else the verdict's reason."""
    if not verdict.missing:
        return verdict.reason
    first = verdict.missing[0]
    version, _, library = first.partition(" of ")
    if library:
        return f"{library}: version `{version}' not found"
    if LIBRARY.fullmatch(first):
        return f"{first}: cannot open shared object file: No such file or directory"
    return f"undefined symbol: {first}"


def _filled(
    symptom: Symptom, found: re.Match[str], text: str, here: Here, package: str | None
) -> Diagnosis:
    values = _values(found, text, here, package)
    return Diagnosis(
        symptom.rule,
        symptom.cause.format_map(values),
        tuple(
            Fix(fix.command.format_map(values), fix.note.format_map(values))
            for fix in symptom.fixes
        ),
    )


def _values(
    found: re.Match[str], text: str, here: Here, package: str | None
) -> dict[str, str | None]:
    """What the texts of a row may name."""
    groups = {name: value for name, value in found.groupdict().items() if value}
    module = groups.get("module") or groups.get("namespace") or _module(text) or PLACEHOLDER
    raw = groups.get("symbol", "")
    shim = shims.table().get(raw)
    system = here.system
    return groups | {
        "symbol": symbols.brief(raw),
        "written": shorten(symbols.demangle(raw)),
        "since": shim.since if shim else None,
        "removed": shim.removed if shim else None,
        "newest": shims.newest_torch(),
        "module": module,
        "package": package or _of_wheel(groups.get("wheel")) or _distribution(module, here),
        "torch": here.torch_shown,
        "release": here.torch.version.split("+")[0] if here.torch else "VERSION",
        "python": here.python,
        "tag": here.tag,
        "glibc": system.glibc or "of an unknown version",
        "glibcxx": system.glibcxx or "(unknown)",
        "cxxabi": system.cxxabi or "(unknown)",
        "driver": here.driver or "which nvidia-smi does not report",
    }


def _of_wheel(name: str | None) -> str | None:
    """The distribution whose wheel has that file name."""
    with suppress(InvalidWheelFilename):
        return parse_wheel_filename(name)[0] if name else None
    return None


def _module(text: str) -> str | None:
    """The module whose file a message names last: that is the library which did not load."""
    named = [name for name in MODULE.findall(text) if name != "torch"]
    return named[-1] if named else None


def _distribution(module: str, here: Here) -> str:
    """The distribution that installs a module."""
    for distribution in distributions(path=[*here.packages]):
        with suppress(ValueError, csv.Error):  # what an installer wrote of one is damaged
            if module in _modules(distribution):
                return str(distribution.metadata["Name"])
    return module


def _modules(distribution: Distribution) -> set[str]:
    """The names that it is imported by; an editable install has files of none."""
    stated = set((distribution.read_text("top_level.txt") or "").split())
    return stated or {
        getmodulename(file.parts[0]) or file.parts[0] for file in distribution.files or ()
    }
