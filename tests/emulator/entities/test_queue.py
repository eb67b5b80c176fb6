from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sbnotebook.emulator.entities.box import ABANDON
from sbnotebook.emulator.entities.options import QueueOptions, SubscriptionOptions, Tier
from sbnotebook.emulator.entities.queue import Queue
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.emulator.entities.registry import Changes, Registry
from tests.emulator.entities.conftest import BURY, lock, sent


@pytest.fixture
def calls(registry: Registry) -> Queue:
    """Has sessions, whose locks last 10 seconds."""
    return registry.create_queue("calls", QueueOptions(10_000, 3, requires_session=True))


def fill(queue: Queue, sessions: str) -> None:
    for number, name in enumerate(sessions):
        queue.send(sent(number, session_id=name), 0)


def test_a_message_that_is_buried_leaves_no_session_behind(registry: Registry) -> None:
    queue = registry.create_queue("once", QueueOptions(10_000, 1, requires_session=True))
    fill(queue, "a")
    session, _ = accept(queue, "a")
    queue.settle(lock(queue, 0, session)[1], ABANDON, 0)
    assert queue.counts.dead_letter == 1
    assert queue.sessions is not None
    assert queue.sessions.get("") is None


def accept(queue: Queue, name: str | None = None, now: int = 0) -> Any:
    accepted = queue.accept_session(name, now)
    assert accepted is not None
    return accepted


def refusal(action: Callable[[], object]) -> Condition:
    with pytest.raises(RefusedError) as caught:
        action()
    return caught.value.condition


def test_the_state_of_a_session_has_a_limit() -> None:
    registry = Registry(Tier.STANDARD)
    calls = registry.create_queue("calls", QueueOptions(requires_session=True))
    session, _ = accept(calls, "a")
    calls.set_session_state(session, b"x" * 262_144, 0)
    assert refusal(lambda: calls.set_session_state(session, b"x" * 262_145, 0)) is Condition.MESSAGE_SIZE_EXCEEDED
    with pytest.raises(RefusedError, match="has 262145 bytes, the limit is 262144"):
        calls.set_session_state(session, b"x" * 262_145, 0)


def test_the_states_of_sessions_take_space(registry: Registry) -> None:
    calls = registry.create_queue("calls", QueueOptions(requires_session=True, max_size_mb=1))
    session, _ = accept(calls, "a")
    calls.set_session_state(session, b"x" * 500_000, 0)
    calls.set_session_state(session, b"x" * 600_000, 0)
    assert calls.total_size == 600_000
    message = sent("x" * 600_000, session_id="a")
    assert refusal(lambda: calls.check([message])) is Condition.RESOURCE_LIMIT_EXCEEDED
    calls.set_session_state(session, None, 0)
    calls.check([message])


def test_a_session_of_a_deleted_queue_gives_nothing_back(registry: Registry) -> None:
    options = QueueOptions(requires_session=True, dead_letter_on_expiration=True)
    calls = registry.create_queue("calls", options)
    calls.send(sent("x", session_id="a", time_to_live=5), 0)
    session, token = accept(calls)
    calls.receive(0, session)
    registry.delete(calls)
    registry.changes = Changes()
    calls.close_session(session, token, 10)
    assert (bool(registry.changes), registry.residency.size) == (False, 0)


def test_a_queue_with_sessions_forwards_the_messages_it_has(registry: Registry, calls: Queue) -> None:
    target = registry.create_subscription(registry.create_topic("t"), "s")
    fill(calls, "aba")
    calls.receive(0, accept(calls, "a")[0])
    registry.update(calls, QueueOptions(10_000, 3, requires_session=True, forward_to="t"))
    fill(calls, "c")
    assert (len(calls.log), target.counts.active) == (0, 4)
    assert calls.sessions is not None
    assert (list(calls.sessions.free), calls.session_ids(None)) == ([], [])


def test_a_long_session_id_is_quoted_up_to_128_characters(calls: Queue) -> None:
    accept(calls, "x" * 129)
    with pytest.raises(RefusedError, match=f"'{'x' * 128}'"):
        calls.accept_session("x" * 129, 0)


def test_the_size_is_that_of_all_messages_and_states(calls: Queue) -> None:
    for body in ("x" * 77, "y" * 77):
        calls.send(sent(body, session_id="a"), 0)
    calls.transfer(sent("z" * 77), "nowhere", 0)
    session, _ = accept(calls, "a")
    calls.settle(lock(calls, 0, session)[1], BURY, 0)
    sizes = [[message.size for message in box.peek(0, 9)] for box in calls.boxes]
    assert [len(each) for each in sizes] == [1, 1, 1]
    total = sum(map(sum, sizes))
    assert calls.total_size == total
    calls.set_session_state(session, bytes(total), 0)
    assert calls.total_size == 2 * total


def test_a_message_that_goes_at_once_keeps_its_body(registry: Registry) -> None:
    queue = registry.create_queue("q", QueueOptions(forward_to="nowhere"))
    queue.send(sent("body"), 0)
    topic = registry.create_topic("t")
    subscription = registry.create_subscription(topic, "s", SubscriptionOptions(requires_session=True))
    topic.send(sent("body"), 0)
    for box in (queue.transfer_dead_letter, subscription.dead_letter):
        message = box.receive(0)
        assert message is not None
        assert box.rendered(message).endswith(b"body")
