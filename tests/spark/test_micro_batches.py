"""Micro-batches that differ from their plan: never read, not deferred in time, or odd."""

from __future__ import annotations

import uuid

import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.portal import run
from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import SbNotebookError
from sbnotebook.model import EntityAddress, Message
from sbnotebook.settlement import AsyncNamespace, Connection
from sbnotebook.settlement.sdk import clients

from .stream_processes import Query

pytestmark = pytest.mark.usefixtures("soon")


@pytest.fixture
def queue(emulator: RunningEmulator, own: Namespace) -> str:
    """A queue with four messages."""
    name = f"queue-{uuid.uuid4().hex[:8]}"
    emulator.create_queue(name)
    assert own.entity(name).send([Message(message_id=f"m{n}") for n in range(4)]).ok
    return name


def after(query: Query) -> Query:
    """A process that starts again with the same checkpoint and the same sink."""
    return Query(query.emulator, query.entity, query.options, [*query.offsets], query.committed, query.sink)


@pytest.mark.parametrize("orphans", ["adopt", "ignore"])
def test_micro_batch_that_the_sink_skips_comes_again(
    emulator: RunningEmulator, own: Namespace, queue: str, orphans: str
) -> None:
    # As Spark's file sink does with a number that it has, from a checkpoint that was lost: nothing is planned or read.
    if orphans == "adopt":
        with own.entity(queue).lock(4) as batch:
            assert batch.defer().ok
    query = Query(emulator, queue, {"orphans": orphans})
    try:
        for _ in range(2):
            query.log_next()
            query.commit()
        query.drain()
        assert query.sink == {3: ["m0", "m1", "m2", "m3"]}
        assert not own.entity(queue).peek()
    finally:
        query.stop()


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize("orphans", ["adopt", "report"])
def test_adopted_messages_that_nobody_read_are_not_removed(
    emulator: RunningEmulator,
    own: Namespace,
    queue: str,
    caplog: pytest.LogCaptureFixture,
    is_committed: bool,
    orphans: str,
) -> None:
    with own.entity(queue).lock(4) as batch:
        assert batch.defer().ok
    query = Query(emulator, queue, {"orphans": "adopt"})
    try:
        query.log_next()
        if is_committed:
            query.commit()
        query.kill()
        query.commit()  # the sink has its number, so that nothing is planned
        query.options["orphans"] = orphans
        query.drain()
        assert "4 messages" in caplog.text
        assert "are orphans again" in caplog.text
        if orphans == "adopt":
            assert query.sink == {2: ["m0", "m1", "m2", "m3"]}
            assert not own.entity(queue).peek()
        else:
            assert (query.started().reportLatestOffset() or {})["orphans"] == 4
            assert len(own.entity(queue).peek()) == 4
    finally:
        query.stop()


@pytest.mark.parametrize("taken", [1, 4])
def test_micro_batch_that_nobody_began_to_read_may_lose_messages(
    emulator: RunningEmulator, own: Namespace, queue: str, caplog: pytest.LogCaptureFixture, taken: int
) -> None:
    query = Query(emulator, queue)
    try:
        query.log_next()
        query.stop()  # before any message is deferred
        with own.entity(queue).lock(taken) as batch:
            assert batch.complete().ok
        if taken == 4:  # as if all were read, and have expired
            with pytest.raises(SbNotebookError, match="failOnDataLoss"):
                query.planned()
        else:
            query.drain()
            assert query.ids == ["m1", "m2", "m3"]
            assert "1 messages of" in caplog.text
    finally:
        query.stop()


def test_late_deferrals_are_read_in_the_next_micro_batch(emulator: RunningEmulator, own: Namespace, queue: str) -> None:
    undead = Query(emulator, queue)
    undead.log_next()
    query = after(undead)
    try:
        query.finish()
        assert query.ids == [], "the messages are not deferred, and no part of the micro-batch any more"
        undead.planned()
        query.drain()
        assert query.ids == ["m0", "m1", "m2", "m3"]
        assert not own.entity(queue).peek()
    finally:
        query.stop()
        undead.stop()


def test_later_deferrals_are_not_removed_unread_by_a_new_process(
    emulator: RunningEmulator, own: Namespace, queue: str
) -> None:
    undead = Query(emulator, queue)
    undead.log_next()
    query = after(undead)
    try:
        query.finish()
        assert query.ask(), "an empty micro-batch, behind which nobody looks at the one before"
        undead.planned()
        query.kill()
        query.drain()
        assert query.ids == []
        query.kill()
        query.options["orphans"] = "adopt"
        query.drain()
        assert query.ids == ["m0", "m1", "m2", "m3"]
        assert not own.entity(queue).peek()
    finally:
        query.stop()
        undead.stop()


def test_first_message_may_go_to_another_receiver(emulator: RunningEmulator, own: Namespace, queue: str) -> None:
    query = Query(emulator, queue)
    try:
        query.log_next()
        emulator.lose_locks(queue)
        with own.entity(queue).lock(4) as batch:
            assert len(batch.complete()) == 4
        assert query.read(query.planned()) == []
    finally:
        query.stop()


def nested(depth: int) -> bytes:
    """A body that is a list in a list and so on; the SDK decodes 64 of them at most."""
    value = b"\x45"
    for _ in range(depth):
        value = b"\xd0" + (len(value) + 4).to_bytes(4) + (1).to_bytes(4) + value
    return b"\x00\x53\x77" + value


@pytest.mark.parametrize(
    "payload", [b"\x00\x53\x75\xa1\x03bad", nested(200)], ids=["a text where binary must be", "nested lists"]
)
def test_unreadable_message_is_a_row_like_the_others(
    emulator: RunningEmulator, own: Namespace, queue: str, payload: bytes
) -> None:

    async def send() -> None:
        other = AsyncNamespace(Connection(emulator.connection_string), archive=None)
        async with other, other.connection.sender(EntityAddress(queue)) as sender:
            await clients.make_ready(sender)
            await clients.send_payload(sender, payload)

    run(send)
    assert own.entity(queue).send([Message(message_id="m5")]).ok
    query = Query(emulator, queue)
    try:
        query.log_next()
        ids = query.read(query.planned())
        assert ids[:4] + ids[5:] == ["m0", "m1", "m2", "m3", "m5"]
        query.finish()
        assert not query.ask()
        assert not own.entity(queue).peek()
    finally:
        query.stop()
