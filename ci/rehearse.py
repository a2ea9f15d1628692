"""A workflow run on this machine: every job in its own clone, artifacts handed from job to job."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchproof.files import write_json

from ci.read import Job, Step, WorkflowError, bare, evaluate, fill, read

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SUCCESS, FAILURE, SKIPPED = "success", "failure", "skipped"
SHELL = ["bash", "--noprofile", "--norc", "-eo", "pipefail"]
# What a hosted machine is given by these, this one has or has not.
MACHINE = ("actions/setup-python", "actions/cache")
# Of the session that rehearses, not of the machine.
OWN = ("VIRTUAL_ENV", "NOX_CURRENT_SESSION")


@dataclass(frozen=True)
class Done:
    """A step that was run, or why not."""

    job: str
    step: str
    result: str
    seconds: float = 0.0
    why: str = ""


@dataclass
class Rehearsal:
    """Runs the jobs of a workflow.

    Attributes:
        source: the repository that jobs check out.
        folder: an empty folder that everything is written under.
        path: folders of the programs a hosted machine has, before those of this machine.
        report: called with every step that is done.
        wanted: the jobs to run, with those they need; all when empty.
        rows: how many entries of a job's matrix to run; all when None.
    """

    source: Path
    folder: Path
    path: list[Path]
    report: Callable[[Done], None]
    wanted: tuple[str, ...] = ()
    rows: int | None = None
    done: list[Done] = field(default_factory=list)
    needs: dict[str, Any] = field(default_factory=dict)

    def run(self, workflow: Path) -> bool:
        """Run a workflow; whether every job that was wanted succeeded."""
        jobs = read(workflow)
        wanted = _with_needs(jobs, self.wanted) if self.wanted else {job.id for job in jobs}
        for job in jobs:
            if job.id in wanted:
                self._job(job)
        write_json(self.folder / "rehearsal.json", [asdict(done) for done in self.done])
        return all(job["result"] == SUCCESS for job in self.needs.values())

    def _job(self, job: Job) -> None:
        needs = {name: self.needs[name] for name in job.needs}
        ready = all(need["result"] == SUCCESS for need in needs.values())
        if not ready and not (job.condition and evaluate(bare(job.condition), {})):
            self._note(Done(job.id, "", SKIPPED, why="a job it needs did not succeed"))
            self.needs[job.id] = {"result": SKIPPED, "outputs": {}}
            return
        entries: list[dict[str, Any]] = [{}]
        if job.include:
            entries = evaluate(bare(job.include), {"needs": needs})
            for left_out in entries[self.rows :] if self.rows is not None else ():
                self._note(Done(f"{job.id}: {left_out['id']}", "", SKIPPED, why="--rows"))
            entries = entries[: self.rows]
        results = [self._entry(job, needs, entry) for entry in entries]
        bad = [result for result, _ in results if result != SUCCESS]
        outputs = results[-1][1] if results else {}
        self.needs[job.id] = {"result": bad[0] if bad else SUCCESS, "outputs": outputs}

    def _entry(
        self, job: Job, needs: Mapping[str, Any], matrix: Mapping[str, Any]
    ) -> tuple[str, dict[str, str]]:
        name = f"{job.id}: {matrix['id']}" if matrix else job.id
        place = self.folder / "jobs" / name.replace(": ", "-")
        place.mkdir(parents=True)
        contexts: dict[str, Any] = {"needs": needs, "matrix": matrix, "steps": {}}
        result = SUCCESS
        for step in job.steps:
            if result != SUCCESS and not (step.condition and evaluate(bare(step.condition), {})):
                self._note(Done(name, step.name, SKIPPED, why="an earlier step failed"))
                continue
            done = self._step(name, job, step, place, contexts)
            self._note(done)
            if done.result == FAILURE:
                result = FAILURE
        outputs = {}
        if result == SUCCESS:
            outputs = {key: fill(value, contexts) for key, value in job.outputs.items()}
        shutil.rmtree(place)
        return result, outputs

    def _note(self, done: Done) -> None:
        self.done.append(done)
        self.report(done)

    def _step(self, name: str, job: Job, step: Step, place: Path, contexts: dict[str, Any]) -> Done:
        started = time.monotonic()
        if step.uses.startswith(MACHINE):
            return Done(name, step.name, SKIPPED, why="platform-bound: this machine is as it is")
        if step.uses:
            self._action(step, place, contexts)
            return Done(name, step.name, SUCCESS, time.monotonic() - started)
        environment = {**job.env, **step.env}
        output = self.folder / "output"
        output.write_text("", encoding="utf-8")
        log = self.folder / "logs" / name.replace(": ", "-") / f"{step.name.split('.')[0]}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as file:
            code = subprocess.run(
                [*SHELL, "-c", step.run],
                cwd=place,
                env={
                    **{key: value for key, value in os.environ.items() if key not in OWN},
                    "CI": "true",
                    "GITHUB_OUTPUT": str(output),
                    "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
                    "PATH": os.pathsep.join([*map(str, self.path), os.environ["PATH"]]),
                    **{key: fill(str(value), contexts) for key, value in environment.items()},
                },
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        if step.id:
            contexts["steps"][step.id] = {"outputs": _outputs(output)}
        why = f"exit status {code}: {log}" if code else ""
        return Done(name, step.name, FAILURE if code else SUCCESS, time.monotonic() - started, why)

    def _action(self, step: Step, place: Path, contexts: Mapping[str, Any]) -> None:
        given = {
            key: fill(value, contexts) if isinstance(value, str) else value
            for key, value in step.inputs.items()
        }
        action = step.uses.partition("@")[0]
        if action == "actions/checkout":
            command = ["git", "clone", "--quiet", str(self.source), str(place)]
            subprocess.run(command, check=True)
        elif action == "actions/upload-artifact":
            found = upload(place, given["path"].split(), self.folder / "artifacts" / given["name"])
            if not found and given.get("if-no-files-found") == "error":
                raise WorkflowError(f"nothing to upload: there is no {given['path']}")
        elif action == "actions/download-artifact":
            chosen = given.get("pattern") or given["name"]
            for artifact in sorted(self.folder.glob("artifacts/*")):
                if fnmatch(artifact.name, chosen):
                    shutil.copytree(artifact, place / given["path"], dirs_exist_ok=True)
        else:
            raise WorkflowError(f"the action {action} is not rehearsed")


def upload(place: Path, paths: list[str], artifact: Path) -> bool:
    """Keep files and folders under the folder that all of them are in, as GitHub does.

    Returns:
        Whether there was any.
    """
    there = [place / path for path in paths if (place / path).exists()]
    if not there:
        return False
    root = there[0] if len(there) == 1 else Path(os.path.commonpath(there))
    for path in there:
        target = artifact / path.relative_to(root)
        if path.is_dir():
            shutil.copytree(path, target, dirs_exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
    return True


def _outputs(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.partition("=")[::2] for line in lines)


def _with_needs(jobs: tuple[Job, ...], wanted: tuple[str, ...]) -> set[str]:
    known = {job.id: job for job in jobs}
    found: set[str] = set()
    queue = list(wanted)
    while queue:
        name = queue.pop()
        if name not in known:
            raise WorkflowError(f"there is no job {name!r}; the jobs are {', '.join(known)}")
        if name not in found:
            found.add(name)
            queue += known[name].needs
    return found
