"""How Sphinx builds the documentation: ``make docs``, where every warning is an error."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import sbnotebook

DOCS = Path(__file__).parent

project = "sbnotebook"
author = "sbnotebook contributors"
project_copyright = f"2026 {author}"
version = release = sbnotebook.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_title = f"sbnotebook {release}"
# A line of code has 120 characters.
html_theme_options = {"page_width": "1300px", "body_max_width": "none"}

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
# Run by `make docs`, so that readers see what they give; the tests run them by themselves, and build the site without.
nb_execution_mode = os.environ.get("DOCS_NOTEBOOKS", "off")
nb_execution_timeout = 600
nb_execution_raise_on_error = True

autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
# Some classes are there twice, with and without await, and a signature names them without their module.
suppress_warnings = ["ref.python"]

# Sphinx reads only what is below its own folder.
for notebook in DOCS.parent.joinpath("notebooks").glob("*.ipynb"):
    shutil.copy(notebook, DOCS / "tutorials")
