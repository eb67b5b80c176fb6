"""Warnings about a stream on a cluster that writes files, or keeps its state, on the disk of each worker.

Spark ends a stream with such files with success: each worker has a part of them, the driver has a list of them, and a
stream that consumes has removed the messages. A stream with such a state fails when a task runs on another worker.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG: Final = logging.getLogger(__name__)
_FILES: Final = re.compile(r"(?:FileSink|DeltaSink)\[(?P<path>.+)\]")
_STATEFUL: Final = re.compile(
    r"(?m)^[ :+|~-]*+(?:Aggregate|Distinct|Deduplicate|Join|FlatMapGroups|TransformWithState|MapGroupsWithState)"
)
"""Nodes of a plan whose state Spark keeps in the checkpoint. A join with a frame that does not stream has none."""
_OURS: Final = "servicebus"
_FILES_SAID: Final = (
    "This stream writes files to %s, and Spark runs on a cluster: if the nodes do not share that folder, each worker "
    "keeps a part of the files on its own disk. A stream with mode=consume removes the messages all the same. Stop it, "
    "and name a folder that all nodes share."
)
_STATE_SAID: Final = (
    "This stream keeps its state in the checkpoint %s, and Spark runs on a cluster. If the nodes do not share that "
    "folder, each worker keeps a part of the state on its own disk, and the stream fails later. Stop it, and name a "
    "checkpointLocation that all nodes share."
)
_WATCHED: Final[set[str]] = set()
"""The applications that have the listener."""


def warn_of_unshared_sinks(spark: SparkSession) -> None:
    """Warn of each later stream of Service Bus that writes files to a local path, before it reads anything."""
    context = spark.sparkContext
    if not str(context.master).startswith("local") and str(context.applicationId) not in _WATCHED:
        spark.streams.addListener(SinkWatch(spark))
        _WATCHED.add(str(context.applicationId))


class SinkWatch(StreamingQueryListener):
    """Looks at each query when it starts: Spark waits for this before the query reads anything."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Warn if the files or the state of a query will be on the disks of the workers."""
        with suppress(Exception):  # a part of Spark that has changed must not end the query
            session: Any = self._spark
            execution = session._jsparkSession.streams().get(str(event.id)).streamingQuery()  # noqa: SLF001
            plan = execution.analyzedPlan().toString()
            files = _FILES.fullmatch(execution.sink().toString())
            if _OURS in plan and files is not None and self._is_local(files["path"]):
                _LOG.warning(_FILES_SAID, files["path"])
            if _OURS in plan and _STATEFUL.search(plan) and self._is_local(execution.resolvedCheckpointRoot()):
                _LOG.warning(_STATE_SAID, execution.resolvedCheckpointRoot())

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Do nothing."""

    def _is_local(self, folder: str) -> bool:
        session: Any = self._spark
        path = session._jvm.org.apache.hadoop.fs.Path(folder)  # noqa: SLF001
        system = path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())  # noqa: SLF001
        return system.getScheme() == "file"
