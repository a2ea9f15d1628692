"""What an earlier run showed is kept while nothing has changed; what failed is never kept."""

from __future__ import annotations

import dataclasses
import io
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from torchproof.audit.system_libraries import system_ceilings
from torchproof.conda import package_builder, package_proofs, packages, suite
from torchproof.conda.channel import Channel
from torchproof.conda.package_builder import Built
from torchproof.conda.package_checks import policies
from torchproof.conda.rendered import Output
from torchproof.conda.run import all_rendered, not_run
from torchproof.conda.session import Session
from torchproof.conda.steps import Steps
from torchproof.conda.summary import EnvironmentResult, PackageResult, ProofResult
from torchproof.conda.targets import Target
from torchproof.conda.worker_pool import done, worker_pool
from torchproof.machine.inventory import Interpreter
from torchproof.rows.results import FAILED, PASSED

from torchproof import config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

PACKAGE = Output("decay", "0.1.0", "cpu_h1_0", 0, {})
INSTALLED = SimpleNamespace(solution=SimpleNamespace(seconds=0.5), seconds=0.6)
TARGET = Target(Interpreter(Path("python3.11"), "3.11.7"), Path("/usr/local/python"), "2.13.0")


class Run:
    """A session whose builds and tests are counted, and end as the test wants."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.status = PASSED
        console = Console(file=io.StringIO())
        tools: Any = SimpleNamespace(nvcc=None)
        facts: Any = None
        self.session = Session(
            folder=folder,
            tool="py-rattler-build",
            packages=("decay",),
            matrix=config.load(),
            facts=facts,
            tools=tools,
            targets=(TARGET,),
            steps=Steps(console),
        )
        monkeypatch.setattr(package_builder, "index", lambda output: None)
        monkeypatch.setattr(package_builder, "tool", lambda name: self)
        monkeypatch.setattr(Channel, "key", "channel")
        monkeypatch.setattr(packages, "recipe_tests", lambda *of, driver: (self.status,))
        monkeypatch.setattr(packages, "audit_package", lambda *of: (PASSED, ""))
        monkeypatch.setattr(Built, "package", SimpleNamespace(files=["decay"]))
        monkeypatch.setattr(suite, "install", lambda *of: INSTALLED)
        monkeypatch.setattr(suite, "run_suite", self.test)

    many_at_once = True

    def submit(self, name: str, call: Callable[[], Any]) -> Future[Any]:
        """In place of workers."""
        self.done.append(name.partition(": ")[2])
        return done(call())

    @property
    def file(self) -> Path:
        return self.session.context.output / "linux-64" / "decay-0.1.0-cpu_h1_0.conda"

    def build(self, context: package_builder.BuildContext, wanted: Output) -> Built:
        """In place of a tool."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_bytes(b"package")
        return Built(self.file, 1.0)

    def test(self, trial: suite.Trial, installed: Any) -> EnvironmentResult:
        return EnvironmentResult(
            "x", "2.13.0", "3.11.7", "full", "cpu", 1, 0.1, 0.2, 3.0, 5, 0, 0, self.status
        )

    def make(self) -> tuple[PackageResult, list[str]]:
        self.done = []
        workers: Any = self
        (package,) = packages.make_packages(self.session, workers, [PACKAGE])
        return packages.test_package(self.session, workers, package).result(), self.done

    def suite(self, key: str) -> tuple[EnvironmentResult, list[str]]:
        self.done = []
        solution: Any = SimpleNamespace(key=key)
        want = suite.Wanted(TARGET, None, "full")
        workers: Any = self
        return suite.test_environment(self.session, workers, want, solution).result(), self.done


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


BUILT = ["build", "the recipe's tests, audit"]


def test_a_package_that_passed_is_kept_and_says_so(run: Run) -> None:
    first, done = run.make()
    assert (first.kept, done) == (False, BUILT)
    again, done = run.make()
    assert (again.kept, done) == (True, [])
    assert again.tests == first.tests


def test_a_package_whose_tests_failed_is_built_and_tested_again(run: Run) -> None:
    run.status = FAILED
    run.make()
    run.status = PASSED
    result, done = run.make()
    assert (result.ok, result.kept, done) == (True, False, BUILT)


@pytest.mark.parametrize("change", ["file", "channel", "tool"])
def test_a_package_that_changed_is_built_again(
    run: Run, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    run.make()
    if change == "file":
        run.file.write_bytes(b"damaged")
    elif change == "channel":
        monkeypatch.setattr(Channel, "key", "another")
    else:
        monkeypatch.setattr(packages, "source_hash", lambda *names: "another")
    assert run.make()[1] == BUILT


def test_a_killed_build_leaves_no_result_to_be_misled_by(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*of: object, driver: str | None) -> tuple[str, ...]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(packages, "recipe_tests", killed)
        with pytest.raises(KeyboardInterrupt):
            run.make()
    assert run.make()[1] == BUILT


def test_a_package_is_there_before_the_one_beside_it_is_built(run: Run) -> None:
    """What needs no more than the first is begun while the second is built."""
    beside = Output("decay", "0.1.0", "cuda130_h2_1300", 1300, {})
    first_is_known = threading.Event()

    def build_it(output: Output) -> Built:
        if output == beside:
            assert first_is_known.wait(timeout=10)
        return run.build(run.session.context, output)

    with ThreadPoolExecutor(2) as pool:
        outputs = {f"{output.key}: build": output for output in (beside, PACKAGE)}
        workers: Any = SimpleNamespace(submit=lambda name, _: pool.submit(build_it, outputs[name]))
        made = packages.make_packages(run.session, workers, [beside, PACKAGE])
        assert next(made).output == PACKAGE
        first_is_known.set()
        assert [package.output for package in made] == [beside]


def test_a_rebuild_is_kept_for_the_same_file_only(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers: Any = run
    (package,) = packages.make_packages(run.session, workers, [PACKAGE])
    monkeypatch.setattr(package_proofs, "OF_FILES", "smoke.py")
    status = FAILED
    monkeypatch.setattr(package_proofs.Run, "__call__", lambda _: [ProofResult("x", status, 1.0)])

    def rebuild(sha256: str) -> tuple[str, bool]:
        of = dataclasses.replace(package, sha256=sha256)
        (shown,) = package_proofs.prove_reproducible(run.session, workers, of).result()
        return shown.status, shown.kept

    assert rebuild("1") == (FAILED, False)
    status = PASSED
    assert rebuild("1") == (PASSED, False)
    assert rebuild("1") == (PASSED, True)
    assert rebuild("2") == (PASSED, False)


RUN = ["install, the full suite"]
KEPT = ["install; the full suite is kept, the packages are the same"]


def test_a_suite_is_kept_on_the_same_packages_only(run: Run) -> None:
    assert run.suite("1")[1] == RUN
    kept, done = run.suite("1")
    assert (kept.kept, done) == (True, KEPT)
    assert (kept.solve_seconds, kept.install_seconds) == (0.5, 0.6)
    assert run.suite("2")[1] == RUN


def test_a_suite_that_failed_is_run_again(run: Run) -> None:
    run.status = FAILED
    assert run.suite("1")[1] == RUN
    run.status = PASSED
    result, done = run.suite("1")
    assert (result.kept, done) == (False, RUN)


def test_no_damage_of_what_is_kept_of_a_package_is_believed(
    run: Run, damages: Callable[[Path, int], Iterator[bytes]]
) -> None:
    first, _ = run.make()
    (record,) = run.session.context.output.glob("*.json")
    for damage in damages(record, 120):
        again, done = run.make()
        assert dataclasses.replace(again, kept=False) == first
        assert done in ([], BUILT)
        record.write_bytes(damage)


def test_no_damage_of_what_is_kept_of_a_suite_is_believed(
    run: Run, damages: Callable[[Path, int], Iterator[bytes]]
) -> None:
    first, _ = run.suite("1")
    (record,) = (run.session.folder / "work").glob("*.json")
    for damage in damages(record, 120):
        again, done = run.suite("1")
        assert (again.passed, again.status) == (first.passed, first.status)
        assert done in (RUN, KEPT)
        record.write_bytes(damage)


def test_no_damage_of_what_is_kept_of_a_rebuild_is_believed(
    run: Run, monkeypatch: pytest.MonkeyPatch, damages: Callable[[Path, int], Iterator[bytes]]
) -> None:
    workers: Any = run
    (package,) = packages.make_packages(run.session, workers, [PACKAGE])
    monkeypatch.setattr(package_proofs, "OF_FILES", "smoke.py")
    shown = ProofResult("two builds are equal", PASSED, 1.0)
    monkeypatch.setattr(package_proofs.Run, "__call__", lambda _: [shown])
    package_proofs.prove_reproducible(run.session, workers, package)
    record = run.session.folder / "work" / "proofs-kept.json"
    for damage in damages(record, 120):
        (again,) = package_proofs.prove_reproducible(run.session, workers, package).result()
        assert dataclasses.replace(again, kept=False) == shown
        record.write_bytes(damage)


def test_two_processes_do_the_work() -> None:
    with worker_pool(Steps(Console(file=io.StringIO()))) as workers:
        begun = [workers.submit(name, partial(int, name)) for name in ("3", "1", "2")]
    assert [future.result() for future in begun] == [3, 1, 2]


def test_an_error_in_another_process_is_raised_here_and_nothing_more_is_begun() -> None:
    begun: list[Future[None]] = []

    def work() -> None:
        with worker_pool(Steps(Console(file=io.StringIO()))) as workers:
            failing = workers.submit("x", partial(int, "x"))
            begun.extend(workers.submit("wait", partial(time.sleep, 0.5)) for _ in range(9))
            failing.result()

    with pytest.raises(ValueError, match="invalid literal"):
        work()
    assert any(future.cancelled() for future in begun)


def test_a_package_built_here_may_need_the_libraries_of_this_machine() -> None:
    """It declares them; a wheel that is released is built on older ones."""
    found = policies(config.load(), (TARGET,))
    assert {policy.ceilings for policy in found.values()} == {system_ceilings()}


@pytest.mark.parametrize(
    ("named", "chosen"),
    [
        (["full", "slow", "quick", "core"], ["slow", "quick", "core", "core"]),
        (["full", "values", "core"], ["full", "core", "values"]),
        (["all"], ["all", "all", "all"]),
        (["everything", "short"], ["everything", "short", "short"]),
    ],
)
def test_a_project_calls_its_suites_as_it_likes(
    run: Run, named: list[str], chosen: list[str]
) -> None:
    matrix = config.load()
    suites = tuple(dataclasses.replace(matrix.suites[0], name=name) for name in named)
    session = dataclasses.replace(
        run.session,
        matrix=dataclasses.replace(matrix, suites=suites),
        tools=SimpleNamespace(nvcc=SimpleNamespace(release="13.0")),
        targets=(TARGET, TARGET),
    )
    assert [want.suite for want in suite.wanted(session)] == chosen


@pytest.mark.parametrize("folder", ["", "tests"])
def test_a_project_without_proofs_of_its_packages_runs_none(
    run: Run, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """`tests` holds no proof that two builds are equal."""
    named = dataclasses.replace(config.project().conda, proofs=folder)
    project = dataclasses.replace(config.project(), conda=named)
    monkeypatch.setattr(config, "project", lambda: project)
    workers: Any = run
    made = tuple(packages.make_packages(run.session, workers, [PACKAGE]))
    shown = [package_proofs.prove_reproducible(run.session, workers, made[0])]
    if not folder:
        shown.append(package_proofs.prove_installation(run.session, workers, made, ()))
    assert [future.result() for future in shown if future.result()] == []
    assert run.done == ["build"]


def test_a_project_misses_no_package_that_it_does_not_have(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = dataclasses.replace(run.session, facts=config.conda(), targets=(TARGET,))
    starts = [line.partition(":")[0] for line in not_run(session)]
    assert starts == ["decay-native", "a second Python", "the CUDA package"]
    named = dataclasses.replace(config.project().conda, native="")
    project = dataclasses.replace(config.project(), conda=named)
    monkeypatch.setattr("torchproof.conda.run.project", lambda: project)
    facts = dataclasses.replace(config.conda(), cuda=())
    starts = [line.partition(":")[0] for line in not_run(dataclasses.replace(session, facts=facts))]
    assert starts == ["a second Python"]


@pytest.mark.parametrize("build", ["h{}_0", "cpu_h{}_0", "pyh{}_0"])
def test_what_was_built_here_is_not_called_never_built(
    run: Run, monkeypatch: pytest.MonkeyPatch, build: str
) -> None:
    """Its hash differs from that of the committed variant, as the C library does."""
    committed = dataclasses.replace(PACKAGE, build=build.format("1234567"))
    made = dataclasses.replace(PACKAGE, build=build.format("89abcde"))
    monkeypatch.setattr("torchproof.conda.rendered.outputs", lambda _: [committed])
    session = dataclasses.replace(run.session, facts=config.conda())
    package = packages.Package(made, Built(run.file, 1.0), "1", "2")
    shown = all_rendered(session, [package])
    assert {row.platform for row in shown if row.built} == {"linux-64"}
    assert len(shown) == len(config.conda().platforms)
