"""What a symbol's name states: whose it is, and which std::string it was compiled with."""

import re
from functools import cache

import cxxfilt

from torchproof.audit import shims
from torchproof.audit.text import shorten

# What may precede a name in the mangling of the Itanium C++ ABI: the mark of a virtual table, type
# information, thunk, guard or local entity; then N and qualifiers for a name in a scope.
SPECIAL = r"_Z(?:T[VTIS]|TC|GV|GR|TH|TW|T[hv]n?\d+_(?:n?\d+_)?|Tc[hvn\d_]+)?Z*"
SCOPE = r"N[KVrRO]*"
QUALIFIERS = rf"{SPECIAL}(?:{SCOPE})?"
TORCH = r"(?:2at|3c10|4c10d|5torch|6caffe2)"
# A name in one of torch's C++ namespaces, operators included, or of its Python binding.
TORCH_CXX = re.compile(rf"{SPECIAL}{SCOPE}{TORCH}|_?THP[A-Z]|_Z\d+_?THP[A-Z]")
# torch exports instances of these libraries' templates for its own types, not for those of its
# stable headers.
TEMPLATES = re.compile(rf"{QUALIFIERS}(?:St|S[absiod]|8pybind11|3fmt)")
TORCH_TYPE = re.compile(rf"{SCOPE}{TORCH}(?!6stable|10headeronly)")
SHIM = re.compile(r"aoti_torch_")
PYTHON = re.compile(r"_?Py[A-Z_]")
STD_OWNED = re.compile(
    rf"{QUALIFIERS}(?:St|S[absiod]|9__gnu_cxx|10__cxxabiv1)"
    r"|_Z(?:nw|na|dl|da)"  # the operators new and delete of <new>
    r"|_ZT[IS][FPROAM]"  # type information of functions, pointers, references and arrays
)
TORCH_OWNED = re.compile(rf"{SPECIAL}{SCOPE}(?:{TORCH}|8pybind11|3fmt)")
# Demangling a hundred thousand names would take seconds.
MAY_MENTION_STRING = re.compile(r"_Z.*(?:cxx11|Ss|Sb)")
NEW_STRING = re.compile(r"std::__cxx11::|\[abi:cxx11\]")
OLD_STRING = re.compile(r"\bstd::(?:w?string\b|basic_string<)")


@cache
def demangle(name: str) -> str:
    """The C++ name as a person writes it; a name that is not mangled comes back as it is."""
    try:
        return str(cxxfilt.demangle(name))
    except cxxfilt.Error:
        return name


def brief(name: str) -> str:
    """A name, mangled or not, without the types of its arguments: short enough for a table."""
    written = demangle(name)
    depth = 0
    for at, letter in enumerate(written):
        if letter == "(" and depth == 0 and not written.endswith("operator", 0, at):
            end = "()" if written.startswith("()", at) else "(...)"
            return shorten(written[:at]) + end
        depth += {"<": 1, ">": -1}.get(letter, 0)
    return shorten(written)


def is_torch_cxx(name: str) -> bool:
    """Whether the symbol belongs to torch's C++ API, which each release may change.

    A function of another namespace that takes a tensor is not torch's.
    """
    if TORCH_CXX.match(name):
        return True
    return bool(TEMPLATES.match(name) and TORCH_TYPE.search(name))


def is_shim(name: str) -> bool:
    """Whether the symbol belongs to torch's stable C API: `torch_anything` may be anybody's."""
    return SHIM.match(name) is not None or name in shims.table()


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
    written = [demangle(name) for name in names if MAY_MENTION_STRING.match(name)]
    found = {True for name in written if NEW_STRING.search(name)}
    return found | {False for name in written if OLD_STRING.search(name)}
