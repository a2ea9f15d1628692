"""A file that is damaged, or made to do harm, ends in one sentence, and hides nobody else's report.

HOSTILE_CASES and HOSTILE_SEED choose how many mutations are tried, and which.
"""

from __future__ import annotations

import bz2
import contextlib
import io
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conda_package_streaming.create import conda_builder
from rich.console import Console
from samples import GOOD, I686, METADATA, S390X, WHEEL, Kind, archive, small_elf
from torchproof.audit import ArtifactError, audit, default_policy, elf_file, render, unpack
from torchproof.audit.__main__ import main
from torchproof.audit.isolated import Auditor, Budget

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Toolchain

CASES = int(os.environ.get("HOSTILE_CASES", "120"))
SEED = int(os.environ.get("HOSTILE_SEED", "1"))
LIMIT_S = 10.0
START_S = 60.0  # until a process audits
LONGEST_SENTENCE = 600
EVIL = (0, 1, 0x7F, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)


@pytest.mark.parametrize(
    ("kind", "policy"), [(I686, "manylinux_2_5_i686"), (S390X, "manylinux_2_17_s390x"),
                         (Kind(62), "manylinux_2_5_x86_64"), (Kind(8), "linux_machine8")]
)  # fmt: skip
def test_a_library_of_another_machine_is_read(tmp_path: Path, kind: Kind, policy: str) -> None:
    library = tmp_path / "ext.so"
    library.write_bytes(small_elf(kind))
    (found,) = audit(library).libraries
    assert found.facts.needed == ("libc.so.6",)
    assert found.facts.python == "cpython"
    assert found.facts.manylinux == policy


# What somebody made by hand ------------------------------------------------------------------


def patched_zip(field: int, value: int) -> Callable[[Path], Path]:
    """A wheel with one 16-bit field of its headers, at that place of the local one, changed."""

    def make(folder: Path) -> Path:
        path = archive(folder / WHEEL, ("ext/ext.so", GOOD))
        data = bytearray(path.read_bytes())
        central = data.index(b"PK\1\2")
        data[field : field + 2] = data[central + field + 2 : central + field + 4] = struct.pack(
            "<H", value
        )
        path.write_bytes(data)
        return path

    return make


def corrupt(folder: Path) -> Path:
    path = archive(folder / WHEEL, ("ext/ext.so", GOOD * 50), method=zipfile.ZIP_DEFLATED)
    data = bytearray(path.read_bytes())
    data[60:70] = b"\xff" * 10
    path.write_bytes(data)
    return path


def truncated(folder: Path) -> Path:
    path = archive(folder / WHEEL, ("ext/ext.so", GOOD))
    path.write_bytes(path.read_bytes()[:-30])
    return path


def zip_bomb(folder: Path) -> Path:
    data = GOOD + bytes(200 << 20)
    return archive(folder / WHEEL, ("ext/ext.so", data), method=zipfile.ZIP_DEFLATED)


def conda_bomb(folder: Path) -> Path:
    path = folder / "ext-1.0-0.tar.bz2"
    with bz2.open(path, "wb") as stream, tarfile.open(fileobj=stream, mode="w") as target:
        row = tarfile.TarInfo("lib/ext.so")
        row.size = 200 << 20
        target.addfile(row, io.BytesIO(bytes(row.size)))
    return path


def header_bomb(folder: Path) -> Path:
    """A header of tar that its reader takes into memory whole."""
    path = folder / "ext-1.0-0.tar.bz2"
    row = tarfile.TarInfo("pax")
    row.type, row.size = tarfile.XHDTYPE, 400 << 20
    with bz2.open(path, "wb") as stream:
        stream.write(row.tobuf())
        for _ in range(400):
            stream.write(bytes(1 << 20))
    return path


def climbing_conda(folder: Path) -> Path:
    path = folder / "ext-1.0-0.tar.bz2"
    with tarfile.open(path, "w:bz2") as target:
        row = tarfile.TarInfo("../../ext.so")
        row.size = len(GOOD)
        target.addfile(row, io.BytesIO(GOOD))
    return path


def fifo(folder: Path) -> Path:
    os.mkfifo(folder / "ext.so")
    return folder / "ext.so"


def folder_named_wheel(folder: Path) -> Path:
    (folder / WHEEL).mkdir()
    return folder / WHEEL


def plain(name: str, data: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return make


def zipped(*files: tuple[str, bytes]) -> Callable[[Path], Path]:
    return lambda folder: archive(folder / WHEEL, *files)


def word(at: int, value: int) -> bytes:
    """The good library with one of its 64-bit words changed."""
    return GOOD[:at] + struct.pack("<Q", value) + GOOD[at + 8 :]


INVALID = b"Metadata-Version: 2.1\nName: ext\nVersion: 1.0\nRequires-Dist: ??? torch\n"
MACH_O, PE = b"\xcf\xfa\xed\xfe" + bytes(60), b"MZ" + bytes(60)
REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "empty": (plain("ext.so", b""), "is no ELF library"),
    "Mach-O": (plain("ext.so", MACH_O), "is a Mach-O library of macOS"),
    "PE": (plain("ext.so", PE), "is a library of Windows"),
    "static": (plain("ext.so", b"!<arch>\n"), "is a static library"),
    "FIFO": (fifo, "is no regular file"),
    "device": (lambda _: Path("/dev/zero"), "is no regular file"),
    "folder": (folder_named_wheel, "holds no ELF shared library"),
    "no dynamic tags": (plain("ext.so", GOOD[:64] + bytes(112)), "it has no dynamic tags"),
    "a size of 2^40": (plain("ext.so", word(64 + 32, 1 << 40)), "end at byte 1,099,511,627,776"),
    "program headers far away": (plain("ext.so", word(32, 1 << 40)), "would end at byte"),
    "wheel of macOS": (zipped(("ext.so", MACH_O)), "but ext.so, a Mach-O library of macOS"),
    "wheel of Windows": (zipped(("ext.pyd", PE)), "but ext.pyd, a library of Windows"),
    "no zip": (plain(WHEEL, b"no zip"), "is no well-formed wheel"),
    "no wheel's name": (plain("ext.whl", b""), "is no well-formed wheel"),
    "encrypted": (patched_zip(6, 1), "is encrypted"),
    "odd compression": (patched_zip(8, 99), "NotImplementedError: That compression method"),
    "corrupt": (corrupt, "is no well-formed wheel: error: Error -3"),
    "truncated": (truncated, "is no well-formed wheel"),
    "zip bomb": (zip_bomb, "unpacks to more than"),
    "climbs": (zipped(("../../ext.so", GOOD)), "outside of its folder"),
    "absolute": (zipped(("/ext.so", GOOD)), "outside of its folder"),
    "file and folder": (zipped(("a.so", GOOD), ("a.so/b.so", GOOD)), "is in it twice"),
    "invalid metadata": (zipped(("ext.so", GOOD), (METADATA, INVALID)), "has invalid metadata"),
    "conda bomb": (conda_bomb, "unpacks to more than"),
    "conda header bomb": (header_bomb, "unpacks to far more than"),
    "conda climbs": (climbing_conda, "outside of its folder"),
    "no conda": (plain("ext-1.0-0.conda", b"no zip"), "is no well-formed conda package"),
    "no tar": (plain("ext-1.0-0.tar.bz2", b"no bzip2"), "is no well-formed conda package"),
}  # fmt: skip


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.so"
    path.write_bytes(GOOD)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "bad"
    path.mkdir()
    return path


@pytest.mark.parametrize("kind", REFUSED)
def test_a_hostile_file_is_refused_in_one_sentence(kind: str, folder: Path) -> None:
    make, words = REFUSED[kind]
    with pytest.raises(ArtifactError) as refused:
        audit(make(folder))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < LONGEST_SENTENCE


def test_bad_files_do_not_hide_the_reports_of_the_good(
    folder: Path, good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = [str(REFUSED[kind][0](folder)) for kind in ("FIFO", "no conda")]
    assert main([bad[0], str(good), bad[1]]) == 2
    out, error = capsys.readouterr()
    assert "good.so: " in out
    assert error.splitlines() == [line for line in error.splitlines() if line.startswith("audit: ")]
    assert [name in line for name, line in zip(bad, error.splitlines(), strict=True)] == [True] * 2


def test_json_lists_what_was_refused(
    folder: Path, good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(REFUSED["FIFO"][0](folder)), str(good), "--json"]) == 2
    refused, report = json.loads(capsys.readouterr().out)
    assert (refused["artifact"], refused["ok"]) == ("ext.so", False)
    assert "is no regular file" in refused["error"]
    assert report["artifact"] == "good.so"


def test_a_damaged_library_does_not_hide_those_beside_it(
    tmp_path: Path, good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "damaged.so").write_bytes(GOOD[:200])
    report = audit(tmp_path)
    assert [library.name for library in report.libraries] == [good.name]
    assert not report.ok
    assert main([str(tmp_path)]) == 1
    assert "damaged.so is no readable shared library" in capsys.readouterr().out


def test_a_name_is_fit_for_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / os.fsdecode(b"\xff\x1b[31m.so")
    path.write_bytes(small_elf(Kind(62), needed="lib\x1b[2J\u0301.so"))
    assert main([str(path)]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\\x1b[2J" in out


@pytest.fixture
def endless(toolchain: Toolchain) -> Path:
    """A library with a symbol that demangles without end."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    twice = "".join(f"S0_IS{digit}_S{digit}_E" for digit in digits[1:])
    name = f"_ZN2at1fENS_1AIiiEE{twice}"
    return toolchain.library(
        "bomb.so", f'int bomb() asm("{name}");\nint call() {{ return bomb(); }}\n'
    )


def test_a_symbol_that_demangles_without_end_is_stopped(
    endless: Path, good: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with Auditor(default_policy(), [], Budget(seconds=1, memory=256 << 20)) as auditor:
        with pytest.raises(ArtifactError, match="was not audited: that took more than 1 s"):
            auditor.audit(endless)
        assert auditor.audit(good).artifact == "good.so"
    assert list(folder.iterdir()) == [], "what the ended process left is removed"


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_an_audit_that_is_ended_leaves_no_process_and_no_file(
    name: str, endless: Path, folder: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "torchproof", "audit", str(endless)],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        end = time.monotonic() + START_S
        while not list(folder.glob("*/*")) and time.monotonic() < end:
            time.sleep(0.05)
        at_work = list(folder.iterdir())
        process.send_signal(signal.Signals[name])
        try:
            process.communicate(timeout=LIMIT_S)  # until no process holds its output
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert at_work
    assert list(folder.iterdir()) == []


# Mutations -----------------------------------------------------------------------------------


def mutated(data: bytes, dice: random.Random) -> bytes:
    """A file cut off, or with some of its bytes or words changed."""
    how = dice.randrange(4)
    if how == 0:
        return data[: dice.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 8, 64))):
        # The headers and tables of a small library are at its beginning.
        at = dice.randrange(min(len(data), 1 << dice.randrange(5, 21)))
        if how == 1:
            changed[at] ^= 1 << dice.randrange(8)
        else:
            size = dice.choice((2, 4, 8))
            at -= at % size
            value = dice.choice(EVIL) & (1 << 8 * size) - 1
            changed[at : at + size] = value.to_bytes(size, dice.choice(("little", "big")))
    return bytes(changed)


def seeds(toolchain: Toolchain) -> dict[str, bytes]:
    """A sound file of each kind: with and without sections, versions, compression."""
    source = "#include <string>\nstd::string text(int n) { return std::string(n, 'x'); }\n"
    library = toolchain.library("seed.so", source, "-s")
    compiled = library.read_bytes()
    archive(toolchain.folder / WHEEL, ("ext/ext.so", compiled), (METADATA, INVALID[:45]))
    packed = archive(
        toolchain.folder / f"2{WHEEL}", ("ext/ext.so", compiled), method=zipfile.ZIP_DEFLATED
    )
    with tarfile.open(toolchain.folder / "ext-1.0-0.tar.bz2", "w:bz2") as target:
        target.add(library, "lib/ext.so")
    with conda_builder("ext-1.0-1", toolchain.folder) as package:
        package.add(library, "lib/ext.so")
    return {
        "ext.so": compiled,
        "small.so": GOOD,
        "i686.so": small_elf(I686),
        "big.so": small_elf(S390X),
        WHEEL: (toolchain.folder / WHEEL).read_bytes(),
        f"2{WHEEL}": packed.read_bytes(),
        "ext-1.0-0.tar.bz2": (toolchain.folder / "ext-1.0-0.tar.bz2").read_bytes(),
        "ext-1.0-1.conda": (toolchain.folder / "ext-1.0-1.conda").read_bytes(),
    }


def test_a_mutated_file_is_audited_or_refused(toolchain: Toolchain, folder: Path) -> None:
    dice = random.Random(SEED)
    sound = seeds(toolchain)
    for name, data in sound.items():
        (folder / name).write_bytes(data)
        assert audit(folder / name).libraries, f"{name} is sound"
    ends = set()
    for number in range(CASES):
        name = dice.choice(list(sound))
        (folder / name).write_bytes(mutated(sound[name], dice))
        begun = time.process_time()
        refusal = None
        try:
            render(audit(folder / name), Console(file=io.StringIO()))
        except ArtifactError as error:
            refusal = str(error)
        except Exception as error:
            raise AssertionError(f"case {number} of seed {SEED} is {folder / name}") from error
        assert time.process_time() - begun < LIMIT_S, f"case {number} of seed {SEED}"
        assert refusal is None or ("\n" not in refusal and len(refusal) < LONGEST_SENTENCE)
        ends.add(refusal is None)
    assert ends == {True, False}


def test_each_prefix_of_a_library_is_refused(folder: Path) -> None:
    for size in range(len(GOOD)):
        (folder / "ext.so").write_bytes(GOOD[:size])
        with pytest.raises(ArtifactError):
            audit(folder / "ext.so")


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (unpack.Limits(files=1), "more than 1 files"),
        (unpack.Limits(file=100), "over 100"),
        (unpack.Limits(total=500), "unpacks to more than 500 bytes"),
    ],
)
def test_what_is_unpacked_is_limited(
    limits: unpack.Limits, words: str, folder: Path, tmp_path: Path
) -> None:
    wheel = archive(folder / WHEEL, ("a.so", GOOD), ("b.so", GOOD))
    with pytest.raises(unpack.UnpackError, match=words):
        unpack.wheel(wheel, tmp_path / "out", re.compile(".*"), limits=limits)


def test_the_names_of_symbols_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "ext.so"
    library.write_bytes(small_elf(Kind(62), undefined="PyErr_Clear"))
    monkeypatch.setattr(elf_file, "MOST_NAME_BYTES", len("PyErr_Clear"))
    assert audit(library).libraries
    monkeypatch.setattr(elf_file, "MOST_NAME_BYTES", len("PyErr_Clear") - 1)
    with pytest.raises(ArtifactError, match="the names of its symbols are over 10 bytes"):
        audit(library)


def test_a_narrow_terminal_cuts_nothing_off(tmp_path: Path) -> None:
    library, name = tmp_path / "ext.so", 60 * "x"
    library.write_bytes(small_elf(Kind(62), undefined=f"_ZN3c10{len(name)}{name}Ev"))
    screen = io.StringIO()
    render(audit(library), Console(file=screen, width=60))
    assert f"c10::{name}" in screen.getvalue().replace("\n", "").replace(" ", "")
    assert "…" not in screen.getvalue()
