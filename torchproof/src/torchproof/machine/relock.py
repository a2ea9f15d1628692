"""`torchproof lock`: resolve what environments install, and write the locks."""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import Requirement

from torchproof import config
from torchproof.config import Torch
from torchproof.files import sha256, write_atomically
from torchproof.machine.environments import pip_settings, requirements
from torchproof.machine.inventory import find_program
from torchproof.machine.lockfiles import ALWAYS, COMMON, LockError, Pin, home, parse, split

HEADER = "# Made by `torchproof lock`.\n"
COMPILE = "pip compile --quiet --universal --generate-hashes --prerelease disallow"
PLAIN = "--no-header --no-annotate --no-emit-index-url --no-emit-find-links"


def compile_lock(torch: Torch, oldest: str, wanted: Sequence[str], output: Path) -> tuple[Pin, ...]:
    """Resolve one torch's environments; versions that the output file already has are kept."""
    newest = config.number(torch.pythons[-1])[1] + 1
    limits = f"python_version >= '{torch.pythons[0]}' and python_version < '3.{newest}'"
    lines = [*wanted, f"torch=={torch.version}; {limits}"]
    uv = find_program("uv")
    if uv is None:
        raise LockError("`torchproof lock` needs uv: pip install uv")
    done = subprocess.run(
        [
            uv,
            *COMPILE.split(),
            *PLAIN.split(),
            "--python-version",
            oldest,
            "--output-file",
            str(output),
            "-",
        ],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
        env={"UV_PYTHON_DOWNLOADS": "never", **os.environ},
    )
    if done.returncode:
        raise LockError(f"torch {torch.version}: uv: {done.stderr.strip()}")
    pins = parse(output.read_text(encoding="utf-8"))
    (plain,) = (pin for pin in pins if pin.name == "torch")
    others = tuple(pin for pin in pins if pin is not plain)
    # `==` would also take a build of that version for which there is no hash, "2.13.0+cpu".
    exactly = Requirement(str(plain.requirement).replace("==", "===", 1))
    return (*others, Pin(exactly, plain.hashes), *cpu_build(torch.version))


def cpu_build(version: str) -> tuple[Pin, ...]:
    """This torch's CPU build, where pip is configured with a folder that has it."""
    stated = pip_settings(Path(sys.executable)).get("UV_FIND_LINKS", "")
    folders = map(Path, filter(None, stated.split(",")))
    wheels = [wheel for each in folders for wheel in each.glob(f"torch-{version}+cpu-*.whl")]
    hashes = frozenset(f"sha256:{sha256(wheel)}" for wheel in wheels)
    return (Pin(Requirement(f"torch==={version}+cpu"), hashes),) if hashes else ()


def write(folder: Path, matrix: config.Matrix) -> None:
    """Write every torch's lock, newest torch first: the others take its versions where they may.

    Raises:
        LockError: uv is not installed, or does not find a solution.
    """
    wanted = (*requirements(), *ALWAYS)
    oldest = min((p for torch in matrix.torch for p in torch.pythons), key=config.number)
    found: dict[str, tuple[Pin, ...]] = {}
    with tempfile.TemporaryDirectory(prefix="lock-") as scratch:
        output = Path(scratch, "lock.txt")
        for torch in reversed(matrix.torch):
            found[torch.version] = compile_lock(torch, oldest, wanted, output)
    common, own = split(found)
    files = {COMMON: common, **{f"torch-{torch}.txt": pins for torch, pins in own.items()}}
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.txt"):
        if old.name not in files:
            old.unlink()
    for name, pins in files.items():
        write_atomically(folder / name, HEADER + "".join(pin.text + "\n" for pin in pins))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when the locks are written."""
    argparse.ArgumentParser(prog="torchproof lock", description=__doc__).parse_args(argv)
    write(home(), config.load())
    print(f"{config.project().locks}: {sum(1 for _ in home().glob('*.txt'))} files")
    return 0
