"""The rules: the checks, each with its texts of data/rules.toml.

A check returns an Outcome: it passed, it failed, or it was not run for the reason it gives. What a
row does not declare cannot be checked, and is not run; it never counts as passed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torchproof.audit.checks import binding, compiler, cuda, hygiene, python, system
from torchproof.audit.outcome import Outcome, Subject
from torchproof.config import read_toml


@dataclass(frozen=True)
class Rule:
    """One line of the audit."""

    id: str
    why: str
    fix: str
    check: Callable[[Subject], Outcome]


# By the rule that each is the check of.
CHECKS: dict[str, Callable[[Subject], Outcome]] = {
    check.__name__.replace("_", "-"): check
    for check in (
        binding.binding,
        binding.stable_target,
        binding.torch_linked,
        binding.torch_python,
        python.python_abi3,
        python.python_tag,
        python.module_init,
        system.platform_tag,
        system.glibc,
        system.glibcxx,
        system.cxxabi,
        system.symbol_versions,
        system.manylinux,
        compiler.cxx11_abi,
        compiler.compiler_abi,
        compiler.compiler_floor,
        compiler.nvcc_host,
        system.needed,
        system.rpath,
        system.bundled_torch,
        cuda.cuda_runtime,
        cuda.cuda_architectures,
        hygiene.executable_stack,
        hygiene.relro,
        hygiene.text_relocations,
        hygiene.exports,
        hygiene.debug_info,
        binding.loads,
    )
}
TEXTS = read_toml(Path(__file__).parents[1] / "data" / "rules.toml")
RULES = tuple(Rule(name, **TEXTS[name], check=check) for name, check in CHECKS.items())
