"""A warning about a stream on a cluster that writes files to the disk of each worker.

Spark ends such a stream with success: each worker has a part of the files, the driver has a list of them, and a stream
that consumes has removed the messages.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SinkWatch", "warn_of_unshared_sinks"]

_LOG: Final = logging.getLogger(__name__)
_FILES: Final = re.compile(r"(?:FileSink|DeltaSink)\[(?P<path>.+)\]")
_OURS: Final = "servicebus"
_WATCHED: Final[set[str]] = set()
"""The applications that have the listener."""


def warn_of_unshared_sinks(spark: SparkSession) -> None:
    """Warn of each later stream of Service Bus that writes files to a local path, before it reads anything.

    Args:
        spark: a classic session; nothing is done for one on this machine.
    """
    context = spark.sparkContext
    if not str(context.master).startswith("local") and str(context.applicationId) not in _WATCHED:
        spark.streams.addListener(SinkWatch(spark))
        _WATCHED.add(str(context.applicationId))


class SinkWatch(StreamingQueryListener):
    """Looks at each query when it starts: Spark waits for this before the query reads anything.

    Args:
        spark: the session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Warn if the files of a query will be on the disks of the workers."""
        with suppress(Exception):  # a part of Spark that has changed must not end the query
            path = self._local_path(str(event.id))
            if path is not None:
                _LOG.warning(
                    "This stream writes files to %s, and Spark runs on a cluster: if the nodes do not share that "
                    "folder, each worker keeps a part of the files on its own disk. A stream with mode=consume removes "
                    "the messages all the same. Stop it, and name a folder that all nodes share.",
                    path,
                )

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Do nothing."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Do nothing."""

    def _local_path(self, query: str) -> str | None:
        """Return the folder to which a stream of Service Bus writes files, if it is local."""
        session: Any = self._spark
        execution = session._jsparkSession.streams().get(query).streamingQuery()  # noqa: SLF001
        found = _FILES.fullmatch(execution.sink().toString())
        if found is None or _OURS not in execution.analyzedPlan().toString():
            return None
        path = session._jvm.org.apache.hadoop.fs.Path(found["path"])  # noqa: SLF001
        system = path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())  # noqa: SLF001
        return found["path"] if system.getScheme() == "file" else None
