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
def test_files_on_the_disks_of_workers_cause_a_warning_first(
    stream: Callable[..., DataFrame],
    namespace: Namespace,
    queue: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert namespace.entity(queue).send(Message()).ok
    caplog.set_level(logging.WARNING, "sbnotebook.spark.unshared_sinks")
    frame = stream(queue, "message_id string")
    ended(frame.writeStream.format("noop"), str(tmp_path / "1"))
    assert not caplog.records
    ended(frame.writeStream.format("parquet").option("path", str(tmp_path / "out")), str(tmp_path / "2"))
    (warning,) = caplog.messages
    assert warning.startswith(
        f"This stream writes files to file:{tmp_path / 'out'}, and Spark runs on a cluster: if the"
    )


@pytest.mark.usefixtures("watch")
def test_state_on_the_disks_of_workers_causes_a_warning_first(
    stream: Callable[..., DataFrame],
    namespace: Namespace,
    queue: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert namespace.entity(queue).send(Message()).ok
    caplog.set_level(logging.WARNING, "sbnotebook.spark.unshared_sinks")
    counted = stream(queue, "message_id string").groupBy("message_id").count()
    ended(counted.writeStream.format("noop").outputMode("update"), str(tmp_path / "state"))
    (warning,) = caplog.messages
    assert warning.startswith(f"This stream keeps its state in the checkpoint file:{tmp_path / 'state'}, and Spark")


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
