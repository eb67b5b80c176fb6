"""How many transfers a task may have in flight, where all tasks together have a limit.

A task is not told how many others there are (pyspark's ``TaskContext`` has no such number), but the settings of the
session travel with it, and they say how many tasks can run at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from pyspark import TaskContext

from sbnotebook.errors import ConfigurationError
from sbnotebook.spark.options import WriteOptions

__all__ = ["in_flight_of_task", "tasks_at_once"]

_LOCAL: Final = re.compile(r"local(?:\[(?P<cores>[0-9]+|\*)(?:, *[0-9]+)?\])?")
_ON_THIS_MACHINE: Final = re.compile(r"local-cluster\[(?P<workers>[0-9]+),(?P<cores>[0-9]+),[0-9]+\]")


def in_flight_of_task(options: WriteOptions) -> int:
    """The transfers that this task may have in flight.

    Args:
        options: ``maxInFlight`` holds for each task; ``maxInFlightTotal`` is divided by the tasks that can run at once.

    Raises:
        ConfigurationError: it is not known how many tasks can run at once, or there are more of them than transfers.
            Every task of a write finds this, before it does anything.
    """
    total, context = options.max_in_flight_total, TaskContext.get()
    if total is None or context is None:
        return min(options.max_in_flight, total or options.max_in_flight)
    settings: Mapping[str, str] = context.__dict__.get("_localProperties") or {}
    tasks = tasks_at_once(settings, context.cpus())
    instead = "write frame.coalesce(tasks) and give maxInFlight, which holds for each task, instead."
    if tasks is None:
        raise ConfigurationError(
            f"maxInFlightTotal cannot be divided, because this cluster does not say how many tasks it runs at once: "
            f"{instead}"
        )
    if tasks > total:
        raise ConfigurationError(
            f"maxInFlightTotal is {total:,}, but {tasks:,} tasks can run at once and each needs one: {instead}"
        )
    return min(options.max_in_flight, total // tasks)


def tasks_at_once(settings: Mapping[str, str], cpus: int = 1) -> int | None:
    """How many tasks can run at once, None where the settings do not say.

    Args:
        settings: of the session, by their names; source: Spark's documentation, "Submitting Applications" (master URLs)
            and "Spark Configuration".
        cpus: cores that each task takes.

    Example:
        >>> tasks_at_once({"spark.master": "local[4]"})
        4
        >>> tasks_at_once({"spark.master": "yarn", "spark.executor.instances": "3", "spark.executor.cores": "2"})
        6
        >>> tasks_at_once({"spark.master": "yarn"}) is None
        True
    """
    cores = _cores(settings)
    return None if cores is None else max(1, cores // max(1, cpus))


def _cores(settings: Mapping[str, str]) -> int | None:
    master = settings.get("spark.master", "")
    if local := _LOCAL.fullmatch(master):
        return (os.cpu_count() or 1) if local["cores"] == "*" else int(local["cores"] or 1)
    if cluster := _ON_THIS_MACHINE.fullmatch(master):
        return int(cluster["workers"]) * int(cluster["cores"])
    dynamic = settings.get("spark.dynamicAllocation.enabled", "false").lower() == "true"
    executors = settings.get("spark.dynamicAllocation.maxExecutors" if dynamic else "spark.executor.instances", "")
    each = settings.get("spark.executor.cores", "")
    return int(executors) * int(each) if executors.isdecimal() and each.isdecimal() else None
