"""A release: one version, honest tags, the same wheel from the sdist and the tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from torchproof.release import platforms, sbom, tags, version
from torchproof.release.__main__ import hold, main
from torchproof.release.distributions import differences, epoch, export
from torchproof.release.version import ReleaseError
from wheel.wheelfile import WheelFile

from torchproof import config

if TYPE_CHECKING:
    from conftest import Toolchain

METADATA = "Metadata-Version: 2.4\nName: decay\nVersion: 0.1.0\nRequires-Dist: torch>=2.10\n"
WHEEL = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-linux_x86_64\n"
BUILD = {"compiler": "g++ 12.2.0", "torch": "2.13.0", "version": "0.1.0"}
STABLE_SOURCE = 'extern "C" int aoti_torch_get_dim(); int f() { return aoti_torch_get_dim(); }\n'


def write_wheel(path: Path, members: dict[str, bytes | str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return path


def members(library: bytes) -> dict[str, bytes | str]:
    return {
        "decay/lib/libdecay.so": library,
        "decay/lib/build.json": json.dumps(BUILD),
        "decay-0.1.0.dist-info/METADATA": METADATA,
    }


def small_wheel(folder: Path, platform: str, library: bytes = b"") -> Path:
    return write_wheel(folder / f"decay-0.1.0-{platform}.whl", members(library))


@pytest.mark.parametrize("tag", ["v9.9.9", "0.1.0", "release-0.1.0"])
def test_a_tag_that_is_not_the_version_is_told(tag: str) -> None:
    (found,) = version.disagreements(tag=tag)
    assert found.startswith(f"the tag {tag}: expected version {config.version()}")


def test_a_file_of_another_version_is_told(tmp_path: Path) -> None:
    small_wheel(tmp_path, "py3-none-any").rename(tmp_path / "decay-0.0.9-py3-none-any.whl")
    (found,) = version.disagreements(tmp_path)
    assert "decay-0.0.9-py3-none-any.whl" in found
    assert "found 0.0.9" in found


@pytest.fixture
def citation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "CITATION.cff"
    monkeypatch.setattr(version, "CITATION", path)
    return path


@pytest.mark.parametrize("line", ["version: 0.0.9", 'version: "0.0.9"'])
def test_a_citation_of_another_version_is_told(line: str, citation: Path) -> None:
    citation.write_text(f"cff-version: 1.2.0\n{line}\ntitle: x\n", encoding="utf-8")
    (problem,) = version.disagreements()
    assert problem.startswith(f"CITATION.cff: expected version {config.version()}")
    assert problem.endswith("; found 0.0.9")


def test_a_citation_need_name_no_version(citation: Path) -> None:
    assert version.disagreements() == []
    citation.write_text("cff-version: 1.2.0\ntitle: x\n", encoding="utf-8")
    assert version.disagreements() == []


@pytest.mark.parametrize(
    ("changelog", "complaint"),
    [
        ("# Changelog\n\n## [Unreleased]\n\n### Added\n\n- Something.\n", "found none"),
        ("# Changelog\n\n## [0.1.0] - 2026-01-01\n", "says nothing of what changed"),
    ],
)
def test_a_changelog_without_the_entry_is_told(
    changelog: str,
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "CHANGELOG.md"
    path.write_text(changelog, encoding="utf-8")
    monkeypatch.setattr(version, "CHANGELOG", path)
    monkeypatch.setattr("torchproof.release.__main__.DIST", tmp_path / "none")
    assert main(["check", "--json"]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert any(complaint in problem for problem in problems)


@pytest.mark.parametrize(
    ("tag", "problems"),
    [
        ([], []),
        (
            ["--tag", "v0.1.0"],
            ["CHANGELOG.md: [Unreleased] has changes, which v0.1.0 would release"],
        ),
    ],
)
def test_changes_that_a_tag_would_leave_out_are_told(
    tag: list[str],
    problems: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "CHANGELOG.md"
    entry = "## [0.1.0] - 2026-01-01\n\n### Added\n\n- All.\n"
    monkeypatch.setattr(version, "CHANGELOG", path)
    monkeypatch.setattr("torchproof.release.__main__.DIST", tmp_path / "none")
    path.write_text(f"# Changelog\n\n## [Unreleased]\n\n### Fixed\n\n{entry}", encoding="utf-8")
    assert main(["check", *tag]) == 0
    capsys.readouterr()
    path.write_text(f"# Changelog\n\n## [Unreleased]\n\n- A fix.\n\n{entry}", encoding="utf-8")
    assert main(["check", "--json", *tag]) == len(problems)
    found = json.loads(capsys.readouterr().out)["problems"]
    assert [line[: len(problems[0])] for line in found] == problems


@pytest.fixture
def library(toolchain: Toolchain) -> bytes:
    stub = toolchain.stub("libtorch_cpu.so", ["aoti_torch_get_dim"])
    hard = ["-Wl,-z,relro,-z,now", "-nostdlib", "-fvisibility=hidden", "-s"]
    return toolchain.library("libdecay.so", STABLE_SOURCE, str(stub), *hard).read_bytes()


def test_a_tag_is_what_auditwheel_and_abi3info_say(
    library: bytes, tmp_path: Path, toolchain: Toolchain
) -> None:
    built = small_wheel(tmp_path / "built", "py3-none-linux_x86_64", library)
    measured = tags.measured(built)
    honest = small_wheel(tmp_path / "honest", measured, library)
    assert not [line for line in hold(honest) if "its name says" in line]
    (found, *_) = hold(built)
    assert found == f"its name says py3-none-linux_x86_64, auditwheel and abi3info say {measured}"


@pytest.mark.parametrize(
    ("library", "complaint"),
    [
        (b"text", "holds no ELF shared library"),
        (b"", "libdecay.so is no readable shared library"),
        (b"MZ" + bytes(200), "libdecay.so, a library of Windows"),
        (b"\x7fELF" + bytes(100), "libdecay.so is no readable shared library"),
    ],
)
@pytest.mark.parametrize("platform", ["linux_x86_64", "any"])
def test_a_wheel_without_a_library_that_can_be_read_is_named(
    library: bytes, complaint: str, platform: str, tmp_path: Path
) -> None:
    path = small_wheel(tmp_path, f"py3-none-{platform}", library)
    (found,) = hold(path)
    assert path.name in found
    assert complaint in found


@pytest.fixture
def built(library: bytes, tmp_path: Path) -> Path:
    """A wheel as a build leaves it, with a RECORD."""
    small = small_wheel(tmp_path / "small", "py3-none-linux_x86_64", library)
    made = tmp_path / small.name
    with zipfile.ZipFile(small) as archive, WheelFile(made, "w") as whole:
        for name in archive.namelist():
            whole.writestr(name, archive.read(name))
        whole.writestr("decay-0.1.0.dist-info/WHEEL", WHEEL)
    return made


def test_a_wheel_gets_the_tag_that_it_is_held_to(built: Path, tmp_path: Path) -> None:
    tagged = tags.retag(built, tmp_path / "tagged")
    assert tags.claimed(tagged) == tags.measured(built) != tags.claimed(built)


def test_a_wheel_is_the_same_bytes_whatever_the_umask(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    made = set()
    before = os.umask(0)
    try:
        for umask in (0o022, 0o002, 0o077):
            os.umask(umask)
            made.add(tags.retag(built, tmp_path / f"{umask:o}").read_bytes())
    finally:
        os.umask(before)
    assert len(made) == 1


def test_a_wheel_that_auditwheel_refuses_is_named(tmp_path: Path, toolchain: Toolchain) -> None:
    missing = toolchain.stub("libnowhere.so.1", ["nowhere"])
    source = 'extern "C" int nowhere(); int f() { return nowhere(); }'
    code = toolchain.library("libdecay.so", source, str(missing), "-nostdlib").read_bytes()
    built = small_wheel(tmp_path / "built", "py3-none-linux_x86_64", code)
    with pytest.raises(ReleaseError, match=f"auditwheel refuses {built.name}: ") as raised:
        tags.retag(built, tmp_path / "tagged")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["decay.whl", "decay.tar.gz"])
def test_a_file_with_a_name_of_no_distribution_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(ReleaseError, match=f"{name}.*; take it out"):
        version.disagreements(tmp_path)


def test_a_library_with_python_in_it_is_not_py3_none(tmp_path: Path, toolchain: Toolchain) -> None:
    source = 'extern "C" void* PyUnicode_AsUTF8(void*); void* f() { return PyUnicode_AsUTF8(0); }'
    code = toolchain.library("libdecay.so", source, "-nostdlib").read_bytes()
    assert not tags.measured(small_wheel(tmp_path, "py3-none-any", code)).startswith("py3-none")


def test_the_tag_of_several_libraries_serves_all(
    library: bytes, tmp_path: Path, toolchain: Toolchain
) -> None:
    source = 'extern "C" void* PyUnicode_AsUTF8(void*); void* f() { return PyUnicode_AsUTF8(0); }'
    python = toolchain.library("libpython.so", source, "-nostdlib").read_bytes()
    newer = toolchain.library(
        "libnewer.so",
        "#include <pthread.h>\nint f() { return pthread_join(pthread_self(), 0); }",
    ).read_bytes()

    def tag(*libraries: bytes) -> str:
        files = {f"decay/lib/lib{at}.so": code for at, code in enumerate(libraries)}
        name = f"{len(list(tmp_path.iterdir()))}/decay-0.1.0-py3-none-any.whl"
        return tags.measured(write_wheel(tmp_path / name, members(libraries[0]) | files))

    one, other, of_python = tag(library), tag(newer), tag(python)
    assert one != other
    assert tag(library, newer) == tag(newer, library) == other
    assert tag(library, python).split("-")[:2] == of_python.split("-")[:2]


def test_a_library_of_musl_has_no_tag_of_manylinux(tmp_path: Path, toolchain: Toolchain) -> None:
    musl = toolchain.stub("libc.musl-x86_64.so.1", ("only_in_musl",))
    flags = ("-nostdlib", "-Wl,--no-as-needed", str(musl))
    code = toolchain.library("libdecay.so", "int decay;", *flags).read_bytes()
    assert tags.measured(small_wheel(tmp_path, "py3-none-any", code)).startswith("py3-none-linux_")


def test_libraries_for_different_pythons_have_no_tag(tmp_path: Path, toolchain: Toolchain) -> None:
    source = 'extern "C" void* PyList_New(long); void* f() { return PyList_New(0); }'
    code = toolchain.library("libdecay.so", source, "-nostdlib").read_bytes()
    files = {f"decay/_{name}.so": code for name in ("a.cpython-311-x86_64", "b.cpython-312-x86_64")}
    path = write_wheel(tmp_path / "decay-0.1.0-py3-none-any.whl", dict(files))
    with pytest.raises(ReleaseError, match=f"{path.name}: expected libraries for the same Python"):
        tags.measured(path)


def test_wheels_that_differ_are_told_by_member(tmp_path: Path) -> None:
    one = write_wheel(tmp_path / "one.whl", {"a": "1", "b": "2"})
    assert differences(one, write_wheel(tmp_path / "same.whl", {"a": "1", "b": "2"})) == []
    assert differences(one, write_wheel(tmp_path / "b.whl", {"a": "1", "b": "3"})) == ["b"]
    assert differences(one, write_wheel(tmp_path / "c.whl", {"a": "1", "c": "2"})) == ["b", "c"]
    (found,) = differences(one, write_wheel(tmp_path / "order.whl", {"b": "2", "a": "1"}))
    assert "order" in found


def test_a_release_is_made_of_tracked_files_alone(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for name in ("tracked", "untracked"):
        (root / name).write_text(name, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "add", "tracked"], cwd=root, check=True)
    export(root, tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["tracked"]
    with pytest.raises(ReleaseError, match="no git checkout"):
        export(tmp_path / "copy", tmp_path / "again")


@pytest.mark.parametrize("named", [None, ""])
def test_archives_are_dated_by_the_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str | None
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    if named is not None:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", named)
    git = ("git", "-c", "user.name=decay", "-c", "user.email=", "-C", str(tmp_path))
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "Begin"], check=True)
    with epoch(tmp_path):
        dated = subprocess.run(["printenv", "SOURCE_DATE_EPOCH"], capture_output=True, check=True)
    asked = subprocess.check_output([*git, "log", "-1", "--format=%ct"])
    assert dated.stdout.split() == asked.split()


def test_what_has_no_commit_has_no_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    with pytest.raises(ReleaseError, match="has no commit"), epoch(tmp_path):
        pass


@pytest.mark.parametrize("named", ["now", "1700000000000", "4294967296"])
def test_what_is_no_date_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", named)
    message = f"SOURCE_DATE_EPOCH must be seconds since 1970, at most 4294967295, got '{named}'"
    with pytest.raises(ReleaseError, match=message), epoch(tmp_path):
        pass


def test_the_bill_of_materials_names_what_is_needed_and_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    wheel = small_wheel(tmp_path, "py3-none-any")
    text = sbom.document(wheel)
    assert text == sbom.document(wheel)
    bill = json.loads(text)
    assert bill["metadata"]["component"]["hashes"][0]["content"] == sbom.inspect(wheel).sha256
    assert {c["name"] for c in bill["components"]} == {"torch", "g++", "torch headers"}
    assert {"ref": "decay@0.1.0", "dependsOn": ["torch"]} in bill["dependencies"]


def test_a_wheel_that_does_not_describe_its_library_has_a_bill_of_materials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of the template: what compiled the library is then unknown."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    listed = {k: v for k, v in members(b"library").items() if not k.endswith("build.json")}
    bill = json.loads(sbom.document(write_wheel(tmp_path / "decay-0.1.0-py3-none-any.whl", listed)))
    assert {c["name"] for c in bill["components"]} == {"torch"}


def test_the_bill_of_materials_has_what_is_needed_without_an_extra_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    stated = (
        'numpy>=1; python_version < "3.12"',
        'numpy>=2; python_version >= "3.12"',
        "torch",
        'pytest>=8; extra == "test"',
        'decay[test]; extra == "all"',
    )
    metadata = "Metadata-Version: 2.1\nName: decay\nVersion: 0.1.0\n"
    metadata += "".join(f"Requires-Dist: {line}\n" for line in stated)
    wheel = write_wheel(tmp_path / "decay.whl", {"decay-0.1.0.dist-info/METADATA": metadata})
    text = sbom.document(wheel)
    assert text == sbom.document(wheel)
    bill = json.loads(text)
    assert {c["name"]: c["description"] for c in bill["components"]} == {
        "numpy": 'any version that satisfies >=1 where python_version < "3.12"; '
        'any version that satisfies >=2 where python_version >= "3.12"',
        "torch": "any version",
    }
    assert {"ref": "decay@0.1.0", "dependsOn": ["numpy", "torch"]} in bill["dependencies"]


def test_a_released_wheel_contains_its_bill_of_materials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    name = "decay-0.1.0-py3-none-any.whl"
    with WheelFile(tmp_path / name, "w") as wheel:
        for member, content in members(b"library").items():
            wheel.writestr(member, content)
    made = []
    for folder in (tmp_path / "one", tmp_path / "other"):
        folder.mkdir()
        made.append(sbom.embed(tmp_path / name, folder))
    assert made[0].read_bytes() == made[1].read_bytes()
    with WheelFile(made[0]) as wheel:  # reading checks every file against RECORD
        contents = {member: wheel.read(member) for member in wheel.namelist()}
    bill = json.loads(contents.pop("decay-0.1.0.dist-info/sboms/decay.cdx.json"))
    assert set(contents) == {*members(b""), "decay-0.1.0.dist-info/RECORD"}
    assert {c["name"] for c in bill["components"]} == {"torch", "g++", "torch headers"}
    assert "hashes" not in bill["metadata"]["component"], "a file cannot contain its own hash"


# A Python without what Windows lacks; sys.platform itself must stay, the standard library reads it.
WITHOUT_POSIX = """
import os, signal, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("fork", "geteuid", "getuid", "killpg", "setsid"):
    delattr(os, name)
del signal.SIGKILL
from torchproof.release.__main__ import main
sys.exit(main(["platforms"]))
"""


def test_what_builds_a_wheel_needs_no_posix() -> None:
    """The session `wheel` runs on Windows, too; until a runner does, this is what is known."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX],
        cwd=config.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "windows-x86_64" in {row["name"] for row in json.loads(done.stdout)}


ALIKE = "decay-0.1.0-py3-none-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["decay-0.1.0.tar.gz", ALIKE], []),
        ([ALIKE], ["dist: there is no sdist"]),
        (
            ["decay-0.1.0.tar.gz"],
            ["dist: expected a wheel for manylinux_2_28_x86_64 or older systems, found none"],
        ),
        (
            ["decay-0.1.0.tar.gz", "decay-0.1.0-py3-none-manylinux_2_34_x86_64.whl"],
            [
                "dist: expected a wheel for manylinux_2_28_x86_64 or older systems, found "
                "manylinux_2_34_x86_64"
            ],
        ),
    ],
)
def test_a_release_has_an_sdist_and_a_wheel_for_each_proven_platform(
    names: list[str], missing: list[str]
) -> None:
    assert platforms.missing(config.load(), map(Path, names)) == missing


@pytest.mark.parametrize(
    ("requires", "backend", "reason"),
    [
        ('"torch==2.13.0"', "setuptools.build_meta", "No matching distribution found for torch"),
        ("", "absent.build_meta", "Backend 'absent.build_meta' is not available"),
    ],
)
def test_a_build_that_cannot_begin_is_one_sentence(
    requires: str,
    backend: str,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project, wheels = tmp_path / "project", tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "torch-2.13.0-cp399-cp399-linux_x86_64.whl").touch()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    project.mkdir()
    (project / "pyproject.toml").write_text(
        f'[build-system]\nrequires = [{requires}]\nbuild-backend = "{backend}"\n'
    )
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message=x"]):
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=project, check=True)
    monkeypatch.setattr(config, "ROOT", project)
    assert main(["build"]) == 2
    message = capsys.readouterr().err
    assert reason in message
    assert message.count("\n") == 1


def test_the_notes_of_a_release_are_its_entry_in_the_changelog() -> None:
    notes = config.ROOT / "build" / "notes.md"
    assert main(["notes"]) == 0
    text = notes.read_text(encoding="utf-8")
    for lines in version.entries()[config.version()].values():
        assert all(line in text for line in lines)
    with pytest.raises(ReleaseError, match=r"expected an entry \[9.9\], found none"):
        version.notes("9.9")


@pytest.mark.parametrize("heading", ["0.1.0 - 2026-01-01", "[0.1.0] - 2026-01-01", "[0.1.0]"])
def test_the_notes_are_of_the_entry_that_the_check_has_found(
    heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "CHANGELOG.md"
    later = "## [0.1.0.1] - 2026-01-02\n\n- Later.\n"
    path.write_text(f"# Changelog\n\n{later}\n## {heading}\n\n- All.\n\n## [0.0.9]\n\n- Old.\n")
    monkeypatch.setattr(version, "CHANGELOG", path)
    assert version.entries()["0.1.0"] == {"uncategorized": ["All."]}
    assert version.notes("0.1.0") == "- All.\n"


def test_the_platforms_are_those_of_the_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["platforms"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in found] == [each.name for each in config.load().platforms]
