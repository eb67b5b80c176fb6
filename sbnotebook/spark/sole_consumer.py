"""One stream of a Spark driver consumes an entity at a time.

Spark makes two sources of a stream that is joined with itself, each in a process of its own. Each message would go to
one of the two, so that the join finds no pairs. The processes of one driver are children of its Java process, which is
how they find each other.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import sqlite3
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress

__all__ = ["be_sole_consumer"]

_LOG: Final = logging.getLogger(__name__)
_ENDS_WITHIN: Final = 10.0
"""Seconds that the process of a stream may take to end when its query was stopped, before it starts again."""


@cache
def be_sole_consumer(host: str, entity: EntityAddress, ends_within: float = _ENDS_WITHIN) -> sqlite3.Connection | None:
    """Keep the other processes of this driver from consuming an entity, until this process ends.

    The lock is that of a SQLite file, which the operating system releases when the process ends in any way. Call it as
    often as you like.

    Args:
        host: of the namespace.
        entity: a queue, a subscription, or a sub-queue.
        ends_within: seconds to wait for another process, which may just end; 10 by default.

    Returns:
        The lock; None where this machine has no place for it, as the log says then.

    Raises:
        ConfigurationError: another process of this driver consumes the entity, and has not ended in time.
    """
    place = f"{platform.node()} {os.getppid()} {host.lower()} {entity.path.lower()}"
    file = f"{hashlib.sha256(place.encode()).hexdigest()[:32]}.sqlite"
    try:
        # A folder of this machine: containers that share a home directory also share the numbers of processes.
        folder = Path(tempfile.gettempdir()) / f"sbnotebook-consuming-{getattr(os, 'getuid', int)()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        lock = sqlite3.connect(folder / file, timeout=ends_within, isolation_level=None, check_same_thread=False)
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            return _unguarded(entity, error)
    except OSError as error:
        return _unguarded(entity, error)
    else:
        return lock
    raise ConfigurationError(
        f"Another stream of this Spark driver consumes {entity}, and each message goes to one of them only: a join of "
        "a stream with itself finds no pairs. Consume it once, and use foreachBatch for joins and for several sinks."
    )


def _unguarded(entity: EntityAddress, error: Exception) -> None:
    _LOG.warning("A second stream of this driver that consumes %s would not be noticed: %s.", entity, error)
