"""A wheel's tag: what auditwheel and abi3info say of the library inside, and the file's name."""

import shutil
import subprocess
import sys
from pathlib import Path

from packaging.utils import parse_wheel_filename

from torchproof import config
from torchproof.audit import abi3, elf, facts
from torchproof.audit.artifact import is_torch_library, opened
from torchproof.release.version import ReleaseError

# PEP 600; auditwheel writes both.
OLD_NAMES = {
    "manylinux1": "manylinux_2_5",
    "manylinux2010": "manylinux_2_12",
    "manylinux2014": "manylinux_2_17",
}


def retag(wheel: Path, target: Path) -> Path:
    """Move a wheel to a folder under the tag of the oldest system it loads on.

    auditwheel decides; torch's libraries stay out, they come with torch. A wheel for a system it
    does not know, macOS or Windows, keeps the tag it was built with.
    """
    target.mkdir(parents=True, exist_ok=True)
    if not sys.platform.startswith("linux"):
        return Path(shutil.copy2(wheel, target))
    with opened(wheel) as artifact:
        needed = {name for member in artifact.members for name in elf.read(member.path).needed}
    left_out = [f"--exclude={name}" for name in sorted(needed) if is_torch_library(name)]
    command = [sys.executable, "-m", "auditwheel", "repair", "--only-plat", *left_out]
    done = subprocess.run(
        [*command, "--wheel-dir", str(target), str(wheel)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2]
        raise ReleaseError(f"auditwheel refuses {wheel.name}: {reason}")
    (tagged,) = target.glob("*.whl")
    return tagged


def claimed(wheel: Path) -> str:
    """The tag in the file's name, "py3-none-manylinux_2_28_x86_64"; an old name as the new one."""
    tags = {str(tag) for tag in parse_wheel_filename(wheel.name)[3]}
    for old, new in OLD_NAMES.items():
        tags = {tag.replace(f"-{old}_", f"-{new}_") for tag in tags}
    return ".".join(sorted(tags))


def measured(wheel: Path) -> str:
    """The tag that auditwheel and abi3info find in the one library of a Linux wheel."""
    with opened(wheel) as artifact:
        if len(artifact.members) != 1:
            found = ", ".join(member.name for member in artifact.members)
            raise ReleaseError(f"{wheel.name}: expected one library, found {found}")
        (member,) = artifact.members
        library = elf.read(member.path)
        derived = facts.derive(library, member.name)
        verdict = abi3.check(library, config.audit().abi3)
    return f"{_python(derived.python, sound=verdict.sound)}-{derived.manylinux}"


def _python(found: str, *, sound: bool) -> str:
    if found == "none" and sound:
        return "py3-none"
    if found == "abi3" and sound:
        return f"cp{config.audit().abi3.replace('.', '')}-abi3"
    interpreter = found.replace("cpython-", "cp")
    return f"{interpreter}-{interpreter}"
