"""What is installed: torch, Python, the C and C++ run-times, the driver. Nothing is imported."""

import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.tags import sys_tags

from torchproof.audit import symbols
from torchproof.audit.policy import Ceilings
from torchproof.audit.system_libraries import read_provider, system_ceilings
from torchproof.audit.torches import NotTorchError, Torch, find_torch
from torchproof.machine.inventory import running_python

CORE = "libc10.so"  # the smallest library of torch whose functions take a std::string


@dataclass(frozen=True)
class Here:
    """One environment on this machine.

    Attributes:
        torch: its torch, or None.
        cxx11_abi: `_GLIBCXX_USE_CXX11_ABI` of that torch; None when its symbols do not tell.
        python: the version of its Python, "3.12.4", or "3.12" where only a folder's name tells.
        tag: the wheel tag that fits best, or the Python, for another environment than the running.
        system: the newest symbol versions of the system's libc and libstdc++.
        driver: the NVIDIA driver's version, or None.
        packages: the folders that its distributions are in.
    """

    torch: Torch | None
    cxx11_abi: bool | None
    python: str
    tag: str
    system: Ceilings
    driver: str | None
    packages: tuple[str, ...]

    @property
    def torch_shown(self) -> str:
        """The torch in a sentence."""
        if self.torch is None:
            return "no torch"
        cuda = f"for CUDA {self.torch.cuda}" if self.torch.cuda else "without CUDA"
        return f"torch {self.torch.version} {cuda}"

    @property
    def without_cuda(self) -> bool:
        """Whether no torch with CUDA is installed."""
        return self.torch is None or self.torch.cuda is None

    def defines(self, symbol: str) -> bool:
        """Whether a library of the installed torch defines a symbol."""
        folder = self.torch.path / "lib" if self.torch else Path()
        libraries = sorted(folder.glob("lib*.so")) if self.torch else []
        providers = (read_provider(path) for path in libraries)
        return any(symbol in provider.defined for provider in providers if provider)


def look(environment: Path | None = None) -> Here:
    """Look at an environment, by default the running Python's own.

    Raises:
        NotTorchError: the folder that was named holds no torch.
    """
    torch = find_torch(environment) if environment else _importable_torch()
    python = _python_of(torch) if environment and torch else running_python().version
    return Here(
        torch=torch,
        cxx11_abi=_cxx11_abi(torch) if torch else None,
        python=python,
        tag=f"CPython {python}" if environment else str(next(sys_tags())),
        system=system_ceilings(),
        driver=_driver(),
        packages=(str(torch.path.parent),) if environment and torch else tuple(sys.path),
    )


def _importable_torch() -> Torch | None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        return find_torch(Path(spec.origin).parent)
    except NotTorchError:
        return None


def _python_of(torch: Torch) -> str:
    found = re.search(r"/python(3\.\d+t?)/", str(torch.path))
    return found[1] if found else platform.python_version()


def _cxx11_abi(torch: Torch) -> bool | None:
    provider = read_provider(torch.path / "lib" / CORE)
    own = [name for name in provider.defined if symbols.is_torch_cxx(name)] if provider else []
    found = symbols.cxx11_strings(own)
    return True in found if found else None


def _driver() -> str | None:
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.partition("\n")[0].strip() or None
