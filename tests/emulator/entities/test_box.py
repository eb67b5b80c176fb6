from __future__ import annotations

import pytest

from sbnotebook.emulator.entities.box import ABANDON, COMPLETE, DEFER, RELEASE, Receivable, Settlement
from sbnotebook.emulator.entities.message import DeadLetterReason
from sbnotebook.emulator.entities.options import QueueOptions
from sbnotebook.emulator.entities.queue import Queue
from sbnotebook.emulator.entities.refusals import RefusedError
from sbnotebook.emulator.entities.registry import Changes, Registry
from tests.emulator.entities.conftest import lock, properties, sent

DEAD_LETTER = Settlement("dead_letter", why=DeadLetterReason("Bad", "It is bad"))


def fill(queue: Queue, count: int) -> None:
    for number in range(1, count + 1):
        queue.send(sent(number), now=0)


def order(entity: Receivable) -> list[int]:
    """The sequence numbers that would be received, in order."""
    return [lock(entity)[0].sequence_number for _ in range(len(entity.log)) if entity.has_available]


def test_abandon_and_defer_can_set_properties(registry: Registry, queue: Queue) -> None:
    queue.send(sent("x", properties={"a": 1, "b": 2}), 0)
    message, token = lock(queue)
    queue.settle(token, ABANDON._replace(properties={"a": "new"}), 0)
    assert properties(message) == {"a": "new", "b": 2}
    queue.settle(lock(queue)[1], DEAD_LETTER._replace(properties={"c": True}), 0)
    assert properties(next(queue.dead_letter.peek(0, 1))) == {
        "a": "new", "b": 2, "c": True, "DeadLetterReason": "Bad", "DeadLetterErrorDescription": "It is bad",
    }  # fmt: skip
    assert queue.total_size == queue.dead_letter.log.size_bytes == message.size
    assert registry.residency.size == message.size + 512


def test_properties_cannot_be_set_beyond_what_a_message_may_have(registry: Registry, queue: Queue) -> None:
    queue.send(sent("x"), 0)
    message, token = lock(queue)
    registry.changes = Changes()
    for settlement in (ABANDON, DEFER, DEAD_LETTER):
        for act in (queue.settle, queue.check_settlement):
            with pytest.raises(RefusedError, match="the limit is 65536"):
                act(token, settlement._replace(properties={"a": "x" * 70_000}), 0)
    assert queue.held(token, 0)
    assert message.delivery_count == 0
    assert not registry.changes
    queue.settle(token, COMPLETE, 0)


# --------------------------------------------------------------------------------------------- expiry


@pytest.fixture
def mortal(registry: Registry) -> Queue:
    """Keeps what expires after 5 seconds; its locks last 10."""
    return registry.create_queue(
        "mortal", QueueOptions(10_000, 3, default_time_to_live=5_000, dead_letter_on_expiration=True)
    )


@pytest.mark.parametrize("others", [0, 1])
def test_an_expired_message_is_not_put_in_front(registry: Registry, mortal: Queue, others: int) -> None:
    registry.order_after_release = lambda _: "front"
    for now in range(0, 1_000 * others + 1, 1_000):
        mortal.send(sent("x"), now)
    _, token = lock(mortal)
    mortal.settle(token, RELEASE, 5_500)
    assert mortal.counts == (others, 0, 0, 0, 1, 0)
    assert (mortal.receive(5_500) is not None) == bool(others)


def test_a_clock_that_is_set_back_loses_nothing(registry: Registry, queue: Queue) -> None:
    fill(queue, 2)
    lock(queue, 50_000)
    late, token = lock(queue, 10_000)
    assert queue.held(token, 19_999)
    assert queue.held(token, 20_000) is None
    for now in (20_000, 60_000):
        registry.expire(now)
    assert late.delivery_count == 1
    assert order(queue) == [1, 2]


# --------------------------------------------------------------------------------- changes and the end


def test_a_deleted_queue_holds_no_lock_and_keeps_nothing(registry: Registry, mortal: Queue) -> None:
    mortal.send(sent("x"), 0)
    _, token = lock(mortal)
    registry.delete(mortal)
    registry.changes = Changes()
    assert mortal.held(token, 0) is None
    for act in (lambda: mortal.settle(token, ABANDON, 6_000), lambda: mortal.renew(token, 0)):
        with pytest.raises(RefusedError, match="lock supplied is invalid"):
            act()
    assert (bool(registry.changes), registry.residency.size) == (False, 0)
