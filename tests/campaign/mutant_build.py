"""The packages that hold mutants: C++ compiled with all of them, Python copied with one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import built
import mutations
from mutant_choice import BUILT, digest_of
from record import ROOT
from torch.utils import cpp_extension

if TYPE_CHECKING:
    from mutations import Mutant

HOME = ROOT / "build" / "mutants"
SITE = HOME / "op" / "site"
TORCHPROOF = ROOT / "torchproof" / "src"
# The packages that each suite is run on, without a mutant.
UNCHANGED = {"op": SITE, "audit": TORCHPROOF}
# Of a folder of packages: what lltm.jit compiles from a mutant, in place of the user's cache.
COMPILED = "compiled"
INCLUDED = f"-include {Path(__file__).with_name('mutant.h')}"


def build(chosen: dict[int, Mutant], *, resume: bool = False) -> dict[int, Mutant]:
    """Compile the C++ mutants in; those that the compiler takes, with all of Python's."""
    if all(mutant.suite == "audit" for mutant in chosen.values()):
        return chosen
    folder = HOME / "op"
    compiled = {number: m.name for number, m in chosen.items() if m.file.startswith("csrc")}
    taken, fresh = folder / "taken.json", f"{digest_of(BUILT)} {sorted(compiled.items())}"
    if resume and taken.is_file():
        document = json.loads(taken.read_text(encoding="utf-8"))
        if document["digest"] == fresh:
            refused = compiled.keys() - document["taken"]
            return {number: m for number, m in chosen.items() if number not in refused}
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        tree = built.copy_sources(folder)
        for file in {m.file for m in chosen.values() if m.file.startswith("csrc")}:
            mine = {number: m for number, m in chosen.items() if m.file == file}
            path = tree / file
            path.write_bytes(mutations.schemata(path.read_bytes(), mine))
        refused = refused_lines(tree)
        left = {n: m for n, m in chosen.items() if (m.file, m.line) not in refused}
        if len(left) == len(chosen):
            break
        print(f"the compiler refuses {len(chosen) - len(left)} mutants", flush=True)
        chosen = left
    built.install(folder, "stable", INCLUDED)
    # What lltm.jit compiles has no mutants.
    shutil.rmtree(folder / "site" / "lltm" / "csrc")
    shutil.copytree(ROOT / "csrc", folder / "site" / "lltm" / "csrc")
    taken.write_text(json.dumps({"digest": fresh, "taken": sorted(chosen)}), encoding="utf-8")
    return chosen


def refused_lines(tree: Path) -> set[tuple[str, int]]:
    """The lines that are no C++ any more: a mutant may have another type, or must be constant."""
    command = [cpp_extension.get_cxx_compiler(), "-std=c++17", "-fsyntax-only", "-w"]
    command += [f"-I{folder}" for folder in cpp_extension.include_paths()]
    command += ["-DTORCH_TARGET_VERSION=0x020a000000000000", *INCLUDED.split()]
    refused = set()
    for source in (*sorted(tree.glob("csrc/cpu/*.cpp")), tree / "csrc/stable/binding.cpp"):
        done = subprocess.run(
            [*command, str(source)], cwd=tree, capture_output=True, text=True, check=False
        )
        found = re.findall(r"\b(csrc/[\w/.]+):(\d+):\d+: (?:fatal )?error", done.stderr)
        refused |= {(os.path.normpath(file), int(line)) for file, line in found}
    return refused


def packages(mutant: Mutant, number: int, *, jit: bool = False) -> Path:
    """A folder whose packages are those of a mutant; with ``jit`` in what they compile, too."""
    is_compiled = mutant.file.startswith("csrc")
    if is_compiled and not jit:
        return SITE
    source = UNCHANGED[mutant.suite]
    folder = HOME / "python" / mutant.suite / str(number)
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "lib", "csrc")
    package = "lltm" if mutant.suite == "op" else "torchproof"
    shutil.copytree(source / package, folder / package, ignore=ignored)
    if mutant.suite == "op":
        (folder / "lltm" / "lib").symlink_to(source / "lltm" / "lib")
        if is_compiled:
            shutil.copytree(source / "lltm" / "csrc", folder / "lltm" / "csrc")
            (folder / COMPILED).mkdir()
        else:
            (folder / "lltm" / "csrc").symlink_to(source / "lltm" / "csrc")
        for made in source.glob("lltm-*.dist-info"):
            (folder / made.name).symlink_to(made)
    inside = f"lltm/{mutant.file}" if is_compiled else mutant.file.removeprefix("torchproof/src/")
    path = folder / inside
    path.write_bytes(mutations.mutate(path.read_bytes(), mutant))
    return folder
