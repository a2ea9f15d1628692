"""A pytest plugin of a row: notes a package that was imported from elsewhere than its wheel.

pytest puts folders of the sources first on sys.path, where a package would shadow the wheel. The
modules that a process has loaded are what it tested. Tests that failed may have loaded none: then
it counts where an import would look. The plugin writes into the folder that it is alone in.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path


def pytest_sessionfinish(exitstatus: int) -> None:
    """Write the place of the package, in each of xdist's processes."""
    installed = Path(os.environ["TORCHPROOF_INSTALLED"])
    place = None
    if module := sys.modules.get(installed.name):
        place = getattr(module, "__file__", None)
    elif exitstatus and (spec := find_spec(installed.name)):
        place = spec.origin
    if place and not Path(place).resolve().is_relative_to(installed.parent.resolve()):
        Path(__file__).with_name("place.txt").write_text(place, encoding="utf-8")
