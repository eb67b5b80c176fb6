"""The emulator's log: no client can fill it, or write lines or terminal commands of its own into it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

_MAX_MESSAGE: Final = 1000
_BURST: Final = 200  # Records that may come at once


def _clean(record: logging.LogRecord) -> bool:
    """Cut a record, and write control characters, and those that turn the order of letters, as escapes."""
    text = record.getMessage()
    record.msg, record.args = _visible(text[:_MAX_MESSAGE]) + "…" * (len(text) > _MAX_MESSAGE), ()
    if record.exc_info:
        # Indented, so that no line of it looks like the beginning of another record.
        lines = logging.Formatter().formatException(record.exc_info)[-8000:].splitlines()
        record.exc_info, record.exc_text = None, "\n".join(f"  {_visible(line)}" for line in lines)
    return True


def log_limit(clock: Callable[[], float] = time.monotonic) -> Callable[[logging.LogRecord], bool]:
    """Return a filter that lets through only so many records: some at once, and after that one every ten seconds.

    It cleans them. The first record after a gap says how many were left out.
    """
    left, since, missing = float(_BURST), clock(), 0

    def may_write(record: logging.LogRecord) -> bool:
        nonlocal left, since, missing
        now = clock()
        left, since = min(_BURST, left + (now - since) / 10), now
        if left < 1:
            missing += 1
            return False
        left -= 1
        _clean(record)
        if missing:
            record.msg, missing = f"({missing} lines are left out here.) {record.msg}", 0
        return True

    return may_write


def clean_logger(name: str) -> logging.Logger:
    logger = logging.getLogger(name)
    logger.addFilter(_clean)
    return logger


def write_log() -> None:
    """Write the log of a process that does nothing but run an emulator to its standard error, within the limit."""
    handler = logging.StreamHandler()
    handler.addFilter(log_limit())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", handlers=[handler])


def _visible(text: str) -> str:
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "replace").decode()
        for character in text
    )
