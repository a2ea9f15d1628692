"""A library that cannot be loaded: one sentence before the loader sees it, or with its reason."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from installed_copy import InstalledCopy

from lltm import _library
from lltm._build import Build
from lltm._integrity import Recorded, damage

BUILD_JSON = _library.DIRECTORY / "build.json"
elf = pytest.mark.skipif(
    sys.platform != "linux", reason="not run: a library is read without its record where it is ELF"
)


@pytest.fixture
def copy(tmp_path: Path) -> InstalledCopy:
    return InstalledCopy.make(tmp_path)


def halve(path: Path) -> None:
    contents = path.read_bytes()
    path.write_bytes(contents[: len(contents) // 2])


@pytest.mark.subprocess
def test_a_truncated_library_is_not_mapped(copy: InstalledCopy) -> None:
    """It would end the process with SIGBUS."""
    copy.record()
    halve(copy.library)
    sentence = copy.failed_import()
    assert sentence.startswith(f"ImportError: {copy.library} is damaged (it has ")
    assert sentence.endswith("reinstall lltm with `pip install --force-reinstall --no-deps lltm`")


@pytest.mark.subprocess
def test_a_truncated_library_of_a_packager_is_not_mapped_either(copy: InstalledCopy) -> None:
    copy.describe(libraries={})
    assert copy.run("-c", "import lltm").returncode == 0
    halve(copy.library)
    assert "is damaged (it ends at " in copy.failed_import()


@elf
@pytest.mark.subprocess
@pytest.mark.parametrize(
    ("at", "size", "value"),
    [(32, 8, 2**64 - 1), (54, 2, 0), (54, 2, 8), (56, 2, 2**16 - 1)],
    ids=["no table of segments", "segments of nothing", "short segments", "many segments"],
)
def test_the_headers_of_a_packagers_library_are_damaged(
    at: int, size: int, value: int, copy: InstalledCopy
) -> None:
    contents = bytearray(copy.library.read_bytes())
    contents[at : at + size] = value.to_bytes(size, "little")
    copy.library.write_bytes(contents)
    copy.describe(libraries={})
    sentence = copy.failed_import()
    assert sentence.startswith("ImportError: ")
    assert str(copy.library) in sentence


@pytest.mark.subprocess
def test_a_library_with_other_contents_is_not_mapped(copy: InstalledCopy) -> None:
    copy.record()
    contents = bytearray(copy.library.read_bytes())
    contents[len(contents) // 2] ^= 1
    copy.library.write_bytes(contents)
    assert "is damaged (its SHA-256 is " in copy.failed_import()


@pytest.mark.subprocess
def test_a_missing_library_is_named(copy: InstalledCopy) -> None:
    library = copy.library
    library.unlink()
    assert f"{library} is damaged (" in copy.failed_import()


@pytest.mark.subprocess
def test_a_package_in_an_archive_is_named(copy: InstalledCopy, tmp_path: Path) -> None:
    """No loader reads a library there; zip-safe = false keeps installers from it, and no user."""
    archive = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", copy.site))
    shutil.rmtree(copy.package)
    said = copy.run("-c", "import lltm", PYTHONPATH=str(archive)).stderr
    assert said.strip().endswith(
        f"\nImportError: lltm's library cannot be loaded from {archive}, which is no folder; "
        "unpack it, or install lltm with pip"
    )


@pytest.mark.subprocess
def test_the_loaders_reason_is_told(copy: InstalledCopy) -> None:
    copy.library.write_bytes(b"no library")
    copy.describe(libraries={})
    sentence = copy.failed_import()
    assert sentence.startswith("ImportError: lltm's ")
    assert "file too short" in sentence or "invalid ELF header" in sentence
    assert "rebuild it for this torch" in sentence


FIELDS = {
    "torch": ("new", "a version such as 2.10"),
    "torch_target": (2.10, "a version such as 2.10 or null"),
    "binding": ("other", "stable or native"),
    "instruction_sets": ("avx2", "a list of strings"),
    "cuda_architectures": (None, "a list of strings"),
    "platform": (None, "a string"),
    "cuda": (13, "a string or null"),
    "debug": ("no", "true or false"),
    "libraries": ({"liblltm.so": 3}, "the size and sha256 of each library"),
}


def damaged(path: Path, contents: bytes) -> str:
    path.write_bytes(contents)
    with pytest.raises(ImportError) as raised:
        Build.read(path)
    sentence = str(raised.value)
    assert sentence.startswith(f"{path} is damaged (")
    assert sentence.endswith("; reinstall lltm with `pip install --force-reinstall --no-deps lltm`")
    return sentence


@pytest.mark.parametrize("name", FIELDS)
def test_a_damaged_field_is_named(name: str, tmp_path: Path) -> None:
    value, expected = FIELDS[name]
    fields = json.loads(BUILD_JSON.read_text(encoding="utf-8")) | {name: value}
    sentence = damaged(tmp_path / "build.json", json.dumps(fields).encode())
    assert f"({name} must be {expected}, got {value!r})" in sentence


def test_a_field_too_few_or_too_many_is_named(tmp_path: Path) -> None:
    fields = json.loads(BUILD_JSON.read_text(encoding="utf-8"))
    more = json.dumps(fields | {"extra": 1}).encode()
    assert "it has an unknown field extra" in damaged(tmp_path / "build.json", more)
    fields.pop("torch")
    fewer = json.dumps(fields).encode()
    assert "it has no field torch" in damaged(tmp_path / "build.json", fewer)


@pytest.mark.parametrize(
    "version",
    ["2.10rc1", "2.x", "2", "", "2.", "2.10 ", f"2.{5000 * '1'}"],
    ids=lambda version: version[:8],
)
def test_a_version_whose_release_is_no_number_is_named(version: str, tmp_path: Path) -> None:
    fields = json.loads(BUILD_JSON.read_text(encoding="utf-8")) | {"torch_target": version}
    sentence = damaged(tmp_path / "build.json", json.dumps(fields).encode())
    assert "torch_target must be a version such as 2.10 or null" in sentence


@pytest.mark.parametrize("version", ["2.10", "2.13.0+cpu", "2.15.0a0+git1a2b3c4", "2.10+cu130"])
def test_a_version_of_a_torch_is_read(version: str, tmp_path: Path) -> None:
    path = tmp_path / "build.json"
    fields = json.loads(BUILD_JSON.read_text(encoding="utf-8")) | {"torch": version}
    path.write_text(json.dumps(fields), encoding="utf-8")
    assert _library.release(Build.read(path).torch) >= (2, 10)


@pytest.mark.parametrize(
    "contents", [b"[1]", b"null", b"\xff\xfe", b'{"a": ', b"", b"[" * 100_000], ids=range(6)
)
def test_a_description_that_is_none(contents: bytes, tmp_path: Path) -> None:
    assert damaged(tmp_path / "build.json", contents)


@pytest.mark.subprocess
def test_what_is_installed_is_explained_where_it_is_damaged(copy: InstalledCopy) -> None:
    copy.describe(torch="new")
    assert "is damaged (torch must be a version such as 2.10" in copy.failed_import()
    explained = copy.run("-m", "lltm", "--json")
    assert explained.returncode == 1
    assert "torch must be" in json.loads(explained.stdout)["problem"]


@pytest.mark.subprocess
def test_the_cells_library_is_part_of_what_is_explained(copy: InstalledCopy) -> None:
    copy.describe(cells={"lstm": "lltm_cell_0123456789abcdef"})
    name = _library.CELLS_NAMES[sys.platform]
    copy.library.with_name(name).unlink(missing_ok=True)
    explained = copy.run("-m", "lltm", "--json")
    assert explained.returncode == 1, explained.stdout
    assert f"{name} is damaged" in json.loads(explained.stdout)["problem"]


# Truncation -------------------------------------------------------------------------------------


@elf
def test_every_length_short_of_the_whole_is_noticed(tmp_path: Path) -> None:
    whole = (_library.DIRECTORY / _library.NAMES[sys.platform]).read_bytes()
    path = tmp_path / "library"
    path.write_bytes(whole)
    recorded = Recorded.of(path)
    assert damage(path, recorded) is None
    assert damage(path, None) is None
    for length in (*range(64, len(whole), 9973), len(whole) - 1):
        path.write_bytes(whole[:length])
        assert damage(path, recorded) is not None
        assert damage(path, None) is not None
