"""What a row may not claim. Each rule is one function; `torchproof check` runs them all."""

import dataclasses
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path

from torchproof.config import (
    HOST,
    ROOT,
    Compiler,
    ConfigError,
    Cuda,
    Matrix,
    RowSpec,
    line_of,
    number,
    project,
)
from torchproof.rows.plan import Row, expand, expand_line, tiers_within

BINDINGS = ("stable", "native")
PACKAGES = ("stubs", "real")
CXX20 = 20
# A hash of nothing never changes: what was built or proven of it would be so for ever.
NOT_EMPTY = ("sources", "kernels")


@dataclass(frozen=True)
class Violation:
    """A line of `matrix.toml`, 0 for what it has none of, the rule it breaks, and how."""

    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        return f"matrix.toml{line}: [{self.rule}] {self.message}"


def names(matrix: Matrix) -> Iterator[Violation]:
    """Everything a line refers to is in the file."""
    platforms = {platform.name for platform in matrix.platforms}
    suites = {suite.name for suite in matrix.suites}
    tiers = {tier.name for tier in matrix.tiers}
    for tier in matrix.tiers:
        for name in set(tier.includes) - tiers:
            yield Violation(
                tier.line, "names", f"tier {tier.name!r} includes {name!r}, which is no tier"
            )
    for spec in matrix.rows:
        for kind, given, known in (
            ("tier", {spec.tier}, tiers),
            ("suite", {spec.suite}, suites),
            ("binding", set(spec.binding), set(BINDINGS)),
            ("packages", {spec.packages}, set(PACKAGES)),
            ("platform", set(spec.platform), platforms),
            ("level", set(spec.level), {HOST, *(level.name for level in matrix.levels)}),
            ("system", set(spec.system), {HOST, *(system.name for system in matrix.systems)}),
        ):
            expected = f" of {', '.join(sorted(known))}" if known else f": there are no `{kind}s`"
            for name in sorted(given - known):
                yield Violation(spec.line, "names", f"{kind} {name!r} is none{expected}")
        for label in set(spec.compiler) - {"default", "each"}:
            if _family(matrix, label) is None:
                yield Violation(
                    spec.line,
                    "names",
                    f"compiler {label!r} is not a family of `compilers` with a major",
                )
        for version in set(spec.cuda) - {"cpu"}:
            if _cuda(matrix, version) is None:
                yield Violation(spec.line, "names", f"CUDA {version!r} is not in `cuda`")
        try:
            list(expand_line(matrix, spec))
        except ConfigError as error:
            yield Violation(spec.line, "names", str(error).partition(": ")[2])


def paths(matrix: Matrix) -> Iterator[Violation]:
    """The files and folders that a suite or the project names are there, and some are named."""
    for suite in matrix.suites:
        for wrong in _absences(suite.paths, some=True):
            yield Violation(suite.line, "paths", f"suite {suite.name!r}: {wrong}")
    lists = {key: getattr(project(), key) for key in ("sources", "kernels", "tests", "benchmarks")}
    for key, named in (*lists.items(), ("smoke", (project().smoke,))):
        for wrong in _absences(named, some=key in NOT_EMPTY):
            yield _of_project(key, "paths", wrong)


def sources(_: Matrix) -> Iterator[Violation]:
    """What a wheel is made of is below the root, of which a build gets a copy."""
    for path in project().sources:
        if Path(os.path.normpath(path)).parts[:1] in {(), ("/",), ("..",)}:
            message = f"{path} is not below the project's root: name files and folders of the wheel"
            yield _of_project("sources", "sources", message)


def _absences(paths: Sequence[str], *, some: bool) -> Iterator[str]:
    if some and not paths:
        yield "the list is empty: name files and folders"
    yield from (f"{path} {wrong}" for path in paths if (wrong := _absence(path)))


def _absence(path: str) -> str:
    try:
        return "" if (ROOT / path).exists() else "is not there"
    except OSError as error:  # a name that no file can have
        return f"cannot be there: {error.strerror}"


def _of_project(key: str, rule: str, message: str) -> Violation:
    return Violation(line_of("[project]", key), rule, f"project.{key}: {message}")


def project_name(_: Matrix) -> Iterator[Violation]:
    """The project's name is one that Python imports, as a row does."""
    name = project().name
    if not name.isidentifier() or iskeyword(name):
        message = f"{name!r} cannot be imported: write the name of the package, such as my_ops"
        yield _of_project("name", "project-name", message)


def minutes(matrix: Matrix) -> Iterator[Violation]:
    """A suite has time to run."""
    for suite in matrix.suites:
        if suite.minutes < 1:
            message = f"suite {suite.name!r}: minutes must be at least 1, got {suite.minutes}"
            yield Violation(suite.line, "minutes", message)


def level_variables(matrix: Matrix) -> Iterator[Violation]:
    """A level's variables have values."""
    for level in matrix.levels:
        for variable in level.environment:
            if "=" not in variable:
                message = f"level {level.name!r}: {variable!r} is not NAME=value"
                yield Violation(level.line, "level-variables", message)


def some_row(matrix: Matrix) -> Iterator[Violation]:
    """There is a row, and each line stands for one: what has none would pass."""
    if not matrix.rows:
        message = "there is no row to run: write rows = [ { tier = ..., torch = ..., ... }, ... ]"
        yield Violation(line_of("rows"), "rows", message)
    for spec in matrix.rows:
        if not any(expand_line(matrix, spec)):
            lists = dataclasses.asdict(spec).items()
            empty = ", ".join(key for key, value in lists if value == ())
            why = f"{empty} is empty" if empty else "no torch of it has a wheel for its Python"
            yield Violation(spec.line, "rows", f"the line stands for no row: {why}")


def wheel(matrix: Matrix, row: Row) -> Iterator[Violation]:
    """Torch has a wheel for the row's Python."""
    pythons = matrix.release(row.torch).every_python
    if row.python != "running" and row.python not in pythons:
        yield Violation(
            row.line,
            "wheel",
            f"torch {row.torch} has wheels for CPython {', '.join(pythons)}, not for {row.python}",
        )


def stable_target(matrix: Matrix, row: Row) -> Iterator[Violation]:
    """A stable row is not older than the torch the stable wheel targets."""
    if row.binding == "stable" and number(row.torch) < number(matrix.stable.target):
        yield Violation(
            row.line,
            "stable-target",
            f"the stable wheel targets torch {matrix.stable.target}, newer than {row.torch}",
        )


def compiler_bounds(matrix: Matrix, row: Row) -> Iterator[Violation]:
    """The compiler is within its bounds and speaks the C++ standard torch's headers need."""
    family = _family(matrix, row.compiler)
    if family is None:
        return
    major = _major(row.compiler)
    if not family.oldest <= major <= family.newest:
        yield Violation(
            row.line,
            "compiler-bounds",
            f"{row.compiler} is outside {family.name} {family.oldest} to {family.newest}",
        )
    release = matrix.built_on(row.binding, row.torch)
    if release.cxx >= CXX20 and major < family.cxx20:
        yield Violation(
            row.line,
            "cxx-standard",
            f"torch {release.version} needs C++{release.cxx}, so {family.name} {family.cxx20} or "
            f"newer, not {row.compiler}",
        )


def cuda_host_compiler(matrix: Matrix, row: Row) -> Iterator[Violation]:
    """Nvcc accepts the row's compiler as its host compiler."""
    family, cuda = _family(matrix, row.compiler), _cuda(matrix, row.cuda)
    if family is None or cuda is None:
        return
    bound = cuda.gxx if family.name == "g++" else cuda.clangxx
    if _major(row.compiler) > bound:
        yield Violation(
            row.line,
            "cuda-host-compiler",
            f"CUDA {row.cuda} accepts {family.name} up to {bound}, not {row.compiler}",
        )


def cuda_major(matrix: Matrix, row: Row) -> Iterator[Violation]:
    """A native build's CUDA is of its torch's major; a stable one loads beside either."""
    cuda = matrix.release(row.torch).cuda
    of_native = row.cuda != "cpu" and row.binding == "native"
    if of_native and number(row.cuda)[0] != number(cuda)[0]:
        yield Violation(
            row.line,
            "cuda-major",
            f"torch {row.torch} is built with CUDA {cuda}, the row with {row.cuda}",
        )


def reason(matrix: Matrix, spec: RowSpec) -> Iterator[Violation]:
    """An odd row says why it is there."""
    if spec.reason:
        return
    if spec.packages == "real":
        yield Violation(
            spec.line, "reason", "a row on the real NVIDIA packages says why it needs them"
        )
    for row in expand_line(matrix, spec):
        if number(row.torch) < number(matrix.stable.target):
            yield Violation(
                spec.line,
                "reason",
                f"a row on torch {row.torch}, which has no stable wheel, says why",
            )


def tier_includes(matrix: Matrix) -> Iterator[Violation]:
    """No tier includes itself."""
    for tier in matrix.tiers:
        for other in tier.includes:
            if tier.name in tiers_within(matrix, other):
                through = "" if other == tier.name else f", through {other!r}"
                message = f"tier {tier.name!r} includes itself{through}: leave {other!r} out"
                yield Violation(tier.line, "tier-includes", message)


def spans(matrix: Matrix) -> Iterator[Violation]:
    """A tier that must span torch holds its oldest and its newest."""
    ends = matrix.supporting("stable")
    for tier in matrix.tiers:
        if not tier.spans_torch:
            continue
        held = {row.torch for row in expand(matrix, tier.name)}
        for word, release in (("oldest", ends[0]), ("newest", ends[-1])):
            if release.version not in held:
                yield Violation(
                    tier.line,
                    "tier-spans-torch",
                    f"tier {tier.name!r} has no row on the {word} torch, {release.version}",
                )


def real_packages(matrix: Matrix) -> Iterator[Violation]:
    """A tier that spans torch has a row on the real NVIDIA packages beside its stubbed ones."""
    for tier in matrix.tiers:
        if tier.spans_torch and not any(r.packages == "real" for r in expand(matrix, tier.name)):
            yield Violation(
                tier.line, "real-packages", f'tier {tier.name!r} has no row with packages = "real"'
            )


# Of the whole file, and of each row.
MATRIX_RULES = (
    *(some_row, paths, sources, project_name, minutes),
    *(level_variables, tier_includes, spans, real_packages),
)
ROW_RULES = (wheel, stable_target, compiler_bounds, cuda_host_compiler, cuda_major)


def violations(matrix: Matrix) -> tuple[Violation, ...]:
    """Every broken rule, in line order; unknown names hide the rules that build on them."""
    found = set(names(matrix)) or set(_beyond_names(matrix))
    return tuple(sorted(found, key=lambda v: (v.line, v.rule, v.message)))


def _beyond_names(matrix: Matrix) -> Iterator[Violation]:
    for spec in matrix.rows:
        yield from reason(matrix, spec)
        for row, rule in itertools.product(expand_line(matrix, spec), ROW_RULES):
            yield from rule(matrix, row)
    for of_matrix in MATRIX_RULES:
        yield from of_matrix(matrix)


def _family(matrix: Matrix, label: str) -> Compiler | None:
    name, _, major = label.rpartition("-")
    return next((c for c in matrix.compilers if c.name == name and major.isdigit()), None)


def _major(label: str) -> int:
    return int(label.rpartition("-")[2])


def _cuda(matrix: Matrix, version: str) -> Cuda | None:
    return next((cuda for cuda in matrix.cuda if cuda.version == version), None)
