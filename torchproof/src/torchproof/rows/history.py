"""The version of a project that git's history alone has, for a copy without one."""

import subprocess

from packaging.utils import canonicalize_name

from torchproof.config import ROOT
from torchproof.machine.environments import Environment, build_requirements

READERS = {"hatch-vcs", "setuptools-scm"}


def version(environment: Environment) -> dict[str, str]:
    """The variable that tells setuptools-scm, by which hatch-vcs reads; none where neither builds.

    Nor where git has none: the build then says why.
    """
    if READERS.isdisjoint(canonicalize_name(each.name) for each in build_requirements()):
        return {}
    command = [str(environment.program), "-m", "setuptools_scm"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stdout.split()
    return {"SETUPTOOLS_SCM_PRETEND_VERSION": lines[-1]} if done.returncode == 0 and lines else {}
