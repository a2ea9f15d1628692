"""Builds the extension ahead of time, into a wheel."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

setup(
    name="scratch-extension",
    version="1.0",
    py_modules=[],
    ext_modules=[
        CppExtension(
            "scratch_ahead",
            ["binding.cpp", "cell.cpp"],
            define_macros=[("SCRATCH_NAMESPACE", "scratch_ahead")],
            extra_compile_args=["-O2", "-g0"],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
