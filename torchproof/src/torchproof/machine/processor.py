"""The processor of this machine, and the instruction sets that torch's libraries use of it.

Reads what Linux reports in /proc and /sys and needs nothing but torch. Other systems give a name
and the number of threads; what is not reported is None or empty, never guessed.
"""

import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

UNKNOWN = "unknown"
X86 = ("x86_64", "amd64")
# What /proc/cpuinfo has for a vendor: x86's strings, Arm's codes of implementers.
VENDORS = {
    "GenuineIntel": "Intel",
    "AuthenticAMD": "AMD",
    "0x41": "Arm",
    "0x46": "Fujitsu",
    "0x48": "HiSilicon",
    "0x61": "Apple",
    "0xc0": "Ampere",
}
# Arm's part numbers of server cores.
PARTS = {
    "0xd08": "Cortex-A72",
    "0xd0c": "Neoverse N1",
    "0xd40": "Neoverse V1",
    "0xd49": "Neoverse N2",
    "0xd4f": "Neoverse V2",
}
# The instruction sets that decide what linear algebra runs on, by Linux's names, weakest first.
X86_SETS = (
    *("sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni"),
    *("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
)
ARM_SETS = (
    *("asimd", "fphp", "asimdhp", "asimddp", "i8mm", "bf16"),
    *("sve", "sve2", "svei8mm", "svebf16", "sme"),
)
RENAMED = {"asimd": "neon"}
# AMD's families, without AVX-512 and with it.
AMD_FAMILIES = {23: ("Zen", ""), 25: ("Zen 3", "Zen 4"), 26: ("", "Zen 5")}
# Those of family 23, as Linux has them.
ZEN_2_MODELS = {*range(0x30, 0x50), *range(0x60, 0x80), 0x90, 0x91, *range(0xA0, 0xB0)}
# Intel's servers, by model as Linux has them and by their strongest instruction set.
INTEL_SERVERS = {
    (0x55, "avx512vl"): "Skylake",
    (0x55, "avx512_vnni"): "Cascade Lake",
    (0x55, "avx512_bf16"): "Cooper Lake",
    (0x6A, "avx512_vnni"): "Ice Lake",
    (0x6C, "avx512_vnni"): "Ice Lake",
}
X86_LEVELS = (("amx_tile", "AMX"), ("avx512f", "AVX-512"), ("avx2", "AVX2"))
CACHES = {"Data": "L{}d", "Instruction": "L{}i", "Unified": "L{}"}
SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MKL = re.compile(r"^MKL_VERBOSE .*? for (.+), (?:Lnx|Win|OSX)\b", re.MULTILINE)
ONEDNN = re.compile(r"verbose,(?:v\d,)?info,cpu,isa:(.+)$", re.MULTILINE)
# "Intel(R) Advanced Vector Extensions 2 (Intel(R) AVX2)": only the second name is kept.
SPELT_OUT = re.compile(r"Intel\(R\) [\w\-. ]+ \((Intel\(R\) [^)]+)\)")
BOILERPLATE = re.compile(r"Intel(\(R\))? (64 architecture )?| enabled processors")


@dataclass(frozen=True)
class Processor:
    """A processor as its system reports it.

    Attributes:
        vendor: "Intel", "AMD", "Arm", or the system's own word for another.
        name: the model's name; a virtual machine may hide the true one.
        family: the vendor's number of the family; of an Arm core, of the architecture.
        model: the vendor's number of the model; of an Arm core, of the part.
        stepping: the vendor's number of the revision.
        architecture: such as ``x86_64``, ``aarch64``.
        cores: how many there are; None where the system does not report which threads share one.
        threads: how many run at one time.
        caches: bytes of one instance, by name: L1d, L1i, L2, L3; empty where none is reported.
        instruction_sets: those of X86_SETS or ARM_SETS that it has, weakest first.
        virtual: whether it is a virtual machine's.
        emulated: whether a program plays it on a processor of another kind.
    """

    vendor: str
    name: str
    family: int | None
    model: int | None
    stepping: int | None
    architecture: str
    cores: int | None
    threads: int | None
    caches: dict[str, int]
    instruction_sets: tuple[str, ...]
    virtual: bool
    emulated: bool

    @property
    def title(self) -> str:
        """Its kind, by which measurements are kept: "AMD Zen 4", "Intel with AMX"."""
        kind = self._kind()
        known = self.name if kind is None else f"{self.vendor} {kind}"
        return f"{known}, emulated" if self.emulated else known

    @property
    def slug(self) -> str:
        """The title as a file name: amd-zen-4."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")

    @property
    def details(self) -> str:
        """What the title leaves out, in words."""
        numbers = (("family", self.family), ("model", self.model), ("stepping", self.stepping))
        parts = [self.name, *(f"{word} {each}" for word, each in numbers if each is not None)]
        parts += [f"{self.cores} cores"] if self.cores else []
        parts += ["virtual machine"] if self.virtual else []
        return ", ".join(parts)

    @property
    def cache_sizes(self) -> str:
        """The caches in words."""
        return ", ".join(
            f"{name} {size / (1 << 20):g} MiB" if size >= 1 << 20 else f"{name} {size >> 10} KiB"
            for name, size in self.caches.items()
        )

    def _kind(self) -> str | None:
        if self.architecture not in X86:
            return None if self.vendor == UNKNOWN else self.name
        if self.vendor == "AMD" and self.family == 23 and self.model in ZEN_2_MODELS:
            return "Zen 2"
        if self.vendor == "AMD" and self.family in AMD_FAMILIES:
            return AMD_FAMILIES[self.family]["avx512f" in self.instruction_sets] or None
        if self.vendor == "Intel" and self.family == 6 and self.instruction_sets:
            server = INTEL_SERVERS.get((self.model or 0, self.instruction_sets[-1]))
            if server:
                return server
        # Others of Intel's have as many numbers as products, and virtual machines make some up.
        level = next((word for flag, word in X86_LEVELS if flag in self.instruction_sets), None)
        return level and f"with {level}"

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        sets = list(self.instruction_sets)
        return {"title": self.title, **asdict(self), "instruction_sets": sets}


def from_json(value: dict[str, Any]) -> Processor:
    """The processor that `to_json` wrote."""
    fields = {name: each for name, each in value.items() if name != "title"}
    return Processor(**{**fields, "instruction_sets": tuple(value["instruction_sets"])})


def read(root: Path = Path("/"), architecture: str | None = None) -> Processor:
    """The processor of a system.

    Args:
        root: where its /proc and /sys are.
        architecture: of the programs that it runs, by default of this one.
    """
    architecture = (architecture or platform.machine()).lower()
    blocks = _blocks(root / "proc" / "cpuinfo")
    facts = blocks[0] if blocks else {}
    devices = root / "sys" / "devices" / "system" / "cpu"
    x86 = architecture in X86
    numbers = ("cpu family", "model", "stepping")
    if not x86:
        numbers = ("CPU architecture", "CPU part", "CPU revision")
    family, model, stepping = (_number(facts.get(field)) for field in numbers)
    flags = facts.get("flags" if x86 else "Features", "").split()
    vendor = facts.get("vendor_id" if x86 else "CPU implementer", UNKNOWN)
    name = _name(facts, x86=x86)
    return Processor(
        vendor=VENDORS.get(vendor, vendor),
        name=name or platform.processor() or architecture,
        family=family,
        model=model,
        stepping=stepping,
        architecture=architecture,
        cores=_cores(devices),
        threads=len(blocks) or os.cpu_count(),
        caches=_caches(devices / "cpu0" / "cache"),
        instruction_sets=tuple(
            RENAMED.get(each, each) for each in (X86_SETS if x86 else ARM_SETS) if each in flags
        ),
        virtual="hypervisor" in flags or (root / "sys" / "hypervisor" / "type").is_file(),
        emulated=_is_emulated(facts, devices, x86=x86),
    )


def _blocks(path: Path) -> list[dict[str, str]]:
    """What /proc/cpuinfo says of each thread."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    blocks = [
        {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        for lines in (block.splitlines() for block in text.split("\n\n"))
    ]
    return [block for block in blocks if "processor" in block]


def _number(text: str | None) -> int | None:
    try:
        return int(text or "", 0)
    except ValueError:
        return None


def _name(facts: dict[str, str], *, x86: bool) -> str:
    if x86:
        return facts.get("model name", "")
    part = facts.get("CPU part", "")
    return PARTS.get(part, part and f"part {part}")


def _cores(devices: Path) -> int | None:
    """Threads of one core report the same siblings."""
    found = {_text(path) for path in devices.glob("cpu[0-9]*/topology/thread_siblings_list")}
    return len(found) or None


def _caches(folder: Path) -> dict[str, int]:
    found = {}
    for index in sorted(folder.glob("index[0-9]*")):
        kind, level = _text(index / "type"), _text(index / "level")
        size = re.fullmatch(r"(\d+)([KMG])", _text(index / "size"))
        if kind in CACHES and size:
            found[CACHES[kind].format(level)] = int(size[1]) * SIZES[size[2]]
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _is_emulated(facts: dict[str, str], devices: Path, *, x86: bool) -> bool:
    """Whether /proc or /sys are those of another architecture, or QEMU names itself."""
    if facts.get("model name", "").startswith("QEMU"):
        return True
    return not x86 and ("vendor_id" in facts or (devices / "cpu0" / "microcode").is_dir())


def in_use() -> dict[str, str | None]:
    """What ATen, oneDNN and MKL use in this process, in their own words; None where torch has none.

    Each may be held to less than the processor has, by ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA and
    MKL_ENABLE_INSTRUCTIONS.
    """
    import torch  # noqa: PLC0415 - the rest of this file does without it
    from torch.backends import mkl, mkldnn  # noqa: PLC0415 - wanted only here

    def reorder() -> None:
        with mkldnn.verbose(mkldnn.VERBOSE_ON):
            torch.ones(1).to_mkldnn()

    def multiply() -> None:
        with mkl.verbose(mkl.VERBOSE_ON):
            torch.mm(torch.ones(1, 1), torch.ones(1, 1))

    return {
        "ATen": torch.backends.cpu.get_cpu_capability(),
        "oneDNN": words(ONEDNN, _printed(reorder)) if mkldnn.is_available() else None,
        "MKL": words(MKL, _printed(multiply)) if mkl.is_available() else None,
    }


def words(pattern: re.Pattern[str], text: str) -> str:
    """The instruction sets in the verbose output of ONEDNN or MKL, without what is always there."""
    found = pattern.search(text)
    return BOILERPLATE.sub("", SPELT_OUT.sub(r"\1", found[1])) if found else UNKNOWN


def _printed(report: Callable[[], None]) -> str:
    """What a C library writes to the standard output of the process."""
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            report()
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        return file.read().decode(errors="replace")
