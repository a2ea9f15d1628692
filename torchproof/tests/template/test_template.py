"""`torchproof init`: what it makes keeps its own rules, and takes over what the template learns."""

from __future__ import annotations

import ast
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from torchproof.template import __main__ as init
from torchproof.template import create, origin

from torchproof import config

REPOSITORY = Path(__file__).parents[3]
SHORT, LONG = "ab", "an_extension_of_24_chars"
IN_REPOSITORY = "torchproof/src/torchproof/template"


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module", params=[(LONG, True), (SHORT, False)], ids=str)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    name, cuda = request.param
    folder = tmp_path_factory.mktemp("made") / name
    assert init.main([str(folder), "--cuda" if cuda else "--no-cuda", "--defaults"]) == 0
    return folder


def test_a_project_has_what_was_asked_for(project: Path) -> None:
    name = project.name
    with_cuda = yaml.safe_load((project / create.ANSWERS).read_text())["cuda"]
    assert (project / name / "ops.py").is_file()
    assert (project / "csrc" / "muladd.cu").is_file() == with_cuda
    for file in ("setup.py", f"{name}/__init__.py", "recipe/recipe.yaml", "tests/test_muladd.py"):
        assert ("cuda" in (project / file).read_text(encoding="utf-8").lower()) == with_cuda, file


def test_its_recipe_has_the_variants_that_it_names(project: Path) -> None:
    recipe = (project / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:python|pytorch|cuda_compiler)_\w+", recipe))
    variants = project / "recipe" / "conda_build_config.yaml"
    made = yaml.safe_load(variants.read_text(encoding="utf-8"))
    assert named
    assert named <= {*made}


def test_its_recipe_can_be_written_again(project: Path, tmp_path: Path) -> None:
    clone = shutil.copytree(project, tmp_path / "clone")
    run(sys.executable, "-m", "torchproof", "conda", "--write", cwd=clone)
    assert {path.name for path in clone.iterdir()} == {path.name for path in project.iterdir()}


def test_a_project_without_its_recipe_is_told_what_to_do(project: Path, tmp_path: Path) -> None:
    clone = shutil.copytree(project, tmp_path / "clone")
    shutil.rmtree(clone / "recipe")
    check = (sys.executable, "-m", "torchproof", "check")
    done = subprocess.run(check, cwd=clone, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "recipe/recipe.yaml is not there: write it, or take `conda` out" in done.stdout
    matrix = clone / "matrix.toml"
    lines = matrix.read_text(encoding="utf-8").splitlines(keepends=True)
    matrix.write_text("".join(line for line in lines if not line.startswith("conda = ")))
    run(*check, cwd=clone)


def test_no_mark_of_the_template_is_left(project: Path) -> None:
    files = [path for path in project.rglob("*") if path.is_file()]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    assert len(texts) > len(list(project.iterdir()))
    for path, text in texts.items():
        assert not any(mark in text for mark in ("[%", "%]", "[[ ", " ]]")), path
        assert "[" not in path.name, path


def test_a_build_for_the_cpu_has_no_cuda_library_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WITH_CUDA", raising=False)
    project, built = tmp_path / SHORT, tmp_path / "built" / SHORT
    assert init.main([str(project), "--cuda", "--defaults"]) == 0
    built.mkdir(parents=True)
    library, of_cuda = built / f"lib{SHORT}.so", built / f"lib{SHORT}_cuda.so"
    for path in (library, of_cuda):  # newer than the sources, so that nothing is compiled
        path.write_bytes(b"")
    command = (sys.executable, "setup.py", "-q", "build_ext", "--build-lib", built.parent)
    run(*command, cwd=project)
    assert library.is_file()
    assert not of_cuda.exists()


def test_its_source_distribution_has_its_tests(project: Path, tmp_path: Path) -> None:
    clone = shutil.copytree(project, tmp_path / "clone")
    run(sys.executable, "setup.py", "-q", "sdist", "--formats=gztar", cwd=clone)
    (packed,) = (clone / "dist").iterdir()
    shutil.unpack_archive(packed, tmp_path, filter="data")
    unpacked = tmp_path / packed.name.removesuffix(".tar.gz")
    tests = {path.name for path in (project / "tests").iterdir()}
    assert {path.name for path in (unpacked / "tests").iterdir()} == tests


def test_an_isolated_build_compiles_on_the_headers_of_its_matrix(project: Path) -> None:
    """What is released is what the rows have tested."""
    stated = config.read_toml(project / "pyproject.toml")["build-system"]["requires"]
    wanted = {each.name: each.specifier for each in map(Requirement, stated)}
    releases = [each.version for each in config.load().supporting("stable")]
    headers = config.loads((project / "matrix.toml").read_text()).headers
    assert [each for each in releases if each in wanted["torch"]][-1] == headers.version


def test_it_can_be_released_without_a_recipe(project: Path, tmp_path: Path) -> None:
    clone = shutil.copytree(project, tmp_path / "clone")
    shutil.rmtree(clone / "recipe")
    entry = "# Changelog\n\n## [0.1.0] - 2026-01-01\n\n### Added\n\n- The op.\n"
    (clone / "CHANGELOG.md").write_text(entry, encoding="utf-8")
    checked = run(sys.executable, "-m", "torchproof", "release", "check", "--json", cwd=clone)
    assert json.loads(checked) == {"version": "0.1.0", "problems": []}


def test_its_files_pass_the_linters_of_its_own_session(project: Path) -> None:
    run(sys.executable, "-m", "ruff", "check", ".", cwd=project)
    run(sys.executable, "-m", "ruff", "format", "--check", ".", cwd=project)
    sources = [str(path) for path in (project / "csrc").glob("*.[ch]*")]
    run("clang-format", "--dry-run", "--Werror", *sources, cwd=project)


def test_its_workflow_is_sound(project: Path) -> None:
    run("zizmor", "--offline", "--quiet", "--pedantic", ".github", cwd=project)
    schema = ("check-jsonschema", "--quiet", "--builtin-schema")
    run(*schema, "vendor.github-workflows", ".github/workflows/ci.yml", cwd=project)
    run(*schema, "vendor.dependabot", ".github/dependabot.yml", cwd=project)


def test_its_matrix_breaks_no_rule_and_has_rows(project: Path) -> None:
    tool = (sys.executable, "-m", "torchproof")
    run(*tool, "check", cwd=project)
    local = json.loads(run(*tool, "list", "--json", cwd=project))
    (row,) = local
    headers = config.loads((project / "matrix.toml").read_text()).headers
    assert row["torch"] == headers.version
    pr = json.loads(run(*tool, "expand", "--tier", "pr", cwd=project))
    supporting = config.load().supporting("stable")
    assert {row["torch"] for row in pr} == {release.version for release in supporting}
    # Its README's claim: one wheel for every CPython.
    assert {row["python"] for row in pr} >= set(headers.pythons)
    assert config.project(project / "matrix.toml").any_python


def test_its_workflow_runs_only_what_a_machine_without_nvcc_can(project: Path) -> None:
    """It runs its tier with --strict, on which a row that is not run fails."""
    tool = (sys.executable, "-m", "torchproof", "expand", "--tier")
    (tier,) = set(re.findall(r"--tier (\S+)", (project / ".github/workflows/ci.yml").read_text()))
    assert {row["cuda"] for row in json.loads(run(*tool, tier, cwd=project))} == {"cpu"}
    if (project / "csrc" / "muladd.cu").is_file():
        assert "--tier cuda" in (project / "README.md").read_text()
        assert [row["cuda"] for row in json.loads(run(*tool, "cuda", cwd=project))] == ["13.0"]


def commit(folder: Path, message: str, tag: str | None = None) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
    run("git", "add", "--all", "--force", cwd=folder)
    run("git", *identity, "commit", "--quiet", "--message", message, cwd=folder)
    if tag:
        run("git", "tag", tag, cwd=folder)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with the template where this one has it, and one version."""
    folder = tmp_path / "repository"
    shutil.copytree(create.TEMPLATE, folder / IN_REPOSITORY)
    shutil.copy(REPOSITORY / "copier.yml", folder)
    run("git", "init", "--quiet", ".", cwd=folder)
    commit(folder, "One", "v0.1.0")
    return folder


def learn(repository: Path) -> None:
    """Version 2 of the template."""
    file = repository / IN_REPOSITORY / "project" / "csrc" / "glibc.cpp.jinja"
    file.write_text(f"// Learned for [[ name ]].\n{file.read_text(encoding='utf-8')}")
    commit(repository, "Two", "v0.2.0")


def update(project: Path) -> None:
    run(sys.executable, "-m", "copier", "update", "--defaults", "--quiet", cwd=project)


def test_copier_update_brings_changes_and_keeps_the_authors_own(
    repository: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "decay"
    assert init.main([str(folder), "--template", str(repository), "--cuda", "--defaults"]) == 0
    readme, version = folder / "README.md", folder / "decay" / "_version.py"
    readme.write_text(readme.read_text(encoding="utf-8") + "Our own.\n")
    version.write_text('__version__ = "9.9.9"\n')
    run("git", "init", "--quiet", ".", cwd=folder)
    commit(folder, "Start")
    learn(repository)
    update(folder)
    assert (folder / "csrc" / "glibc.cpp").read_text().startswith("// Learned for decay.\n")
    assert readme.read_text(encoding="utf-8").endswith("Our own.\n")
    assert "9.9.9" in version.read_text()
    answers = yaml.safe_load((folder / create.ANSWERS).read_text())
    assert answers["_commit"] == "v0.2.0"
    assert answers["cuda"] is True


def test_copier_update_works_after_the_template_of_an_installed_torchproof(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = run("git", "rev-parse", "HEAD", cwd=repository).strip()
    installed = origin.Origin("torchproof", str(repository), head)
    monkeypatch.setattr(create, "of_installed", lambda: installed)
    folder = tmp_path / "decay"
    assert init.main([str(folder), "--defaults"]) == 0
    run("git", "init", "--quiet", ".", cwd=folder)
    commit(folder, "Start")
    learn(repository)
    update(folder)
    assert run("git", "diff", "--name-only", cwd=folder).split() == [
        create.ANSWERS,
        "csrc/glibc.cpp",
    ]


def test_an_installation_from_an_index_says_that_updates_need_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(create, "of_installed", lambda: origin.read(None))
    assert init.main([str(tmp_path / "decay"), "--defaults"]) == 0
    assert "give it with --template" in capsys.readouterr().out
    answers = yaml.safe_load((tmp_path / "decay" / create.ANSWERS).read_text())
    assert "_src_path" not in answers
    assert answers["torchproof"] == "torchproof"


@pytest.mark.parametrize(
    ("direct_url", "requirement", "repository"),
    [
        (
            {
                "url": "https://host.example/t.git",
                "vcs_info": {"vcs": "git", "commit_id": "abc"},
                "subdirectory": "torchproof",
            },
            "torchproof @ git+https://host.example/t.git@abc#subdirectory=torchproof",
            "git+https://host.example/t.git",
        ),
        ({"url": "file:///no/t.whl", "archive_info": {}}, "torchproof @ file:///no/t.whl", None),
        ({"url": "file:///no/folder", "dir_info": {}}, "torchproof @ file:///no/folder", None),
    ],
)
def test_a_project_installs_torchproof_from_where_this_one_was(
    direct_url: dict[str, object], requirement: str, repository: str | None
) -> None:
    found = origin.read(json.dumps(direct_url))
    assert (found.requirement, found.repository) == (requirement, repository)


def test_a_checkout_is_its_own_repository(repository: Path) -> None:
    inside = repository / "torchproof"
    found = origin.read(json.dumps({"url": inside.as_uri(), "dir_info": {"editable": True}}))
    head = run("git", "rev-parse", "HEAD", cwd=repository).strip()
    assert (found.repository, found.commit) == (str(repository), head)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--name", "Bad-Name"], "must be 2 to 24 lower-case letters"),
        (["--name", "torch"], "not a name that the project uses itself"),
        *((["--name", name], "nor a keyword") for name in ("class", "json", "print", "numpy")),
        (["--name", "ext_"], "the first a letter, the last no underscore"),
        (["--name", "sparse"], "nor a namespace of torch's operators"),
        (["--name", "3d"], ", got '3d'"),
        (["--author", "two\nlines"], "must be one line"),
        (["--author", "one\n"], "must be one line"),
        (["--ref", "nope"], "--ref nope is of a repository: name it with --template"),
        (["--template", "nowhere"], "the template nowhere: Local template must be a directory."),
        (["--template", "git+file:///nowhere"], "git+file:///nowhere: "),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "decay"
    assert init.main([str(folder), "--defaults", *arguments]) == init.BAD_INPUT
    message = capsys.readouterr().err
    assert words in message
    assert message.count("\n") == 1
    assert not folder.exists() or not any(folder.iterdir())


@pytest.mark.parametrize(
    "text",
    ['Jo "Jolt" Doe', "O'Neil", 'Jo "Jolt" O\'Neil', 'back\\slash "', "Zoë 🙂"],
    ids=ascii,
)
def test_an_answer_is_a_text_of_python(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "decay"
    answers = ("--author", text, "--torchproof", text)
    assert init.main([str(folder), "--defaults", *answers]) == 0
    assert set(yaml.safe_load((folder / create.ANSWERS).read_text(encoding="utf-8"))) <= {
        *("_commit", "_src_path", "author", "cuda", "name", "torchproof")
    }
    for file, name in (("docs/conf.py", "author"), ("noxfile.py", "TORCHPROOF")):
        module = ast.parse((folder / file).read_text(encoding="utf-8"))
        (value,) = (
            node.value for node in module.body if ast.unparse(node).startswith(f"{name} = ")
        )
        assert ast.literal_eval(value) == text
    run(sys.executable, "-m", "ruff", "format", "--check", ".", cwd=folder)


def test_what_is_to_be_typed_next_is_quoted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my extension"
    assert init.main([str(folder), "--defaults"]) == 0
    assert f"  cd '{folder}' && git init" in capsys.readouterr().out


def test_a_folder_in_use_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("")
    assert init.main([str(tmp_path), "--defaults"]) == init.BAD_INPUT
    assert "is in use: name a folder that is empty or absent" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("there", [False, True])
def test_an_interrupt_leaves_nothing(tmp_path: Path, *, there: bool) -> None:
    folder = tmp_path / "new"
    if there:
        folder.mkdir()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # for what is started, too
    with subprocess.Popen(
        [sys.executable, "-m", "torchproof", "init", str(folder), "--defaults", "--name=decay"],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        signal.signal(signal.SIGINT, before)
        while not (folder / config.FILE).exists() and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=60)
    assert (process.returncode, message) == (130, "init: interrupted: nothing was made\n")
    assert list(tmp_path.rglob("*")) == ([folder] if there else [])


def test_the_actions_of_a_project_are_pinned_as_ours_are() -> None:
    def pins(path: Path) -> set[str]:
        lines = path.read_text(encoding="utf-8").splitlines()
        return {line.partition("uses: ")[2] for line in lines if "uses: " in line}

    template = create.TEMPLATE / "project" / ".github" / "workflows" / "ci.yml.jinja"
    ours = set().union(*map(pins, (REPOSITORY / ".github" / "workflows").glob("*.yml")))
    assert pins(template)
    assert pins(template) <= ours
