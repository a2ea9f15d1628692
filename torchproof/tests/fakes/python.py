"""Stands in for an environment's interpreter: builds, imports and tests in a moment, as told.

`STANDIN` is JSON: phase -> part of a path or command -> what happens there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from torchproof.machine.sample_processors import ZEN4

TELL = json.loads(os.environ.get("STANDIN", "{}"))
JUNIT = (
    '<testsuites><testsuite><testcase classname="t" name="one"/>'
    '<testcase classname="t" name="two">{}</testcase></testsuite></testsuites>'
)


def told(phase: str) -> str:
    """What this phase of this row is told to do."""
    where = f"{Path.cwd()} {' '.join(sys.argv)}"
    for part, happening in TELL.get(phase, {}).items():
        if part in where:
            return str(happening)
    return ""


def obey(happening: str) -> None:
    """Do as told."""
    if happening == "abort":
        os.abort()
    if happening == "pause":
        time.sleep(0.7)
    if happening == "hang":
        time.sleep(600)
    if happening == "fail":
        raise SystemExit(1)


def option(name: str) -> Path:
    """The value of `--name=value`."""
    return Path(next(a.partition("=")[2] for a in sys.argv if a.startswith(f"{name}=")))


def build() -> None:
    """Leave a wheel."""
    obey(told("build"))
    folder = Path(sys.argv[sys.argv.index("-o") + 1])
    (folder / "decay-0.1.0-py3-none-linux_x86_64.whl").write_text(str(time.time_ns()))


def load() -> None:
    """Report a processor whose libraries do as the environment says, unless told otherwise."""
    happening = told("load")
    if happening == "real":
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    obey(happening)
    held = os.environ.get("ATEN_CPU_CAPABILITY", "avx512")
    in_use = {"decay": held, "ATen": "avx512" if happening == "escape" else held, "MKL": "AVX-512"}
    report = Path(os.environ["TORCHPROOF_LOAD_JSON"])
    report.write_text(json.dumps({"processor": ZEN4.to_json(), "in_use": in_use}))


def test() -> None:
    """Leave a JUnit file and oracle records, or run the real pytest."""
    happening = told("tests")
    if happening == "real":
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    obey(happening if happening in ("abort", "hang", "pause") else "")
    broken = happening == "fail"
    option("--junitxml").write_text(JUNIT.format('<failure message="no"/>' if broken else ""))
    record = {"backend": "fused", "dtype": "float32", "case": "c", "ulp": 1.5, "eager_ulp": 2.0}
    Path(os.environ["TORCHPROOF_ORACLE_JSON"]).write_text(json.dumps([record]))
    raise SystemExit(1 if broken else 0)


def bench() -> None:
    """Leave a benchmark file."""
    obey(told("speed"))
    timed = [
        {
            "fullname": "b::one",
            "extra_info": {"op": "cell", "case": "c", "dtype": "float32", "backend": backend},
            "stats": {"median": median},
        }
        for backend, median in (("reference", 2e-5), ("fused", 1e-5))
    ]
    if told("speed") == "garble":
        del timed[0]["extra_info"]["op"]
    if told("speed") == "nothing":
        timed = []
    option("--benchmark-json").write_text(json.dumps({"benchmarks": timed}))


if __name__ == "__main__":
    if "build" in sys.argv:
        build()
    elif "-c" in sys.argv and "pytest" not in sys.argv:
        load()
    elif any(a.startswith("--benchmark-json") for a in sys.argv):
        bench()
    else:
        test()
