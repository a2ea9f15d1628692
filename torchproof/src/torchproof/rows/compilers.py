"""`torchproof compilers`: install the compilers of rows, from Debian's packages."""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable

from torchproof import config
from torchproof.machine.inventory import find_compilers
from torchproof.rows.plan import expand


def package(label: str) -> str:
    """The package of a compiler: g++-11 is in g++-11, clang++-14 in clang-14."""
    return label.replace("clang++", "clang")


def missing(labels: Iterable[str], present: Iterable[str]) -> list[str]:
    """The packages of the compilers named and not there; "default" and "each" take any."""
    named, here = set(labels), set(present)
    wanted = named - {"default", "each"} - here
    any_one = {"g++"} if named & {"default", "each"} and not here else set()
    return sorted(map(package, wanted | any_one))


def packaged() -> set[str]:
    """The names that apt knows; another one it may take for a regular expression: g++-16."""
    listed = subprocess.run(["apt-cache", "pkgnames"], capture_output=True, text=True, check=True)
    return {*listed.stdout.split()}


def apt_get(*command: str) -> int:
    """Run apt-get as root; its exit status."""
    root = [] if os.geteuid() == 0 else ["sudo"]
    code = subprocess.run([*root, "apt-get", *command], check=False).returncode
    if code:
        print(f"error: apt-get {command[0]} failed, its output is above", file=sys.stderr)
    return code


def main(argv: list[str] | None = None) -> int:
    """Install what is missing."""
    parser = argparse.ArgumentParser(prog="torchproof compilers", description=__doc__)
    parser.add_argument("--tier", default="local", help="whose rows (default: %(default)s)")
    chosen = parser.parse_args(argv)
    rows = expand(config.load(), chosen.tier)
    packages = missing({row.compiler for row in rows}, (c.label for c in find_compilers()))
    if not packages:
        print(f"every compiler of tier {chosen.tier} is here")
        return 0
    if shutil.which("apt-get") is None:
        print(f"no apt-get on this machine: install {' '.join(packages)} by hand", file=sys.stderr)
        return 1
    if code := apt_get("update", "-q"):
        return code
    known = packaged()
    if others := [name for name in packages if name not in known]:
        print(f"not packaged for this system, and left out: {', '.join(others)}", flush=True)
    found = [name for name in packages if name in known]
    return apt_get("install", "-y", "-q", *found) if found else 0
