"""Consuming at least once: messages stay locked until they are durable, and none is lost or deferred."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from sbnotebook.client import Namespace
from sbnotebook.emulator import ManualClock, RunningEmulator
from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import MessageState
from sbnotebook.spark import batch_locking
from sbnotebook.spark.options import StreamOptions

from .stream_processes import POINTS, Query, fill

pytestmark = pytest.mark.usefixtures("soon")
OPTIONS = {"delivery": "at-least-once", "maxMessagesPerTrigger": "4"}


@pytest.fixture
def ids(own: Namespace, own_queue: str) -> list[str]:
    """The ids of ten messages."""
    return fill(own, own_queue, 10)


def wait_for_locks(query: Query, count: int) -> None:
    """Wait until the query holds so many messages, those of its next micro-batch included."""
    until = time.monotonic() + 60
    while (query.started().reportLatestOffset() or {})["inFlight"] < count:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_without_a_crash_each_message_comes_once(query: Query, own: Namespace, own_queue: str, ids: list[str]) -> None:
    query.log_next()
    planned = query.planned()
    assert {message.state for message in own.entity(own_queue).peek()} == {MessageState.ACTIVE}, "none is deferred"
    assert query.read(planned) == query.read(planned) == ids[:4], "a task that is repeated reads the same"
    query.finish()
    query.drain()
    assert query.ids == ids
    assert not own.entity(own_queue).peek()
    told = query.started().reportLatestOffset()
    assert told == {"entity": own_queue, "locked": 10, "deferred": 0, "removed": 10, "inFlight": 0, "backlog": 0}


def test_next_messages_are_locked_while_tasks_read(
    query: Query, own: Namespace, own_queue: str, ids: list[str]
) -> None:
    query.log_next()
    planned = query.planned()
    wait_for_locks(query, 8)
    assert query.read(planned) == ids[:4]
    query.stop()
    assert {message.delivery_count for message in own.entity(own_queue).peek()} == {0}, "they are released"
    query.drain()
    assert query.ids == ids


def test_spark_writes_the_next_offset_while_messages_are_completed(
    query: Query, emulator: RunningEmulator, own: Namespace, own_queue: str, ids: list[str]
) -> None:
    query.log_next()
    planned = query.planned()
    wait_for_locks(query, 8)
    query.write(query.read(planned))
    query.commit()
    emulator.freeze()
    query.log_next()  # nothing answers
    emulator.thaw()
    planned = query.planned()
    assert [message.message_id for message in own.entity(own_queue).peek()] == ids[4:], "tasks begin after that"
    assert query.read(planned) == ids[4:8]


def test_completion_without_an_outcome_ends_the_query_unread(
    query: Query, emulator: RunningEmulator, own_queue: str, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_locking, "OUTAGE_PATIENCE", 0.2)
    query.log_next()
    planned = query.planned()
    wait_for_locks(query, 8)
    query.write(query.read(planned))
    query.commit()
    faults = emulator.faults.entity(own_queue)
    faults.broken_off = 10_000
    query.log_next()
    with pytest.raises(SbNotebookError, match=r"^Whether 4 messages of .* are completed is not known"):
        query.planned()
    faults.broken_off = 0
    query.stop()
    query.drain()
    assert query.ids == sorted(ids + ids[:4])


@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.parametrize("point", POINTS)
def test_no_message_is_lost_wherever_the_process_ends(
    query: Query, own: Namespace, own_queue: str, clock: ManualClock, ids: list[str], point: str, end: str
) -> None:
    query.end_at(point, end, clock)
    query.drain()
    # Only a micro-batch that was durable, and not completed yet, comes again.
    again = ids[4:8] if point == "committed" else []
    completing = ids[:4] if (point, end) == ("logged", "kill") else []
    assert not Counter(query.ids) - Counter(ids + again + completing)
    assert not Counter(ids + again) - Counter(query.ids)
    assert not own.entity(own_queue).peek()


def test_message_whose_lock_was_lost_is_completed_unread(
    query: Query, emulator: RunningEmulator, own: Namespace, own_queue: str, ids: list[str]
) -> None:
    query.log_next()
    planned = query.planned()
    emulator.lose_locks(own_queue)
    query.write(query.read(planned))
    query.commit()
    query.drain()
    assert query.ids == ids
    assert not own.entity(own_queue).peek()


@pytest.mark.parametrize("fault", ["drop_before_nth", "drop_after_nth"])
def test_broken_connection_loses_and_repeats_nothing(
    query: Query, emulator: RunningEmulator, own: Namespace, own_queue: str, ids: list[str], fault: str
) -> None:
    query.log_next()
    query.finish()
    setattr(emulator.faults.entity(own_queue), fault, 1)  # while they are completed
    query.drain()
    assert query.ids == ids
    assert not own.entity(own_queue).peek()


def test_message_that_another_receiver_took_is_not_passed_over(
    query: Query, emulator: RunningEmulator, own: Namespace, own_queue: str, ids: list[str]
) -> None:
    query.log_next()
    planned = query.planned()
    wait_for_locks(query, 8)  # or the stream itself may get the message again
    emulator.lose_locks(own_queue)
    with own.entity(own_queue).lock(1, max_wait=1) as batch:
        assert batch.complete().ok
    with pytest.raises(SbNotebookError, match=r"^1 messages of .* micro-batch 1 .*the first is #1"):
        query.read(planned)
    query.kill()
    query.drain()  # the new process continues without the message
    assert Counter(query.ids) == Counter(ids[1:])


def test_checkpoint_of_the_other_delivery_is_refused(query: Query, ids: list[str]) -> None:
    query.step()
    query.stop()
    query.options = {}
    with pytest.raises(ConfigurationError, match=r'stream with \.option\("delivery", "at-least-once"\): start it so'):
        query.ask()
    assert len(ids) == 10


def test_orphans_have_no_meaning_where_nothing_is_deferred() -> None:
    given = {"entity": "orders", "target": "emulator", "mode": "consume", "orphans": "adopt"}
    with pytest.raises(ConfigurationError, match=r"orphans has no meaning with delivery=at-least-once, which defers"):
        StreamOptions.parse(given | OPTIONS)
