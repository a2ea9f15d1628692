"""The file that configures a project's pytest."""

import configparser
import os
from pathlib import Path

from torchproof import config
from torchproof.config import ROOT

# Where pytest looks for a project's configuration, in its order, and the section of it, if any.
FILES = {
    "pytest.toml": "",
    ".pytest.toml": "",
    "pytest.ini": "",
    ".pytest.ini": "",
    "pyproject.toml": "pytest",
    "tox.ini": "pytest",
    "setup.cfg": "tool:pytest",
}


def found() -> Path:
    """The project's configuration of pytest: none where it has none, whatever is above its root."""
    for name, section in FILES.items():
        path = ROOT / name
        if path.is_file() and _configures(path, section):
            return path
    return Path(os.devnull)


def _configures(path: Path, section: str) -> bool:
    if not section:
        return True
    if path.suffix == ".toml":
        return section in config.read_toml(path).get("tool", {})
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        return True  # pytest says what is wrong
    return parser.has_section(section)
