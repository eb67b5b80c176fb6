from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sbnotebook.emulator.entities import (
    DeadLetterReason,
    MessageState,
    Queue,
    QueueOptions,
    Registry,
    SentMessage,
)
from sbnotebook.emulator.entities.changes import MessageAdded, MessageRemoved, MessageUpdated

Sent = Callable[..., SentMessage]


def take(queue: Queue, now: int = 0) -> Any:
    """The token of the next message."""
    message = queue.receive(now)
    assert message is not None
    return message.lock_token


def numbers(queue: Queue) -> list[int]:
    return [message.sequence_number for message in queue.peek(0, 100)]


def test_numbers_count_up_and_are_never_used_again(queue: Queue, sent: Sent) -> None:
    assert [queue.send(sent(1), 0) for _ in range(3)] == [1, 2, 3]
    for _ in range(3):
        queue.receive_and_delete(0)
    assert queue.send(sent(1), 0) == 4


def test_a_scheduled_message_gets_a_new_number_when_it_is_due(registry: Registry, queue: Queue, sent: Sent) -> None:
    assert queue.send(sent("later", scheduled_time=1_000), 0) == 1
    queue.send(sent("now"), 0)
    scheduled = next(queue.peek(0, 1))
    assert (scheduled.state, registry.next_deadline) == (MessageState.SCHEDULED, 1_000)
    assert queue.counts == (1, 0, 0, 1, 0, 0)
    registry.expire(999)
    assert queue.counts.scheduled == 1
    registry.expire(1_000)
    active = list(queue.peek(0, 10))[1]
    assert (active.sequence_number, active.enqueued_sequence_number, active.enqueued_time) == (3, 1, 1_000)
    assert (active.state, active.payload) == (MessageState.ACTIVE, scheduled.payload)
    assert queue.counts.scheduled == 0
    assert not queue.cancel_scheduled([1])


def test_a_time_that_has_passed_schedules_nothing(registry: Registry, queue: Queue, sent: Sent) -> None:
    queue.send(sent("old", scheduled_time=1_000), 1_000)
    assert (queue.counts.scheduled, queue.has_available, registry.next_deadline) == (0, True, None)


@pytest.mark.parametrize("life", [500, 2_500])
def test_a_scheduled_message_lives_from_its_time_on(registry: Registry, queue: Queue, sent: Sent, life: int) -> None:
    queue.send(sent("later", scheduled_time=1_000, time_to_live=life), 0)
    registry.expire(999)
    assert numbers(queue) == [1]
    registry.expire(1_200)  # later than it was due
    assert next(queue.peek(0, 1)).expires_at == 1_200 + life
    registry.expire(1_200 + life)
    assert queue.message_count == 0


def test_scheduled_messages_are_cancelled_all_or_none(registry: Registry, queue: Queue, sent: Sent) -> None:
    for _ in range(2):
        queue.send(sent("later", scheduled_time=1_000), 0)
    queue.send(sent("now"), 0)
    assert not queue.cancel_scheduled([1, 3])
    assert queue.counts.scheduled == 2
    assert queue.cancel_scheduled([1, 2])
    registry.expire(2_000)
    assert numbers(queue) == [3]


def test_counts_tell_the_states_apart(queue: Queue, sent: Sent) -> None:
    for number in range(6):
        queue.send(sent(number), 0)
    queue.send(sent("later", scheduled_time=1_000), 0)
    tokens = [take(queue) for _ in range(3)]
    queue.defer(tokens[0], 0)
    queue.dead_letter_message(tokens[1], 0, DeadLetterReason(None, None))
    assert queue.counts == (4, 1, 1, 1, 1, 0)


def test_every_change_is_recorded(registry: Registry, queue: Queue, sent: Sent) -> None:
    for _ in range(4):
        queue.send(sent(1), 0)
    tokens = [take(queue) for _ in range(4)]
    registry.take_changes()
    queue.renew(tokens[0], 0)
    queue.release(tokens[0], 0)
    assert registry.take_changes() == []  # Locks are not kept.
    queue.complete(tokens[1], 0)
    queue.abandon(tokens[2], 0)
    queue.dead_letter_message(tokens[3], 0, DeadLetterReason("r", None))
    changes = registry.take_changes()
    assert [type(change) for change in changes] == [MessageRemoved, MessageUpdated, MessageRemoved, MessageAdded]
    assert [change.box for change in changes] == [4, 4, 4, 5]  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]


def test_an_activation_is_a_removal_and_a_new_message(registry: Registry, queue: Queue, sent: Sent) -> None:
    registry.take_changes()
    queue.send(sent("later", scheduled_time=5), 0)
    registry.expire(5)
    added, removed, again = registry.take_changes()
    assert isinstance(added, MessageAdded)
    assert isinstance(removed, MessageRemoved)
    assert isinstance(again, MessageAdded)
    assert (added.message.sequence_number, removed.sequence_number, again.message.sequence_number) == (1, 1, 2)
    assert (added.message.state, again.message.state) == (MessageState.SCHEDULED, MessageState.ACTIVE)


def test_scheduled_messages_are_forwarded_once_they_are_active(registry: Registry, queue: Queue, sent: Sent) -> None:
    target = registry.create_queue("target")
    queue.send(sent("later", scheduled_time=5), 0)
    registry.update(queue, QueueOptions(forward_to="target"))
    assert queue.counts.scheduled == 1
    registry.expire(5)
    assert (queue.message_count, target.counts.active) == (0, 1)
