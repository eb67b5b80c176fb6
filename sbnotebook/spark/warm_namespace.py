"""Connections that stay open from one task to the next in the same worker.

Spark runs task after task in a Python worker, of one write as of one micro-batch after the other, and to open ten
senders takes longer than to send some thousand messages.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from sbnotebook.client.portal import run
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.spark.given import NamespaceTarget

__all__ = ["close_warm", "warm_namespace"]

_KEPT: Final[dict[str, AsyncNamespace]] = {}
"""The namespace of the last task, by what it was reached with."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_KEPT.clear)


@contextmanager
def warm_namespace(target: NamespaceTarget) -> Generator[AsyncNamespace]:
    """A namespace for one task alone, with what the task before left open; closed where the block raises.

    What is idle for long or broken is found out by the senders' own pool.

    Args:
        target: the namespace.
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
    _KEPT[key] = namespace


def close_warm() -> None:
    """Close what was left open."""
    while _KEPT:
        run(_KEPT.popitem()[1].close)
