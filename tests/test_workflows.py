"""The workflows: what zizmor does not check of them, and ci.yml run step by step."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from torchproof.machine.inventory import Interpreter, Machine

from ci import __main__ as program
from ci import issue, lint
from ci.lint import GITHUB
from ci.read import WorkflowError, evaluate, read
from ci.rehearse import FAILURE, SKIPPED, SUCCESS, Done, Rehearsal, upload
from torchproof import config
from torchproof import matrix as tool

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = sorted((GITHUB / "workflows").glob("*.yml"))
CI = GITHUB / "workflows" / "ci.yml"
NIGHTLY = GITHUB / "workflows" / "nightly.yml"
SESSION = re.compile(r"nox -s ([\w-]+)")
MATRIX = config.load()


def document(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    return document(path)["jobs"]


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in jobs(path).values():
        yield from job["steps"]


def sessions() -> set[str]:
    """The names that nox knows: a session's own, else that of its function."""
    tree = ast.parse((config.ROOT / "noxfile.py").read_text(encoding="utf-8"))
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            given = [k for d in node.decorator_list for k in getattr(d, "keywords", ())]
            named = {k.arg: ast.literal_eval(k.value) for k in given}
            found.add(named.get("name", node.name))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
class TestEveryWorkflow:
    def test_every_job_ends(self, path: Path) -> None:
        assert all(job["timeout-minutes"] for job in jobs(path).values())

    def test_what_works_is_a_session_that_exists(self, path: Path) -> None:
        for step in steps(path):
            for name in SESSION.findall(step.get("run", "")):
                assert name in sessions(), f"{path.name}: there is no session {name!r}"

    def test_caches_are_keyed_on_the_matrix(self, path: Path) -> None:
        for step in steps(path):
            if step.get("uses", "").startswith("actions/cache@"):
                assert "hashFiles('matrix.toml'" in step["with"]["key"]


def test_campaigns_take_another_seed_every_night() -> None:
    runs = [step.get("run", "") for step in steps(NIGHTLY)]
    tried = [run for run in runs if "--minutes" in run and "--prove" not in run]
    assert {name for run in tried for name in SESSION.findall(run)} == {
        *("fuzz", "sanitize", "faults", "mutants")
    }
    assert all('--seed "$GITHUB_RUN_NUMBER"' in run for run in tried), tried


def test_the_lines_that_no_test_runs_are_kept_every_night() -> None:
    kept = [
        step["with"]["path"]
        for step in jobs(NIGHTLY)["coverage"]["steps"]
        if step.get("uses", "").startswith("actions/upload-artifact@")
    ]
    assert "build/coverage/missed.txt" in kept


def test_one_action_has_one_commit() -> None:
    pins: dict[str, set[str]] = {}
    for path in FILES:
        for step in steps(path):
            if "uses" in step:
                name, _, commit = step["uses"].partition("@")
                pins.setdefault(name, set()).add(commit)
    assert all(len(commits) == 1 for commits in pins.values()), pins


def test_a_pull_request_may_only_read() -> None:
    for job in jobs(CI).values():
        assert job["permissions"] in ({}, {"contents": "read"})
    assert document(CI)["concurrency"]["cancel-in-progress"]


def test_the_status_job_waits_for_every_other() -> None:
    named = jobs(CI)
    assert set(named["status"]["needs"]) == named.keys() - {"status"}
    assert named["status"]["if"] == "${{ always() }}"


@pytest.mark.parametrize(
    ("results", "code"), [("success success", 0), ("success failure", 1), ("skipped success", 1)]
)
def test_the_status_is_success_only_when_all_are(results: str, code: int) -> None:
    script = jobs(CI)["status"]["steps"][0]["run"]
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], env={"RESULTS": results}, check=False
    )
    assert done.returncode == code


@pytest.mark.parametrize(
    ("result", "summary", "code"),
    [
        ("success", "passed", 0),
        ("failure", "failed", 1),
        ("skipped", "not run", 0),
        ("cancelled", "not run", 0),
    ],
)
def test_a_gpu_nobody_offers_is_not_run(
    result: str, summary: str, code: int, tmp_path: Path
) -> None:
    script = jobs(GITHUB / "workflows" / "gpu.yml")["report"]["steps"][0]["run"]
    file = tmp_path / "summary.md"
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        env={"RESULT": result, "GITHUB_STEP_SUMMARY": str(file), "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert done.returncode == code
    assert summary in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", config.project().campaigns)
def test_a_campaign_runs_every_night_and_finds_planted_bugs(name: str) -> None:
    nightly = jobs(GITHUB / "workflows" / "nightly.yml")
    steps_of = nightly[name]["steps"]
    commands = [step["run"] for step in steps_of if f"nox -s {name}" in step.get("run", "")]
    # Coverage has no budget and chooses nothing.
    budget = r"" if name == "coverage" else r" -- --minutes \d+ --seed \"\$GITHUB_RUN_NUMBER\""
    assert sum(bool(re.fullmatch(rf"pipx run nox -s {name}{budget}", run)) for run in commands) == 1
    assert sum("--prove" in run for run in commands) == 1
    uploads = [
        step["with"]["name"] for step in steps_of if "upload-artifact" in step.get("uses", "")
    ]
    assert f"campaign-{name}" in uploads
    assert name in nightly["report"]["needs"]


def test_only_the_jobs_that_sign_may_sign() -> None:
    release = jobs(GITHUB / "workflows" / "release.yml")
    signing = {name for name, job in release.items() if "id-token" in job["permissions"]}
    assert signing == {"provenance", "materials", "publish"}
    for name in signing:
        assert not [step for step in release[name]["steps"] if "nox" in step.get("run", "")]


def test_images_are_pinned_by_digest() -> None:
    for platform in MATRIX.platforms:
        assert bool(platform.image) == platform.name.startswith("linux")
        assert not platform.image or re.search(r"@sha256:[0-9a-f]{64}$", platform.image)


# The rehearsal, with a stand-in for the sessions ------------------------------------------------

STANDIN = """\
#!/bin/sh
# pipx, as ci.yml calls it: sessions leave what real ones would.
set -eu
test "$1 $2 $3" = "run nox -s"
shift 3
echo "$*" >> "{log}"
case " {broken} " in *" $1 "*) exit 3 ;; esac
mkdir -p build/matrix && cd build/matrix
case "$*" in
  *--list*) cat "{plan}" ;;
  *--build) mkdir -p artifacts/one && echo wheel > artifacts/one/one.whl ;;
  *--prebuilt*)
    grep -q wheel artifacts/one/one.whl
    name="${{*##*id=}}" && name="${{name%% *}}"
    mkdir -p rows logs && touch "rows/$name" "logs/$name" ;;
  *--report*) ls rows > index.html ;;
esac
"""
MACHINE = Machine(Interpreter(Path("python"), "3.11.7"), (), (), None, gpu=False)


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(tool, "this_machine", lambda: MACHINE)
    assert tool.main(["--list", "--json", "--tier", "pr"]) == 0
    return capsys.readouterr().out


@dataclasses.dataclass
class Rehearsed:
    passed: bool
    calls: list[str]
    done: list[Done]
    folder: Path


def rehearse(folder: Path, plan: str, broken: str = "", **options: Any) -> Rehearsed:
    programs, log = folder / "programs", folder / "calls"
    programs.mkdir()
    log.touch()
    (folder / "plan").write_text(plan, encoding="utf-8")
    pipx = programs / "pipx"
    pipx.write_text(STANDIN.format(log=log, broken=broken, plan=folder / "plan"))
    pipx.chmod(0o755)
    done: list[Done] = []
    rehearsal = Rehearsal(config.ROOT, folder / "run", [programs], done.append, **options)
    passed = rehearsal.run(CI)
    return Rehearsed(passed, log.read_text().splitlines(), done, folder / "run")


def test_every_step_of_ci_runs_in_order_on_the_real_plan(tmp_path: Path, plan: str) -> None:
    made = rehearse(tmp_path, plan, rows=2)
    assert made.passed, [done for done in made.done if done.result == FAILURE]
    tested = [call.split("id=")[1].split()[0] for call in made.calls if "--prebuilt" in call]
    left_out = [done.job.removeprefix("rows: ") for done in made.done if done.why == "--rows"]
    assert len(tested) == 2
    assert [*tested, *left_out] == [row["id"] for row in json.loads(plan)]
    named = [name for step in steps(CI) for name in SESSION.findall(step.get("run", ""))]
    assert {call.split()[0] for call in made.calls} == set(named)
    kinds = ["--list", "--build", "--prebuilt", "--report"]
    order = [kind for call in made.calls for kind in kinds if kind in call.split()]
    assert order == ["--list", "--build", "--prebuilt", "--prebuilt", "--report"]
    page = (made.folder / "artifacts" / "report" / "index.html").read_text()
    assert page.split() == sorted(tested)
    skipped = [done for done in made.done if done.result == SKIPPED and done.why != "--rows"]
    assert {done.step[3:] for done in skipped} == {"actions/setup-python", "actions/cache"}


def test_a_broken_build_stops_the_rows_and_fails_the_status(tmp_path: Path, plan: str) -> None:
    made = rehearse(tmp_path, plan, broken="compilers")
    assert not made.passed
    results = {done.job: done.result for done in made.done}
    assert results["build"] in (FAILURE, SKIPPED)
    assert results["rows"] == results["audit"] == SKIPPED
    assert results["status"] == FAILURE
    assert results["lint"] == SUCCESS


def test_a_part_can_be_rehearsed(tmp_path: Path, plan: str) -> None:
    made = rehearse(tmp_path, plan, wanted=("audit",))
    assert made.passed
    assert {done.job for done in made.done} == {"plan", "build", "audit"}


def test_what_is_not_understood_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WorkflowError, match="is not understood"):
        evaluate("format('x')", {})
    with pytest.raises(WorkflowError, match="'missing' is not there"):
        evaluate("needs.missing.result", {"needs": {}})
    assert not upload(tmp_path, ["a", "b"], tmp_path / "artifact")
    circle = tmp_path / "circle.yml"
    circle.write_text("jobs: {a: {needs: b, steps: []}, b: {needs: a, steps: []}}")
    with pytest.raises(WorkflowError, match="need one another"):
        read(circle)


# The linters ------------------------------------------------------------------------------------


def test_a_linter_that_finds_something_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    github = tmp_path / ".github"
    bad = github / "workflows" / "bad.yml"
    bad.parent.mkdir(parents=True)
    bad.write_text(
        "on: push\njobs: {a: {runs-on: ubuntu-latest, steps: [{uses: actions/cache@v5}]}}"
    )
    (github / "dependabot.yml").write_text("version: 2\nupdates: []\n")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "action.yml").write_text("name: a\n")
    monkeypatch.setattr(lint, "GITHUB", github)
    monkeypatch.setattr(lint, "ROOT", tmp_path)
    monkeypatch.setattr(lint, "actionlint", lambda *_: lint.Verdict("actionlint", "not run"))
    verdicts = {verdict.linter: verdict for verdict in lint.lint(tmp_path)}
    assert verdicts["zizmor"].status == "failed"
    assert "unpinned" in verdicts["zizmor"].words
    assert verdicts["check-jsonschema, actions"].status == "failed"
    assert "'runs' is a required property" in verdicts["check-jsonschema, actions"].words


def test_no_linter_finds_anything_in_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lint, "actionlint", lambda *_: lint.Verdict("actionlint", "not run"))
    assert not [verdict for verdict in lint.lint(tmp_path) if verdict.status == "failed"]


def test_actionlint_that_cannot_be_had_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_: None)
    monkeypatch.setattr(lint, "succeeds", lambda _: False)
    verdict = lint.actionlint(["ci.yml"], tmp_path)
    assert verdict.status == "not run"
    assert "install actionlint, or npm" in verdict.words


@pytest.mark.parametrize(
    ("open_issues", "done", "call"),
    [("[]", "opened an issue", "create"), ('[{"number": 7}]', "added to issue 7", "comment 7")],
)
def test_a_failed_nightly_has_one_issue(
    open_issues: str, done: str, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gh = tmp_path / "gh"
    gh.write_text(f"#!/bin/sh\necho \"$@\" >> {tmp_path}/calls\necho '{open_issues}'\n")
    gh.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert issue.tell("the-run") == done
    assert f"issue {call}" in (tmp_path / "calls").read_text().splitlines()[-1]


@pytest.mark.parametrize(
    ("gh", "said"),
    [("", "GitHub's gh, which cannot be run"), ("exit 4", "`gh issue list")],
    ids=["absent", "refusing"],
)
def test_gh_that_cannot_open_an_issue_is_an_error(
    gh: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if gh:
        (tmp_path / "gh").write_text(f"#!/bin/sh\n{gh}\n")
        (tmp_path / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program.main(["issue", "the-run"]) == 2
    printed = capsys.readouterr()
    assert printed.out.startswith("error: ")
    assert said in printed.out


@pytest.mark.parametrize("rows", ["0", "-1"])
def test_fewer_than_one_row_are_not_rehearsed(
    rows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        program.main(["rehearse", "--rows", rows])
    assert f"argument --rows: expected 1 or more, got {rows}" in capsys.readouterr().err
