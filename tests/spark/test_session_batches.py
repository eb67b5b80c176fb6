"""Consuming an entity with sessions: each session in order, each message once, wherever a process ends."""

from __future__ import annotations

import uuid
from collections import defaultdict

import pytest

from sbnotebook.client import Namespace
from sbnotebook.emulator import ManualClock, QueueOptions, RunningEmulator
from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import Message
from sbnotebook.spark import session_batches
from tests.chances import chance as random_of
from tests.chances import rounds

from .stream_processes import POINTS, Query

pytestmark = pytest.mark.usefixtures("soon")
OPTIONS = {"maxMessagesPerTrigger": "5", "partitions": "2"}
STORIES = rounds(1, 8)
SESSIONS = ("a", "b", "c")


@pytest.fixture
def own_queue(emulator: RunningEmulator) -> str:
    """A queue that requires sessions."""
    name = f"queue-{uuid.uuid4().hex[:8]}"
    emulator.create_queue(name, QueueOptions(requires_session=True, max_delivery_count=2000))
    return name


def fill(own: Namespace, own_queue: str, count: int, start: int = 0) -> list[str]:
    """The ids of messages in three sessions; an id begins with its session, and says its place."""
    sent = [
        Message(message_id=f"{SESSIONS[n % 3]}{n:03}", session_id=SESSIONS[n % 3]) for n in range(start, start + count)
    ]
    assert own.entity(own_queue).send(sent, show_progress=False).ok
    return [message.message_id or "" for message in sent]


def order(query: Query) -> dict[str, list[str]]:
    """The messages of each session as the sink got them."""
    sessions: defaultdict[str, list[str]] = defaultdict(list)
    for batch in sorted(query.sink):
        for each in query.sink[batch]:
            sessions[each[0]].append(each)
    return dict(sessions)


def in_order(ids: list[str]) -> dict[str, list[str]]:
    return {session: [each for each in ids if each.startswith(session)] for session in SESSIONS}


def test_sessions_come_whole_and_in_order(query: Query, own: Namespace, own_queue: str) -> None:
    query.options["maxMessagesPerTrigger"] = "8"
    ids = fill(own, own_queue, 14)
    query.log_next()
    planned = query.planned()
    sessions = [{each[0] for each in query.read([part])} for part in planned]
    assert len(sessions) == 2
    assert not sessions[0] & sessions[1], "a session is in one task"
    query.finish()
    query.drain()
    assert order(query) == in_order(ids)
    assert not own.entity(own_queue).peek()


@pytest.mark.parametrize("point", POINTS)
def test_sessions_keep_their_order_wherever_the_process_ends(
    query: Query, own: Namespace, own_queue: str, clock: ManualClock, point: str
) -> None:
    ids = fill(own, own_queue, 12)
    query.end_at(point, "kill", clock)
    query.drain()
    assert order(query) == in_order(ids)
    assert not own.entity(own_queue).peek()


def test_session_that_another_receiver_holds_comes_later(query: Query, own: Namespace, own_queue: str) -> None:
    ids = fill(own, own_queue, 6)
    with own.entity(own_queue).session("a"):
        query.drain()
        assert order(query) == {each: in_order(ids)[each] for each in ("b", "c")}
    query.stop()
    query.drain()
    assert order(query) == in_order(ids)
    assert not own.entity(own_queue).peek()


def test_gap_of_a_killed_process_is_closed_before_reading(query: Query, own: Namespace, own_queue: str) -> None:
    ids = fill(own, own_queue, 5)
    query.log_next()
    with own.entity(own_queue).session("a") as session:  # as if the process had died while it deferred them
        first, second = session.receive(2)
        assert session.defer([second]).ok
        assert first.message_id == "a000"
    query.kill()
    assert [each for each in query.read(query.planned()) if each.startswith("a")] == ["a000", "a003"]
    query.drain()
    assert order(query) == in_order(ids)


def test_deferred_session_of_another_receiver_ends_the_query(
    query: Query, own: Namespace, own_queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_batches, "_TAKEN_WITHIN", 0.2)
    ids = fill(own, own_queue, 3)
    query.step()
    refused = r"Another receiver holds 1 sessions of .* 1 messages of this stream"
    with own.entity(own_queue).session("b"), pytest.raises(SbNotebookError, match=refused):
        query.ask()
    query.drain()
    assert order(query) == in_order(ids)
    assert not own.entity(own_queue).peek()


def test_at_least_once_is_refused_with_sessions(query: Query) -> None:
    query.options["delivery"] = "at-least-once"
    with pytest.raises(ConfigurationError, match=r"requires sessions, .* leave out the option delivery"):
        query.ask()


def test_message_of_a_session_delivered_too_often_is_logged(
    emulator: RunningEmulator, own: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    emulator.create_queue("twice", QueueOptions(requires_session=True, max_delivery_count=2))
    ids = fill(own, "twice", 6)
    with own.entity("twice").session("b") as session:
        (first,) = session.receive(1)
        assert session.abandon([first]).ok
    query = Query(emulator, "twice")
    query.drain()
    query.stop()
    assert query.ids == sorted({*ids} - {first.message_id})
    assert f"1 messages of twice (the first is #{first.sequence_number}) are gone" in caplog.text
    assert len(own.entity("twice/$dlq").peek()) == 1
    assert not own.entity("twice").peek()


@pytest.mark.parametrize("seed", range(STORIES))
def test_any_story_keeps_each_session_in_order(
    query: Query, emulator: RunningEmulator, own: Namespace, own_queue: str, clock: ManualClock, seed: int
) -> None:
    chance = random_of("sessions", seed)
    ids: list[str] = []
    faults = emulator.faults.entity(own_queue)
    for _ in range(6):
        faults.drop_before_nth = faults.drop_after_nth = 0
        ids += fill(own, own_queue, chance.randint(0, 6), len(ids))
        fault = chance.choice(["drop_before_nth", "drop_after_nth", None])
        if fault is not None:
            setattr(faults, fault, chance.randint(1, 4))
        if not query.is_open:
            query.ask()
        if query.is_open and chance.random() < 0.8:
            read = query.read(query.planned())
            if chance.random() < 0.5:
                query.write(read)
                if chance.random() < 0.5:
                    query.commit()
        if chance.random() < 0.6:
            query.kill()
            clock.advance(61)
    query.drain()
    assert order(query) == in_order(ids)
    assert not own.entity(own_queue).peek()
