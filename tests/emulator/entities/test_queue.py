from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

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


def test_a_message_that_is_buried_leaves_no_session_behind(registry: Registry, sent: Sent) -> None:
    queue = registry.create_queue("once", QueueOptions(10_000, 1, requires_session=True))
    fill(queue, sent, "a")
    session, _ = accept(queue, "a")
    message = queue.receive(0, session)
    assert message is not None
    assert message.lock_token is not None
    queue.abandon(message.lock_token, 0)
    assert queue.counts.dead_letter == 1
    assert queue.sessions is not None
    assert queue.sessions.get("") is None


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
    for stranger in (uuid4(), UUID(int=0), UUID(int=2**128 - 1)):
        calls.close_session(session, stranger, 0)
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


@pytest.mark.parametrize(("owner", "other"), ["ab", "ba"])
def test_a_deferred_message_belongs_to_its_session(calls: Queue, sent: Sent, owner: str, other: str) -> None:
    fill(calls, sent, "ab")
    first, token = accept(calls, owner)
    message = calls.receive(0, first)
    assert message is not None
    assert message.lock_token is not None
    calls.defer(message.lock_token, 0)
    calls.close_session(first, token, 0)
    assert calls.sessions is not None
    assert [each.session_id for each in calls.sessions.listed(None)] == ["a", "b"]
    number = message.sequence_number
    assert calls.receive_deferred([number], 0, session=accept(calls, other)[0]) is None
    assert calls.receive_deferred([number], 0, session=accept(calls, owner)[0]) == [message]


def test_a_session_is_peeked_at_and_emptied_alone(calls: Queue, sent: Sent) -> None:
    fill(calls, sent, "abcb")
    assert [message.sequence_number for message in calls.peek(0, 9, "b")] == [2, 4]
    assert calls.delete(9, before=1, now=1, session=accept(calls, "b")[0]) == 2
    assert [message.session_id for message in calls.peek(0, 9)] == ["a", "c"]


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
    with pytest.raises(RefusedError, match="has 262145 bytes, the limit is 262144"):
        calls.set_session_state(session, b"x" * 262_145, 0)


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


def test_the_lock_of_a_session_begins_when_it_is_accepted(registry: Registry, calls: Queue) -> None:
    session, _ = accept(calls, "a", 5_000)
    assert (session.locked_until, registry.next_deadline) == (15_000, 15_000)


def test_a_long_session_id_is_quoted_up_to_128_characters(calls: Queue) -> None:
    accept(calls, "x" * 129)
    with pytest.raises(RefusedError, match=f"'{'x' * 128}'"):
        calls.accept_session("x" * 129, 0)


def test_the_size_is_that_of_all_messages_and_states(calls: Queue, sent: Sent) -> None:
    for body in ("x" * 77, "y" * 77):
        calls.send(sent(body, session_id="a"), 0)
    calls.transfer(sent("z" * 77), "nowhere", 0)
    session, _ = accept(calls, "a")
    message = calls.receive(0, session)
    assert message is not None
    assert message.lock_token is not None
    calls.dead_letter_message(message.lock_token, 0, DeadLetterReason("Bad", None))
    sizes = [[message.size for message in box.peek(0, 9)] for box in calls.boxes]
    assert [len(each) for each in sizes] == [1, 1, 1]
    total = sum(map(sum, sizes))
    assert calls.total_size == total
    calls.set_session_state(session, bytes(total), 0)
    assert calls.total_size == 2 * total


def test_a_message_that_goes_at_once_keeps_its_body(registry: Registry, sent: Sent) -> None:
    queue = registry.create_queue("q", QueueOptions(forward_to="nowhere"))
    queue.send(sent("body"), 0)
    topic = registry.create_topic("t")
    subscription = registry.create_subscription(topic, "s", SubscriptionOptions(requires_session=True))
    topic.send(sent("body"), 0)
    for box in (queue.transfer_dead_letter, subscription.dead_letter):
        message = box.receive(0)
        assert message is not None
        assert box.rendered(message).endswith(b"body")


def test_a_box_has_the_number_by_which_stores_know_it(registry: Registry, queue: Queue) -> None:
    topic = registry.create_topic("t")
    subscription = registry.create_subscription(topic, "s")
    assert [box.box for box in (*queue.boxes, topic, *subscription.boxes)] == [4, 5, 6, 8, 12, 13, 14]
