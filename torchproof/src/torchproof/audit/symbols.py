"""What a symbol's name tells: whose it is, and which std::string it was compiled with."""

from __future__ import annotations

import re
from functools import cache

import cxxfilt

QUALIFIERS = r"_Z(?:T[VTIS]|TC|GV|GR|TH|TW|T[hv]n?\d+_(?:n?\d+_)?)?Z?N?[KVrRO]*"
TORCH = r"(?:2at|3c10|5torch|6caffe2)"
# A name that torch's C++ namespaces own or that takes or returns one of their types, or a name of
# torch's Python binding, which has no namespace.
TORCH_CXX = re.compile(rf"_Z\w*N[KVrRO]*{TORCH}\d|_Z{TORCH}\d|_?THP[A-Z]|_Z\d+_?THP[A-Z]")
SHIM = re.compile(r"aoti_torch_|torch_")
PYTHON = re.compile(r"_?Py[A-Z_]")
STD_OWNED = re.compile(
    rf"{QUALIFIERS}(?:St|S[absiod]|9__gnu_cxx|10__cxxabiv1)"
    r"|_Z(?:nw|na|dl|da)"  # the operators new and delete of <new>
    r"|_ZT[IS][FPROAM]"  # type information of functions, pointers, references and arrays
)
TORCH_OWNED = re.compile(rf"{QUALIFIERS}(?:{TORCH}|8pybind11|3fmt)")
NEW_STRING = re.compile(r"std::__cxx11::|\[abi:cxx11\]")
OLD_STRING = re.compile(r"\bstd::(?:w?string\b|basic_string<)")


@cache
def demangle(name: str) -> str:
    """The C++ name as a person writes it; a name that is not mangled comes back as it is."""
    try:
        return str(cxxfilt.demangle(name))
    except cxxfilt.InvalidName:
        return name


def brief(name: str) -> str:
    """A name, mangled or not, without the types of its arguments: short enough for a table."""
    written = demangle(name)
    depth = 0
    for at, letter in enumerate(written):
        if letter == "(" and depth == 0 and not written.endswith("operator", 0, at):
            return f"{written[:at]}(...)" if written[at + 1] != ")" else f"{written[:at]}()"
        depth += {"<": 1, ">": -1}.get(letter, 0)
    return written


def is_torch_cxx(name: str) -> bool:
    """Whether the symbol belongs to torch's C++ API, which each release may change."""
    return TORCH_CXX.match(name) is not None


def is_shim(name: str) -> bool:
    """Whether the symbol belongs to torch's stable C API."""
    return SHIM.match(name) is not None


def is_python(name: str) -> bool:
    """Whether the symbol belongs to the C API of CPython."""
    return PYTHON.match(name) is not None


def is_std(name: str) -> bool:
    """Whether the C++ run-time's headers make the symbol in every library that includes them."""
    return STD_OWNED.match(name) is not None


def is_torch_inline(name: str) -> bool:
    """Whether the symbol lives in a namespace that torch's headers fill, pybind11's among them."""
    return TORCH_OWNED.match(name) is not None


def cxx11_strings(names: list[str]) -> set[bool]:
    """Which std::string the names mention: True is `_GLIBCXX_USE_CXX11_ABI=1`, False is 0."""
    written = [demangle(name) for name in names if name.startswith("_Z")]
    found = {True for name in written if NEW_STRING.search(name)}
    return found | {False for name in written if OLD_STRING.search(name)}
