"""Consuming at least once: messages stay locked until they are durable, and none is lost or deferred."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator

import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.emulator import ManualClock, RunningEmulator, running
from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import Message, MessageState
from sbnotebook.settlement import Connection
from sbnotebook.spark import batch_locking, held_batches
from sbnotebook.spark.options import StreamOptions

from .stream_processes import Query

AT_LEAST_ONCE = {"delivery": "at-least-once", "maxMessagesPerTrigger": "4"}


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def emulator(clock: ManualClock) -> Iterator[RunningEmulator]:
    with running(clock=clock) as emulator:
        yield emulator


@pytest.fixture(scope="module")
def namespace(emulator: RunningEmulator) -> Iterator[Namespace]:
    with Namespace(Target(Connection(emulator.connection_string), "a test")) as namespace:
        yield namespace


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less where nothing comes: the emulator answers at once."""
    monkeypatch.setattr(batch_locking, "_FIRST_WAIT", 0.2)
    monkeypatch.setattr(batch_locking, "_MORE_WAIT", 0.05)
    monkeypatch.setattr(batch_locking, "_PAUSE", 0.1)
    monkeypatch.setattr(held_batches, "_PAUSE", 0.1)


@pytest.fixture
def queue(emulator: RunningEmulator) -> str:
    name = f"queue-{uuid.uuid4().hex[:8]}"
    emulator.create_queue(name)
    return name


@pytest.fixture
def query(emulator: RunningEmulator, queue: str) -> Iterator[Query]:
    query = Query(emulator, queue, AT_LEAST_ONCE)
    yield query
    query.stop()


@pytest.fixture
def ids(namespace: Namespace, queue: str) -> list[str]:
    """The ids of ten messages."""
    names = [f"m{number:05}" for number in range(10)]
    assert namespace.entity(queue).send([Message(message_id=name) for name in names]).ok
    return names


def test_without_a_crash_each_message_comes_once(
    query: Query, namespace: Namespace, queue: str, ids: list[str]
) -> None:
    query.log_next()
    planned = query.planned()
    assert {message.state for message in namespace.entity(queue).peek()} == {MessageState.ACTIVE}, "none is deferred"
    assert query.read(planned) == query.read(planned) == ids[:4], "a task that is repeated reads the same"
    query.finish()
    query.drain()
    assert query.ids == ids
    assert not namespace.entity(queue).peek()
    told = query.started().reportLatestOffset()
    assert told == {"entity": queue, "locked": 10, "deferred": 0, "removed": 10, "inFlight": 0, "backlog": 0}


@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.parametrize("point", ["logged", "planned", "read", "written", "committed"])
def test_no_message_is_lost_wherever_the_process_ends(
    query: Query, namespace: Namespace, queue: str, clock: ManualClock, ids: list[str], point: str, end: str
) -> None:
    query.step()
    query.log_next()
    first: list[str] = []
    if point != "logged":
        partitions = query.planned()
        first = query.read(partitions) if point != "planned" else []
        if point in ("written", "committed"):
            query.write(first)
        if point == "committed":
            query.commit()
    getattr(query, end)()
    clock.advance(61)  # the locks of the killed process have ended
    if point in ("read", "written"):
        assert query.read(query.planned()) == first, "the new process reads the same"
    query.drain()
    # Only a micro-batch that was durable, and not completed yet, comes again.
    again = ids[4:8] if point == "committed" else []
    assert query.ids == sorted(ids + again)
    assert not namespace.entity(queue).peek()


def test_message_whose_lock_was_lost_is_completed_unread(
    query: Query, emulator: RunningEmulator, namespace: Namespace, queue: str, ids: list[str]
) -> None:
    query.log_next()
    planned = query.planned()
    emulator.lose_locks(queue)
    query.write(query.read(planned))
    query.commit()
    query.drain()
    assert query.ids == ids
    assert not namespace.entity(queue).peek()


@pytest.mark.parametrize("fault", ["drop_before_nth", "drop_after_nth"])
def test_broken_connection_loses_and_repeats_nothing(
    query: Query, emulator: RunningEmulator, namespace: Namespace, queue: str, ids: list[str], fault: str
) -> None:
    query.log_next()
    query.finish()
    setattr(emulator.faults.entity(queue), fault, 1)  # while they are completed
    query.drain()
    assert query.ids == ids
    assert not namespace.entity(queue).peek()


def test_message_that_another_receiver_took_is_not_passed_over(
    query: Query, emulator: RunningEmulator, namespace: Namespace, queue: str, ids: list[str]
) -> None:
    query.log_next()
    planned = query.planned()
    emulator.lose_locks(queue)
    with namespace.entity(queue).lock(1, max_wait=1) as batch:
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
        StreamOptions.parse(given | AT_LEAST_ONCE)
