"""Sphinx, because the reference is made from docstrings and its cross-references are checked.

MyST lets the pages be Markdown. Sybil (conftest.py) executes every code block of every page.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import lltm

sys.path.insert(0, str(Path(__file__).parent))  # for drawings

# The modules are described, not run with: a processor's name has no place in the pages.
os.environ.pop("LLTM_BACKEND", None)

project = "lltm"
author = "the lltm developers"
project_copyright = author
release = version = lltm.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "drawings",
]
exclude_patterns = ["build"]
suppress_warnings = ["config.cache"]

# A reference to nowhere is a warning, and a warning is an error. What other projects document is
# named without a link, so that the pages can be built without a network.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(torch|collections|typing|pathlib)\..*"),
    (r"py:.*", r"(Tensor|State|_?Run|optional|a name from .*|None|Path|FileLock|T|B|L|D|D \* S|S)"),
]

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": False, "no-value": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Source", "notes_style")]

copybutton_prompt_text = r"\$ |>>> |> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_use_index = html_domain_indices = False  # the reference is one page, and there is a search
html_title = f"lltm {version}"
html_show_sphinx = False
