from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from sbnotebook.emulator.entities.options import QueueOptions, SubscriptionOptions, Tier, TopicOptions
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.emulator.entities.registry import AnyEntity, Changes, Registry
from sbnotebook.emulator.entities.rules.rule import FALSE_FILTER, Rule
from sbnotebook.errors import InvalidEntityAddressError
from tests.emulator.entities.conftest import sent

IDLE = 300_000


def test_entities_are_found_in_any_case(registry: Registry) -> None:
    queue, topic = registry.create_queue("Team/Orders"), registry.create_topic("Team/Events")
    subscription = registry.create_subscription(topic, "Audit")
    assert registry.find("team/ORDERS") is registry.find("TEAM/orders") is queue
    assert registry.find("team/orders/$deadletterqueue") is registry.find("team/orders/$dlq") is queue.dead_letter
    assert registry.find("team/orders/$Transfer/$DeadLetterQueue") is queue.transfer_dead_letter
    assert registry.find("team/events") is registry.find_topic("team/events") is topic
    assert registry.find("team/EVENTS/subscriptions/audit") is subscription
    assert registry.find("team/orders/subscriptions/audit") is None
    assert registry.find("team/events/Subscriptions/audit/$DeadLetterQueue") is subscription.dead_letter
    assert registry.find_topic("team/orders") is None
    assert (registry.queues, registry.topics, registry.entities) == ([queue], [topic], [topic, queue])


@pytest.mark.parametrize(
    "path", ["", "nobody", "orders/Subscriptions/a", "events/Subscriptions/b", "events/$dlq", "//", "$x"]
)
def test_what_is_not_there_is_not_found(registry: Registry, path: str) -> None:
    registry.create_queue("orders")
    registry.create_subscription(registry.create_topic("events"), "a")
    assert registry.find(path) is None


@pytest.mark.parametrize(
    "name", ["", "a b", "orders/$dlq", "topic/subscriptions/one", "x" * 261, "t/subscriptions", "a//b", ".."]
)
def test_a_name_that_cannot_be_is_refused(registry: Registry, name: str) -> None:
    for make in (registry.create_queue, registry.create_topic):
        with pytest.raises(InvalidEntityAddressError):
            make(name)
    assert not registry.changes


def test_a_subscription_has_a_name_that_can_be(registry: Registry) -> None:
    topic = registry.create_topic("events")
    for name in ("a/b", "", "a/", "$dlq", "s/$dlq", "a b"):
        with pytest.raises(InvalidEntityAddressError):
            registry.create_subscription(topic, name)


# ---------------------------------------------------------------------------------------------- tiers


@pytest.mark.parametrize(
    "options",
    [
        {"requires_session": True},
        {"requires_duplicate_detection": True},
        {"forward_to": "q"},
        {"forward_dead_letters_to": "q"},
    ],
)
def test_the_basic_tier_has_plain_queues(options: dict[str, Any]) -> None:
    registry = Registry(Tier.BASIC)
    queue = registry.create_queue("plain")
    name = next(iter(options))
    for action in (
        lambda: registry.create_queue("q", QueueOptions(**options)),
        lambda: registry.update(queue, QueueOptions(**options)),
        lambda: registry.create_topic("t"),
    ):
        with pytest.raises(RefusedError, match=rf"The tier Basic does not have ({name}|topics)\.") as caught:
            action()
        assert caught.value.condition is Condition.NOT_ALLOWED
    assert registry.entities == [queue]


def test_the_premium_tier_has_no_express_entities() -> None:
    registry = Registry(Tier.PREMIUM)
    queue, topic = registry.create_queue("q"), registry.create_topic("t")
    for action in (
        lambda: registry.create_queue("express", QueueOptions(enable_express=True)),
        lambda: registry.create_topic("express", TopicOptions(enable_express=True)),
        lambda: registry.update(queue, QueueOptions(enable_express=True)),
        lambda: registry.update(topic, TopicOptions(enable_express=True)),
    ):
        with pytest.raises(RefusedError, match="Express entities aren't supported in the tier Premium") as caught:
            action()
        assert caught.value.condition is Condition.NOT_ALLOWED
    assert registry.entities == [queue, topic]


def test_a_namespace_and_a_topic_have_room_for_so_many() -> None:
    registry = Registry(Tier.STANDARD)
    topic = registry.create_topic("t")
    for number in range(2000):
        registry.create_subscription(topic, f"s{number}")
    for number in range(9999):
        registry.create_queue(f"q{number}")
    for action in (
        lambda: registry.create_queue("more"),
        lambda: registry.create_topic("more"),
        lambda: registry.create_subscription(topic, "more"),
    ):
        with pytest.raises(RefusedError, match="at most") as caught:
            action()
        assert caught.value.condition is Condition.RESOURCE_LIMIT_EXCEEDED
    registry.delete(registry.queues[0])
    registry.create_queue("more")
    # A namespace that comes from a tier with more room takes in no more either.
    registry.tier = Tier.PREMIUM
    registry.create_queue("beyond")
    registry.tier = Tier.STANDARD
    with pytest.raises(RefusedError, match="at most 10000 queues and topics"):
        registry.create_queue("too-many")
    registry.tier = Tier.BASIC
    with pytest.raises(RefusedError, match="at most 0 subscriptions"):
        registry.create_subscription(topic, "too-many")


# -------------------------------------------------------------------------------------------- changes


def test_a_topic_goes_with_its_subscriptions(registry: Registry) -> None:
    topic = registry.create_topic("t")
    subscription = registry.create_subscription(topic, "s")
    topic.send(sent("x"), 0)
    topic.send(sent("y", scheduled_time=9), 0)
    registry.changes = Changes()
    registry.delete(topic)
    assert registry.changes.entities == [(2, None), (1, None)]
    registry.changes = Changes()
    assert (subscription.is_deleted, topic.is_deleted, registry.residency.size) == (True, True, 0)
    registry.expire(9)
    assert not registry.changes


# ----------------------------------------------------------------------------------------------- time


def idle(registry: Registry, now: int) -> list[AnyEntity]:
    found: list[AnyEntity] = []
    registry.on_idle = found.append
    registry.expire(now)
    return found


def test_an_entity_that_nobody_uses_is_idle_in_the_end(registry: Registry) -> None:
    queue = registry.create_queue("q", QueueOptions(auto_delete_on_idle=IDLE))
    registry.create_queue("stays")
    assert idle(registry, IDLE - 1) == []
    queue.send(sent("x"), 1_000)
    assert idle(registry, IDLE) == []
    queue.receive(2_000)
    assert idle(registry, IDLE + 1_000) == []
    queue.receive_deferred([9], 3_000)
    registry.update(queue, QueueOptions(auto_delete_on_idle=IDLE), now=4_000)
    assert idle(registry, IDLE + 3_999) == []
    assert idle(registry, IDLE + 4_000) == [queue]
    assert idle(registry, IDLE + 4_000) == []


def test_an_entity_that_a_client_is_attached_to_is_not_idle(registry: Registry) -> None:
    attached: set[AnyEntity] = set()
    registry.is_in_use = attached.__contains__
    queue = registry.create_queue("q", QueueOptions(auto_delete_on_idle=IDLE))
    attached.add(queue)
    assert idle(registry, IDLE) == []
    attached.clear()
    assert idle(registry, 2 * IDLE - 1) == []
    assert idle(registry, 2 * IDLE) == [queue]


@pytest.mark.parametrize("is_topic", [False, True])
def test_an_entity_with_scheduled_messages_is_not_idle(registry: Registry, *, is_topic: bool) -> None:
    if is_topic:
        entity = registry.create_topic("t", TopicOptions(auto_delete_on_idle=IDLE))
    else:
        entity = registry.create_queue("q", QueueOptions(auto_delete_on_idle=IDLE))
    _, late = [entity.send(sent("x", scheduled_time=when), 0) for when in (2 * IDLE + 7, 9 * IDLE)]
    assert idle(registry, IDLE) == idle(registry, 2 * IDLE + 7) == []
    entity.cancel_scheduled([late])
    assert idle(registry, 3 * IDLE + 6) == []
    assert idle(registry, 3 * IDLE + 7) == [entity]


def test_a_topic_is_used_with_its_subscriptions(registry: Registry) -> None:
    topic = registry.create_topic("t", TopicOptions(auto_delete_on_idle=IDLE))
    subscription = registry.create_subscription(topic, "s", SubscriptionOptions(auto_delete_on_idle=IDLE), now=1_000)
    subscription.receive(2_000)
    registry.put_rule(subscription, Rule("none", FALSE_FILTER), now=3_000)
    assert idle(registry, IDLE + 2_999) == []
    assert set(idle(registry, IDLE + 3_000)) == {topic, subscription}


def test_a_deleted_entity_is_not_idle(registry: Registry) -> None:
    queue = registry.create_queue("q", QueueOptions(auto_delete_on_idle=IDLE))
    registry.expire(IDLE)
    registry.delete(queue)
    assert idle(registry, IDLE + 4_000) == []


@pytest.mark.parametrize("clears", [False, True])
def test_a_deleted_entity_leaves_no_alarm_in_memory(registry: Registry, *, clears: bool) -> None:
    queue = registry.create_queue("q")
    queue.send(sent("x", time_to_live=1_000_000), 0)
    gone = weakref.ref(queue)
    if clears:
        del queue
        registry.delete(*registry.entities)
    else:
        registry.delete(queue)
        del queue
    registry.changes = Changes()
    gc.collect()
    assert gone() is None
    assert registry.next_deadline is None


def test_deleting_an_entity_keeps_the_alarms_of_others(registry: Registry) -> None:
    gone, stays = registry.create_queue("gone"), registry.create_queue("stays")
    for life, queue in ((1, gone), (3, stays), (2, gone)):
        queue.send(sent("x", time_to_live=life), 0)
    registry.delete(gone)
    assert registry.next_deadline == 3
    registry.expire(3)
    assert len(stays.log) == 0


def test_an_entity_is_looked_at_when_it_may_be_idle(registry: Registry) -> None:
    queue = registry.create_queue("q", QueueOptions(auto_delete_on_idle=IDLE), now=7_000)
    assert registry.next_deadline == IDLE + 7_000
    assert idle(registry, 5 * IDLE) == [queue]  # the clock has stood still for long


def test_partitions_take_in_16_times_the_size(registry: Registry) -> None:
    sizes = [
        registry.create_queue(f"q{size}", QueueOptions(max_size_mb=size, enable_partitioning=True)).options.max_size_mb
        for size in (1, 1024, 5120, 5121)
    ]
    assert sizes == [16, 16_384, 81_920, 81_920]


def test_long_names_are_cut_in_refusals(registry: Registry) -> None:
    with pytest.raises(InvalidEntityAddressError, match=f"^'{'x' * 80}' cannot be the name"):
        registry.create_queue("x" * 81 + "/$dlq")


def test_an_entity_forwards_to_what_can_take_its_messages(registry: Registry) -> None:
    registry.create_queue("q")
    registry.create_topic("t")
    registry.check_targets(
        QueueOptions(forward_to="q", forward_dead_letters_to="Q"),
        QueueOptions(requires_session=True, forward_to="t", forward_dead_letters_to="q"),
        SubscriptionOptions(requires_session=True, forward_dead_letters_to="q"),
        TopicOptions(),
    )
    for options in (
        QueueOptions(requires_session=True, forward_to="q"),
        SubscriptionOptions(requires_session=True, forward_to="q"),
        QueueOptions(forward_dead_letters_to="nowhere"),
    ):
        with pytest.raises(RefusedError) as refused:
            registry.check_targets(options)
        assert refused.value.condition is Condition.NOT_ALLOWED


def test_an_outdated_alarm_does_not_ring(registry: Registry) -> None:
    queue, other = registry.create_queue("q", QueueOptions(auto_delete_on_idle=IDLE)), registry.create_queue("other")
    queue.send(sent("x", time_to_live=10), 0)
    other.send(sent("x", time_to_live=IDLE + 1), 0)
    assert registry.next_deadline == 10
    registry.expire(10)
    assert idle(registry, IDLE + 1) == [queue]
    assert (len(queue.log), len(other.log)) == (0, 0)
