"""Which system it can load on: platform, symbol versions, linked libraries, search path."""

import re

from packaging.version import Version

from torchproof.audit import manylinux as policies
from torchproof.audit.artifact import is_torch_library
from torchproof.audit.elf import MUSL, Elf
from torchproof.audit.outcome import (
    Outcome,
    Subject,
    failed,
    judged,
    listed,
    matches,
    not_run,
    passed,
)
from torchproof.audit.policy import CPU
from torchproof.audit.symbols import brief

CUDA_LIBRARIES = ("libcudart.so.*", "libcu*.so.*", "libnv*.so.*", "libnccl.so.*")
LOADER = ("ld-linux*.so.*", *MUSL)
ORIGINS = ("$ORIGIN", "${ORIGIN}")
LINUX_TAG = re.compile(
    r"(?P<system>linux|manylinux|musllinux)(?:\d+|_\d+_\d+)?_(?P<machine>[a-z]\w*)"
)
ONE_MACHINE = {"armv6l": "armv7l"}  # in the header of an ELF file
C_LIBRARIES = {"glibc": "manylinux", "musl": "musllinux"}


def _serves(elf: Elf, platform: str) -> bool:
    """Whether a library is for the machine and the C library of a platform tag."""
    tag = LINUX_TAG.fullmatch(platform)
    if not tag or ONE_MACHINE.get(tag["machine"], tag["machine"]) != elf.machine:
        return False
    return tag["system"] in {"linux", C_LIBRARIES.get(elf.c_library, tag["system"])}


def _platforms(subject: Subject) -> set[str]:
    """The platforms that it is declared for; a wheel's tags have them."""
    declared = subject.policy.platform
    return {declared} if declared else {tag.platform for tag in subject.artifact.tags}


def platform_tag(subject: Subject) -> Outcome:
    """Each platform a wheel is tagged with has its library, and each library its platform."""
    elf, claims = subject.elf, _platforms(subject)
    found = ", ".join(filter(None, (elf.machine, elf.c_library)))
    if not claims:
        return not_run(found, "no platform is claimed")
    libraries = [elf, *(other for other, _ in subject.others)]
    wrong = {claim for claim in claims if not any(_serves(each, claim) for each in libraries)}
    if not any(_serves(elf, claim) for claim in claims):
        wrong = claims
    return judged(not wrong, found, listed(sorted(wrong or claims)))


def _ceiling(needs: str | None, ceiling: str | None, name: str) -> Outcome:
    found = f"{name} {needs}" if needs else f"no {name} version"
    if ceiling is None:
        return not_run(found, "no ceiling is declared (--ceilings)")
    holds = needs is None or Version(needs) <= Version(ceiling)
    return judged(holds, found, f"at most {ceiling}")


def glibc(subject: Subject) -> Outcome:
    """No symbol of a newer C library."""
    return _ceiling(subject.facts.needs.glibc, subject.policy.ceilings.glibc, "GLIBC")


def glibcxx(subject: Subject) -> Outcome:
    """No symbol of a newer libstdc++."""
    return _ceiling(subject.facts.needs.glibcxx, subject.policy.ceilings.glibcxx, "GLIBCXX")


def cxxabi(subject: Subject) -> Outcome:
    """No symbol of a newer C++ run-time."""
    return _ceiling(subject.facts.needs.cxxabi, subject.policy.ceilings.cxxabi, "CXXABI")


def symbol_versions(subject: Subject) -> Outcome:
    """The version of every symbol is in the tables that the loader looks it up in."""
    strange = listed(subject.elf.of_no_version, brief)
    found = f"none for {strange}" if strange else "all in its tables"
    return judged(not strange, found, "a version that the library defines or needs")


def manylinux(subject: Subject) -> Outcome:
    """The platform a wheel is tagged with is one it loads on."""
    found, elf = subject.facts.manylinux, subject.elf
    manylinux_tags = {claim for claim in _platforms(subject) if claim.startswith("manylinux")}
    claims = {claim for claim in manylinux_tags if _serves(elf, claim)}
    if not claims:
        return not_run(found, f"no manylinux tag for {elf.machine} is claimed")
    strange = [claim for claim in claims if not policies.known(elf.machine, claim)]
    if strange:
        return not_run(found, f"auditwheel knows no policy {listed(strange)}")
    holds = all(policies.satisfies(elf.machine, found, claim) for claim in claims)
    return judged(holds, found, ", ".join(sorted(claims)))


def needed(subject: Subject) -> Outcome:
    """It links nothing but torch, CUDA and what every manylinux system has."""
    siblings = {member.path.name for member in subject.artifact.members}
    allowed = (
        *(() if subject.policy.cuda == CPU else CUDA_LIBRARIES),
        *LOADER,
        *policies.system_libraries(subject.elf.machine),
        *subject.policy.needed,
    )
    strange = [
        name
        for name in subject.facts.needed
        if not (is_torch_library(name) or name in siblings or matches(name, allowed))
    ]
    expected = "torch, CUDA, the C and C++ run-times"
    if strange:
        return failed(listed(strange), expected)
    return passed(listed(subject.facts.needed) or "nothing", expected)


def rpath(subject: Subject) -> Outcome:
    """Its search path starts from where it is installed."""
    absolute = [entry for entry in subject.facts.search_path if not entry.startswith(ORIGINS)]
    found = listed(entry or "(empty)" for entry in subject.facts.search_path) or "none"
    return judged(not absolute, found, "$ORIGIN only")


def bundled_torch(subject: Subject) -> Outcome:
    """It is no library of torch packed beside an extension."""
    inside = subject.member in subject.artifact.bundled
    found = "a library of torch" if inside else "no library of torch"
    return judged(not inside, found, "no library of torch")
