"""Warn of reports with failures at which the user has not looked: when the cell ends, or else the program."""

from __future__ import annotations

import atexit
import sys
import warnings
from typing import Any, Final, TypeVar
from weakref import WeakSet

from sbnotebook.model import Report

R = TypeVar("R", bound=Report)

_MOST: Final = 100
"""Reports of which is known whether the user looked at them; a program may have any number."""
_unread: Final[list[tuple[Report.Look, str]]] = []
_shells: Final[WeakSet[Any]] = WeakSet()
"""Those that warn after each cell."""


def watched(report: R) -> R:
    """Return a report, and let the end of the cell warn of its failures if the user has not looked at it by then.

    In a script, the end of the program warns.
    """
    if not report.ok:
        said = str(report)
        _unread.append((report.watch(), said))
        del _unread[:-_MOST]
        if "IPython" in sys.modules:  # a script does not need the time that the import takes
            from IPython.core.getipython import get_ipython

            warn_after_cells(get_ipython())
    return report


def warn_after_cells(shell: Any) -> None:
    """Let a shell call :func:`warn_of_unread` after each cell."""
    if shell is not None and shell not in _shells:
        _shells.add(shell)
        shell.events.register("post_run_cell", warn_of_unread)


def warn_of_unread(_result: object = None) -> None:
    """Warn of the reports that were not looked at until now, once."""
    left, _unread[:] = [said for look, said in _unread if not look.is_done], []
    for said in left:
        warnings.warn(f"{said}. report.failures has the others.", stacklevel=2)


atexit.register(warn_of_unread)
