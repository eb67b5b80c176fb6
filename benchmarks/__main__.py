"""Benchmarks of the settlement library: ``python -m benchmarks``, or only some: ``python -m benchmarks sending``."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

from benchmarks.results import Result, show

_ALL: Final = (
    "first_table",
    "sending",
    "settling",
    "peeking",
    "archiving",
    "picking",
    "purging",
    "resubmitting",
    "ramping",
    "rehearsing",
    "many_entities",
    "processing",
    "message_table",
    "panel_blocks",
    "triage",
    "assisting",
    "cancelling",
    "decoding",
    "at_a_distance",
    "sharing",
    "spark_reading",
    "spark_writing",
    "spark_consuming",
    "spark_settling",
    "spark_on_cluster",
)
"""Modules with a function ``measure`` that gives results."""


def main(names: list[str]) -> None:
    """Measure, and print the figures."""
    for name in names or _ALL:
        found: list[Result] = import_module(f"benchmarks.{name}").measure()
        show(found)


if __name__ == "__main__":
    main(sys.argv[1:])
