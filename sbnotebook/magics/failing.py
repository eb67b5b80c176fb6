"""How a magic fails: in one line without a traceback, and with the report of what it had done until then."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from IPython.core.error import UsageError

from sbnotebook.errors import SbNotebookError
from sbnotebook.model import Report
from sbnotebook.settlement.connecting.connection import scrub
from sbnotebook.settlement.connecting.failures import explained

__all__ = ["LAST_REPORT", "InterruptedMagic", "in_one_line"]

LAST_REPORT: Final = "sb_report"
"""The user's variable that has the report of the magic that sent or settled last, also when it was cut off."""
_SDK: Final = ("azure.servicebus.", "azure.core.", "azure.identity.")


class InterruptedMagic(KeyboardInterrupt):
    """A magic was interrupted: shown as the one line that says how far it was, without a traceback."""

    def _render_traceback_(self) -> list[str]:  # IPython asks for it
        return [f"Interrupted: {self}"]


@contextmanager
def in_one_line(shell: Any) -> Generator[None]:
    """Tell errors of sbnotebook's own, of the service, and an interrupt in one line each.

    Args:
        shell: whose user gets the report of what was done until then, in the variable ``sb_report``.

    Raises:
        UsageError: in place of an error; IPython shows it without a traceback.
        InterruptedMagic: in place of an interrupt.
        Exception: other errors as they are, such as those of the user's own functions.
    """
    try:
        yield
    except (SbNotebookError, UsageError) as error:
        raise UsageError(_with_report(shell, error, scrub(str(error)))) from None
    except KeyboardInterrupt as interrupt:
        # Work that is cut off always has a report. Without one it had not begun, or had just ended.
        is_known = hasattr(interrupt, "report")
        said = "nothing was sent or settled." if is_known else "look how far it came before you do it once more."
        raise InterruptedMagic(_with_report(shell, interrupt, said)) from None
    except Exception as error:
        said = _with_report(shell, error, f"{type(error).__name__}: {explained(error)}")
        if not _is_of_the_service(error):
            raise
        raise UsageError(said) from None


def _with_report(shell: Any, error: BaseException, said: str) -> str:
    report = getattr(error, "report", None)
    if not isinstance(report, Report) or not report:
        return said
    shell.push({LAST_REPORT: report})
    rest = f"{report}. What is unconfirmed may have happened, what is skipped did not; {LAST_REPORT} has all outcomes."
    return rest if isinstance(error, KeyboardInterrupt) else f"{said} Until then - {rest}"


def _is_of_the_service(error: Exception) -> bool:
    # By name, because only the settlement library imports the SDK.
    return any(kind.__module__.startswith(_SDK) for kind in type(error).__mro__)
