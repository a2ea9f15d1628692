"""A missing, damaged or foreign library is refused in one sentence; `python -m lltm` explains."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import lltm
from lltm import __main__ as explanation
from lltm import _library, _processor
from lltm._build import Build

BUILD = _library.build()


def test_this_installation_is_sound() -> None:
    assert _library.incompatibility(BUILD, torch.__version__) is None


@pytest.mark.parametrize(
    ("changes", "torch_version", "words"),
    [
        ({"platform": "linux-vax"}, torch.__version__, ("linux-vax", _library.host_platform())),
        (
            {"binding": "native", "torch": "2.1.0", "torch_target": None},
            "2.3.0",
            ("2.1.0", "2.3.0"),
        ),
        ({"binding": "stable", "torch_target": "2.10"}, "2.8.0", ("2.10", "2.8.0", "pip install")),
    ],
    ids=["platform", "native", "too_old"],
)
def test_foreign_library(
    changes: dict[str, object], torch_version: str, words: tuple[str, ...]
) -> None:
    reason = _library.incompatibility(dataclasses.replace(BUILD, **changes), torch_version)
    assert reason is not None
    for word in words:
        assert word in reason


def of_a_damaged_library(folder: Path) -> str:
    (folder / "build.json").write_text("{}")
    with pytest.raises(ImportError) as raised:
        Build.read(folder / "build.json")
    return str(raised.value)


def of_another_torch(_: Path) -> str:
    native = dataclasses.replace(BUILD, binding="native", torch="2.1.0", torch_target=None)
    return str(_library.incompatibility(native, "2.3.0"))


def of_missing_cuda_kernels(_: Path) -> str:
    return _library.missing_cuda()


@pytest.mark.parametrize(
    "sentence", [of_a_damaged_library, of_another_torch, of_missing_cuda_kernels]
)
def test_pip_installs_lltm_again_and_nothing_else(
    sentence: Callable[[Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it finds lltm installed and ends, or replaces this torch by the newest it finds."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    commands = re.findall("`(.*?pip install .*?) lltm`", sentence(tmp_path))
    assert commands
    for command in commands:
        assert {"--force-reinstall", "--no-deps"} <= set(command.split())


def newest_glibc(library: Path) -> tuple[int, ...]:
    """The newest C library that a shared library takes a symbol from."""
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", library.read_bytes())
    return max(tuple(map(int, version)) for version in versions)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="not run: only Linux has glibc")
def test_it_loads_on_every_system_that_this_torch_loads_on() -> None:
    ours = Path(lltm.__file__).with_name("lib") / "liblltm.so"
    torchs = Path(torch.__file__).with_name("lib") / "libtorch_python.so"
    assert newest_glibc(ours) <= newest_glibc(torchs)


def test_missing_library(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match=r"without its compiled library.*pip install"):
        _library.Build.read(tmp_path / "build.json")


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"version": 1}'])
def test_damaged_description(text: str, tmp_path: Path) -> None:
    path = tmp_path / "build.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ImportError, match=r"damaged.*reinstall"):
        _library.Build.read(path)


def explained(
    folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lltm", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,  # away from a checkout, whose lltm/ has no library
        env={**os.environ, **environment},
    )


@pytest.mark.subprocess
def test_explanation(tmp_path: Path) -> None:
    done = explained(tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["sound"] is True
    assert facts["lltm"] == lltm.__version__
    assert facts["torch"] == torch.__version__
    assert facts["processor"] == _processor.read().to_json()
    assert facts["instruction_sets_in_use"] == {
        "lltm": torch.ops.lltm.cpu_capability(),
        **_processor.in_use(),
    }
    assert {row["name"] for row in facts["backends"] if row["available"]} == {
        row.name for row in lltm.backends.available()
    }


@pytest.mark.subprocess
@pytest.mark.parametrize(
    ("variable", "value"), [("LLTM_CPU_CAPABILITY", "AVX2"), ("LLTM_BACKEND", "fastest")]
)
def test_a_variable_under_which_nothing_computes_is_explained(
    variable: str, value: str, tmp_path: Path
) -> None:
    done = explained(tmp_path, "--json", **{variable: value})
    assert done.returncode == 1, done.stderr
    facts = json.loads(done.stdout)
    assert facts["sound"] is False
    assert variable in facts["problem"]
    assert value in facts["problem"]


@pytest.mark.subprocess
def test_a_backend_that_a_program_loads_itself_is_no_fault(tmp_path: Path) -> None:
    done = explained(tmp_path, LLTM_BACKEND="jit")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "sound")


@pytest.mark.subprocess
@pytest.mark.parametrize("spelling", [["-m", "lltm"], ["-mlltm"], ["-Bm", "lltm"], ["-Bmlltm"]])
def test_every_spelling_of_a_module_to_run(spelling: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-X", "utf8", "-Wignore", *spelling]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("sound\n")


@pytest.mark.subprocess
@pytest.mark.parametrize("spelling", [["-m", "user"], ["-muser"], ["-Bm", "user"]])
def test_a_package_that_is_run_may_import_lltm(spelling: list[str], tmp_path: Path) -> None:
    """At once, with its ops: it is not lltm that is explained."""
    (tmp_path / "user").mkdir()
    loaded = "import lltm\nprint(lltm.backends.get('fused').name)\n"
    (tmp_path / "user" / "__init__.py").write_text(loaded, encoding="utf-8")
    (tmp_path / "user" / "__main__.py").write_text("", encoding="utf-8")
    command = [sys.executable, *spelling, "lltm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout == "fused\n", done.stderr


def test_the_explanation_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert explanation.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "sound"
    assert any(line.split() == ["torch", torch.__version__] for line in lines)
    assert any(line.startswith("processor ") and _processor.read().title in line for line in lines)
    rows = {line.split()[1]: line.split()[2] for line in lines if line.startswith("backend ")}
    here = {row.name for row in lltm.backends.available()}
    assert {name for name, mark in rows.items() if mark == "available"} == here


@pytest.mark.subprocess
def test_libraries_held_to_the_baseline_report_it(tmp_path: Path) -> None:
    held = {"ATEN_CPU_CAPABILITY": "default", "LLTM_CPU_CAPABILITY": "baseline"}
    done = explained(tmp_path, "--json", **held)
    assert done.returncode == 0, done.stderr
    in_use = json.loads(done.stdout)["instruction_sets_in_use"]
    assert (in_use["ATen"], in_use["lltm"]) == ("DEFAULT", "baseline")
    assert _processor.UNKNOWN not in in_use.values()


@pytest.mark.subprocess
def test_explanation_within_a_process_that_uses_lltm(tmp_path: Path) -> None:
    """Nothing is registered twice."""
    code = "import lltm, lltm.__main__ as program; raise SystemExit(program.main(['--json']))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert json.loads(done.stdout)["sound"] is True
