from __future__ import annotations

from typing import Any

import pytest

from sbnotebook.amqp import Timestamp
from sbnotebook.emulator.entities import registry as registry_module
from sbnotebook.emulator.entities.box import Receivable
from sbnotebook.emulator.entities.message import BrokeredMessage, read_sent
from sbnotebook.emulator.entities.options import EntityStatus, QueueOptions, SubscriptionOptions
from sbnotebook.emulator.entities.queue import Queue
from sbnotebook.emulator.entities.registry import Registry, restore
from sbnotebook.emulator.entities.rules.rule import TRUE_FILTER, Rule, SqlAction
from tests.emulator.entities.conftest import BURY, lock, properties, sent
from tests.emulator.entities.store_helpers import OnDisk


def only(box: Receivable) -> BrokeredMessage:
    (message,) = box.peek(0, 10)
    return message


def reason(box: Receivable) -> Any:
    return properties(only(box))["DeadLetterReason"]


def chain(registry: Registry, length: int) -> list[Queue]:
    """Queues that forward each to the next one."""
    last = registry.create_queue(f"q{length}")
    others = [
        registry.create_queue(f"q{number}", QueueOptions(forward_to=f"Q{number + 1}"))
        for number in range(length - 1, -1, -1)
    ]
    return [*reversed(others), last]


def test_a_forwarded_message_is_a_new_one_of_the_same_bytes(registry: Registry) -> None:
    first, last = chain(registry, 1)
    last.send(sent("earlier"), 0)
    message = sent("x", message_id="id", time_to_live=500)
    first.send(message, 7)
    assert len(first.log) == 0
    forwarded = list(last.peek(0, 9))[1]
    assert (forwarded.payload, forwarded.sequence_number, forwarded.enqueued_sequence_number) == (message.payload, 2, 1)
    assert (forwarded.enqueued_time, forwarded.expires_at, forwarded.hops) == (7, 507, 1)
    assert forwarded.dead_letter_source is None


def test_four_hops_are_allowed(registry: Registry) -> None:
    queues = chain(registry, 4)
    queues[0].send(sent("x"), 0)
    assert only(queues[4]).hops == 4


def test_the_fifth_hop_is_refused(registry: Registry) -> None:
    queues = chain(registry, 5)
    queues[0].send(sent("x"), 0)
    assert [len(queue.log) for queue in queues] == [0] * 6
    assert reason(queues[4].transfer_dead_letter) == "MaxTransferHopCountExceeded"


@pytest.mark.parametrize("names", [["q0"], ["q0", "q1"]])
def test_a_loop_ends(registry: Registry, names: list[str]) -> None:
    # azure-servicebus's own live tests let a queue forward to itself.
    queues = [
        registry.create_queue(name, QueueOptions(forward_to=names[(number + 1) % len(names)]))
        for number, name in enumerate(names)
    ]
    queues[0].send(sent("x"), 0)
    assert only(queues[0].transfer_dead_letter).hops == 4
    assert [queue.counts.transfer_dead_letter for queue in queues] == [1, 0][: len(names)]


def test_a_loop_that_multiplies_goes_on_in_later_turns(
    registry: Registry, kept: OnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each of three subscriptions forwards to its own topic; the hops allow three to the power of five copies.
    monkeypatch.setattr(registry_module, "_MAX_COPIES", 10)
    topic = registry.create_topic("t")
    for number in range(3):
        registry.create_subscription(topic, f"s{number}", SubscriptionOptions(forward_to="t"))

    def waiting(registry: Registry) -> int:
        return sum(subscription.counts.active for subscription in registry.topics[0].subscriptions)

    topic.send(sent("x"), 0)
    assert 0 < waiting(registry) < 30
    assert registry.continue_forwarding(0)
    kept.keep(registry)
    restored = Registry()
    restore(restored, kept.snapshot(0), kept, now=0)
    for each in (registry, restored):
        turns = 0
        while each.continue_forwarding(0):
            turns += 1
        assert turns > 20
        subscriptions = each.topics[0].subscriptions
        assert [subscription.counts for subscription in subscriptions] == [(0, 0, 0, 0, 0, 81)] * 3
        assert {message.hops for message in subscriptions[0].transfer_dead_letter.peek(0, 99)} == {4}


def test_a_message_that_waits_to_be_forwarded_may_go(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    target = registry.create_queue("target")
    queue = registry.create_queue("q", QueueOptions(forward_to="target"))
    monkeypatch.setattr(registry_module, "_MAX_COPIES", 1)
    for number in range(4):
        queue.send(sent(number, time_to_live=5 if number == 1 else None), 0)
    assert (queue.counts.active, target.counts.active) == (3, 1)
    registry.expire(5)
    monkeypatch.undo()
    registry.update(queue, QueueOptions(), now=6)
    assert not registry.continue_forwarding(6)
    assert (queue.counts.active, target.counts.active) == (2, 1)
    registry.update(queue, QueueOptions(forward_to="target"), now=7)
    assert [target.rendered(message)[-1:] for message in target.peek(0, 9)] == [b"0", b"2", b"3"]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (None, "MessagingEntityNotFound"),
        (QueueOptions(status=EntityStatus.SEND_DISABLED), "MessagingEntityDisabled"),
        (QueueOptions(requires_session=True), "Session ID is null."),
        (QueueOptions(max_message_size_kb=1), "MessageSizeExceeded"),
    ],
)
def test_a_failed_forward_ends_in_the_transfer_dead_letter_queue(
    registry: Registry, target: QueueOptions | None, why: str
) -> None:
    if target is not None:
        registry.create_queue("target", target)
    queue = registry.create_queue("q", QueueOptions(forward_to="target"))
    queue.send(sent("x" * 2000, time_to_live=5), 0)
    assert queue.counts == (0, 0, 0, 0, 0, 1)
    assert reason(queue.transfer_dead_letter) == why
    registry.expire(10**9)
    message = queue.transfer_dead_letter.receive(10**9, delete=True)
    assert message is not None
    assert message.sequence_number == 1
    assert registry.residency.size == 0


def test_a_full_target_takes_nothing(registry: Registry) -> None:
    registry.create_queue("target", QueueOptions(max_size_mb=1)).send(sent("x" * 700_000), 0)
    queue = registry.create_queue("q", QueueOptions(forward_to="target"))
    queue.send(sent("x" * 700_000), 0)
    assert reason(queue.transfer_dead_letter) == "QuotaExceeded"


def test_a_message_that_the_target_cannot_read_is_transferred(registry: Registry) -> None:
    registry.create_topic("target")
    queue = registry.create_queue("q", QueueOptions(forward_to="target"))
    queue.send(read_sent(bytes.fromhex("005373c00401a101ff005375a00178")), 0)
    assert reason(queue.transfer_dead_letter) == "ForwardingFailed"


def test_a_duplicate_is_dropped_on_the_way(registry: Registry) -> None:
    target = registry.create_queue("target", QueueOptions(requires_duplicate_detection=True))
    queue = registry.create_queue("q", QueueOptions(forward_to="target"))
    for _ in range(2):
        queue.send(sent("x", message_id="a"), 0)
    assert (len(target.log), queue.counts) == (1, (0, 0, 0, 0, 0, 0))


# --------------------------------------------------------------------------------------- dead letters


def bury(queue: Queue) -> None:
    queue.send(sent("x"), 0)
    queue.settle(lock(queue)[1], BURY, 0)


def test_the_source_is_remembered_on_later_hops(registry: Registry) -> None:
    registry.create_queue("relay", QueueOptions(forward_to="grave"))
    grave = registry.create_queue("grave")
    bury(registry.create_queue("q", QueueOptions(forward_dead_letters_to="relay")))
    assert (only(grave).dead_letter_source, only(grave).hops) == ("q", 2)


def test_dead_letters_that_cannot_go_on_stay(registry: Registry) -> None:
    queue = registry.create_queue("q", QueueOptions(forward_dead_letters_to="nowhere"))
    bury(queue)
    assert queue.counts == (0, 0, 0, 0, 1, 0)
    assert reason(queue.dead_letter) == "Bad"


def test_a_queue_that_buries_in_itself_comes_to_an_end(registry: Registry) -> None:
    options = QueueOptions(default_time_to_live=1_000, dead_letter_on_expiration=True, forward_dead_letters_to="q")
    queue = registry.create_queue("q", options)
    queue.send(sent("x"), 0)
    for now in range(1_000, 10_000, 1_000):
        registry.expire(now)
    assert queue.counts == (0, 0, 0, 0, 1, 0)
    assert only(queue.dead_letter).hops == 4


def test_a_subscription_forwards_its_copies(registry: Registry) -> None:
    topic, target = registry.create_topic("t"), registry.create_queue("target")
    registry.create_subscription(topic, "s", SubscriptionOptions(forward_to="target"))
    topic.send(sent("first"), 0)
    topic.send(sent("second"), 0)
    assert [message.enqueued_sequence_number for message in target.peek(0, 9)] == [1, 2]


@pytest.mark.parametrize(
    ("option", "expected"), [("forward_to", (0, 0, 0, 1, 0, 0)), ("forward_dead_letters_to", (1, 0, 0, 0, 0, 0))]
)
def test_a_time_that_an_action_sets_counts_where_it_is_forwarded(
    registry: Registry, option: str, expected: tuple[int, ...]
) -> None:
    topic, target = registry.create_topic("t"), registry.create_queue("target")
    rules = [Rule("later", TRUE_FILTER, SqlAction("SET sys.ScheduledEnqueueTimeUtc = due"))]
    options: dict[str, Any] = {option: "target"}
    subscription = registry.create_subscription(topic, "s", SubscriptionOptions(**options), rules=rules)
    topic.send(sent("x", properties={"due": Timestamp(500)}), 0)
    if option == "forward_dead_letters_to":  # the time is ignored on the subscription
        subscription.settle(lock(subscription)[1], BURY, 0)
    assert target.counts == expected
    registry.expire(500)
    assert target.counts == (1, 0, 0, 0, 0, 0)
