from __future__ import annotations

from collections.abc import Callable

from sbnotebook.emulator.entities import (
    BrokeredState,
    Queue,
    QueueOptions,
    Registry,
    SentMessage,
)

Sent = Callable[..., SentMessage]


def test_a_scheduled_message_gets_a_new_number_when_it_is_due(registry: Registry, queue: Queue, sent: Sent) -> None:
    assert queue.send(sent("later", scheduled_time=1_000), 0) == 1
    queue.send(sent("now"), 0)
    scheduled = next(queue.peek(0, 1))
    assert (scheduled.state, registry.next_deadline) == (BrokeredState.SCHEDULED, 1_000)
    assert queue.counts == (1, 0, 0, 1, 0, 0)
    registry.expire(999)
    assert queue.counts.scheduled == 1
    registry.expire(1_000)
    active = list(queue.peek(0, 10))[1]
    assert (active.sequence_number, active.enqueued_sequence_number, active.enqueued_time) == (3, 1, 1_000)
    assert (active.state, active.payload) == (BrokeredState.ACTIVE, scheduled.payload)
    assert queue.counts.scheduled == 0
    assert not queue.cancel_scheduled([1])


def test_scheduled_messages_are_forwarded_once_they_are_active(registry: Registry, queue: Queue, sent: Sent) -> None:
    target = registry.create_queue("target")
    queue.send(sent("later", scheduled_time=5), 0)
    registry.update(queue, QueueOptions(forward_to="target"))
    assert queue.counts.scheduled == 1
    registry.expire(5)
    assert (queue.message_count, target.counts.active) == (0, 1)
