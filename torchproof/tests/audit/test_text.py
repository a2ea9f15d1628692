"""How the audit writes names and lists of them, in a table or a sentence."""

from __future__ import annotations

import pytest
from torchproof.audit.outcome import listed
from torchproof.audit.symbols import brief
from torchproof.audit.text import printable, shorten


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, ""), (1, "a"), (5, "a, b, c, d, e"), (6, "a, b, c, d, e and 1 more")],
)
def test_a_list_names_the_first_and_counts_the_rest(count: int, text: str) -> None:
    assert listed("abcdef"[:count]) == text


def test_a_list_writes_each_name_as_it_is_told() -> None:
    assert listed("ab", str.upper) == "A, B"


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("two\n  lines", "two lines"),
        ("x" * 160, "x" * 160),
        ("x" * 161, "x" * 157 + "..."),
    ],
)
def test_a_text_is_cut_to_one_line(text: str, short: str) -> None:
    assert shorten(text) == short


@pytest.mark.parametrize(
    ("raw", "text"), [(b"caf\xc3\xa9", "caf\u00e9"), (b"a\xff", "a\\xff"), (b"a\x1b[", "a\\x1b[")]
)
def test_what_is_not_printable_is_escaped(raw: bytes, text: str) -> None:
    assert printable(raw) == text


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_ZN3c104warnERKSs", "c10::warn(...)"),
        ("_ZN2at4sizeEv", "at::size()"),
        ("_ZN2at1fIFvvEEEvi", "void at::f<void ()>(...)"),
        ("_ZN2at1SclEi", "at::S::operator()(...)"),
        ("aoti_torch_device_type_cpu", "aoti_torch_device_type_cpu"),
    ],
)
def test_a_name_is_written_without_its_arguments(mangled: str, name: str) -> None:
    assert brief(mangled) == name
