"""Where this torchproof was installed from: a new project installs and updates from there, too."""

import json
import subprocess
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

NAME = "torchproof"


@dataclass(frozen=True)
class Origin:
    """What pip installs torchproof from, and the git repository that its template is in.

    Attributes:
        requirement: as pip takes it.
        repository: as copier takes it; None where the installation names none.
        commit: of the repository.
    """

    requirement: str
    repository: str | None = None
    commit: str | None = None


def of_installed() -> Origin:
    """That of the running torchproof."""
    return read(distribution(NAME).read_text("direct_url.json"))


def read(direct_url: str | None) -> Origin:
    """What a direct_url.json says, which pip leaves where it installed from no index."""
    if direct_url is None:
        return Origin(NAME)
    found: dict[str, Any] = json.loads(direct_url)
    url = found["url"]
    if "vcs_info" in found:
        kind, commit = found["vcs_info"]["vcs"], found["vcs_info"]["commit_id"]
        folder = f"#subdirectory={found['subdirectory']}" if "subdirectory" in found else ""
        repository = f"{kind}+{url}"
        return Origin(f"{NAME} @ {repository}@{commit}{folder}", repository, commit)
    if "dir_info" in found:
        checkout = _git(Path(url2pathname(urlparse(url).path)), "rev-parse", "--show-toplevel")
        if checkout and (Path(checkout) / "copier.yml").is_file():
            commit = _git(Path(checkout), "rev-parse", "HEAD")
            return Origin(f"{NAME} @ {url}", checkout, commit)
    return Origin(f"{NAME} @ {url}")


def git_user() -> str | None:
    """Who commits here, as git knows them."""
    return _git(Path.cwd(), "config", "user.name")


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints; None where it prints nothing, fails or is not installed."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
