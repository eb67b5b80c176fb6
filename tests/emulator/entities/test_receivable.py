from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

import pytest

from sbnotebook.emulator.entities import BrokeredMessage, MessageState, Queue, Receivable, SentMessage
from sbnotebook.model.sections import APPLICATION_PROPERTIES, section_value, split

Sent = Callable[[object], SentMessage]


def fill(queue: Queue, sent: Sent, count: int) -> None:
    for number in range(1, count + 1):
        queue.send(sent(number), now=0)


def lock(entity: Receivable, now: int = 0) -> tuple[BrokeredMessage, UUID]:
    message = entity.receive(now)
    assert message is not None
    assert message.lock_token is not None
    return message, message.lock_token


def order(entity: Receivable) -> list[int]:
    """The sequence numbers that would be received, in order."""
    return [lock(entity)[0].sequence_number for _ in range(len(entity)) if entity.has_available]


def reason(message: BrokeredMessage) -> object:
    section = next(section for section in split(message.payload) if section.code == APPLICATION_PROPERTIES)
    return section_value(message.payload, section)


def test_messages_come_in_the_order_of_their_numbers_each_once(queue: Queue, sent: Sent) -> None:
    fill(queue, sent, 3)
    assert order(queue) == [1, 2, 3]
    assert queue.receive(now=0) is None


def test_a_completed_message_is_gone(queue: Queue, sent: Sent) -> None:
    fill(queue, sent, 1)
    _, token = lock(queue)
    assert queue.complete(token, now=1)
    assert len(queue) == 0
    assert not queue.complete(token, now=1)


@pytest.mark.parametrize(("settle", "count"), [(Queue.abandon, 1), (Queue.release, 0)])
def test_what_is_given_back_stands_in_its_old_place(
    queue: Queue, sent: Sent, settle: Callable[[Queue, UUID, int], bool], count: int
) -> None:
    fill(queue, sent, 3)
    first, token = lock(queue)
    lock(queue)
    assert settle(queue, token, 1)
    assert first.delivery_count == count
    assert order(queue) == [1, 3]


def test_a_lock_that_ends_counts_as_a_failed_delivery(queue: Queue, sent: Sent) -> None:
    fill(queue, sent, 1)
    message, token = lock(queue, now=0)
    queue.expire(9_999)
    assert queue.holds(token, 9_999)
    assert not queue.complete(token, now=10_000)  # even before anybody looked for expired locks
    queue.expire(10_000)
    assert message.delivery_count == 1
    assert order(queue) == [1]


def test_a_renewed_lock_ends_a_lock_duration_later(queue: Queue, sent: Sent) -> None:
    fill(queue, sent, 1)
    _, token = lock(queue, now=0)
    assert queue.renew(token, now=9_000) == 19_000
    queue.expire(18_999)
    assert queue.complete(token, now=18_999)
    assert queue.renew(token, now=18_999) is None
    assert queue.renew(uuid4(), now=0) is None


def test_after_too_many_failures_a_message_is_dead_lettered(queue: Queue, sent: Sent) -> None:
    fill(queue, sent, 1)
    for now in (0, 10_000, 20_000):
        lock(queue, now)
        queue.expire(now + 10_000)
    assert len(queue) == 0
    message = next(queue.dead_letter.peek(0, 1))
    assert message.delivery_count == 3
    assert reason(message) == {
        "DeadLetterReason": "MaxDeliveryCountExceeded",
        "DeadLetterErrorDescription": "Message could not be consumed after 3 delivery attempts.",
    }


def test_a_dead_lettered_message_keeps_its_number_and_time(queue: Queue, sent: Sent) -> None:
    for now in (5, 6):
        queue.send(sent("x"), now)
    (_, first), (_, second) = lock(queue), lock(queue)
    # In the other order than they came: the dead-letter queue is in the order of the numbers, too.
    assert queue.dead_letter_message(second, 1, "Bad", "It is bad")
    assert queue.dead_letter_message(first, 1, None, None)
    messages = list(queue.dead_letter.peek(0, 10))
    assert [(message.sequence_number, message.enqueued_time) for message in messages] == [(1, 5), (2, 6)]
    assert reason(messages[1]) == {"DeadLetterReason": "Bad", "DeadLetterErrorDescription": "It is bad"}
    assert order(queue.dead_letter) == [1, 2]


def test_in_a_dead_letter_queue_an_ended_lock_does_not_count(queue: Queue, sent: Sent) -> None:
    fill(queue, sent, 1)
    queue.dead_letter_message(lock(queue)[1], 0, None, None)
    message, _ = lock(queue.dead_letter)
    queue.expire(10_000)
    assert message.delivery_count == 0
    for _ in range(5):
        assert queue.dead_letter.abandon(lock(queue.dead_letter, 20_000)[1], 20_000)
    assert message.delivery_count == 5
    assert order(queue.dead_letter) == [1]


def test_a_deferred_message_is_received_by_its_number_only(queue: Queue, sent: Sent) -> None:
    fill(queue, sent, 2)
    message, token = lock(queue)
    assert queue.defer(token, now=0)
    assert (message.state, message.delivery_count, queue.deferred_count) == (MessageState.DEFERRED, 1, 1)
    assert order(queue) == [2]
    found = queue.receive_deferred([1], now=0)
    assert found == [message]
    assert queue.receive_deferred([1], now=0) is None  # it is locked


def test_an_abandoned_deferred_message_stays_deferred(queue: Queue, sent: Sent) -> None:
    fill(queue, sent, 1)
    message, token = lock(queue)
    queue.defer(token, now=0)
    queue.receive_deferred([1], now=0)
    assert message.lock_token is not None
    queue.abandon(message.lock_token, now=0)
    assert not queue.has_available
    queue.receive_deferred([1], now=0)
    queue.expire(10_000)
    assert (len(queue), len(queue.dead_letter), queue.deferred_count) == (0, 1, 0)  # the third failure


def test_of_several_deferred_messages_all_are_received_or_none(queue: Queue, sent: Sent) -> None:
    fill(queue, sent, 3)
    for _ in range(2):
        queue.defer(lock(queue)[1], now=0)
    assert queue.receive_deferred([1, 2, 3], now=0) is None
    assert queue.receive_deferred([1, 99], now=0, delete=True) is None
    assert queue.locked_count == 0
    found = queue.receive_deferred([2, 1, 2], now=0, delete=True)
    assert found is not None
    assert [message.sequence_number for message in found] == [2, 1]
    assert (len(queue), queue.deferred_count) == (1, 0)


def test_receive_and_delete_takes_out(queue: Queue, sent: Sent) -> None:
    fill(queue, sent, 2)
    lock(queue)
    message = queue.receive_and_delete()
    assert message is not None
    assert message.sequence_number == 2
    assert queue.receive_and_delete() is None
    assert len(queue) == 1


def test_peek_sees_every_message_whatever_its_state(queue: Queue, sent: Sent) -> None:
    fill(queue, sent, 4)
    queue.send(sent("later")._replace(scheduled_time=99), now=0)
    queue.defer(lock(queue)[1], now=0)
    lock(queue)
    assert [message.sequence_number for message in queue.peek(0, 10)] == [1, 2, 3, 4, 5]
    assert [message.sequence_number for message in queue.peek(2, 2)] == [2, 3]
    assert order(queue) == [3, 4]
