"""Clear the GPU programs of a CUDA torch that stands on link stubs.

They are nine tenths of it, and beside stubs, which find no GPU, nothing reads them; a package that
has zeros in their place is packed and unpacked in seconds.
"""

from pathlib import Path

from torchproof.audit.elf_file import ElfFile

# The section that nvcc puts machine code and PTX for GPUs in.
SECTION = ".nv_fatbin"
CHUNK = 1 << 24


def clear_fatbin(library: Path) -> int:
    """Write zeros over the GPU programs of a shared library; how many bytes they have."""
    with library.open("r+b") as file:
        section = ElfFile(file).sections.get(SECTION)
        if section is None:
            return 0
        file.seek(section.offset)
        for at in range(0, section.size, CHUNK):
            file.write(bytes(min(CHUNK, section.size - at)))
    return section.size
