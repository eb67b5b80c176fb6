"""The log of writers on the driver, in a Python process of Spark's that has no logging of its own."""

from __future__ import annotations

import logging
import sys


def log_on_driver(logger: logging.Logger, level: int, text: str) -> None:
    """Log a sentence, so that the driver's log shows it: Spark passes on the standard error of this process.

    Without a handler, Python shows warnings only. So a handler is added where there is none, which shows the results
    of successful writes, too.
    """
    if not logger.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    logger.log(level, text)
