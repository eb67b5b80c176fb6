"""``namespace.settle_frame``: the same rows as those of the writer, with an outcome for each."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sbnotebook.client import Namespace, connect
from sbnotebook.emulator import QueueOptions, RunningEmulator
from sbnotebook.errors import ConfigurationError, DecisionError, ReadOnlyError
from sbnotebook.model import Message, MessageState
from tests.filled_queues import partly_deferred_queue
from tests.namespaces import opened
from tests.spark.planted_secrets import files, places

Read = Callable[..., DataFrame]


@pytest.fixture
def own(connection_string: str, tmp_path: Path) -> Iterator[Namespace]:
    """A namespace whose journal and archive are of this test alone."""
    with opened(connection_string, tmp_path) as namespace:
        yield namespace


def settled(outcomes: DataFrame) -> dict[int, str]:
    return {row.sequence_number: row.status for row in outcomes.collect()}


# ------------------------------------------------------------------ settled rows


def test_settle_frame_settles_the_chosen_dead_letters_only(read: Read, own: Namespace, queue: str) -> None:
    partly_deferred_queue(own, queue, 2_000, deferred=0)
    with own.entity(queue).lock(2_000) as batch:
        assert batch.dead_letter(reason="Invalid").ok
    letters = own.entity(f"{queue}/$dlq")
    assert letters.defer_all(to_sequence_number=1_800, show_progress=False).apply(show_progress=False).settled == 1_800
    before = {message.message_id: message for message in letters.peek(show_progress=False)}
    frame = read(f"{queue}/$dlq", state="deferred", partitions=2)
    decided = frame.where("subject <> 's3'").select("entity", "sequence_number", f.lit("complete").alias("decision"))
    plan = own.plan_settle_frame(decided)
    assert len(plan) == 1_350
    assert repr(plan).startswith(f"Plan: settle 1,350 messages: complete 1,350 of {queue}/$dlq. Completed messages are")
    outcomes = plan.apply(show_progress=False)
    counts = outcomes.groupBy("entity", "decision", "status").count().collect()
    assert [tuple(row) for row in counts] == [(f"{queue}/$dlq", "complete", "settled", 1_350)]
    assert outcomes.join(frame, ["entity", "sequence_number"]).count() == 0
    after = {message.message_id: message for message in letters.peek(show_progress=False)}
    assert after == {name: message for name, message in before.items() if message.subject == "s3" or name in after}
    assert {int(name[1:]) for name in after if name} == {n for n in range(1, 2_001) if n % 4 == 3 or n > 1_800}
    with pytest.raises(DecisionError, match="applied already"):
        plan.apply(show_progress=False)
    undone = own.undo(outcomes.where("sequence_number <= 5"))
    assert undone.apply(show_progress=False).settled == outcomes.where("sequence_number <= 5").count() > 0


def test_settle_frame_carries_out_each_row(spark: SparkSession, own: Namespace, queue: str) -> None:
    entity = partly_deferred_queue(own, queue, 12, deferred=8)
    rows = [
        (1, "complete", None, None),
        (2, "Dead_Letter", "Bad", "carrier UA"),
        (3, "DEADLETTER", "Bad", "carrier LH"),
        (4, "abandon", None, None),
        (5, "resubmit", None, None),
        (6, "defer", None, None),
        (9, "complete", None, None),  # this and the next two are not deferred
        (10, "dead-letter", "Old", None),
        (11, "defer", None, None),
        (99, "complete", None, None),
        (1, "complete", None, "the same once more"),
    ]
    frame = spark.createDataFrame(rows, "sequence_number int, decision string, reason string, description string")
    outcomes = own.settle_frame(frame, entity=queue.upper(), show_progress=False)
    expected = dict.fromkeys([1, 2, 3, 4, 5, 9, 10, 11], "settled") | {6: "skipped", 99: "not found"}
    assert settled(outcomes) == expected
    said = {row.sequence_number: row.description for row in outcomes.collect()}
    assert said[6] == "Not attempted: it is deferred already."
    assert said[99] == "It is not there any more: it was settled, or it has expired."
    letters = own.entity(f"{queue}/$dlq").peek(show_progress=False)
    assert {(m.message_id, m.dead_letter_reason, m.dead_letter_error_description or "") for m in letters} == {
        ("m2", "Bad", "carrier UA"),
        ("m3", "Bad", "carrier LH"),
        ("m10", "Old", ""),
    }
    left = entity.peek(show_progress=False)
    assert [(m.sequence_number, m.state.value) for m in left] == [
        *((number, "deferred") for number in (4, 6, 7, 8, 11)),
        (12, "active"),
        (13, "active"),
    ]
    assert left[-1].resubmit_count == 1
    assert left[-2].delivery_count == 0, "what stood between was released"
    assert entity.deferred(show_progress=False).gone == (), "the journal knows what is not deferred any more"


def test_settle_frame_outcomes_are_fixed_and_can_be_settled(read: Read, own: Namespace, queue: str) -> None:
    partly_deferred_queue(own, queue, 6, deferred=6)
    decided = read(queue).select("sequence_number", f.lit("abandon").alias("decision"))
    outcomes = own.settle_frame(decided, entity=queue)
    assert [outcomes.count(), outcomes.count(), len(outcomes.collect())] == [6, 6, 6]
    counts = [message.delivery_count for message in own.entity(queue).peek(show_progress=False)]
    assert len(set(counts)) == 1, "each was abandoned once"
    done = own.settle_frame(outcomes.selectExpr("entity", "sequence_number", "'complete' AS decision"))
    assert set(settled(done).values()) == {"settled"}
    assert set(settled(own.settle_frame(done, show_progress=False)).values()) == {"not found"}


def test_settle_frame_settles_sessions_from_the_driver(
    spark: SparkSession, own: Namespace, shared_emulator: RunningEmulator
) -> None:
    name = f"sessions-{uuid.uuid4().hex[:8]}"
    shared_emulator.create_queue(name, QueueOptions(requires_session=True))
    queue = own.entity(name)
    assert queue.send([Message(session_id=f"s{n % 2}") for n in range(4)], show_progress=False).ok
    assert queue.defer_all(max_messages=3, show_progress=False).apply(show_progress=False).ok
    frame = spark.createDataFrame([(n, "complete") for n in range(1, 5)], "sequence_number long, decision string")
    assert set(settled(own.settle_frame(frame, entity=name, show_progress=False)).values()) == {"settled"}
    assert len(queue.peek(show_progress=False)) == 0


@pytest.mark.thorough
def test_settle_frame_settles_more_rows_than_a_job_takes(
    read: Read, own: Namespace, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbnotebook.spark.frame_plan._ROWS", 3)
    monkeypatch.setattr("sbnotebook.spark.frame_plan._PAGES", 2)
    partly_deferred_queue(own, queue, 20, deferred=16)
    for _ in range(2):
        plan = own.plan_settle_frame(read(queue).selectExpr("entity", "sequence_number", "'abandon' AS decision"))
        assert [len(plan), len(plan.to_pandas())] == [20, 20]
        outcomes = plan.apply(show_progress=False)
        assert [row.sequence_number for row in outcomes.collect()] == [*range(1, 21)]
        assert set(settled(outcomes).values()) == {"settled"}
    counts = {message.delivery_count for message in own.entity(queue).peek(show_progress=False)}
    assert counts == {2, 3}, "each was abandoned twice, and deferring counts once"


def test_settle_frame_without_rows_returns_no_outcomes(spark: SparkSession, own: Namespace) -> None:
    frame = spark.createDataFrame([], "sequence_number long, decision string, entity string")
    plan = own.plan_settle_frame(frame)
    assert plan.preview().sentence == "settle 0 messages."
    assert plan.apply().count() == 0


def test_what_is_removed_for_good_is_not_archived(spark: SparkSession, own: Namespace, queue: str) -> None:
    partly_deferred_queue(own, queue, 4, deferred=2)
    frame = spark.createDataFrame([(n, "complete") for n in range(1, 5)], "sequence_number long, decision string")
    plan = own.plan_settle_frame(frame, entity=queue, archived=False)
    assert "Completed messages are removed for good." in plan.preview().sentence
    outcomes = plan.apply(show_progress=False)
    assert set(settled(outcomes).values()) == {"settled"}
    with pytest.raises(DecisionError, match="There is nothing to send back"):
        own.undo(outcomes)


# ------------------------------------------------------------------ refused rows


def test_settle_frame_refuses_impossible_rows_first(spark: SparkSession, own: Namespace, queue: str) -> None:
    entity = partly_deferred_queue(own, queue, 3, deferred=3)
    schema = "sequence_number long, decision string, reason string"

    def settle(*rows: tuple[Any, ...], entity: str | None = queue, max_in_flight: int = 10) -> None:
        frame = spark.createDataFrame([*rows], schema)
        own.settle_frame(frame, entity=entity, max_in_flight=max_in_flight)

    with pytest.raises(
        DecisionError, match=r"2 of 3 rows cannot be carried out, so nothing was done\..* #2: 'no' is no"
    ):
        settle((1, "complete", None), (2, "no", None), (None, "complete", None))
    with pytest.raises(DecisionError, match=r"1 messages have more than one decision, .*\(#2 of queue-"):
        settle((1, "complete", None), (2, "complete", None), (2, "dead_letter", "Bad"))
    with pytest.raises(DecisionError, match="is a dead-letter queue already"):
        settle((1, "dead_letter", "Bad"), entity=f"{queue}/$dlq")
    with pytest.raises(ConfigurationError, match="needs a column entity"):
        settle((1, "complete", None), entity=None)
    with pytest.raises(ConfigurationError, match="max_in_flight is 1 or more"):
        settle((1, "complete", None), max_in_flight=0)
    with pytest.raises(ConfigurationError, match="needs a column decision"):
        own.settle_frame(spark.range(3).withColumnRenamed("id", "sequence_number"), entity=queue)
    with pytest.raises(ConfigurationError, match=r"frame\.writeStream"):
        own.settle_frame(spark.readStream.format("rate").load(), entity=queue)
    with pytest.raises(Exception, match="no-such-queue"):
        settle((1, "complete", None), entity="no-such-queue")
    assert len(entity.peek(state=MessageState.DEFERRED, show_progress=False)) == 3


def test_read_only_settle_frame_plans_but_does_not_apply(
    spark: SparkSession, connection_string: str, own: Namespace, queue: str
) -> None:
    partly_deferred_queue(own, queue, 1, deferred=1)
    frame = spark.createDataFrame([(1, "complete")], "sequence_number long, decision string")
    with connect(connection_string, write=False) as looking:
        plan = looking.plan_settle_frame(frame, entity=queue)
        with pytest.raises(ReadOnlyError):
            plan.apply()
    assert len(own.entity(queue).peek(show_progress=False)) == 1


def test_an_entity_that_is_gone_does_not_hide_other_outcomes(spark: SparkSession, own: Namespace, queue: str) -> None:
    gone = f"gone-{uuid.uuid4().hex[:8]}"
    own.create_queue(gone)
    for name in (queue, gone):
        partly_deferred_queue(own, name, 3, deferred=2)
    rows = [(name, number, "complete") for name in (queue, gone) for number in (1, 3)]
    plan = own.plan_settle_frame(spark.createDataFrame(rows, "entity string, sequence_number long, decision string"))
    own.delete_queue(gone)
    said = {(row.entity, row.sequence_number): row for row in plan.apply(show_progress=False).collect()}
    assert [said[queue, number].status for number in (1, 3)] == ["settled", "settled"]
    assert [said[gone, number].status for number in (1, 3)] == ["skipped", "skipped"]
    assert "Not attempted: " in said[gone, 1].description


# ------------------------------------------------------------------ secrets


def test_settle_frame_shows_no_secret(
    spark: SparkSession, own: Namespace, queue: str, event_log: Path, secret: str, capfd: pytest.CaptureFixture[str]
) -> None:
    partly_deferred_queue(own, queue, 2, deferred=2)
    frame = spark.createDataFrame([(1, "complete"), (2, "complete")], "sequence_number long, decision string")
    plan = own.plan_settle_frame(frame, entity=queue)
    outcomes = plan.apply()
    outcomes.explain(extended=True)
    spark.range(1).count()  # what happened before is written when a later job has ended
    said = capfd.readouterr()
    html = plan._repr_html_()  # pyright: ignore[reportPrivateUsage] (what a notebook calls)
    shown = {"repr": repr(plan), "html": html, "out": said.out, "err": said.err}
    rows = {"rows": str(outcomes.collect())}
    events = files(event_log)
    assert events
    assert not places([secret], {name: text.encode() for name, text in (shown | rows).items()} | events)
