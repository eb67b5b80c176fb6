"""What an entity does for synchronous code beyond the main job."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest

from sbnotebook.client import Namespace
from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Complete, Message
from tests.filled_queues import filled_client_queue


def test_receive_and_delete_keeps_messages_in_the_archive(namespace: Namespace) -> None:
    namespace.create_queue("deleted")
    queue = namespace.entity("deleted")
    assert queue.send([Message(body=b"%d" % n) for n in range(3)], show_progress=False).ok
    with pytest.warns(UserWarning, match="Receive-and-delete removes") as caught:
        taken = queue.receive_and_delete(5, max_wait=0.5)
    assert caught[0].filename == __file__
    assert {message.body for message in taken} == {b"0", b"1", b"2"}
    assert len(queue.peek(show_progress=False)) == 0
    assert namespace.undo(entity="deleted").apply(show_progress=False).settled == 3
    assert len(queue.peek(show_progress=False)) == 3


@pytest.mark.filterwarnings("ignore:Receive-and-delete removes")
def test_interrupt_has_the_received_messages(namespace: Namespace, shared_emulator: RunningEmulator) -> None:
    def press_stop() -> None:
        while shared_emulator.counts("interrupted").active:
            time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)

    namespace.create_queue("interrupted")
    queue = namespace.entity("interrupted")
    assert queue.send([Message(body=b"x")] * 3, show_progress=False).ok
    threading.Thread(target=press_stop).start()
    with pytest.raises(KeyboardInterrupt) as interrupt:
        queue.receive_and_delete(100, max_wait=30)
    found: Any = interrupt.value
    assert len(found.messages) == 3
    assert "3 messages were received before" in found.__notes__[0]


def test_messages_are_settled_by_their_tokens(namespace: Namespace) -> None:
    namespace.create_queue("by-token")
    queue = namespace.entity("by-token")
    assert queue.send([Message(body=b"x")] * 2, show_progress=False).ok
    with queue.lock(2) as batch:
        locks = [(message.sequence_number, str(message.lock_token)) for message in batch.messages]
        plan = queue.settle_by_token(Complete(), locks)
        assert len(plan) == 2
        assert plan.apply(show_progress=False).settled == 2
    assert len(queue.peek(show_progress=False)) == 0


def test_defer_all_defers_all_or_the_chosen(namespace: Namespace) -> None:
    namespace.create_queue("to-defer")
    queue = namespace.entity("to-defer")
    sent = [Message(message_id=f"m{n}", subject=("even", "odd")[n % 2]) for n in range(6)]
    assert queue.send(sent, max_in_flight=1, show_progress=False).ok
    plan = queue.defer_all(where="subject = 'odd'", max_messages=2, show_progress=False)
    assert "defer 2 messages of to-defer: 2 active" in repr(plan)
    assert plan.apply(show_progress=False).settled == 2
    assert [message.message_id for message in queue.deferred(show_progress=False)] == ["m1", "m3"]
    assert len(queue.defer_all(before="1h", show_progress=False)) == 0
    assert queue.defer_all(show_progress=False).apply(show_progress=False).settled == 4
    assert len(queue.deferred(show_progress=False)) == 6
    with pytest.raises(ConfigurationError):
        queue.defer_all(where="no_such_column = 1", show_progress=False)


def test_peek_returns_as_many_matching_messages_as_asked_for(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "matching", 700)
    found = queue.peek(300, where="subject = 'odd'")
    assert [message.body for message in found] == [b"%d" % n for n in range(1, 600, 2)]
    assert len(queue.peek(400, where="subject = 'odd'")) == 350
    assert len(queue.peek(100).where("subject = 'odd'")) == 50
    with pytest.raises(ConfigurationError, match="no column"):
        queue.peek(1, where="no_such_column = 1")


def test_peek_of_a_session_leaves_out_messages_without_one(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "no-sessions", 3)
    queue.send(Message(body=b"A", session_id="A"))
    assert [message.body for message in queue.peek(session_id="A")] == [b"A"]
    assert [message.body for message in queue.peek(1, session_id="A")] == [b"A"]
    assert len(queue.peek(session_id="B")) == 0


def test_a_loop_over_parts_ends_while_the_consumer_still_fails(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "broken", 250)
    letters = namespace.entity("broken/$dlq")

    def fail() -> None:
        while queue.peek(1):
            with queue.lock(250) as batch:
                batch.dead_letter(reason="Broken")

    fail()
    sizes: list[int] = []
    for part in letters.parts(100):
        assert letters.resubmit(part).apply().settled == len(part)
        sizes.append(len(part))
        fail()
    assert sizes == [100, 100, 50]
    assert {message.resubmit_count for message in letters.peek()} == {1}
    assert [len(part) for part in letters.parts(100, where="subject = 'odd'")] == [100, 25]
    assert list(queue.parts()) == []
    with pytest.raises(ConfigurationError, match="size is a whole number from 1"):
        next(letters.parts(0))
