"""A workflow file as frozen tables, and the few expressions that ours use."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

EXPRESSION = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")
CALL = re.compile(r"(\w+)\((.*)\)")


class WorkflowError(ValueError):
    """A workflow says something that is not understood here; the message names it."""


@dataclass(frozen=True)
class Step:
    """One step: an action (`uses`, `inputs`) or a script (`run`)."""

    name: str
    id: str
    uses: str
    run: str
    inputs: Mapping[str, Any]
    env: Mapping[str, str]
    condition: str


@dataclass(frozen=True)
class Job:
    """One job, before its matrix is expanded."""

    id: str
    needs: tuple[str, ...]
    include: str
    condition: str
    env: Mapping[str, str]
    outputs: Mapping[str, str]
    steps: tuple[Step, ...]


def read(path: Path) -> tuple[Job, ...]:
    """The jobs of a workflow, each after those it needs."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    jobs = {name: _job(name, table) for name, table in document["jobs"].items()}
    return tuple(_ordered(jobs))


def _job(name: str, table: Mapping[str, Any]) -> Job:
    needs = table.get("needs", [])
    include = table.get("strategy", {}).get("matrix", {}).get("include", "")
    return Job(
        id=name,
        needs=tuple([needs] if isinstance(needs, str) else needs),
        include=include,
        condition=str(table.get("if", "")),
        env=table.get("env", {}),
        outputs=table.get("outputs", {}),
        steps=tuple(_step(at, step) for at, step in enumerate(table["steps"], start=1)),
    )


def _step(at: int, table: Mapping[str, Any]) -> Step:
    run, uses = table.get("run", ""), table.get("uses", "")
    first = run.strip().splitlines()[0] if run else uses.partition("@")[0]
    return Step(
        name=f"{at}. {first}",
        id=table.get("id", ""),
        uses=uses,
        run=run,
        inputs=table.get("with", {}),
        env=table.get("env", {}),
        condition=str(table.get("if", "")),
    )


def _ordered(jobs: dict[str, Job]) -> Iterator[Job]:
    done: set[str] = set()
    while len(done) < len(jobs):
        ready = [j for j in jobs.values() if j.id not in done and done.issuperset(j.needs)]
        if not ready:
            raise WorkflowError(f"the jobs {', '.join(jobs.keys() - done)} need one another")
        for job in ready:
            done.add(job.id)
            yield job


def evaluate(expression: str, contexts: Mapping[str, Any]) -> Any:
    """The value of an expression: a path, `fromJSON`, `join`, `hashFiles`, a status, or its not.

    Raises:
        WorkflowError: it is any other expression.
    """
    if expression.startswith("!"):
        return not evaluate(expression[1:], contexts)
    call = CALL.fullmatch(expression)
    if call is None:
        return _lookup(expression.split("."), contexts, expression)
    name, argument = call.groups()
    if name == "fromJSON":
        return json.loads(evaluate(argument, contexts))
    if name == "join":
        path, _, between = argument.rpartition(",")
        return between.strip(" ").strip("'").join(evaluate(path, contexts))
    if name == "hashFiles":
        return "hash"
    if name in ("always", "cancelled"):
        return name == "always"
    raise WorkflowError(f"the expression {expression!r} is not understood")


def _lookup(path: list[str], value: Any, whole: str) -> Any:
    for at, part in enumerate(path):
        if part == "*":
            return [_lookup(path[at + 1 :], each, whole) for each in value.values()]
        if not isinstance(value, dict) or part not in value:
            raise WorkflowError(f"the expression {whole!r} has no value: {part!r} is not there")
        value = value[part]
    return value


def fill(text: str, contexts: Mapping[str, Any]) -> str:
    """A text with its expressions replaced by their values."""
    return EXPRESSION.sub(lambda match: str(evaluate(match.group(1), contexts)), text)


def bare(text: str) -> str:
    """The expression in a text that is nothing else."""
    match = EXPRESSION.fullmatch(text.strip())
    if match is None:
        raise WorkflowError(f"expected one expression, found {text!r}")
    return match.group(1)
