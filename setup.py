"""Make the wheel: its metadata here and without torch, its library in build_support.

Environment:
    LLTM_BINDING: ``stable`` (default; every torch from TORCH_TARGET on) or ``native`` (the torch it
        is built on, needs ``--no-build-isolation``).
    LLTM_CELLS: ``1`` compiles more cells of lltm.cells than the LLTM, as a release does; takes a
        minute more of a core. build_support/cells.py names them.
    LLTM_CUDA: ``1`` builds the CUDA kernels, too; build_support/cuda.py says what that takes.
    LLTM_DEBUG: ``1`` for debug information, no optimization, and a version that says so.
    LLTM_PACKAGER: set by a packager, as conda's recipe does: no marks in the version, no hash of
        the library, which is changed after the build.
    SOURCE_DATE_EPOCH: the date of the files in the wheel; 1980, a zip file's first, unless named.
    CXX, CC: the compiler; on Windows ``clang-cl`` unless named.
    MAX_JOBS: how many compilers run at a time; one a core unless named.
"""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import tarfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import setuptools
from setuptools import setup
from setuptools.command.build import build
from setuptools.command.sdist import sdist

if int(setuptools.__version__.split(".")[0]) < 77:
    raise SystemExit(
        f"lltm is built with setuptools 77 or newer, and {sys.executable} has "
        f"{setuptools.__version__}; run `pip install 'setuptools>=77'` there first, or build "
        "without --no-build-isolation"
    )
from setuptools.command.bdist_wheel import bdist_wheel

# A build backend does not put the project's folder there.
sys.path.insert(0, str(Path(__file__).absolute().parent))
from build_support.variant import NO_TORCH, dependencies, package_version, release_version

# What pip asks for before a wheel, and what a source distribution takes; beside a command of the
# others, as in `setup.py sdist bdist_wheel`, they have the library, too.
WITHOUT_LIBRARY = {"dist_info", "egg_info", "sdist"}
WITH_LIBRARY = {"bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install"}


# Two builds of the same sources are the same bytes, wherever and whenever they are made.
os.environ["SOURCE_DATE_EPOCH"] = os.environ.get("SOURCE_DATE_EPOCH") or "315532800"
LAST_OF_GZIP = 2**32 - 1  # in 2106; of a zip file it is in 2107
epoch = os.environ["SOURCE_DATE_EPOCH"]
if not epoch.isdecimal() or int(epoch) > LAST_OF_GZIP:
    raise SystemExit(
        f"SOURCE_DATE_EPOCH must be seconds since 1970, at most {LAST_OF_GZIP}, got {epoch!r}"
    )


class FreshBuild(build):
    """A build of what is there: setuptools would keep, and pack, what an earlier one has left."""

    def run(self) -> None:
        """Build alone, and in an empty folder unless this very command has begun to fill it."""
        begun = any(self.distribution.have_run.get(name) for name in ("build_py", "build_ext"))
        folder = Path(self.build_lib)
        # One that --build-lib names may hold what nobody has built.
        ours = folder.parent == Path(self.build_base)
        with only_build():
            if ours and folder.exists() and not begun:
                shutil.rmtree(folder)
            super().run()


def of_any_clone(mode: int) -> int:
    """A file's or folder's mode whatever umask it was made under."""
    return 0o755 if mode & 0o100 else 0o644


class Wheel(bdist_wheel):
    """A wheel for any CPython of this platform: it contains a library, but no extension module."""

    def finalize_options(self) -> None:
        """Note whether the folder that is packed is one that --bdist-dir names."""
        self.is_named = self.bdist_dir is not None
        super().finalize_options()

    def run(self) -> None:
        """Fill an empty folder: an interrupted run leaves what it would have packed."""
        with only_build():
            if not self.is_named:
                shutil.rmtree(self.bdist_dir, ignore_errors=True)
            super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """``py3-none-<platform>``."""
        return "py3", "none", super().get_tag()[2]

    def write_wheelfile(self, *arguments: object) -> None:
        """Write what is last in a wheel; then all has the modes that it has from every clone."""
        super().write_wheelfile(*arguments)
        for path in Path(self.bdist_dir).rglob("*"):
            path.chmod(of_any_clone(path.stat().st_mode))


def undated(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """A member that says nothing of who packed it, and when."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = int(os.environ["SOURCE_DATE_EPOCH"])
    member.mode = of_any_clone(member.mode)
    return member


class Sdist(sdist):
    """A source distribution that is the same bytes from every clone."""

    def make_archive(self, base_name: str, *_: object, base_dir: str, **__: object) -> str:
        """A .tar.gz, its members in the order of their names."""
        path = Path(f"{base_name}.tar.gz")
        path.parent.mkdir(parents=True, exist_ok=True)
        time = int(os.environ["SOURCE_DATE_EPOCH"])
        with (
            path.open("wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=time) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            archive.add(base_dir, filter=undated)  # walks a folder in the order of names
        return str(path)


if WITHOUT_LIBRARY.isdisjoint(sys.argv) or not WITH_LIBRARY.isdisjoint(sys.argv):
    if find_spec("torch") is None:
        raise SystemExit(NO_TORCH)
    try:
        import_module("torch")
    except (ImportError, OSError) as error:
        raise SystemExit(
            f"torch cannot be loaded by {sys.executable}: {error}; reinstall it or, if it is in "
            "pip's temporary folder and that is mounted noexec, name another folder in TMPDIR"
        ) from None
    from build_support import library
    from build_support.lock import only_build

    setup(
        version=package_version(),
        install_requires=dependencies(),
        ext_modules=library.libraries(),
        cmdclass={
            "build": FreshBuild,
            "build_ext": library.Build,
            "bdist_wheel": Wheel,
            "sdist": Sdist,
        },
    )
elif "sdist" in sys.argv:
    # Every variant is built from it.
    setup(
        version=release_version(),
        install_requires=dependencies("stable"),
        cmdclass={"sdist": Sdist},
    )
else:
    setup(version=package_version(), install_requires=dependencies())
