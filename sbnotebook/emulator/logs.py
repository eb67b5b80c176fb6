"""The emulator's log: no client can fill it, or write lines or terminal commands of its own into it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

_MAX_MESSAGE: Final = 1000
_MAX_TRACEBACK: Final = 8000
_BURST: Final = 200  # Records that may come at once
_PACE: Final = 10.0  # Seconds after which there may be another one


def _clean(record: logging.LogRecord) -> bool:
    """Cut a record, and write control characters, and those that turn the order of letters, as escapes."""
    text = record.getMessage()
    record.msg, record.args = _visible(text[:_MAX_MESSAGE]) + "…" * (len(text) > _MAX_MESSAGE), ()
    if record.exc_info:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
        record.exc_info = None
    if record.exc_text:
        # Indented, so that no line of it looks like the beginning of another record.
        lines = record.exc_text[-_MAX_TRACEBACK:].splitlines()
        record.exc_text = "\n".join(f"  {_visible(line.removeprefix('  '))}" for line in lines)
    return True


class LogLimit:
    """Lets through only so many records of a handler: some at once, and after that one every ten seconds.

    The first record after a gap says how many were left out.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left = float(_BURST)
        self._since = clock()
        self._missing = 0

    def __call__(self, record: logging.LogRecord) -> bool:
        """Return whether a record may be written, and clean it."""
        now = self._clock()
        self._left, self._since = min(_BURST, self._left + (now - self._since) / _PACE), now
        if self._left < 1:
            self._missing += 1
            return False
        self._left -= 1
        _clean(record)
        if self._missing:
            record.msg, self._missing = f"({self._missing} lines are left out here.) {record.msg}", 0
        return True


def clean_logger(name: str) -> logging.Logger:
    r"""Return the logger of a module that logs what clients send."""
    logger = logging.getLogger(name)
    logger.addFilter(_clean)
    return logger


def write_log() -> None:
    """Write the log of a process that does nothing but run an emulator to its standard error, within the limit."""
    handler = logging.StreamHandler()
    handler.addFilter(LogLimit())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", handlers=[handler])


def _visible(text: str) -> str:
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape", "replace").decode()
