"""How Sphinx builds the documentation: ``make docs``, where every warning is an error."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plotly
from docutils import nodes
from sphinx.util import logging

import sbnotebook

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))  # for the extension of our own

project = "sbnotebook"
author = "sbnotebook contributors"
project_copyright = f"2026 {author}"
version = release = sbnotebook.__version__

extensions = ["myst_nb", "scripts.reference_pages"]
exclude_patterns = ["_build"]
html_title = f"sbnotebook {release}"
html_theme = "furo"
html_css_files = ["site.css"]
html_copy_source = False
smartquotes = False  # they turn --where into a dash
# Everything that a page loads comes with it, so that it is whole without a network.
html_static_path = ["_static", str(Path(plotly.__file__).parent / "package_data" / "plotly.min.js")]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
# Run by `make docs`, so that readers see what they give; the tests run them by themselves, and build the site without.
nb_execution_mode = os.environ.get("DOCS_NOTEBOOKS", "off")
nb_execution_timeout = 600
nb_execution_raise_on_error = True
# A panel needs a kernel: what it is in HTML takes its place.
WIDGET = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
nb_mime_priority_overrides = [("html", WIDGET, None)]
nb_ipywidgets_js: dict[str, Any] = {}
os.environ["PLOTLY_RENDERER"] = "notebook_connected"


def for_readers(notebook: str) -> str:
    """A tutorial as it is read without a kernel: with a picture behind each cell that names one in its metadata."""
    content = json.loads(notebook)
    cells: list[dict[str, Any]] = []
    for cell in content["cells"]:
        cells.append(cell)
        if picture := cell["metadata"].get("picture"):
            cells.append({"cell_type": "markdown", "id": f"{cell['id']}-p", "metadata": {}, "source": picture})
    return json.dumps({**content, "cells": cells})


# Sphinx reads only files below its own folder.
for path in DOCS.parent.joinpath("notebooks").glob("*.ipynb"):
    DOCS.joinpath("tutorials", path.name).write_text(for_readers(path.read_text()))

PLOTLY = re.compile(r'<script[^>]*src="https://cdn\.plot\.ly/[^>]*></script>')
NOT_NEEDED = re.compile(
    r'<script type="module">import "https://[^<]*</script>|<script src="[^"]*/mathjax/[^>]*></script>'
)
ELSEWHERE = re.compile(r'<(?:script|img|iframe|link)\b[^>]*(?:src|href)="https?://[^>]*>')
LOGGER = logging.getLogger(__name__)


def load_from_here(_app: Sphinx, page: str, _template: str, context: dict[str, Any], _tree: object) -> None:
    """Load plotly from this site, and no state of panels; warn of anything else that is loaded from elsewhere."""
    scripts: list[object] = context["script_files"]
    scripts[:] = [each for each in scripts if WIDGET_STATE not in str(getattr(each, "attributes", ""))]
    if body := context.get("body"):
        here = f'<script src="{context["pathto"]("_static/plotly.min.js", resource=True)}"></script>'
        context["body"] = NOT_NEEDED.sub("", PLOTLY.sub(here, body))
        for tag in ELSEWHERE.findall(context["body"]):
            LOGGER.warning("%s loads something from elsewhere: %s", page, tag)


def without_widgets(_app: Sphinx, page: nodes.document) -> None:
    """Leave out panels that are nothing in HTML, and progress bars, which say nothing on paper."""
    for output in list(page.findall(nodes.container)):
        if output.get("nb_element") == "mime_bundle":
            kinds = {kind["mime_type"] for kind in output.findall(nodes.container) if "mime_type" in kind}
            if WIDGET in kinds and "text/html" not in kinds:
                output.parent.remove(output)


def setup(app: Sphinx) -> None:
    """Register what happens as pages are read and written."""
    app.connect("doctree-read", without_widgets)
    app.connect("html-page-context", load_from_here)
