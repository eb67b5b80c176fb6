from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sbnotebook.client import Namespace
from sbnotebook.model import Message
from sbnotebook.spark.unshared_sinks import SinkWatch, warn_of_unshared_sinks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def watch(spark: SparkSession) -> Iterator[SinkWatch]:
    """The listener, in a local session, which has none by itself."""
    watch = SinkWatch(spark)
    spark.streams.addListener(watch)
    yield watch
    spark.streams.removeListener(watch)


def ended(writer: Any, checkpoint: str) -> None:
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination(120)


@pytest.mark.usefixtures("watch")
@pytest.mark.parametrize("is_at_risk", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_files_and_state_on_the_disks_of_workers_cause_warnings(
    stream: Callable[..., DataFrame],
    namespace: Namespace,
    queue: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    is_at_risk: bool,
) -> None:
    assert namespace.entity(queue).send(Message()).ok
    caplog.set_level(logging.WARNING, "sbnotebook.spark.unshared_sinks")
    frame = stream(queue, "message_id string")
    files, state = str(tmp_path / "files"), str(tmp_path / "state")
    written = frame.dropDuplicates().writeStream.format("parquet").option("path", files)
    ended(written if is_at_risk else frame.writeStream.format("noop"), state)
    assert [message.partition(", and Spark runs on a cluster")[0] for message in caplog.messages] == [
        f"This stream writes files to file:{files}",
        f"This stream keeps its state in the checkpoint file:{state}",
    ][: 2 * is_at_risk]


def test_local_session_has_no_listener_for_sinks(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[object] = []

    def add(_: object, listener: object) -> None:
        added.append(listener)

    monkeypatch.setattr(type(spark.streams), "addListener", add)
    warn_of_unshared_sinks(spark)
    assert not added
    monkeypatch.setattr(spark.sparkContext, "master", "spark://master:7077")
    for _ in range(2):
        warn_of_unshared_sinks(spark)
    assert [type(each) for each in added] == [SinkWatch]
