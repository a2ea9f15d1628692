"""What is unpacked from Debian's packages, with programs in the place of apt-get and dpkg."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from torchproof.machine import debian, emulation, inventory
from torchproof.machine.debian import NotOffered
from torchproof.machine.inventory import CompilerFound, Interpreter, Machine
from torchproof.rows import compilers
from torchproof.rows.plan import expand

from torchproof import cli, config

MATRIX = config.load()
ARM = emulation.of(MATRIX, "linux-aarch64")
APT_GET = """#!/bin/sh
echo "$@" >> "$LOG"
for word in "$@"; do
  case $word in
    Dir::Cache=*) cache=${word#Dir::Cache=};;
    indextargets) echo https://archive.example/debian; exit 0;;
    --download-only) for name in "$@"; do last=$name; done; touch "$cache/archives/$last.deb";;
  esac
done
"""
# A package holds all that any has: CPython, QEMU and a compiler.
DPKG = f"""#!/bin/sh
out=$3 triplet={ARM.triplet}
mkdir -p "$out/usr/bin" "$out/usr/lib/python3.11" "$out/usr/include/python3.11" \
  "$out/usr/include/$triplet/python3.11" "$out/lib/$triplet" "$out/usr/lib/$triplet"
printf '#!/bin/sh\\necho 3.11.2\\n' > "$out/usr/bin/python3.11"
run='[ "$1" = --version ] && echo qemu version 10.0.2 || {{ shift 6; exec "$@"; }}'
printf '#!/bin/sh\\n%s\\n' "$run" \
  > "$out/usr/bin/{ARM.program}"
printf '#!/bin/sh\\necho 12.2.0\\n' > "$out/usr/bin/$triplet-g++"
cp "$out/usr/bin/$triplet-g++" "$out/usr/bin/$triplet-gcc"
chmod +x "$out/usr/bin/"*
echo includes the real one > "$out/usr/include/python3.11/pyconfig.h"
echo the real one > "$out/usr/include/$triplet/python3.11/pyconfig.h"
touch "$out/lib/$triplet/libc.so.6" "$out/usr/lib/$triplet/libgomp.so.1" \
  "$out/usr/lib/python3.11/libpython.a"
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH; what apt-get is given is in `log`."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name, text in {"apt-get": APT_GET, "dpkg": DPKG}.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(folder / "log"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def asked(programs: Path) -> list[str]:
    """What apt-get was run with, a line each."""
    return (programs / "log").read_text(encoding="utf-8").splitlines()


def test_what_is_fetched_is_found_and_runs(programs: Path, tmp_path: Path) -> None:
    python = emulation.fetch("3.11", ARM, tmp_path / "scratch")
    done = subprocess.run([python, "-c", ""], capture_output=True, text=True, check=True)
    assert done.stdout == "3.11.2\n"
    gcc = CompilerFound("g++", "13.2.0", Path("g++"))
    host = Interpreter(Path("python3.11"), "3.11.7")
    (found,) = emulation.find(MATRIX, Machine(host, (host,), (gcc,), gcc, gpu=False)).emulated
    assert (found.platform, found.running.version, found.running.path) == (
        ("linux-aarch64", "3.11.2", python)
    )
    assert found.running.emulation is not None
    assert found.running.emulation.emulator == "qemu-user 10.0.2"
    prefix = python.parents[1]
    headers = prefix / "include" / "python3.11" / "pyconfig.h"
    assert headers.read_text(encoding="utf-8") == "the real one\n"
    libraries = {path.name for path in (prefix / "lib" / ARM.triplet).iterdir()}
    assert {"libc.so.6", "libgomp.so.1"} <= libraries
    assert not list(prefix.rglob("*.a"))
    # All of it for the platform, and none of it into the system's own state.
    downloads = [line for line in asked(programs) if "--download-only" in line]
    assert any("APT::Architecture=arm64" in line and "python3.11" in line for line in downloads)
    assert all(f"Dir::State={tmp_path}" in line for line in downloads)
    assert inventory.cache_folder() in python.parents


def test_a_second_series_fetches_neither_the_emulator_nor_the_compiler(
    programs: Path, tmp_path: Path
) -> None:
    emulation.fetch("3.11", ARM, tmp_path / "scratch")
    (programs / "log").unlink()
    emulation.fetch("3.11", ARM, tmp_path / "again")
    downloads = [line for line in asked(programs) if "--download-only" in line]
    assert len(downloads) == 1
    assert "libpython3.11-dev" in downloads[0]


def test_a_tool_that_fails_is_named_with_its_last_line(programs: Path, tmp_path: Path) -> None:
    (programs / "dpkg").write_text("#!/bin/sh\necho trace\necho no space left >&2\nexit 2\n")
    with pytest.raises(NotOffered, match=r"^dpkg failed: no space left$"):
        debian.unpack("sid", ["package"], tmp_path / "scratch")


def test_an_index_that_cannot_be_fetched_is_the_reason(programs: Path, tmp_path: Path) -> None:
    """apt-get passes over it unless told otherwise, and then knows no package."""
    (programs / "apt-get").write_text("""#!/bin/sh
case "$*" in
  *indextargets*) echo https://archive.example/debian; exit 0;;
  *Error-Mode=any*update) echo "E: Failed to fetch InRelease" >&2;;
  *update) exit 0;;
  *) echo "E: Unable to locate package python3.11" >&2;;
esac
echo "E: And more" >&2
exit 100
""")
    with pytest.raises(NotOffered, match=r"^apt-get failed: E: Failed to fetch InRelease$"):
        emulation.fetch("3.11", ARM, tmp_path / "scratch")


def test_an_apt_that_has_read_nothing_is_named_with_the_remedy(programs: Path) -> None:
    (programs / "apt-get").write_text("#!/bin/sh\n")
    with pytest.raises(NotOffered, match="apt has read no index of Debian's; run `apt-get update`"):
        debian.mirror()


def test_without_apt_nothing_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotOffered, match="there is no apt-get on PATH"):
        debian.unpack("sid", ["package"], tmp_path / "scratch")


# Compilers --------------------------------------------------------------------------------------


@pytest.fixture
def needed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The packages of a machine that has no compiler at all."""
    rows = [replace(row, compiler="g++-11") for row in expand(MATRIX, "local")[:1]]
    monkeypatch.setattr(compilers, "expand", lambda *_: rows)
    monkeypatch.setattr(compilers, "find_compilers", lambda: ())
    monkeypatch.setattr("os.geteuid", lambda: 0)
    return ["g++-11"]


def offer(programs: Path, *names: str) -> None:
    """Let apt know these packages."""
    (programs / "apt-cache").write_text(f"#!/bin/sh\nprintf '%s\\n' {' '.join(names)}\n")
    (programs / "apt-cache").chmod(0o755)


def test_missing_compilers_are_installed(programs: Path, needed: list[str]) -> None:
    offer(programs, "g++-11", "g++-12")
    assert compilers.main([]) == 0
    assert asked(programs) == ["update -q", f"install -y -q {' '.join(needed)}"]


def test_a_compiler_that_has_no_package_does_not_keep_the_others_away(
    programs: Path,
    needed: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (row,) = expand(MATRIX, "local")[:1]
    rows = [replace(row, compiler=label) for label in (*needed, "g++-16", "clang++-22")]
    monkeypatch.setattr(compilers, "expand", lambda *_: rows)
    offer(programs, *needed, "g++-16-multilib")
    assert compilers.main([]) == 0
    assert asked(programs) == ["update -q", f"install -y -q {' '.join(needed)}"]
    assert "not packaged for this system, and left out: clang-22, g++-16" in capfd.readouterr().out


def test_where_no_compiler_has_a_package_nothing_is_installed(
    programs: Path, needed: list[str]
) -> None:
    offer(programs, "g++-12")
    assert compilers.main([]) == 0
    assert asked(programs) == ["update -q"]


def test_an_apt_that_fails_gives_its_status(
    programs: Path, needed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    offer(programs, *needed)
    (programs / "apt-get").write_text('#!/bin/sh\n[ "$1" = install ] && exit 100\nexit 0\n')
    assert compilers.main([]) == 100
    assert "apt-get install failed" in capsys.readouterr().err


def test_without_apt_the_packages_are_named(
    needed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert compilers.main([]) == 1
    assert f"install {' '.join(needed)} by hand" in capsys.readouterr().err


def test_where_every_compiler_is_here_nothing_is_installed(
    programs: Path,
    needed: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = [CompilerFound("g++", "11.4.0", Path("g++-11"))]
    monkeypatch.setattr(compilers, "find_compilers", lambda: here)
    assert compilers.main(["--tier", "local"]) == 0
    assert "every compiler of tier local is here" in capsys.readouterr().out
    assert not (programs / "log").exists()


def test_a_tier_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compilers", "--tier", "noon"]) == 2
    assert "noon" in capsys.readouterr().err
