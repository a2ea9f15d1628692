"""Every entry into the project. Each session installs what it needs.

develop      the edit loop, the suite, the pages: `lint` and `tests` are what `.ci/run` runs
matrix       rows of matrix.toml, and what the ABI audit predicts: `nox -s matrix` is the main job
setup        what the matrix installs: interpreters, compilers, locked versions
speed        the races on this processor
reliability  campaigns with a budget in minutes and a seed
package      wheels, conda packages, releases
torchproof   the tool on projects other than this one
gpu          what needs nvcc, a GPU, or both
ci           the workflows of .github
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import nox
from packaging.version import Version

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["lint", "tests"]
nox.options.reuse_venv = "yes"
# Not uv: it does not read pip's configuration, where a machine may name its CPU wheel of torch.
nox.options.default_venv_backend = "virtualenv"

PYPROJECT = nox.project.load_toml("pyproject.toml")
MATRIX = nox.project.load_toml("matrix.toml")
RELEASES = nox.project.load_toml("torchproof/src/torchproof/data/facts.toml")["torch"]
# The torch that the stable wheel is compiled against.
TORCH = next(
    release["version"]
    for release in RELEASES
    if release["version"].startswith(f"{MATRIX['stable']['headers']}.")
)
# What runs on a user's machine, or makes what does.
SHIPPED = ("lltm", "torchproof/src", "build_support", "setup.py", "noxfile.py", "recipe")
# What is tested of every artifact.
OF_THE_OP = "tests/op"
# A file's tests stay in one process, as some share a build; files in the order of their names, or
# the few long ones would come last. (pytest 9.2 knows no xdist_group: pytest-xdist issue 1386.)
IN_PARALLEL = ("-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder")
# A vulnerability that pip-audit knows of and that does no harm here, with the reason.
ACCEPTED_VULNERABILITIES: dict[str, str] = {}
# The CUDA tests that work under compute-sanitizer: beside it torch's profiler records nothing, and
# torch.cuda.make_graphed_callables cannot capture.
BESIDE_SANITIZER = "not profile and not graphed_module"
SANITIZED = {
    "memcheck": BESIDE_SANITIZER,
    "racecheck": BESIDE_SANITIZER,
    # It does not see what cuBLAS's bfloat16 products for sm_90 store: torch.mm alone is reported.
    "initcheck": f"{BESIDE_SANITIZER} and not bfloat16 and not autocast",
    "synccheck": BESIDE_SANITIZER,
}
# Of a project that the template makes.
PROJECT_SESSIONS = ("lint", "matrix", "tests", "docs")
# Projects of others, each with a matrix.toml.
EXAMPLES = Path("torchproof", "examples")
CXX_SOURCES = ("*.h", "*.inc", "*.cpp", "*.cu", "*.cuh")


def install(session: nox.Session, *groups: str) -> None:
    """Install dependency groups of pyproject.toml."""
    session.install(*nox.project.dependency_groups(PYPROJECT, *groups))


def install_torchproof(session: nox.Session, *extras: str) -> None:
    """Install the matrix's tool from its folder, with the extras that a session uses."""
    session.install("--editable", f"./torchproof[{','.join(extras)}]" if extras else "./torchproof")


def install_for_gpu(session: nox.Session, *groups: str) -> None:
    """Install a torch that sees a GPU, groups, and lltm with its CUDA kernels; else say why not."""
    if shutil.which("nvidia-smi") is None:
        session.error("not run: no CUDA device (there is no nvidia-smi on PATH)")
    session.install(f"torch=={TORCH}")
    # Without this every GPU test would be left out, and what is left would pass.
    seen = "torch.cuda.is_available() or sys.exit('not run: no CUDA device that torch sees')"
    session.run("python", "-c", f"import sys, torch; {seen}")
    install(session, *groups)
    install_lltm(session, LLTM_CUDA="1")


def install_lltm(session: nox.Session, torch: str = TORCH, **variables: str) -> None:
    """Install a torch, build this tree's wheel on it, and install that."""
    session.install(f"torch=={torch}")
    session.install("--no-build-isolation", "--no-deps", "--force-reinstall", ".", env=variables)


def build_in_place(session: nox.Session) -> None:
    """Build what changed of the library into lltm/lib, so that this tree can be imported."""
    session.run("python", "setup.py", "--quiet", "build_ext", "--inplace", silent=True)


@nox.session(tags=["develop"])
def lint(session: nox.Session) -> None:
    """Check format, lint, matrix.toml, types, imports, security, and the locks."""
    install(session, "lint", "workflows")
    install_torchproof(session, "conda", "init", "page", "release")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("torchproof", "check")
    sources = sorted(path for kind in CXX_SOURCES for path in Path("csrc").rglob(kind))
    session.run("bandit", "-q", "-c", "pyproject.toml", "-r", *SHIPPED)
    accepted = [f"--accept={name}={why}" for name, why in ACCEPTED_VULNERABILITIES.items()]
    # A machine without the service has no answer; GitHub's has to have one.
    strict = ("--strict",) if "GITHUB_ACTIONS" in os.environ else ()
    session.run("torchproof", "vulnerabilities", *accepted, *strict)
    session.run("clang-format", "--dry-run", "--Werror", *map(str, sources))
    session.run("lint-imports", "--config", "torchproof/pyproject.toml", "--no-cache")
    session.install(f"torch=={TORCH}")
    session.run("mypy")


@nox.session(tags=["develop"])
def tests(session: nox.Session) -> None:
    """Build the wheel, install it, and run the test suite; arguments go to pytest."""
    install(session, "build", "lint", "mutants", "template", "test", "workflows")
    install_torchproof(session, "conda", "init", "release")
    install_lltm(session)
    session.run("pytest", *(session.posargs or IN_PARALLEL))
    if not session.posargs:
        session.run("pytest", "torchproof/tests", *IN_PARALLEL)


@nox.session(tags=["develop"])
def dev(session: nox.Session) -> None:
    """Build in place what changed, then run pytest with the arguments: `nox -R -s dev -- FILE`."""
    install(session, "build", "test")
    session.install(f"torch=={TORCH}")
    build_in_place(session)
    if session.posargs:
        source_tree = {"PYTHONPATH": str(Path.cwd()), "LLTM_TEST_SOURCE_TREE": "1"}
        session.run("pytest", *session.posargs, env=source_tree)


@nox.session(tags=["develop"])
def examples(session: nox.Session) -> None:
    """Run every example and check what it claims; arguments go to pytest."""
    install(session, "build", "test")
    install_lltm(session)
    session.run("pytest", "tests/examples", *(session.posargs or IN_PARALLEL))


@nox.session(tags=["develop"])
def docs(session: nox.Session) -> None:
    """Build the pages into build/docs, warnings as errors, and execute every code block."""
    install(session, "build", "docs")
    install_torchproof(session, "conda")
    install_lltm(session)
    session.run("sphinx-build", "-E", "-W", "--keep-going", "-q", "docs", "build/docs")
    pages, blocks = ("docs", "README.md"), ("-p", "code_blocks")
    session.run("pytest", *blocks, *pages, *session.posargs, env={"PYTHONPATH": "docs"})


@nox.session(tags=["matrix"])
def matrix(session: nox.Session) -> None:
    """Build, audit, test and time the rows of matrix.toml; `-- --help` lists the options."""
    install_torchproof(session)
    session.run("torchproof", *session.posargs)


@nox.session(tags=["matrix"])
def crossload(session: nox.Session) -> None:
    """Load every wheel into every torch; fails where the audit predicted something else."""
    install_torchproof(session)
    session.run("torchproof", "crossload", *session.posargs)


@nox.session(tags=["matrix"])
def audit(session: nox.Session) -> None:
    """Audit the ABI of binaries: `nox -s audit -- FILE... [--json] [--against TORCH_DIR...]`."""
    install_torchproof(session)
    session.run("torchproof", "audit", *session.posargs)


@nox.session(tags=["matrix"])
def page(session: nox.Session) -> None:
    """Look at the matrix's report in headless Chromium, wide and narrow: `-- [FILE]`."""
    install_torchproof(session, "page")
    session.run("torchproof", "page", *session.posargs)


@nox.session(name="other-platforms", tags=["matrix"])
def other_platforms(session: nox.Session) -> None:
    """Check the sources' syntax for macOS, Windows and aarch64, with the headers Zig carries."""
    install(session, "build")
    session.install(f"torch=={TORCH}", "ziglang")
    session.run("python", "-m", "build_support.other_platforms")


@nox.session(name="torch-nightly", tags=["matrix"])
def torch_nightly(session: nox.Session) -> None:
    """Build and test on a torch newer than torchproof's newest, where pip's indexes have one."""
    session.install("pip>=25.1")  # the first whose `index` speaks JSON
    printed = session.run(
        "python", "-m", "pip", "index", "versions", "--pre", "--json", "torch", silent=True
    )
    (answer,) = (json.loads(line) for line in str(printed).splitlines() if line.startswith("{"))
    newest, known = answer["latest"], RELEASES[-1]["version"]
    if Version(Version(newest).public) <= Version(known):
        session.skip(
            f"not run: the newest torch that pip's indexes offer is {newest}, and torchproof has "
            f"{known}; name an index of nightlies in PIP_EXTRA_INDEX_URL to test on one"
        )
    session.log(f"the newest torch that pip's indexes offer is {newest}")
    install(session, "build", "test")
    install_lltm(session, newest)
    shown = (f"{OF_THE_OP}/test_equivalence.py", f"{OF_THE_OP}/test_warnings.py")
    session.run("pytest", *(session.posargs or [*IN_PARALLEL, *shown]))


@nox.session(tags=["setup"])
def interpreters(session: nox.Session) -> None:
    """Fetch the CPythons of matrix.toml that are missing, from Debian's packages; `-- 3.15`."""
    install_torchproof(session, "interpreters")
    session.run("torchproof", "interpreters", *session.posargs)


@nox.session(tags=["setup"])
def compilers(session: nox.Session) -> None:
    """Install the compilers that a tier's rows name, from Debian's packages; `-- --tier pr`."""
    install_torchproof(session)
    session.run("torchproof", "compilers", *session.posargs)


@nox.session(tags=["setup"])
def lock(session: nox.Session) -> None:
    """Resolve what the matrix's environments install, and write locks/: versions and hashes."""
    install_torchproof(session)
    session.run("torchproof", "lock", *session.posargs)


@nox.session(tags=["speed"])
def bench(session: nox.Session) -> None:
    """Race lltm against everyone else and the floors: `-- --full --compare STORED.json`.

    `-- --cells` races the cells of lltm.cells instead.
    """
    install(session, "build", "test")
    install_torchproof(session)
    install_lltm(session)
    # A competitor that cannot be installed is reported as not run.
    for competitor in ("jax", "onnx", "onnxruntime"):
        session.run("python", "-m", "pip", "install", competitor, success_codes=range(256))
    # Only this session has the competitors that these tests need.
    session.run("pytest", "tests/bench/test_races.py", "-k", "jax or saturated")
    session.run("python", "-m", "benchmarks.runs", *session.posargs)


@nox.session(tags=["reliability"])
def sanitize(session: nox.Session) -> None:
    """Run the op's tests under ASan, UBSan and TSan: `-- --minutes 20 --seed 1`, or `--prove`."""
    install(session, "build", "test")
    install_torchproof(session)
    session.install(f"torch=={TORCH}")
    session.run("python", "tests/campaign/sanitize.py", *session.posargs)


@nox.session(python="3.11", tags=["reliability"])  # atheris has wheels for few CPythons
def fuzz(session: nox.Session) -> None:
    """Fuzz the raw ops and the readers of files: `-- --minutes 10 --seed 1`, or `--prove`."""
    install(session, "build", "test", "fuzz")
    install_torchproof(session)
    install_lltm(session)
    session.run("pytest", "torchproof/tests/test_crashes.py", "-k", "not planted")
    session.run("python", "tests/campaign/fuzz.py", *session.posargs)


@nox.session(tags=["reliability"])
def faults(session: nox.Session) -> None:
    """Kill, starve and lock out what runs for long: `-- --minutes 15 --seed 1`, or `--prove`."""
    install(session, "build", "test")
    install_torchproof(session, "conda")
    install_lltm(session)
    session.run("python", "tests/campaign/faults.py", *session.posargs)


@nox.session(tags=["reliability"])
def mutants(session: nox.Session) -> None:
    """Change the sources place by place: `-- --minutes 60 --seed 1 --resume`, or `--prove`."""
    install(session, "build", "lint", "mutants", "template", "test", "workflows")
    install_torchproof(session, "conda", "init", "release")
    session.install(f"torch=={TORCH}")
    session.run(
        "pytest",
        "--noconftest",
        "tests/campaign/test_mutants.py",
        "tests/campaign/test_mutations.py",
    )
    session.run("python", "tests/campaign/mutants.py", *session.posargs)


@nox.session(tags=["reliability"])
def coverage(session: nox.Session) -> None:
    """Measure which lines the tests run, of Python and of C++: `-- --record`, or `--prove`."""
    install(session, "build", "coverage", "lint", "template", "test", "workflows")
    install_torchproof(session, "conda", "init", "release")
    session.install(f"torch=={TORCH}")
    session.run("pytest", "--noconftest", "tests/campaign/test_covered.py")
    session.run("python", "tests/campaign/covered.py", *session.posargs)


@nox.session(tags=["package"])
def wheel(session: nox.Session) -> None:
    """Build the sdist and this platform's wheel into dist/; compare, tag, audit, describe them."""
    install_torchproof(session, "release")
    session.run("torchproof", "release", "build", env={"LLTM_CELLS": "1"})


@nox.session(name="wheel-tests", tags=["package"])
def wheel_tests(session: nox.Session) -> None:
    """Install the wheel in dist/ and run the op's tests on it; further arguments go to pytest."""
    if not list(Path("dist").glob("lltm-*.whl")):
        session.error("there is no wheel of lltm in dist/; make one with `nox -s wheel`")
    install(session, "test")
    session.install(f"torch=={TORCH}")
    session.install("--no-index", "--no-deps", "--force-reinstall", "--find-links=dist", "lltm")
    session.run("pytest", OF_THE_OP, *(session.posargs or IN_PARALLEL))


@nox.session(tags=["package"])
def conda(session: nox.Session) -> None:
    """Build, test and install the conda packages, with or without conda; `-- --help`."""
    install_torchproof(session, "conda")
    session.run("torchproof", "conda", *session.posargs)


@nox.session(name="release-check", tags=["package"])
def release_check(session: nox.Session) -> None:
    """Check the version, the changelog and the files in dist/; `-- --tag v0.1.0 --json`."""
    install_torchproof(session, "release")
    session.run("torchproof", "release", "check", *session.posargs)


@nox.session(name="release-notes", tags=["package"])
def release_notes(session: nox.Session) -> None:
    """Write the changelog's entry of this version to build/notes.md."""
    install_torchproof(session, "release")
    session.run("torchproof", "release", "notes")


@nox.session(tags=["package"])
def platforms(session: nox.Session) -> None:
    """Print the platforms that wheels are built for, as JSON."""
    install_torchproof(session, "release")
    session.run("torchproof", "release", "platforms")


@nox.session(tags=["torchproof"])
def template(session: nox.Session) -> None:
    """Make a project with CUDA kernels, and run its own sessions: `-- matrix tests`.

    One without CUDA is made by torchproof's tests.
    """
    install(session, "template")
    install_torchproof(session, "init")
    home = Path("build", "template").resolve()
    shutil.rmtree(home / "with_cuda", ignore_errors=True)
    session.run("torchproof", "init", str(home / "with_cuda"), "--cuda", "--defaults")
    project = ("--noxfile", str(home / "with_cuda" / "noxfile.py"), "--envdir", str(home / "nox"))
    session.run("nox", *project, "--sessions", *(session.posargs or PROJECT_SESSIONS))


@nox.session(tags=["torchproof"])
def foreign(session: nox.Session) -> None:
    """Build and cross-load projects of others, from their sdists: `-- torch_scatter-2.1.2`."""
    known = sorted(path.parent.name for path in EXAMPLES.glob("*/matrix.toml"))
    if unknown := set(session.posargs) - set(known):
        session.error(f"no project of {EXAMPLES}: {', '.join(sorted(unknown))}; of {known}")
    install_torchproof(session, "opinion")
    # pip runs a source distribution's setup.py to download it: each of these imports torch.
    session.install(f"torch=={TORCH}", "ninja", "numpy", "setuptools", "setuptools-scm", "wheel")
    for name in session.posargs or known:
        source = unpack_sdist(session, name)
        for file in ("matrix.toml", "smoke.py"):
            shutil.copy(EXAMPLES / name / file, source)
        (row,) = nox.project.load_toml(source / "matrix.toml")["rows"]
        torches = ",".join(row["torch"])
        python = () if row["python"] == "running" else ("--python", row["python"])
        page = (EXAMPLES / name / "result.md").absolute()
        with session.chdir(source):
            options = ("--torch", torches, "--build-on", torches, *python, "--write", str(page))
            session.run("torchproof", "crossload", *options)


def unpack_sdist(session: nox.Session, name: str) -> Path:
    """The folder of a source distribution, as pip finds it on the index."""
    folder = Path("build", "foreign")
    project, _, version = name.rpartition("-")
    exactly = (
        "--no-deps",
        "--no-build-isolation",
        "--no-binary",
        ":all:",
        "--ignore-requires-python",
    )
    # Some look for nvcc then, and want to know for which GPUs.
    session.run(
        *("python", "-m", "pip", "download", *exactly, "--dest", str(folder)),
        f"{project}=={version}",
        env={"TORCH_CUDA_ARCH_LIST": "9.0"},
    )
    shutil.rmtree(folder / name, ignore_errors=True)
    shutil.unpack_archive(folder / f"{name}.tar.gz", folder, filter="data")
    return folder / name


@nox.session(tags=["gpu"])
def gpu(session: nox.Session) -> None:
    """Build with the CUDA kernels and run the op's tests on this machine's GPU; needs nvcc."""
    install_for_gpu(session, "build", "test")
    session.run("pytest", OF_THE_OP, *(session.posargs or IN_PARALLEL))


@nox.session(name="cuda-report", tags=["gpu"])
def cuda_report(session: nox.Session) -> None:
    """Registers and spills of every cell's CUDA kernels; needs nvcc, no GPU: `-- --arch sm_90`."""
    install(session, "build")
    install_torchproof(session, "cuda")
    session.install(f"torch=={TORCH}")
    build_in_place(session)
    session.run("python", "-m", "benchmarks.cuda_report", *session.posargs)


@nox.session(name="sanitize-cuda", tags=["gpu"])
def sanitize_cuda(session: nox.Session) -> None:
    """Run the CUDA tests under compute-sanitizer's four tools; needs a GPU and nvcc."""
    if shutil.which("compute-sanitizer") is None:
        session.error("not run: there is no compute-sanitizer on PATH (it comes with CUDA)")
    install_for_gpu(session, "build", "test")
    for tool, tests in SANITIZED.items():
        sanitizer = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "1"]
        command = ["python", f"{session.bin}/pytest", f"{OF_THE_OP}/test_cuda.py", "-k", tests]
        session.run(*sanitizer, *command, *session.posargs, external=True)


@nox.session(name="bench-cuda", tags=["gpu"])
def bench_cuda(session: nox.Session) -> None:
    """Race the CUDA kernels against everyone else and the floors; needs a GPU and nvcc."""
    install_for_gpu(session, "build", "test")
    install_torchproof(session)
    # Where it cannot be installed, the race reports it as not run.
    session.run("python", "-m", "pip", "install", "flashrnn", success_codes=range(256))
    session.run("python", "-m", "benchmarks.runs", "--cuda", *session.posargs)


@nox.session(tags=["ci"])
def workflows(session: nox.Session) -> None:
    """Lint .github and actions with zizmor, check-jsonschema and actionlint."""
    install(session, "workflows")
    install_torchproof(session)
    session.run("python", "-m", "ci", "lint")


@nox.session(tags=["ci"])
def rehearse(session: nox.Session) -> None:
    """Run ci.yml here, every job in a clone of HEAD; `-- --jobs lint,rows --rows 2` for a part."""
    install(session, "workflows")
    install_torchproof(session)
    session.run("python", "-m", "ci", "rehearse", *session.posargs)


@nox.session(name="report-nightly", tags=["ci"])
def report_nightly(session: nox.Session) -> None:
    """Open an issue on a failed nightly, or add to it, with GitHub's gh; `-- RUN_ADDRESS`."""
    install(session, "workflows")
    install_torchproof(session)
    session.run("python", "-m", "ci", "issue", *session.posargs)
