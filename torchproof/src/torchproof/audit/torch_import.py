"""The libraries that `import torch` has loaded, read from torch's files."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from torchproof.audit.system_libraries import read_provider

CUDA_RUNTIME = "libcudart.so."
# torch/__init__.py opens CUDA's libraries by patterns where libcudart is loaded: all that it lists,
# or, up to torch 2.9, some by calls of their own.
LISTED = re.compile(r'"(lib[\w-]+\.so\.\*\[0-9\])"')
OPENS_ALL = re.compile(r"^ +_preload_cuda_deps\((?:required=\w+)?\)", re.M)
OPENS_ONE = re.compile(r'^ +_preload_cuda_deps\("\w+", "(lib[\w-]+\.so\.\*\[0-9\])"\)', re.M)


@cache
def loaded(torch: Path) -> dict[str, Path]:
    """The libraries that `import torch` has loaded, by name."""
    nvidia = sorted((torch.parent / "nvidia").glob("*/lib"))
    wanted = [*torch.glob("_C*.so"), *torch.glob("lib/libtorch_global_deps.so")]
    if not wanted:  # not a whole torch: whatever it has
        return {path.name: path for path in torch.glob("lib/*.so*")}
    folders = [torch / "lib", *nvidia]
    found = dict(_needed(wanted, folders))
    if any(name.startswith(CUDA_RUNTIME) for name in found):
        opened = [*_opened(torch, nvidia)]
        found = {path.name: path for path in opened} | dict(_needed(opened, folders)) | found
    return found


def _needed(libraries: Iterable[Path], folders: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """What libraries need of those in some folders, and what these need."""
    wanted = [*libraries]
    seen = set()
    while wanted:
        provider = read_provider(wanted.pop())
        for name in provider.needed if provider else ():
            path = next((folder / name for folder in folders if (folder / name).is_file()), None)
            if path and name not in seen:
                seen.add(name)
                yield name, path
                wanted.append(path)


def _opened(torch: Path, nvidia: Iterable[Path]) -> Iterator[Path]:
    """What torch's own Python opens of NVIDIA's packages."""
    code = torch / "__init__.py"
    text = code.read_text(encoding="utf-8") if code.is_file() else ""
    patterns = LISTED if OPENS_ALL.search(text) else OPENS_ONE
    for pattern in dict.fromkeys(patterns.findall(text)):
        paths = (path for folder in nvidia for path in sorted(folder.glob(pattern)))
        yield from (path for path in paths if path.is_file())
