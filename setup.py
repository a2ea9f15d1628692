"""Make the wheel: its metadata here and without torch, its library in build_support.

Environment:
    LLTM_BINDING: ``stable`` (default; every torch from TORCH_TARGET on) or ``native`` (the torch it
        is built on, needs ``--no-build-isolation``).
    LLTM_CUDA: ``1`` builds the CUDA kernels, too; build_support/cuda.py says what that takes.
    LLTM_DEBUG: ``1`` for assertions and debug information.
    LLTM_PACKAGER: set by a packager, as conda's recipe does: no marks in the version, no hash of
        the library, which is changed after the build.
    SOURCE_DATE_EPOCH: the date of the files in the wheel; 1980, a zip file's first, unless named.
    CXX, CC: the compiler; on Windows ``clang-cl`` unless named.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

# A build backend does not put the project's folder there.
sys.path.insert(0, str(Path(__file__).absolute().parent))
from build_support.variant import package_version

# What pip asks for before a wheel, and what a source distribution takes.
WITHOUT_LIBRARY = {"dist_info", "egg_info", "sdist"}


# Two builds of the same sources are the same bytes, wherever and whenever they are made.
os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800")


class Wheel(bdist_wheel):  # type: ignore[misc]  # setuptools carries no types
    """A wheel for any CPython of this platform: it contains a library, but no extension module."""

    def get_tag(self) -> tuple[str, str, str]:
        """``py3-none-<platform>``."""
        return "py3", "none", super().get_tag()[2]


if WITHOUT_LIBRARY.isdisjoint(sys.argv):
    from build_support import library

    setup(
        version=package_version(),
        ext_modules=library.libraries(),
        cmdclass={"build_ext": library.Build, "bdist_wheel": Wheel},
    )
else:
    setup(version=package_version())
