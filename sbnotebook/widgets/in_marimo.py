"""The panels in marimo, which keeps the models of all ipywidgets and shows anywidgets only.

There, a panel is one anywidget that draws its parts: see ``static/panel_view.js``.
"""

from __future__ import annotations

import base64
import sys
import threading
from typing import Any

__all__ = ["as_address", "is_in_marimo", "panel_of", "thread_class"]


def is_in_marimo() -> bool:
    """Tell whether a cell of marimo runs this, or a thread or a click that belongs to one."""
    marimo = _marimo()
    return marimo is not None and marimo.running_in_notebook()


def thread_class() -> type[threading.Thread]:
    """Return the class of threads that change widgets: those of marimo know the page to which they belong."""
    marimo = _marimo()
    return threading.Thread if marimo is None else marimo.Thread


def as_address(script: str) -> str:
    """Return a script as a ``data:`` address.

    marimo serves other scripts as files of the cell that runs, and so refuses widgets that a click makes.

    Example:
        >>> as_address("1")
        'data:text/javascript;base64,MQ=='
    """
    return f"data:text/javascript;base64,{base64.b64encode(script.encode()).decode()}"


def panel_of(widget: object) -> object:
    """Return a panel as an element of marimo."""
    return _marimo().ui.anywidget(widget)


def _marimo() -> Any:
    return sys.modules.get("marimo")
