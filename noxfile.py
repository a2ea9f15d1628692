"""Every task of the project; `nox --list` says which."""

import nox

nox.options.default_venv_backend = "uv|virtualenv"
PROJECT = nox.project.load_toml("pyproject.toml")


def install_group(session: nox.Session, *groups: str) -> None:
    """Install dependency groups of pyproject.toml."""
    session.install(*nox.project.dependency_groups(PROJECT, *groups))


@nox.session
def audit(session: nox.Session) -> None:
    """Audit the ABI of binaries: `nox -s audit -- FILE... [--json] [--against TORCH_DIR...]`."""
    install_group(session, "audit")
    session.run("python", "-m", "matrix.audit", *session.posargs)
