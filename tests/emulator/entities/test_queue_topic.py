from __future__ import annotations

import pytest

from sbnotebook.emulator.entities.message import BrokeredState
from sbnotebook.emulator.entities.options import SubscriptionOptions, TopicOptions
from sbnotebook.emulator.entities.queue import Topic
from sbnotebook.emulator.entities.registry import Registry
from sbnotebook.emulator.entities.rules.rule import FALSE_FILTER, TRUE_FILTER, Rule, SqlAction, sql_filter
from tests.emulator.entities.conftest import properties, sent


@pytest.fixture
def topic(registry: Registry) -> Topic:
    return registry.create_topic("events")


def test_each_subscription_gets_its_own_copy(registry: Registry, topic: Topic) -> None:
    one, two = (registry.create_subscription(topic, name) for name in ("one", "two"))
    topic.send(sent("first"), 5)
    three = registry.create_subscription(topic, "three")
    topic.send(sent("second"), 6)
    assert [each.counts.active for each in (one, two, three)] == [2, 2, 1]
    assert one.receive(7, delete=True) is not None
    assert [each.counts.active for each in (one, two, three)] == [1, 2, 1]
    late = next(three.peek(0, 1))
    assert (late.sequence_number, late.enqueued_sequence_number, late.enqueued_time) == (1, 2, 6)


def test_a_rule_says_what_a_subscription_gets(registry: Registry, topic: Topic) -> None:
    rules = [Rule("big", sql_filter("size > 3")), Rule("also big", sql_filter("size > 2")), Rule("no", FALSE_FILTER)]
    some = registry.create_subscription(topic, "some", rules=rules)
    for size in (1, 3, 5):
        topic.send(sent("x", properties={"size": size}), 0)
    assert [properties(each) for each in some.peek(0, 9)] == [
        {"size": 3},
        {"size": 5},
    ]  # One copy, however many rules take it.
    registry.remove_rule(some, "BIG")
    registry.put_rule(some, Rule("Also Big", sql_filter("size > 4")))
    assert [rule.name for rule in some.rules] == ["Also Big", "no"]
    topic.send(sent("x", properties={"size": 4}), 0)
    assert some.counts.active == 2
    assert some.find_rule("nobody") is None


def test_each_rule_with_an_action_makes_a_copy_of_its_own(registry: Registry, topic: Topic) -> None:
    rules = [
        Rule("plain", TRUE_FILTER),
        Rule("a", TRUE_FILTER, SqlAction("SET n = 1")),
        Rule("b", TRUE_FILTER, SqlAction("SET n = 2")),
    ]
    subscription = registry.create_subscription(topic, "s", rules=rules)
    topic.send(sent("x"), 0)
    copies = list(subscription.peek(0, 9))
    assert [properties(each) for each in copies] == [None, {"n": 1, "RuleName": "a"}, {"n": 2, "RuleName": "b"}]
    assert [each.enqueued_sequence_number for each in copies] == [1, 1, 1]


@pytest.mark.parametrize(
    ("has_sessions", "given", "session_id"), [(True, "0", "0"), (True, "zzz", "zzz"), (False, "mine", None)]
)
def test_an_action_can_give_a_message_another_session(
    registry: Registry, topic: Topic, has_sessions: bool, given: str, session_id: str | None
) -> None:
    rules = [Rule("a", TRUE_FILTER, SqlAction("SET sys.SessionId = @id", {"@id": given}))]
    options = SubscriptionOptions(requires_session=has_sessions)
    subscription = registry.create_subscription(topic, "s", options, rules=rules)
    topic.send(sent("x", session_id="mmm", label="x" * 300), 0)
    assert [copy.session_id for copy in subscription.peek(0, 9)] == [session_id]


@pytest.mark.parametrize(("keeps", "count"), [(True, 1), (False, 0)])
def test_a_rule_that_cannot_be_evaluated_dead_letters(
    registry: Registry, topic: Topic, keeps: bool, count: int
) -> None:
    options = SubscriptionOptions(dead_letter_on_filter_errors=keeps)
    rules = [Rule("odd", sql_filter("size / zero = 1"))]
    subscription = registry.create_subscription(topic, "s", options, rules=rules)
    topic.send(sent("x", properties={"size": 1, "zero": 0}), 0)
    assert subscription.counts == (0, 0, 0, 0, count, 0)
    dead = [properties(each)["DeadLetterReason"] for each in subscription.dead_letter.peek(0, 9)]
    assert dead == ["FilterException"] * count


def test_an_action_can_make_the_properties_too_large(registry: Registry, topic: Topic) -> None:
    rules = [Rule("copy", TRUE_FILTER, SqlAction("SET b = a; SET c = a"))]
    subscription = registry.create_subscription(topic, "s", rules=rules)
    topic.send(sent("x", properties={"a": "x" * 30_000}), 0)
    assert subscription.counts == (0, 0, 0, 0, 1, 0)
    (dead,) = subscription.dead_letter.peek(0, 9)
    assert properties(dead)["DeadLetterReason"] == "HeaderSizeExceeded"


def test_a_scheduled_message_waits_at_the_topic(registry: Registry, topic: Topic) -> None:
    subscription = registry.create_subscription(topic, "s")
    message = sent("x", message_id="id", scheduled_time=50)
    assert topic.send(message, 0) == 1
    gone = topic.send(sent("y", scheduled_time=50), 0)
    topic.cancel_scheduled([gone])
    assert topic.find_scheduled(gone) is None
    assert (topic.scheduled_count, subscription.counts.active, registry.next_deadline) == (1, 0, 50)
    assert topic.total_size == topic.log.size_bytes == len(message.payload)
    topic.send(sent("x", message_id="id"), 0)
    waiting = next(subscription.peek(0, 1))
    assert topic.total_size == topic.log.size_bytes + waiting.size == subscription.total_size + len(message.payload)
    assert subscription.receive(0, delete=True) is waiting
    registry.expire(50)
    copy = next(subscription.peek(0, 1))
    assert (topic.scheduled_count, topic.log.size_bytes) == (0, 0)
    assert (copy.state, copy.scheduled_time, copy.enqueued_time) == (BrokeredState.ACTIVE, 50, 50)
    assert topic.total_size == copy.size


def test_the_shortest_of_all_times_to_live_holds(registry: Registry) -> None:
    topic = registry.create_topic("t", TopicOptions(default_time_to_live=1_050))
    for name, life in (("none", None), ("short", 1_020), ("long", 1_090)):
        registry.create_subscription(topic, name, SubscriptionOptions(default_time_to_live=life))
    topic.send(sent("x"), 100)
    topic.send(sent("x", time_to_live=10), 100)
    ends = {each.name: [copy.expires_at for copy in each.peek(0, 9)] for each in topic.subscriptions}
    assert ends == {"none": [1150, 110], "short": [1120, 110], "long": [1150, 110]}


def test_copies_stand_in_the_partition_of_their_message(registry: Registry) -> None:
    topic = registry.create_topic("t", TopicOptions(enable_partitioning=True))
    subscription = registry.create_subscription(topic, "s")
    numbers = [topic.send(sent("x"), 0) for _ in range(5)]
    copies = sorted(subscription.peek(0, 99), key=lambda copy: copy.enqueued_sequence_number)
    assert [copy.sequence_number >> 48 for copy in copies] == sorted(number >> 48 for number in numbers)
    assert {copy.enqueued_sequence_number for copy in copies} == set(numbers)


def test_duplicates_reach_no_subscription(registry: Registry) -> None:
    topic = registry.create_topic("t", TopicOptions(requires_duplicate_detection=True))
    subscription = registry.create_subscription(topic, "s")
    for message_id in ("a", "a", "b"):
        topic.send(sent("x", message_id=message_id), 0)
    assert subscription.counts.active == 2
