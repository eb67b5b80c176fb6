"""What each front end can draw: the widgets' JavaScript and CSS, the time to wait for them, and marimo.

The scripts and styles are plain files in ``static``. A widget is sent to the browser as one ES module, so that it needs
no server for its parts. The files are ES modules, too, which editors and browsers understand as they are; joined, they
share one scope, so their top-level names differ.
"""

from __future__ import annotations

import asyncio
import base64
import re
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

_FOLDER: Final = Path(__file__).with_name("static")
_IMPORT: Final = re.compile(r"""^import\s[^;"']{0,300}+["']\./([^"'\n]++)["'];?[ \t]*\n""", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?!default\b)", re.MULTILINE)
_TICK: Final = 0.5
"""Seconds."""


@cache
def module(name: str) -> str:
    """Join a file of JavaScript and those that it imports to one ES module."""
    parts: dict[str, str] = {}

    def take(name: str) -> None:
        script = _read(name)
        for imported in _IMPORT.findall(script):
            if imported not in parts:
                take(imported)
        parts[name] = _EXPORT.sub("", _IMPORT.sub("", script))

    take(name)
    script = "\n".join(parts.values())
    if not is_in_marimo():
        return script
    # marimo serves other scripts as files of the cell that runs, and so refuses widgets that a click makes.
    return f"data:text/javascript;base64,{base64.b64encode(script.encode()).decode()}"


@cache
def style(*names: str) -> str:
    """Join files of CSS."""
    return "\n".join(map(_read, names))


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def marimo() -> Any:
    """Return the module, if the notebook is one of marimo."""
    return sys.modules.get("marimo")


def is_in_marimo() -> bool:
    """Tell whether a cell of marimo runs this, or a thread or a click that belongs to one."""
    return marimo() is not None and marimo().running_in_notebook()


def thread_class() -> type[threading.Thread]:
    """Return the class of threads that change widgets: those of marimo know the page to which they belong."""
    return threading.Thread if marimo() is None else marimo().Thread


def call_unless(answered: threading.Event, seconds: float, over: Callable[[], object]) -> None:
    """Call a function after a time in which an answer could have been taken; without a loop, never."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return

    def wait(left: int) -> None:
        due = loop.time() + 2 * _TICK
        loop.call_later(_TICK, lambda: tick(left, due))

    def tick(left: int, due: float) -> None:
        left -= loop.time() < due  # else the loop was busy
        if answered.is_set():
            return
        if left > 0:
            wait(left)
        else:
            over()

    wait(max(1, round(seconds / _TICK)))
