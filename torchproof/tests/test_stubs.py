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
    versions.write_text("libcudart.so.13 { global: cudaGetDeviceCount; };\n")
    nvidia = tmp_path / "libcudart.so.13"
    link(
        "int cudaGetDeviceCount(int* n) { return 0; }",
        nvidia,
        "-Wl,-soname,libcudart.so.13",
        f"-Wl,--version-script={versions}",
    )
    blas = tmp_path / "libcublas.so.13"
    link("int cublasCreate_v2(void** h) { return 0; }", blas, "-Wl,-soname,libcublas.so.13")
    link(USER, lib / "libtorch_cuda.so", str(nvidia), str(blas), "-Wl,-rpath,$ORIGIN")
    nvidia.unlink()
    blas.unlink()
    return tmp_path


def test_a_library_loads_on_stubs_and_finds_no_device(site: Path) -> None:
    library = str(site / "torch" / "lib" / "libtorch_cuda.so")
    with pytest.raises(OSError, match="cannot open shared object file"):
        ctypes.CDLL(library)
    assert set(stubs.write(site)) == {"libcudart.so.13", "libcublas.so.13"}
    program = f"import ctypes; print(ctypes.CDLL({library!r}).count())"
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == str(2 * stubs.NO_DEVICE)


def test_a_torch_that_lacks_nothing_gets_no_stub(site: Path) -> None:
    stubs.write(site)
    assert stubs.write(site) == ()
