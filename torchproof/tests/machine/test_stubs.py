"""Link stubs let a library load whose NVIDIA libraries are absent, versions included."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from torchproof.machine import stubs

if TYPE_CHECKING:
    from pathlib import Path

CUDART = """
int cudaGetDeviceCount(int* n) { return 0; }
int __cudaInitModule(void** handle) { return 0; }
"""
USER = """
int cudaGetDeviceCount(int*);
int cublasCreate_v2(void**);
int count(void) { int n = 0; return cudaGetDeviceCount(&n) + cublasCreate_v2(0); }
"""


def link(source: str, path: Path, *arguments: str) -> None:
    code = path.with_suffix(".c")
    code.write_text(source)
    subprocess.run(["gcc", "-shared", "-fPIC", str(code), "-o", str(path), *arguments], check=True)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A torch that was linked against versioned NVIDIA libraries which are then gone."""
    lib = tmp_path / "torch" / "lib"
    lib.mkdir(parents=True)
    versions = tmp_path / "versions"
    versions.write_text("libcudart.so.13 { global: *; };\n")
    nvidia = tmp_path / "libcudart.so.13"
    link(
        CUDART,
        nvidia,
        "-Wl,-soname,libcudart.so.13",
        f"-Wl,--version-script={versions}",
    )
    blas = tmp_path / "libcublas.so.13"
    link("int cublasCreate_v2(void** h) { return 0; }", blas, "-Wl,-soname,libcublas.so.13")
    link(USER, lib / "libtorch_cuda.so", str(nvidia), str(blas), "-Wl,-rpath,$ORIGIN")
    real = tmp_path / "real"
    real.mkdir()
    nvidia.rename(real / nvidia.name)
    blas.unlink()
    return tmp_path


def test_a_library_loads_on_stubs_and_finds_no_device(site: Path) -> None:
    library = str(site / "torch" / "lib" / "libtorch_cuda.so")
    with pytest.raises(OSError, match="cannot open shared object file"):
        ctypes.CDLL(library)
    assert set(stubs.write(site)) == {"libcudart.so.13", "libcublas.so.13"}
    program = f"import ctypes; print(ctypes.CDLL({library!r}).count())"
    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert completed.stdout.strip() == str(2 * stubs.NO_DEVICE)


EXTENSION = """
int __cudaInitModule(void**);
int start(void) { return __cudaInitModule(0); }
"""


def test_an_extension_that_takes_more_of_the_runtime_than_torch_loads_on_its_stub(
    site: Path, tmp_path: Path
) -> None:
    real, lib = tmp_path / "real" / "libcudart.so.13", site / "torch" / "lib"
    extension = tmp_path / "extension.so"
    link(EXTENSION, extension, str(real), f"-Wl,-rpath,{lib}")
    stubs.write(site)
    with pytest.raises(OSError, match="undefined symbol: __cudaInitModule"):
        ctypes.CDLL(str(extension))
    (lib / real.name).unlink()
    stubs.write(site, real=[real])
    assert ctypes.CDLL(str(extension)).start() == stubs.NO_DEVICE


def test_a_torch_that_lacks_nothing_gets_no_stub(site: Path) -> None:
    stubs.write(site)
    assert stubs.write(site) == ()
