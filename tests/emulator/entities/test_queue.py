from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from sbnotebook.emulator.entities import (
    DeadLetterReason,
    Queue,
    QueueOptions,
    Refusal,
    RefusedError,
    Registry,
    SentMessage,
    SubscriptionOptions,
    Tier,
)
from sbnotebook.emulator.entities.changes import SessionStateSet
from sbnotebook.emulator.entities.partitions import without_partition
from sbnotebook.emulator.entities.record import EntityRecord

Sent = Callable[..., SentMessage]


@pytest.fixture
def calls(registry: Registry) -> Queue:
    """Has sessions, whose locks last 10 seconds."""
    return registry.create_queue("calls", QueueOptions(10_000, 3, requires_session=True))


def fill(queue: Queue, sent: Sent, sessions: str) -> None:
    for number, name in enumerate(sessions):
        queue.send(sent(number, session_id=name), 0)


def accept(queue: Queue, name: str | None = None, now: int = 0) -> Any:
    accepted = queue.accept_session(name, now)
    assert accepted is not None
    return accepted


def refusal(action: Callable[[], object]) -> Refusal:
    with pytest.raises(RefusedError) as caught:
        action()
    return caught.value.refusal


def test_a_session_is_received_by_whoever_holds_it_in_order(calls: Queue, sent: Sent) -> None:
    fill(calls, sent, "abab")
    session, _ = accept(calls)
    assert [calls.receive(0, session).sequence_number for _ in range(2)] == [1, 3]  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
    assert calls.receive(0, session) is None
    assert not calls.has_available  # Without a session nothing can be received.
    assert accept(calls)[0].session_id == "b"
    assert calls.accept_session(None, 0) is None


def test_a_session_has_one_holder(calls: Queue) -> None:
    session, token = accept(calls, "a")
    assert refusal(lambda: calls.accept_session("a", 0)) is Refusal.SESSION_IS_LOCKED
    calls.close_session(session, uuid4(), 0)
    assert refusal(lambda: calls.accept_session("a", 0)) is Refusal.SESSION_IS_LOCKED
    calls.close_session(session, token, 0)
    accept(calls, "a")


def test_only_an_expired_session_lock_counts_as_a_failure(registry: Registry, calls: Queue, sent: Sent) -> None:
    fill(calls, sent, "a")
    session, token = accept(calls)
    message = calls.receive(0, session)
    assert message is not None
    calls.close_session(session, token, 0)
    assert (message.delivery_count, message.lock_token) == (0, None)
    told: list[str] = []
    session, _ = accept(calls)

    def tell(until: int) -> None:
        told.append(f"lost {until}")

    session.on_lost = tell
    calls.receive(0, session)
    assert registry.next_deadline == 10_000
    registry.expire(10_000)
    assert (message.delivery_count, told, calls.counts) == (1, ["lost 10000"], (1, 0, 0, 0, 0, 0))
    assert refusal(lambda: calls.held_session("a", 10_000)) is Refusal.SESSION_LOCK_LOST


def test_a_renewed_session_keeps_its_messages_locked(registry: Registry, calls: Queue, sent: Sent) -> None:
    fill(calls, sent, "a")
    session, _ = accept(calls)
    message = calls.receive(0, session)
    assert message is not None
    assert message.lock_token is not None
    assert calls.renew_session(session, 9_000) == 19_000
    registry.expire(18_999)
    assert calls.renew(message.lock_token, 0) is None  # It has no lock of its own.
    assert calls.complete(message.lock_token, 18_999)
    assert calls.sessions is not None
    assert list(calls.sessions.listed(None)) == []


def test_a_deferred_message_belongs_to_its_session(calls: Queue, sent: Sent) -> None:
    fill(calls, sent, "ab")
    first, token = accept(calls, "a")
    message = calls.receive(0, first)
    assert message is not None
    assert message.lock_token is not None
    calls.defer(message.lock_token, 0)
    calls.close_session(first, token, 0)
    assert calls.sessions is not None
    assert [each.session_id for each in calls.sessions.listed(None)] == ["a", "b"]
    assert calls.receive_deferred([1], 0, session=accept(calls, "b")[0]) is None
    assert calls.receive_deferred([1], 0, session=accept(calls, "a")[0]) == [message]


def test_session_state_is_kept(registry: Registry, calls: Queue) -> None:
    session, token = accept(calls, "a")
    registry.take_changes()
    calls.set_session_state(session, b"half", 5)
    calls.close_session(session, token, 6)
    assert registry.take_changes() == [SessionStateSet(calls.box, "a", b"half", 5)]
    session, token = accept(calls, "a")
    assert session.state == b"half"
    calls.set_session_state(session, None, 7)
    calls.close_session(session, token, 8)
    assert calls.sessions is not None
    assert calls.sessions.get("a") is None


def test_the_state_of_a_session_has_a_limit() -> None:
    registry = Registry(Tier.STANDARD)
    calls = registry.create_queue("calls", QueueOptions(requires_session=True))
    session, _ = accept(calls, "a")
    calls.set_session_state(session, b"x" * 262_144, 0)
    assert refusal(lambda: calls.set_session_state(session, b"x" * 262_145, 0)) is Refusal.TOO_LARGE


def test_the_states_of_sessions_take_space(registry: Registry, sent: Sent) -> None:
    calls = registry.create_queue("calls", QueueOptions(requires_session=True, max_size_mb=1))
    session, _ = accept(calls, "a")
    calls.set_session_state(session, b"x" * 500_000, 0)
    calls.set_session_state(session, b"x" * 600_000, 0)
    assert calls.total_size == 600_000
    message = sent("x" * 600_000, session_id="a")
    assert refusal(lambda: calls.admission.check([message])) is Refusal.QUOTA_EXCEEDED
    calls.set_session_state(session, None, 0)
    calls.admission.check([message])


def test_without_sessions_there_are_none(queue: Queue) -> None:
    assert refusal(lambda: queue.accept_session(None, 0)) is Refusal.NOT_ALLOWED
    assert refusal(lambda: queue.held_session("a", 0)) is Refusal.NOT_ALLOWED


def test_dead_letters_are_read_without_a_session(calls: Queue, sent: Sent) -> None:
    fill(calls, sent, "a")
    message = calls.receive(0, accept(calls)[0])
    assert message is not None
    assert message.lock_token is not None
    calls.dead_letter_message(message.lock_token, 0, DeadLetterReason("Bad", None))
    assert calls.dead_letter.has_available
    assert calls.dead_letter.receive(0) is message


def test_a_session_of_a_deleted_queue_gives_nothing_back(registry: Registry, sent: Sent) -> None:
    options = QueueOptions(requires_session=True, dead_letter_on_expiration=True)
    calls = registry.create_queue("calls", options)
    calls.send(sent("x", session_id="a", time_to_live=5), 0)
    session, token = accept(calls)
    calls.receive(0, session)
    registry.delete(calls)
    registry.take_changes()
    calls.close_session(session, token, 10)
    assert (registry.take_changes(), registry.residency.size) == ([], 0)


def test_messages_with_sessions_are_accounted_for(registry: Registry, calls: Queue, sent: Sent) -> None:
    fill(calls, sent, "abc")
    assert registry.residency.size == calls.total_size + 3 * 512
    registry.delete(calls)
    assert registry.residency.size == 0


def test_a_queue_with_sessions_forwards_the_messages_it_has(registry: Registry, calls: Queue, sent: Sent) -> None:
    target = registry.create_subscription(registry.create_topic("t"), "s")
    fill(calls, sent, "aba")
    calls.receive(0, accept(calls, "a")[0])
    registry.update(calls, QueueOptions(10_000, 3, requires_session=True, forward_to="t"))
    fill(calls, sent, "c")
    assert (calls.message_count, target.counts.active) == (0, 4)
    assert calls.sessions is not None
    assert (calls.sessions.has_free, list(calls.sessions.listed(None))) == (False, [])


def test_a_subscription_with_sessions_dead_letters_one_without(registry: Registry, sent: Sent) -> None:
    topic = registry.create_topic("t")
    subscription = registry.create_subscription(topic, "s", SubscriptionOptions(requires_session=True))
    topic.send(sent("x"), 0)
    topic.send(sent("x", session_id="a"), 0)
    assert subscription.counts == (1, 0, 0, 0, 1, 0)


def test_an_update_loses_the_locks_without_a_failure(registry: Registry, queue: Queue, sent: Sent) -> None:
    for number in range(3):
        queue.send(sent(number), 0)
    held = [queue.receive(0) for _ in range(3)]
    tokens = [message.lock_token for message in held if message and message.lock_token]
    queue.dead_letter_message(tokens[0], 0, DeadLetterReason(None, None))
    queue.defer(tokens[1], 0)
    queue.receive_deferred([2], 0)
    queue.dead_letter.receive(0)
    registry.update(queue, QueueOptions(5_000, 3))
    assert (queue.locked_count, queue.dead_letter.locked_count) == (0, 0)
    assert queue.counts == (1, 0, 1, 0, 1, 0)
    assert [message.delivery_count for message in queue.peek(0, 9)] == [1, 0]  # The first was deferred.
    again = queue.receive(0)
    assert again is not None
    assert again.locked_until == 5_000


def test_numbers_of_partitions_count_on_without_their_partition() -> None:
    record = EntityRecord(1, "queue", 0)
    assert [record.next_number(), record.next_number(17), record.next_number()] == [1, 1 << 48 | 2, 3]
    assert without_partition(15 << 48 | 7) == 7
