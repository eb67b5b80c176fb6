"""The widgets' JavaScript and CSS: plain files in ``static``, joined to what the browser loads.

A widget is sent to the browser as one ES module, so that it needs no server for its parts. The files are ES modules,
too, which editors and browsers understand as they are; joined, they share one scope, so their top-level names differ.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

from sbnotebook.widgets.in_marimo import as_address, is_in_marimo

__all__ = ["module", "style"]

_FOLDER: Final = Path(__file__).with_name("static")
_IMPORT: Final = re.compile(r"""^import\s[^;"']{0,300}+["']\./[^"'\n]++["'];?[ \t]*\n""", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?!default\b)", re.MULTILINE)


@cache
def module(*names: str) -> str:
    """Join files of JavaScript to one ES module.

    Args:
        names: of files in ``static``, each after those that it imports when it is loaded. The last has the default
            export.

    Raises:
        FileNotFoundError: there is no such file.

    Example:
        >>> "import" in module("transport.js")
        False
    """
    parts = (_EXPORT.sub("", _IMPORT.sub("", _read(name))) for name in names)
    script = "\n".join(parts)
    return as_address(script) if is_in_marimo() else script


@cache
def style(*names: str) -> str:
    """Join files of CSS.

    Args:
        names: of files in ``static``.

    Raises:
        FileNotFoundError: there is no such file.

    Example:
        >>> "sbn-table" in style("message_table.css")
        True
    """
    return "\n".join(map(_read, names))


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
