"""A wheel's tag: what auditwheel and abi3info say of the libraries inside, and the file's name."""

import shutil
import subprocess
import sys
from pathlib import Path

from packaging.utils import parse_wheel_filename

from torchproof import config
from torchproof.audit import abi3, elf, facts, manylinux
from torchproof.audit.artifact import is_torch_library, opened
from torchproof.release.version import ReleaseError

EVERY_PYTHON = "py3-none"
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
        umask=0o022,  # the folders that it unpacks to are in the wheel, with their modes
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
    """The tag that auditwheel and abi3info find in a Linux wheel: that serves all its libraries."""
    with opened(wheel) as artifact:
        libraries = [(elf.read(member.path), member.name) for member in artifact.members]
    tags = {_python_of(library, name) for library, name in libraries}
    for_one = tags - {EVERY_PYTHON} or {EVERY_PYTHON}
    if not libraries or len(for_one) != 1:
        found = f"those for {', '.join(sorted(for_one))}" if libraries else "none"
        raise ReleaseError(f"{wheel.name}: expected libraries for the same Python, found {found}")
    platform = manylinux.oldest_policy([library for library, _ in libraries])
    return f"{for_one.pop()}-{platform}"


def _python_of(library: elf.Elf, name: str) -> str:
    sound = abi3.check(library, config.audit().abi3).sound
    return _python(facts.derive(library, name).python, sound=sound)


def _python(found: str, *, sound: bool) -> str:
    if found == "none" and sound:
        return EVERY_PYTHON
    if found == "abi3" and sound:
        return f"cp{config.audit().abi3.replace('.', '')}-abi3"
    interpreter = found.replace("cpython-", "cp")
    return f"{interpreter}-{interpreter}"
