"""Results are whole or absent on disk, and what pytest wrote is read as it was meant."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from torchproof.machine.sample_processors import AMX
from torchproof.rows import results
from torchproof.rows.results import FAILED, PASSED, Counts, OracleError, Result, Speed

from torchproof import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RESULT = Result(
    id="torch2.13.0-py3.11-stable-g++-12-cpu",
    torch="2.13.0",
    python="3.11",
    binding="stable",
    compiler="g++-12",
    cuda="cpu",
    packages="cpu",
    suite="full",
    tier="local",
    reason_for_row="",
    key="k",
    status=PASSED,
    tests=Counts(3, 1, 2, ("a::b: wrong",), (("no GPU", 2),)),
    oracle=(OracleError("fused", "float32", "cell", 1.5, 2.0),),
    speed=(
        Speed("cell", "fused", "float32", 10.0, 20.0),
        Speed("seq", "fused", "float32", 5.0, 40.0),
    ),
)


def test_a_result_comes_back_as_it_was(tmp_path: Path) -> None:
    results.write(tmp_path, RESULT)
    assert results.read(tmp_path, RESULT.id) == RESULT


def test_a_damaged_or_foreign_result_counts_as_none(tmp_path: Path) -> None:
    assert results.read(tmp_path, "absent") is None
    (tmp_path / "half.json").write_text('{"id": "half", "tor')
    assert results.read(tmp_path, "half") is None
    (tmp_path / "older.json").write_text(json.dumps({"id": "older", "tests": None}))
    assert results.read(tmp_path, "older") is None


@pytest.mark.parametrize(
    "older",
    [{"tests": 3}, {"speed": [{"case": "a"}]}, {"word": 1}, {"processor": {"title": "AMD Zen 4"}}],
)
def test_a_result_of_an_older_form_counts_as_none(tmp_path: Path, older: dict[str, Any]) -> None:
    written = {**dataclasses.asdict(RESULT), "processor": AMX.to_json()}
    files.write_sealed(tmp_path / "a.json", written)
    assert results.read(tmp_path, "a") == results.from_json(written)
    files.write_sealed(tmp_path / "a.json", {**written, **older})
    assert results.read(tmp_path, "a") is None


def test_no_change_of_a_kept_result_is_believed(
    tmp_path: Path, damages: Callable[[Path, int], Iterator[bytes]]
) -> None:
    results.write(tmp_path, RESULT)
    for _ in damages(tmp_path / f"{RESULT.id}.json", 480):
        assert results.read(tmp_path, RESULT.id) in (None, RESULT)


def test_a_failed_write_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results.write(tmp_path, RESULT)

    def full_disk(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        files.write_json(tmp_path / f"{RESULT.id}.json", {"other": 1})
    assert results.read(tmp_path, RESULT.id) == RESULT
    assert [path.name for path in tmp_path.iterdir()] == [f"{RESULT.id}.json"]


def test_a_sealed_record_may_hold_a_hash_of_its_own(tmp_path: Path) -> None:
    record = {"wheel": "a.whl", "sha256": "0123"}
    files.write_sealed(tmp_path / "a.json", record)
    assert files.read_sealed(tmp_path / "a.json") == record


def test_the_speedup_is_the_geometric_mean() -> None:
    assert RESULT.speedup == pytest.approx(4.0)


def test_junit_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    path.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="t" name="one"/>'
        '<testcase classname="t" name="two"><failure message="x was&#10;1">...</failure></testcase>'
        '<testcase classname="t" name="three"><error message="boom"/></testcase>'
        '<testcase classname="t" name="four"><skipped message="no GPU"/></testcase>'
        "</testsuite></testsuites>"
    )
    assert results.read_junit(path) == Counts(
        1, 2, 1, ("t::two: x was 1", "t::three: boom"), (("no GPU", 1),)
    )


def test_a_run_that_wrote_no_junit_has_no_counts(tmp_path: Path) -> None:
    assert results.read_junit(tmp_path / "absent.xml") is None
    (tmp_path / "half.xml").write_text("<testsuites><testsu")
    assert results.read_junit(tmp_path / "half.xml") is None


def test_each_backend_is_held_against_the_reference(tmp_path: Path) -> None:
    def entry(backend: str, case: str, median: float) -> dict[str, object]:
        info = {"backend": backend, "op": "cell", "case": case, "dtype": "float32"}
        return {"fullname": backend, "extra_info": info, "stats": {"median": median}}

    path = tmp_path / "benchmark.json"
    timed = [entry("reference", "16x32x128", 4e-5), entry("fused", "16x32x128", 1e-5)]
    path.write_text(json.dumps({"benchmarks": timed}))
    (speed,) = results.read_benchmark(path)
    assert (speed.backend, speed.us, speed.eager_us) == (
        "fused",
        pytest.approx(10.0),
        pytest.approx(40.0),
    )
    assert speed.case == "cell 16x32x128"
    assert speed.ratio == pytest.approx(4.0)


def test_a_benchmark_without_a_reference_is_named(tmp_path: Path) -> None:
    info = {"backend": "fused", "op": "cell", "case": "16x32x128", "dtype": "float32"}
    path = tmp_path / "benchmark.json"
    timed = {"fullname": "b::one", "extra_info": info, "stats": {"median": 1e-5}}
    path.write_text(json.dumps({"benchmarks": [timed]}))
    expected = "cell 16x32x128 in float32: there is no benchmark with backend 'reference'"
    with pytest.raises(results.BenchmarkError, match=expected):
        results.read_benchmark(path)


def test_the_worst_error_is_named() -> None:
    assert RESULT.worst == RESULT.oracle[0]
    assert FAILED != PASSED


def test_a_change_of_any_source_changes_the_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROOT", tmp_path)
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "a.cpp").write_text("1")
    first = files.source_hash("csrc")
    assert files.source_hash("csrc") == first
    (tmp_path / "csrc" / "a.cpp").rename(tmp_path / "csrc" / "b.cpp")
    renamed = files.source_hash("csrc")
    (tmp_path / "csrc" / "b.cpp").write_text("2")
    assert len({first, renamed, files.source_hash("csrc")}) == 3


def test_a_hash_is_also_of_tests_outside_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("one")
    first = files.source_hash(str(tmp_path))
    (tmp_path / "test_it.py").write_text("two")
    assert files.source_hash(str(tmp_path)) != first
