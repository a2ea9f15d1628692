"""One row on its way: environment, build, install, audit, load, tests, and then speed."""

import contextlib
import dataclasses
import datetime
import json
import mmap
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from torchproof import config, terminal
from torchproof.audit.apply_rules import audit
from torchproof.audit.findings import render, to_json
from torchproof.audit.policy import Binding, Policy, default_policy
from torchproof.audit.system_libraries import system_ceilings
from torchproof.config import ROOT, Matrix, project, series
from torchproof.errors import TorchproofError, explain_error
from torchproof.files import read_json, source_hash, text_hash
from torchproof.machine import levels, lockfiles, processor
from torchproof.machine.environments import KEEP_BYTECODE, Environment, Maker
from torchproof.machine.inventory import CompilerFound, Interpreter
from torchproof.machine.processes import CompletedCommand, Processes, Stopped, reason_in
from torchproof.machine.processor import Processor
from torchproof.rows import pytest_configuration, results
from torchproof.rows.imported import PLUGIN, ImportCheck
from torchproof.rows.plan import Placed, Row
from torchproof.rows.progress import Progress
from torchproof.rows.results import FAILED, PASSED
from torchproof.rows.single_flight import SingleFlight
from torchproof.rows.watched import watched
from torchproof.rows.wheel_builder import Artifact, Builder, Recipe, recipe

INSTALL_LIMIT_S = 120.0
LOAD_LIMIT_S = 120.0
SPEED_LIMIT_S = 300.0
# How long each benchmark is timed in a row, as pytest-benchmark takes it.
RACE_S = 0.4
# How many times as long a phase may take under an emulator.
EMULATED = 8
# The suite records properties, which xunit2, the default, has no place for.
XUNIT1 = "--override-ini=junit_family=xunit1"

# What CPython's faulthandler prints for a signal that ends a test worker.
SIGNALS = {
    "Aborted": "SIGABRT",
    "Segmentation fault": "SIGSEGV",
    "Illegal instruction": "SIGILL",
    "Bus error": "SIGBUS",
}
FATAL = re.compile(f"Fatal Python error: ({'|'.join(SIGNALS)})".encode())
# The frame that pytest itself has called, in the stack that follows.
CRASHED_TEST = re.compile(
    rb'/([^"/\n]+)", line (\d+) in (\S+)\n  File "[^"\n]+", line \d+ in pytest_pyfunc_call\n'
)

# What shows that the extension loads, and what each library then uses of the processor.
PROBE = """
if __name__ == "__main__":
    import json, os, torch
    import NAME
    libc = os.confstr("CS_GNU_LIBC_VERSION") if sys.platform == "linux" else None
    found = {"processor": read().to_json(), "in_use": {**OWN, **in_use()}, "libc": libc}
    # A file: what is imported may print anything.
    with open(os.environ["TORCHPROOF_LOAD_JSON"], "w", encoding="utf-8") as file:
        json.dump(found, file)
"""


class RowFailed(TorchproofError):
    """A phase failed; the message is what the report says."""


@dataclass(frozen=True)
class Tools:
    """What every row of a run shares."""

    matrix: Matrix
    folder: Path
    maker: Maker
    builder: Builder
    processes: Processes
    progress: Progress
    environments: SingleFlight[Environment]
    artifacts: SingleFlight[Artifact]
    workers: int
    # What results hold for: those of another processor are not taken over.
    processor: Processor
    # Whether rows may only take wheels that are there already.
    prebuilt: bool = False

    @property
    def rows(self) -> Path:
        """A JSON file a row: what `--resume` reads."""
        return self.folder / "rows"


def crash_in(log: Path) -> str:
    """The signal that ended a test process, and in which test; empty where none did."""
    with (
        log.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,  # it may be of gigabytes
    ):
        found = FATAL.search(text)
        if found is None:
            return ""
        test = CRASHED_TEST.search(text, found.end())
        named = b": %b in line %b of %b" % test.group(3, 2, 1) if test else b""
        signal = SIGNALS[found[1].decode()]
        return f"a test ended its process with {signal}{named.decode(errors='replace')}"


def policy_of(matrix: Matrix, row: Row, torch: str) -> Policy:
    """What the audit checks a row's wheel against; `torch` is the one that it was built on."""
    return dataclasses.replace(
        default_policy(),
        ceilings=system_ceilings(),
        binding=cast("Binding", row.binding),
        target=matrix.stable.target if row.binding == "stable" else None,
        torch=series(torch),
        # What is not for every CPython is for those of its wheel's tag.
        python="none" if project().any_python else None,
        cuda=row.cuda,
        cuda_architectures=matrix.architectures(row.cuda),
    )


class RowRun:
    """Runs a placed row and keeps its result on disk as it grows."""

    def __init__(self, placed: Placed, tools: Tools) -> None:
        row = placed.row
        self.placed = placed
        self.tools = tools
        self.phase = "environment"
        self.work = tools.folder / "work" / row.id
        self.imported = ImportCheck(self.work / "site" / project().name, self.work / "imported")
        self.level = tools.matrix.level(row.level)
        emulation = placed.python.emulation if placed.python else None
        self.emulation = emulation
        begun = results.begin(row, self._key(), tools.processor.to_json())
        self.result = dataclasses.replace(begun, emulator=emulation.emulator if emulation else "")

    def _key(self) -> str:
        """One hash over what decides the result: the wheel, what it is checked against, and by."""
        placed, matrix, own = self.placed, self.tools.matrix, project()
        wheel = placed.compiler and recipe(matrix, placed.row, placed.compiler)
        torches = dict.fromkeys((placed.row.torch, *([wheel.torch] if wheel else [])))
        locks = [file for each in torches for file in lockfiles.files(Path(own.locks), each)]
        tests = (*own.tests, *matrix.suite(placed.row.suite).paths, "conftest.py", *own.benchmarks)
        files = (*tests, *pytest_configuration.FILES, *(map(str, locks) if own.locks else ()))
        return text_hash(
            repr(wheel),
            repr(wheel and policy_of(matrix, placed.row, wheel.torch)),
            repr(config.audit()),
            repr((own.groups, own.requires, own.instruction_set, own.benchmarks)),
            source_hash(*files),
            repr(dataclasses.replace(placed.row, line=0, reason="", tier="")),
            repr(dataclasses.replace(matrix.suite(placed.row.suite), line=0)),
            placed.python.version if placed.python else "",
            repr(placed.python and placed.python.emulation),
            repr(self.level and dataclasses.replace(self.level, line=0)),
            repr(self.tools.processor),
        )

    def recall(self) -> None:
        """Take over the result of an earlier run, if it passed and still holds."""
        known = results.read(self.tools.rows, self.placed.row.id)
        if known and known.key == self.result.key and known.status == PASSED:
            installed = (self.work / "site").is_dir()
            timed = known.speed or known.emulator or not project().benchmarks
            self.result = known if timed or installed else self.result

    @property
    def proven(self) -> bool:
        """Whether its tests passed."""
        return self.result.status == PASSED

    @property
    def timed(self) -> bool:
        """Whether its speed is known, too, or means nothing, or there is nothing to time."""
        known = self.result.speed or self.emulation or not project().benchmarks
        return self.proven and bool(known)

    def build(self) -> None:
        """Nothing but the wheel: the row stays "not run"."""
        if self.placed.missing:
            self._keep(reason=self.placed.missing)
            return
        with self._failing():
            self._build()
            self._keep(reason="only built")

    def prove(self) -> None:
        """Everything but the speed. What fails is the row, never the run."""
        if self.placed.missing:
            self._keep(reason=self.placed.missing)
            return
        for folder in (self.work, self._log("tests").parent):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        with self._failing():
            with self._timed("environment"):
                environment = self._environment()
            artifact = self._build()
            self._set(packages=environment.flavour)
            self._install(environment, artifact)
            self._audit(environment, artifact)
            self._load(environment)
            self._tests(environment)
            self._set(status=PASSED)
            self._write()
            if self.emulation:
                self.tools.progress.finished(self.result)

    def time(self) -> None:
        """The row's speed against eager; to be run while no row builds or tests."""
        with self._failing():
            if project().benchmarks:
                self._speed(self._environment())
            self._keep()

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except (TorchproofError, OSError) as error:
            self._keep(status=FAILED, reason=f"{self.phase}: {explain_error(error)}")
        except Stopped:
            raise
        except Exception as error:  # a fault of the tool's own must not cost the other rows
            self._keep(status=FAILED, reason=f"{self.phase}: {type(error).__name__}: {error}")

    def _environment(self) -> Environment:
        """The one that the row runs in."""
        row = self.placed.row
        return self._environment_of(row.torch, self.placed.python, row.packages)

    def _environment_of(self, torch: str, python: Interpreter | None, packages: str) -> Environment:
        assert python is not None
        return self.tools.environments(
            (torch, python, packages),
            lambda: self.tools.maker.make(torch, python, packages, self._log("environment")),
        )

    @contextlib.contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        self.phase = phase
        self.tools.progress.phase(self.placed.row.id, phase)
        started = time.monotonic()
        try:
            yield
        finally:
            self._set(seconds={**self.result.seconds, phase: round(time.monotonic() - started, 2)})

    def _build(self) -> Artifact:
        compiler = self.placed.compiler
        assert compiler is not None
        wanted = recipe(self.tools.matrix, self.placed.row, compiler)
        with self._timed("build"):
            known = self.tools.builder.known(wanted)
            if known is None and self.tools.prebuilt:
                home = self.tools.builder.home(wanted)
                raise RowFailed(
                    f"there is no wheel in {home}: make it with `torchproof run --build`"
                )
            if known is None:
                known = self.tools.artifacts(wanted, lambda: self._make(wanted, compiler))
        self._set(artifact=dataclasses.asdict(known))
        return known

    def _make(self, wanted: Recipe, compiler: CompilerFound) -> Artifact:
        on = self._environment_of(wanted.torch, self.placed.build_python, "stubs")
        return self.tools.builder.build(wanted, compiler, on, self._log("build"))

    def _install(self, environment: Environment, artifact: Artifact) -> None:
        with self._timed("install"):
            command = self.tools.maker.installer.install(
                environment.program, "--no-deps", "--target", str(self.work / "site"), artifact.path
            )
            limit = self._limit(INSTALL_LIMIT_S)
            ended = self._run(command, limit, self.tools.maker.installer.env)
            if not ended.ok:
                raise RowFailed(self._explain(ended, limit))

    def _audit(self, environment: Environment, artifact: Artifact) -> None:
        with self._timed("audit"):
            policy = policy_of(self.tools.matrix, self.placed.row, artifact.torch)
            report = audit(Path(artifact.path), policy, [environment.site_packages])
            with self._log("audit").open("w", encoding="utf-8") as file:
                render(report, terminal.console(file=file, width=120))
            self._set(audit=json.loads(to_json([report]))[0])
            if not report.ok:
                rules = ", ".join(report.failed_rules())
                broken = [f"breaks {rules}; audit.log says why"] if rules else []
                raise RowFailed("; ".join([*broken, *report.unreadable]))

    def _load(self, environment: Environment) -> None:
        with self._timed("load"):
            name, used = project().name, project().instruction_set
            own = f"{{{name!r}: {used}}}" if used else "{}"
            probe = PROBE.replace("NAME", name).replace("OWN", own)
            program = Path(processor.__file__).read_text(encoding="utf-8") + probe
            limit = self._limit(LOAD_LIMIT_S)
            report = self.work / "load.json"
            env = {**self._site(), "TORCHPROOF_LOAD_JSON": str(report)}
            ended = self._run([environment.program, "-c", program], limit, env)
            found = read_json(report)
            if not ended.ok or found is None:
                early = "ended Python, " if ended.ok else ""
                raise RowFailed(f"import {name}: {early}{self._explain(ended, limit)}")
            self._set(**found)
            self._check_level()

    def _check_level(self) -> None:
        beyond = levels.beyond(self.level, self.result.in_use)
        unheld = [f"{name} uses {beyond[name]}" for name in beyond.keys() - levels.ADVISORY]
        if unheld:
            raise RowFailed(f"is not held to the level {self.result.level}: {'; '.join(unheld)}")

    def _tests(self, environment: Environment) -> None:
        suite = self.tools.matrix.suite(self.placed.row.suite)
        limit = self._limit(60.0 * suite.minutes)
        with self._timed("tests"):
            junit, oracle = self.work / "junit.xml", self.work / "oracle.json"
            workers = ["-n", str(self.tools.workers)]
            tell = partial(self.tools.progress.share, self.placed.row.id)
            with watched(self._log("tests"), tell):
                ended = self._pytest(
                    environment,
                    [str(ROOT / path) for path in suite.paths],
                    [*suite.arguments, f"--junitxml={junit}", XUNIT1, *workers],
                    limit=limit,
                    env={"TORCHPROOF_ORACLE_JSON": str(oracle)},
                )
            tests = results.read_junit(junit)
            self._set(tests=tests, oracle=results.read_oracle(oracle))
            if not ended.ok:
                raise RowFailed(self._explain_tests(ended, limit))
            if tests is None or tests.passed == 0:
                raise RowFailed("no test passed, so nothing is proven")

    def _explain_tests(self, ended: CompletedCommand, limit: float) -> str:
        crash = crash_in(self._log("tests"))
        tests = self.result.tests
        if ended.timed_out:
            reason = f"{self._explain(ended, limit)}; raise `minutes` of the suite"
        elif tests and tests.failed:
            reason = f"{tests.failed} failed, first {tests.failures[0]}"
        else:
            reason = "see tests.log" if crash else self._explain(ended, limit)
        return f"{crash}; {reason}" if crash else reason

    def _speed(self, environment: Environment) -> None:
        with self._timed("speed"):
            output = self.work / "benchmark.json"
            ended = self._pytest(
                environment,
                [str(ROOT / path) for path in project().benchmarks],
                [f"--benchmark-json={output}", f"--benchmark-max-time={RACE_S}", "-p", "no:xdist"],
                limit=SPEED_LIMIT_S,
            )
            self._set(speed=results.read_benchmark(output))
            if not ended.ok:
                raise RowFailed(self._explain(ended, SPEED_LIMIT_S))
            if not self.result.speed:
                raise RowFailed(f"no benchmark was measured{reason_in(self._log('speed'))}")

    def _pytest(
        self,
        environment: Environment,
        selection: Sequence[str],
        options: Sequence[str],
        *,
        limit: float,
        env: Mapping[str, str] | None = None,
    ) -> CompletedCommand:
        config_file = str(pytest_configuration.found())
        root = ["-c", config_file, f"--rootdir={ROOT}", f"--confcutdir={ROOT}"]
        command: list[str | Path] = [
            environment.program,
            "-m",
            "pytest",
            *root,
            *("-o", f"cache_dir={self.work / 'cache'}", "-q", "-p", PLUGIN.stem),
            *options,
            *selection,
        ]
        variables = {**self._site(), **self.imported.prepare(), **(env or {})}
        variables["PYTHONPATH"] += f"{os.pathsep}{self.imported.folder}"
        ended = self._run(command, limit, variables)
        if failure := self.imported.failure():
            raise RowFailed(failure)
        return ended

    def _explain(self, ended: CompletedCommand, limit: float) -> str:
        return ended.explain(limit) + reason_in(self._log(self.phase))

    def _limit(self, seconds: float) -> float:
        return seconds * (EMULATED if self.emulation else 1)

    def _site(self) -> dict[str, str]:
        site = {"PYTHONPATH": str(self.work / "site"), **KEEP_BYTECODE}
        if self.emulation and self.emulation.compilers:
            site["PATH"] = f"{self.emulation.compilers}{os.pathsep}{os.environ['PATH']}"
        return site | levels.environment(self.level)

    def _run(
        self, command: Sequence[str | Path], limit: float, env: Mapping[str, str]
    ) -> CompletedCommand:
        # The row's own folder: the source tree must not be where Python looks first.
        return self.tools.processes.run(
            command, log=self._log(self.phase), limit=limit, cwd=self.work, env=env
        )

    def _log(self, phase: str) -> Path:
        return self.tools.folder / "logs" / self.placed.row.id / f"{phase}.log"

    def _set(self, **changes: object) -> None:
        self.result = dataclasses.replace(self.result, **changes)  # type: ignore[arg-type]  # values of many types

    def _keep(self, **changes: object) -> None:
        self._set(**changes)
        self._write()
        self.tools.progress.finished(self.result)

    def _write(self) -> None:
        kept = sorted(self._log("any").parent.glob("*.log"))
        logs = {path.stem: str(path.relative_to(self.tools.folder)) for path in kept}
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self._set(finished=now, logs=logs)
        results.write(self.tools.rows, self.result)
