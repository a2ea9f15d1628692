"""Environments install by version and hash, from locks that hold what the project requires."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from torchproof.machine import lockfiles, relock, vulnerabilities
from torchproof.machine.lockfiles import LockError, Pin, parse, read, split

from torchproof import cli

A, B = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
TEXT = f"""# a comment
numpy==2.4.6; python_full_version == "3.11.*" \\
    --hash={A} \\
    --hash={B}
torch==2.13.0 \\
    --hash={A}
"""


def test_a_lock_reads_what_it_writes() -> None:
    pins = parse(TEXT)
    assert [(pin.name, pin.version, sorted(pin.hashes)) for pin in pins] == [
        ("numpy", "2.4.6", [A, B]),
        ("torch", "2.13.0", [A]),
    ]
    assert parse("".join(pin.text + "\n" for pin in pins)) == pins
    lock = lockfiles.Lock.of(pins)
    assert (parse(lock.text()), lock.torches) == (pins[:1], pins[1:])
    assert lock.text(lambda name: name != "numpy") == ""


@pytest.mark.parametrize("text", ["numpy==2.4.6\n", f"numpy>=2 --hash={A}\n"])
def test_what_has_no_hash_or_no_single_version_is_refused(text: str) -> None:
    with pytest.raises(LockError, match="expected one version and a hash"):
        parse(text)


@pytest.mark.parametrize("text", [None, "===", "numpy"])
def test_a_missing_or_damaged_lock_names_its_file_and_the_remedy(
    tmp_path: Path, text: str | None
) -> None:
    if text is not None:
        (tmp_path / "common.txt").write_text(text)
    with pytest.raises(LockError, match=r"`torchproof lock`"):
        read(tmp_path, "2.13.0")


def test_only_what_all_torches_share_is_common() -> None:
    numpy, first, second = parse(TEXT)[0], *parse(f"t==1 --hash={A}\nt==2 --hash={A}\n")
    common, own = split({"1": (numpy, first), "2": (numpy, second)})
    assert (common, own) == ((numpy,), {"1": (first,), "2": (second,)})


def test_a_requirement_that_the_lock_does_not_meet_is_reported() -> None:
    lock = lockfiles.Lock.of(parse(TEXT))
    assert lock.unmet(["numpy>=2", "numpy>=3", "rich"]) == ["numpy>=3", "rich"]


def test_a_build_that_only_some_indexes_offer_is_tried_first() -> None:
    lock = lockfiles.Lock.of(parse(f"torch===2.13.0 --hash={A}\ntorch===2.13.0+cpu --hash={B}\n"))
    assert [pin.version for pin in lock.torches] == ["2.13.0+cpu", "2.13.0"]
    assert lock.text() == ""


def test_pins_are_equal_by_requirement_and_hashes() -> None:
    (pin, _) = parse(TEXT)
    assert Pin(pin.requirement, frozenset([A])) != pin


SOUND = {"name": "numpy", "version": "2.4.6", "vulns": []}
BROKEN = {
    "name": "rich",
    "version": "1",
    "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2"]}],
}
UNKNOWN = {"name": "jinja2", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("found", "accepted", "code", "start"),
    [
        ([SOUND], {}, 0, "passed: 1 packages"),
        ([SOUND, BROKEN], {}, 1, "rich 1: PYSEC-1: failed, fixed in 2"),
        ([SOUND, BROKEN], {"CVE-1": "not used"}, 0, "rich 1: PYSEC-1: accepted (not used)"),
        ([SOUND, UNKNOWN], {}, 0, "not run: the service does not know 1 of 2: jinja2"),
        (None, {}, 0, "not run: pip-audit has no answer to 1 of 1 calls (no route)"),
    ],
)
def test_what_was_not_audited_is_not_run(
    found: list[dict[str, object]] | None, accepted: dict[str, str], code: int, start: str
) -> None:
    given = answer("") if found is None else packages(*found)
    status, lines = vulnerabilities.verdict([given], accepted)
    assert status == code
    assert lines[0].startswith(start)
    assert len(lines) == 1


def answer(output: str) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], 1, output, "trace\nno route\n")


def packages(*found: dict[str, object]) -> subprocess.CompletedProcess[str]:
    return answer(json.dumps({"dependencies": found}))


@pytest.mark.parametrize("later", ["", "{", "[]", "{}", "null", '{"dependencies": 7}'])
def test_what_was_found_is_kept_where_a_later_call_has_no_answer(later: str) -> None:
    for answers in ([packages(SOUND, BROKEN), answer(later)], [answer(later), packages(BROKEN)]):
        status, lines = vulnerabilities.verdict(answers, {})
        assert status == 1
        assert lines == [
            "rich 1: PYSEC-1: failed, fixed in 2",
            "not run: pip-audit has no answer to 1 of 2 calls (no route)",
        ]


@pytest.mark.parametrize("answers", [[answer("")], [packages(SOUND), answer("")]])
def test_no_answer_fails_where_one_is_required(
    answers: list[subprocess.CompletedProcess[str]],
) -> None:
    assert vulnerabilities.verdict(answers, {}, strict=True)[0] == 1
    assert vulnerabilities.verdict(answers, {})[0] == 0


def test_a_service_that_knows_no_package_has_no_answer() -> None:
    assert vulnerabilities.verdict([packages(UNKNOWN)], {}, strict=True)[0] == 1
    assert vulnerabilities.verdict([packages(UNKNOWN, SOUND)], {}, strict=True)[0] == 0


def test_every_version_in_every_lock_is_audited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "common.txt").write_text(TEXT)
    (tmp_path / "torch-2.10.0.txt").write_text(
        f'torch===2.10.0; python_version < "3" --hash={A}\ntorch==2.10.0+cpu --hash={A}\n'
    )
    asked: list[Requirement] = []

    def audit(requirements: str) -> subprocess.CompletedProcess[str]:
        these = [Requirement(line) for line in requirements.splitlines()]
        assert len({each.name for each in these}) == len(these)
        asked.extend(these)
        broken = {**BROKEN, "name": these[0].name}
        return subprocess.CompletedProcess([], 1, json.dumps({"dependencies": [broken]}), "")

    monkeypatch.setattr(vulnerabilities, "audit", audit)
    monkeypatch.setattr(lockfiles, "home", lambda: tmp_path)
    assert vulnerabilities.main([]) == 1
    assert sorted(map(str, asked)) == ["numpy==2.4.6", "torch==2.10.0", "torch==2.13.0"]
    out = capsys.readouterr().out
    assert "numpy 1: PYSEC-1: failed, fixed in 2" in out
    assert "torch 1: PYSEC-1: failed, fixed in 2" in out
    assert vulnerabilities.main(["--accept=PYSEC-1=not used"]) == 0
    assert vulnerabilities.main(["--accept=PYSEC-1=not used", "--strict"]) == 0
    monkeypatch.setattr(vulnerabilities, "audit", lambda _: answer(""))
    assert vulnerabilities.main([]) == 0
    assert vulnerabilities.main(["--strict"]) == 1
    assert "not run: pip-audit has no answer" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["PYSEC-1", "PYSEC-1=", "=a reason", ""])
def test_what_is_accepted_without_a_reason_is_refused(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["vulnerabilities", f"--accept={text}"])
    printed = capsys.readouterr().err
    assert "argument --accept: expected ID=REASON, such as " in printed
    assert printed.endswith(f"; got {text!r}\n")


@pytest.mark.parametrize("command", ["lock", "vulnerabilities"])
def test_a_project_without_locks_is_named(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command]) == 2
    assert capsys.readouterr().err.startswith("error: matrix.toml: expected project.locks")


def test_locks_that_were_not_made_are_not_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lockfiles, "home", lambda: tmp_path / "locks")
    assert cli.main(["vulnerabilities"]) == 2
    printed = capsys.readouterr()
    assert "passed" not in printed.out
    assert f"{tmp_path / 'locks'} holds no lock; make it with `torchproof lock`" in printed.err


@pytest.mark.parametrize("text", ["<<<<<<< HEAD\n", "numpy ==\n"])
def test_a_damaged_lock_is_named_by_whoever_reads_it(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "common.txt").write_text(TEXT + text)
    monkeypatch.setattr(lockfiles, "home", lambda: tmp_path)
    assert cli.main(["vulnerabilities"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: {tmp_path / 'common.txt'}: ")
    assert printed.endswith("; make it with `torchproof lock`\n")


def test_a_machine_without_uv_is_told_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(relock, "home", lambda: tmp_path)
    monkeypatch.setattr(relock, "find_program", lambda _: None)
    assert cli.main(["lock"]) == 2
    assert "`torchproof lock` needs uv: pip install uv" in capsys.readouterr().err
