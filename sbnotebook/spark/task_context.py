"""The Spark task that runs here: its share of all transfers, its attempt, and connections kept open for the next task.

Spark does not say how many tasks run beside this one (pyspark's ``TaskContext`` has no such number). The settings of
the session travel with each task, and they say how many can run at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final

import anyio
from pyspark import TaskContext

from sbnotebook.client.portal import run
from sbnotebook.client.targets import NamespaceTarget, ServiceCredential
from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import EntityAddress
from sbnotebook.settlement import AsyncNamespace, Failure, sign_in
from sbnotebook.spark.options import ReadOptions, StreamOptions, WriteOptions
from sbnotebook.spark.scrubbing import scrubbed

_LOCAL: Final = re.compile(r"local(?:\[(?P<cores>[0-9]+|\*)(?:, *[0-9]+)?\])?")
_ON_THIS_MACHINE: Final = re.compile(r"local-cluster\[(?P<workers>[0-9]+),(?P<cores>[0-9]+),[0-9]+\]")
_INITIAL: Final = ("spark.executor.instances", "spark.dynamicAllocation.initialExecutors")
_CHECKED_WITHIN: Final = 5.0
"""Seconds."""
_NO_HOST: Final = "There is no host"
_REACHED: Final[set[str]] = set()
_KEPT: Final[dict[str, AsyncNamespace]] = {}
"""The namespace of the last task, by its connection string or host."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_KEPT.clear)


def local_properties() -> Mapping[str, str]:
    """Return the settings and properties that Spark gave to this task; none outside a task."""
    context = TaskContext.get()
    return {} if context is None else context.__dict__.get("_localProperties") or {}


def is_local() -> bool:
    """Return whether this task runs on the user's machine, where the user's journal and archive are."""
    return local_properties().get("spark.master", "").startswith("local")


def refuse_speculation(options: WriteOptions) -> None:
    """Refuse to run where Spark may run a task twice at the same time: both attempts would send its messages."""
    settings = local_properties()
    # It never does so in a local session. Source: its TaskSchedulerImpl, start().
    is_alone = _LOCAL.fullmatch(settings.get("spark.master", ""))
    speculates = settings.get("spark.speculation", "").lower() == "true" and not is_alone
    if speculates and not options.allow_speculation:
        raise ConfigurationError(
            "spark.speculation is on, so Spark may run a task twice at once and send or settle its messages twice: "
            "switch it off. If the entity detects duplicates and your messages have their own ids, you can set "
            "allowSpeculation=true instead."
        )


def check_place(options: ReadOptions | StreamOptions | WriteOptions) -> None:
    """Refuse an unknown host, a missing entity, or one that this connection has no right to. Call it on the driver.

    If Service Bus does not answer within some seconds, the tasks ask again.
    """
    sends = isinstance(options, WriteOptions) and options.sends
    with scrubbed(options.namespace.secrets), warm_namespace(options.namespace) as namespace:
        run(_check, namespace, options.entity, sends)


async def _check(namespace: AsyncNamespace, entity: EntityAddress, sends: bool) -> None:
    with anyio.move_on_after(_CHECKED_WITHIN):
        try:
            if namespace.host not in _REACHED:
                await sign_in(namespace.connection)  # which says in a sentence why the host is not reached
                _REACHED.add(namespace.host)
            if sends:
                await namespace.pool(entity).sizes()
            else:
                await namespace.entity(entity).peek(1)
        except Exception as error:
            may_pass = not isinstance(error, SbNotebookError) and Failure.of(error).is_transient
            if not may_pass or _NO_HOST in str(error):
                raise


def attempt_number() -> int:
    """Return how often Spark ran this task before; 0 at first, and outside a task."""
    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


def in_flight_of_task(options: WriteOptions) -> int:
    """Return how many transfers this task may have in flight."""
    total, context = options.max_in_flight_total, TaskContext.get()
    if total is None or context is None:
        return min(options.max_in_flight, total or options.max_in_flight)
    tasks = tasks_at_once(local_properties(), context.cpus())
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
    """Return how many tasks can run at once, None where the settings do not say.

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
    if master.startswith("spark://"):  # an application gets all cores of such a cluster, up to this number
        most = settings.get("spark.cores.max", "")
        return int(most) if most.isdecimal() else None
    dynamic = settings.get("spark.dynamicAllocation.enabled", "false").lower() == "true"
    executors = settings.get("spark.dynamicAllocation.maxExecutors" if dynamic else "spark.executor.instances", "")
    each = settings.get("spark.executor.cores", "")
    if not (executors.isdecimal() and each.isdecimal()):
        return None
    # Spark begins with the greatest of these, and does not compare them with the maximum. Source: its
    # ExecutorAllocationManager, start(), and Utils.getDynamicAllocationInitialExecutors.
    initial = [settings.get(name, "") for name in _INITIAL] if dynamic else []
    return max(int(count) for count in (executors, *initial) if count.isdecimal()) * int(each)


@contextmanager
def warm_namespace(target: NamespaceTarget) -> Generator[AsyncNamespace]:
    """Lend a namespace to one task, with the connections that the task before left open.

    Spark runs many tasks one after the other in the same worker, and opening ten senders takes longer than sending some
    thousand messages. The namespace is closed where the block raises. The senders' own pool finds out which
    connections are broken, or were idle for too long.
    """
    connection = target.connection()  # each time, because a local emulator may be another one by now
    key = connection.connection_string or str(connection.host)
    namespace = _KEPT.pop(key, None)
    if namespace is None:
        close_warm()
        namespace = AsyncNamespace(connection, archive=None)
    try:
        yield namespace
    except BaseException:
        run(namespace.close)
        raise
    if isinstance(connection.credential, ServiceCredential):  # it may be of this task alone
        run(namespace.close)
    else:
        _KEPT[key] = namespace


def close_warm() -> None:
    """Close the connections that the last task left open."""
    while _KEPT:
        run(_KEPT.popitem()[1].close)
