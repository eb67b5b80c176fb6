"""Consuming an entity as a stream, step by step and with many processes: what Spark calls, in the order of Spark."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import time
import tracemalloc
from datetime import timedelta
from typing import Any, cast

import anyio
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from sbnotebook.client import Namespace
from sbnotebook.client.portal import run
from sbnotebook.emulator import ManualClock, QueueOptions, RunningEmulator
from sbnotebook.emulator.entities.options import AuthorizationRule, Claim
from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import Message
from sbnotebook.settlement import LockedBatch
from sbnotebook.spark import batch_locking
from sbnotebook.spark.consume_query import ConsumeQuery

from .stream_processes import POINTS, Query, fill

pytestmark = pytest.mark.usefixtures("soon")
OPTIONS = {"maxMessagesPerTrigger": "4"}


@pytest.mark.parametrize(
    ("point", "end"),
    [*((point, "kill") for point in POINTS), ("logged", "stop")],
)
def test_each_message_comes_once_wherever_the_process_ends(
    query: Query, own: Namespace, own_queue: str, clock: ManualClock, point: str, end: str
) -> None:
    ids = fill(own, own_queue, 10)
    query.end_at(point, end, clock)
    query.drain()
    assert query.ids == ids
    assert own.entity(own_queue).peek().to_pandas().empty


def test_stop_releases_locks_without_a_delivery(query: Query, own: Namespace, own_queue: str) -> None:
    fill(own, own_queue, 3)
    query.log_next()
    query.stop()
    with own.entity(own_queue).lock(3, max_wait=1) as batch:
        assert [message.delivery_count for message in batch.messages] == [0, 0, 0]


def test_signals_of_spark_do_not_end_the_release(
    query: Query, own: Namespace, own_queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = ConsumeQuery.close

    def signalled(query: ConsumeQuery) -> None:
        signal.raise_signal(signal.SIGTERM)
        close(query)

    monkeypatch.setattr(ConsumeQuery, "close", signalled)
    fill(own, own_queue, 3)
    query.log_next()
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGTERM)
    query.stop()
    with own.entity(own_queue).lock(3, max_wait=1) as batch:
        assert [message.delivery_count for message in batch.messages] == [0, 0, 0]


def test_locks_are_not_searched_for_garbage(query: Query, own: Namespace, own_queue: str) -> None:
    fill(own, own_queue, 4000)
    query.options["maxMessagesPerTrigger"] = "2000"
    usual = gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # Python's own
    try:
        query.ask()  # the first opens the connections
        before = gc.get_stats()[0]["collections"]
        query.finish()
        query.ask()
        assert gc.get_stats()[0]["collections"] - before < 10
    finally:
        gc.set_threshold(*usual)


def test_repeated_calls_return_the_same(query: Query, own: Namespace, own_queue: str) -> None:
    ids = fill(own, own_queue, 8)
    process = query.started()
    start, limit = process.initialOffset(), process.getDefaultReadLimit()
    end = process.latestOffset(start, limit)
    assert end["ranges"] == [[1, 4]]
    assert process.latestOffset(start, limit) == end
    planned = process.partitions(start, end)
    assert process.partitions(start, end) == planned
    assert query.read(planned) == query.read(planned) == ids[:4]
    after = process.latestOffset(end, ReadMaxRows(1))
    assert after["ranges"] == [[5, 5]]
    assert query.read(process.partitions(end, after)) == ids[4:5]
    assert [message.sequence_number for message in own.entity(own_queue).peek()] == [5, 6, 7, 8]


def test_idle_latest_offset_removes_the_last_micro_batch(query: Query, own: Namespace, own_queue: str) -> None:
    fill(own, own_queue, 2)
    query.step()
    assert len(own.entity(own_queue).peek()) == 2
    assert not query.ask()
    assert not own.entity(own_queue).peek()
    assert not query.ask()


def test_trigger_once_is_refused_before_anything_is_locked(query: Query, own: Namespace, own_queue: str) -> None:
    fill(own, own_queue, 1)
    process = query.started()
    with pytest.raises(ConfigurationError, match=r"trigger once.*availableNow=True"):
        process.latestOffset(process.initialOffset(), ReadAllAvailable())
    assert own.entity(own_queue).lock(1, max_wait=1)


def test_micro_batches_are_limited_by_bytes(emulator: RunningEmulator, own: Namespace, own_queue: str) -> None:
    query = Query(emulator, own_queue, {"maxBytesPerTrigger": "1k"})
    sizes = [100, 100, 100, 100, 5000, 700, 700, 100]
    for number, size in enumerate(sizes):
        fill(own, own_queue, 1, number, size)
    query.drain()
    query.stop()
    assert [len(ids) for ids in query.sink.values()] == [3, 1, 1, 1, 1, 1]
    assert query.ids == [f"m{n:05}" for n in range(8)]


def test_lost_messages_raise_with_advice(query: Query, own: Namespace, own_queue: str) -> None:
    ids = fill(own, own_queue, 4)
    query.log_next()
    partitions = query.planned()
    deferred = own.entity(own_queue).deferred(show_progress=False)
    assert deferred.complete(where="sequence_number in (2, 3)").apply(show_progress=False).ok
    with pytest.raises(SbNotebookError, match=r"^2 messages of .* micro-batch 1 .*the first is #2.*failOnDataLoss"):
        query.read(partitions)
    query.kill()
    with pytest.raises(SbNotebookError, match=r"2 messages of .* \(the first is #2\).*failOnDataLoss"):
        query.planned()
    query.kill()
    query.options["failOnDataLoss"] = "false"
    query.drain()
    assert query.ids == [ids[0], ids[3]]
    assert not own.entity(own_queue).peek()


def test_messages_whose_locks_are_lost_come_later(
    query: Query, emulator: RunningEmulator, own: Namespace, own_queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    ids = fill(own, own_queue, 4)
    query.log_next()
    emulator.lose_locks(own_queue)
    assert query.read(query.planned()) == []
    assert "4 messages" in caplog.text
    query.write([])
    query.commit()
    query.drain()
    assert query.ids == ids
    assert not own.entity(own_queue).peek()


@pytest.mark.parametrize("fault", ["drop_before_nth", "drop_after_nth"])
@pytest.mark.parametrize("moment", ["planned", "removed"])
def test_broken_connection_loses_and_repeats_nothing(
    query: Query, emulator: RunningEmulator, own: Namespace, own_queue: str, fault: str, moment: str
) -> None:
    ids = fill(own, own_queue, 8)
    query.log_next()
    if moment == "planned":
        setattr(emulator.faults.entity(own_queue), fault, 2)
        partitions = query.planned()
        assert query.read(partitions) == query.read(partitions)
        query.write(query.read(partitions))
        query.commit()
    else:
        query.write(query.read(query.planned()))
        query.commit()
        setattr(emulator.faults.entity(own_queue), fault, 1)
    query.drain()
    assert query.ids == ids
    assert not own.entity(own_queue).peek()


def known(query: Query) -> dict[str, int]:
    """The backlog, and the orphans if there are any, of the progress of the query."""
    progress = query.started().reportLatestOffset() or {}
    orphans = {"orphans": progress["orphans"]} if progress.get("orphans") else {}
    return {"backlog": progress["backlog"]} | orphans


@pytest.mark.parametrize("orphans", ["report", "adopt", "ignore"])
def test_orphans_are_reported_adopted_or_ignored(
    query: Query, own: Namespace, own_queue: str, caplog: pytest.LogCaptureFixture, orphans: str
) -> None:
    caplog.set_level(logging.INFO)
    ids = fill(own, own_queue, 12)
    with own.entity(own_queue).lock(6) as batch:
        assert batch.defer().ok
    query.options["orphans"] = orphans
    query.step()
    query.kill()  # and those of its own checkpoint are not orphans
    query.drain()
    reported = [record.getMessage() for record in caplog.records if "belong to no micro-batch" in record.getMessage()]
    if orphans == "adopt":
        assert query.sink[1] == query.sink[2] == ids[:4], "the second process cannot tell that the first read them"
        assert query.ids == sorted([*ids, *ids[:4]])
        assert not own.entity(own_queue).peek()
    else:
        assert query.ids == ids[6:]
        assert len(own.entity(own_queue).peek()) == 6
    # Each process looks once; the first may have ended before it was through.
    assert len(reported) in ((1, 2) if orphans == "report" else (0,))
    assert all(text.startswith(f"6 messages of {own_queue}") for text in reported)
    if reported:
        assert known(query) == {"backlog": 6, "orphans": 6}


def test_dead_letter_queues_and_subscriptions_are_consumed(emulator: RunningEmulator, own: Namespace) -> None:
    emulator.create_topic("events")
    emulator.create_subscription("events", "audit")
    ids = fill(own, "events", 6)
    with own.entity("events/subscriptions/audit").lock(3) as batch:
        assert batch.dead_letter(reason="x").ok
    for entity, expected in (("events/subscriptions/audit", ids[3:]), ("events/subscriptions/audit/$dlq", ids[:3])):
        query = Query(emulator, entity)
        query.step()
        assert known(query) == {"backlog": 0}
        query.drain()
        query.stop()
        assert query.ids == expected
        assert not own.entity(entity).peek()


def test_partitioned_queue_is_consumed_to_its_end(emulator: RunningEmulator, own: Namespace) -> None:
    emulator.create_queue("partitioned", QueueOptions(enable_partitioning=True))
    ids = fill(own, "partitioned", 40)
    query = Query(emulator, "partitioned", {"maxMessagesPerTrigger": "15", "partitions": "2"})
    query.started().prepareForTriggerAvailableNow()
    fill(own, "partitioned", 10, 100)
    query.drain_prepared()
    query.stop()
    assert query.ids == ids
    left = own.entity("partitioned").peek()
    assert [message.delivery_count for message in left] == [0] * 10


def test_available_now_leaves_later_messages_alone(query: Query, own: Namespace, own_queue: str) -> None:
    ids = fill(own, own_queue, 6)
    query.started().prepareForTriggerAvailableNow()
    fill(own, own_queue, 6, 100)
    query.drain_prepared()
    assert query.ids == ids
    with own.entity(own_queue).lock(6, max_wait=1) as batch:
        assert [message.delivery_count for message in batch.messages] == [0] * 6


def test_topic_is_refused_with_its_subscriptions_named(emulator: RunningEmulator) -> None:
    emulator.create_topic("news")
    process = Query(emulator, "news").started()
    with pytest.raises(ConfigurationError, match="news/subscriptions/NAME"):
        process.latestOffset(process.initialOffset(), process.getDefaultReadLimit())


def test_foreign_checkpoint_is_refused_and_removes_nothing(
    query: Query, emulator: RunningEmulator, own: Namespace, own_queue: str, clock: ManualClock
) -> None:
    fill(own, own_queue, 4)
    query.step()
    query.kill()
    emulator.delete(own_queue)
    emulator.create_queue(own_queue)
    clock.advance(1)
    fill(own, own_queue, 4)
    with own.entity(own_queue).lock(4) as batch:
        assert batch.defer().ok
    with pytest.raises(ConfigurationError, match="made anew, or is in another namespace"):
        query.ask()
    assert len(own.entity(own_queue).peek()) == 4
    other = Query(emulator, "else", offsets=query.offsets, committed=1)
    with pytest.raises(ConfigurationError, match=f"that of a stream of {own_queue}"):
        other.ask()
    browse = Query(emulator, own_queue, offsets=['{"next": 7}'])
    with pytest.raises(ConfigurationError, match="not that of a stream with mode=consume"):
        browse.ask()


def test_available_now_takes_messages_that_come_slowly(
    query: Query, emulator: RunningEmulator, own: Namespace, own_queue: str
) -> None:
    ids = fill(own, own_queue, 2)
    emulator.faults.entity(own_queue).delivery_delay_ms = 400  # longer than the first wait
    query.drain()
    assert query.ids == ids


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_available_now_waits_for_nothing_behind_the_last(
    query: Query, own: Namespace, own_queue: str, delivery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_locking, "_MORE_WAIT", 3600.0)
    query.options |= {"delivery": delivery}
    ids = fill(own, own_queue, 10)
    query.drain()
    assert query.ids == ids


def test_another_receiver_gets_the_rest(query: Query, own: Namespace, own_queue: str) -> None:
    ids = fill(own, own_queue, 12)
    with own.entity(own_queue).lock(3) as batch:
        others = [message.message_id or "" for message in batch.messages]
        query.step()
        assert batch.complete().ok
    query.step()
    with own.entity(own_queue).lock(1) as batch:  # the last, behind the deferred ones
        others += [message.message_id or "" for message in batch.messages]
        assert batch.complete().ok
    query.drain()
    assert others == [*ids[:3], ids[11]]
    assert query.ids == ids[3:11]
    assert not own.entity(own_queue).peek()


@pytest.mark.parametrize("has_sessions", [False, True])
def test_queue_that_dead_letters_deferred_messages_is_refused(
    emulator: RunningEmulator, own: Namespace, has_sessions: bool
) -> None:
    name = f"once-{has_sessions}"
    reader = AuthorizationRule("reader", "c2VjcmV0a2V5", "", frozenset({Claim.LISTEN}))
    emulator.create_queue(
        name, QueueOptions(max_delivery_count=1, requires_session=has_sessions, authorization_rules=(reader,))
    )
    sent = [Message(message_id=f"m{n}", session_id=f"s{n % 3}" if has_sessions else None) for n in range(9)]
    assert own.entity(name).send(sent).ok
    query = Query(emulator, name)
    with pytest.raises(ConfigurationError, match=r"maximum delivery count to 2 or more\.$"):
        query.ask()
    query.stop()
    assert len(own.entity(name).peek()) == 9

    # Without the right Manage, only a deferral shows it.
    endpoint = emulator.connection_string.partition(";")[0]
    key = "SharedAccessKeyName=reader;SharedAccessKey=c2VjcmV0a2V5;UseDevelopmentEmulator=true"
    query = Query(emulator, name, {"connectionString": f"{endpoint};{key}"})
    query.log_next()
    with pytest.raises(ConfigurationError, match=r"2 or more\. This start moved #\d to the dead-letter queue"):
        query.planned()
    query.stop()
    assert len(own.entity(name).peek()) == 8
    assert len(own.entity(f"{name}/$dlq").peek()) == 1


def test_message_delivered_too_often_is_logged(
    emulator: RunningEmulator, own: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    emulator.create_queue("twice", QueueOptions(max_delivery_count=2))
    ids = fill(own, "twice", 5)
    with own.entity("twice").lock(3) as batch:
        assert batch.abandon(batch.messages[1:]).ok
    query = Query(emulator, "twice")
    query.drain()
    query.stop()
    assert query.ids == [ids[0], ids[3], ids[4]]
    assert "2 messages of twice (the first is #2) could not be deferred" in caplog.text
    assert len(own.entity("twice/$dlq").peek()) == 2
    assert not own.entity("twice").peek()


def test_deferred_messages_that_expire_are_read_and_removed(
    query: Query, own: Namespace, own_queue: str, clock: ManualClock
) -> None:
    short = [Message(message_id=f"m{n}", time_to_live=timedelta(seconds=30)) for n in range(3)]
    assert own.entity(own_queue).send([*short, Message(message_id="m3")]).ok
    query.log_next()
    partitions = query.planned()
    clock.advance(31)
    assert query.read(partitions) == ["m0", "m1", "m2", "m3"]
    query.kill()
    query.finish()
    query.drain()
    assert query.ids == ["m0", "m1", "m2", "m3"]
    assert not own.entity(own_queue).peek()


def wait_until_idle(query: Query, removed: int) -> None:
    """Wait until messages are removed, and those ahead are locked where the delivery is at least once."""
    until, ahead = time.monotonic() + 60, 2 if "delivery" in query.options else 1
    batches = cast("Any", query.started())._query._batches  # noqa: SLF001 (reportLatestOffset also counts the backlog)
    while (batches.removed, batches.held_count) != (removed, ahead * int(query.options["maxMessagesPerTrigger"])):
        assert time.monotonic() < until, (batches.removed, batches.held_count)
        time.sleep(0.01)


@pytest.mark.parametrize(
    "chosen", [{"orphans": "ignore"}, pytest.param({"delivery": "at-least-once"}, marks=pytest.mark.thorough)]
)
def test_process_keeps_nothing_of_the_messages_that_it_removed(
    query: Query, own: Namespace, own_queue: str, monkeypatch: pytest.MonkeyPatch, chosen: dict[str, str]
) -> None:
    monkeypatch.setattr(LockedBatch, "per_link", 150)  # the SDK keeps a tag of each
    monkeypatch.setattr(batch_locking, "_MORE_WAIT", 10.0)  # each micro-batch is whole,
    monkeypatch.setattr(batch_locking, "_FILL_WITHIN", 60.0)  # also on a busy machine
    count = 50
    allowed = 25 * 21 * count  # bytes; the number of a message alone takes 32
    query.options |= {**chosen, "maxMessagesPerTrigger": f"{count}"}
    fill(own, own_queue, 30 * count)
    tracemalloc.start()
    try:
        kept: list[int] = []
        for batch in range(28):
            query.log_next()
            if batch in (6, 27):  # the last link has as many messages
                wait_until_idle(query, batch * count)
                kept.append(kept_at_rest(kept[0] + allowed if kept else 0))
            query.finish()
            query.sink.clear()
    finally:
        tracemalloc.stop()
    assert kept[1] - kept[0] < allowed


def kept_at_rest(enough: int) -> int:
    """Return the least number of bytes that our code keeps in some moments: in others, frames are on their way."""
    parts = ("sbnotebook/settlement", "sbnotebook/spark", "azure/servicebus")
    ours = [tracemalloc.Filter(True, f"*/{part}/*") for part in parts]
    least = sys.maxsize
    for _ in range(20 if enough else 3):
        run(forget_timers)
        gc.collect()
        found = tracemalloc.take_snapshot().filter_traces(ours)
        least = min(least, sum(statistic.size for statistic in found.statistics("filename")))
        if least < enough:
            break
        time.sleep(0.2)
    return least


async def forget_timers() -> None:
    """Have the loop drop its cancelled timers: they keep the reports of settlements, and it drops a hundred at once."""
    loop = asyncio.get_running_loop()
    for _ in range(1000):
        loop.call_later(60, int).cancel()
    await anyio.sleep(0.01)
