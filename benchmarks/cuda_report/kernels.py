"""Compile a source of csrc/cuda for one architecture, and read what became of each kernel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import cxxfilt
from torchproof.machine.inventory import Nvcc, find_nvcc

from benchmarks.cuda_report.units import Unit

FLAGS = ("-std=c++17", "-O3")
"""As build_support/cuda.py compiles them."""

PTXAS = re.compile(
    r"Function properties for (?P<name>\S+)\s+\d+ bytes stack frame, (?P<stores>\d+) bytes spill "
    r"stores, (?P<loads>\d+) bytes spill loads\s+ptxas info\s+: Used (?P<registers>\d+) registers"
    r"(?P<rest>[^\n]*)"
)
SHARED = re.compile(r"(\d+) bytes smem")
FUNCTION = re.compile(r"^\s*Function : (\S+)", re.MULTILINE)
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)
TENSOR_CORE = re.compile(r"(HMMA|IMMA|DMMA|BMMA|QMMA|OMMA|HGMMA|QGMMA|IGMMA|UTC\w*MMA)\b")
NAMESPACE = re.compile(r"(\(anonymous namespace\)|\b\w+)::")
FUNCTOR = re.compile(r"\b\w+<DeviceMath>, ")


class NotCompiled(Exception):
    """Nvcc or the disassembler is missing, or failed; the message says which and what to do."""


@dataclass(frozen=True)
class Kernel:
    """One kernel on one architecture.

    Attributes:
        cell: the functor that its source was compiled with.
        file: its source.
        name: with its template arguments, such as ``forward_kernel<float, 4>``.
        architecture: such as ``sm_90``.
        registers: a thread.
        spilled: bytes that went to memory for want of registers.
        shared: bytes of shared memory that its source fixes; what a launch asks for comes on top.
        instructions: how often each appears in its machine code, by its full name.
    """

    cell: str
    file: str
    name: str
    architecture: str
    registers: int
    spilled: int
    shared: int
    instructions: dict[str, int]

    def count(self, pattern: str) -> int:
        """How many of its instructions begin as the regular expression says."""
        return sum(n for name, n in self.instructions.items() if re.match(pattern, name))

    @property
    def vector_loads(self) -> int:
        """Of 16 bytes, from global memory."""
        return self.count(r"LDG\.E\.(\w+\.)*128\b")

    @property
    def vector_stores(self) -> int:
        """Of 16 bytes, to global memory."""
        return self.count(r"STG\.E\.(\w+\.)*128\b")

    @property
    def shared_vectors(self) -> int:
        """Loads of 16 bytes from shared memory."""
        return self.count(r"LDS\.(\w+\.)*128\b")

    @property
    def tensor_cores(self) -> int:
        """Instructions of the tensor cores."""
        return self.count(TENSOR_CORE.pattern)

    def faults(self) -> list[str]:
        """What is wrong with it, in words."""
        found = [f"{self.spilled} bytes are spilled"] if self.spilled else []
        local = self.count(r"(LDL|STL)\b")
        if local and not self.spilled:
            found.append(f"{local} accesses to local memory")
        for what in self.wanted():
            if not getattr(self, what):
                found.append(f"it has no {what.replace('_', ' ')}")
        return found

    def wanted(self) -> tuple[str, ...]:
        """The wide accesses it was written for."""
        if self.file == "persistent.cu":
            return ("vector_loads", "shared_vectors")
        packs = re.search(r", (\d+)>$", self.name)
        return ("vector_loads", "vector_stores") if packs and int(packs[1]) > 1 else ()


def compiled(unit: Unit, architecture: str) -> list[Kernel]:
    """The kernels of a source, compiled with a functor.

    Raises:
        NotCompiled: nvcc or cuobjdump is missing, or failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "cubin")
        flags = (*FLAGS, *unit.flags, f"-arch={architecture}", "-Xptxas", "-v", "-cubin")
        output = _run(nvcc().program, *flags, unit.source, "-o", cubin)
        if "Compiling entry function" not in output:
            return []
        code = _run(disassembler(), "-sass", cubin)
    return read(unit, architecture, output, code)


def compile_ptx(unit: Unit, architecture: str) -> None:
    """Check that a source compiles to PTX.

    Raises:
        NotCompiled: it does not.
    """
    flags = (*FLAGS, *unit.flags, f"-arch={architecture}", "-ptx")
    _run(nvcc().program, *flags, unit.source, "-o", os.devnull)


def read(unit: Unit, architecture: str, ptxas: str, sass: str) -> list[Kernel]:
    """The kernels that ptxas reports on, with the instructions that cuobjdump shows."""
    parts = FUNCTION.split(sass)
    code = dict(zip(parts[1::2], parts[2::2], strict=True))
    return [
        Kernel(
            unit.cell,
            unit.source.name,
            readable(match["name"]),
            architecture,
            int(match["registers"]),
            int(match["stores"]) + int(match["loads"]),
            int(shared[1]) if (shared := SHARED.search(match["rest"])) else 0,
            dict(sorted(Counter(INSTRUCTION.findall(code[match["name"]])).items())),
        )
        for match in PTXAS.finditer(ptxas)
    ]


def readable(symbol: str) -> str:
    """``forward_kernel<float, 4>``, the dtype and the elements a thread, for a mangled name."""
    bare = FUNCTOR.sub("", NAMESPACE.sub("", str(cxxfilt.demangle(symbol))))
    return bare.removeprefix("void ").partition("(")[0]


def nvcc() -> Nvcc:
    """The CUDA compiler.

    Raises:
        NotCompiled: there is none.
    """
    if (found := find_nvcc()) is None:
        raise NotCompiled("there is no nvcc; put it on PATH, or name the toolkit in CUDA_HOME")
    return found


def disassembler() -> str:
    """Cuobjdump: of the toolkit, or of the package that the session installs.

    Raises:
        NotCompiled: there is none.
    """
    packages = Path(sysconfig.get_path("purelib"), "nvidia").glob("cu*/bin")
    path = os.pathsep.join([*map(str, packages), os.environ.get("PATH", "")])
    found = shutil.which("cuobjdump", path=path)
    if found is None:
        raise NotCompiled("there is no cuobjdump; `pip install nvidia-cuda-cuobjdump` brings it")
    return found


def _run(*command: str | Path) -> str:
    """What a program says, on either stream."""
    program = Path(command[0])
    # cuobjdump looks for nvdisasm, which lies beside it.
    path = os.pathsep.join([str(program.parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path},
    )
    if done.returncode:
        arguments = " ".join(map(str, command[1:]))
        raise NotCompiled(f"{program.name} {arguments} failed:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr
