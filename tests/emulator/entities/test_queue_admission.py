from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest

from sbnotebook.emulator.entities.message import SentMessage, read_sent
from sbnotebook.emulator.entities.options import QueueOptions, Tier
from sbnotebook.emulator.entities.queue import Queue
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.emulator.entities.registry import Registry
from sbnotebook.errors import AmqpDecodeError
from tests.emulator.entities.conftest import sent

DAY = 86_400_000


def refused(queue: Queue, message: SentMessage) -> Condition:
    with pytest.raises(RefusedError) as caught:
        queue.check([message])
    return caught.value.condition


@pytest.mark.parametrize(
    ("tier", "allowed", "limit"),
    [
        (Tier.BASIC, None, 262_144),
        (Tier.STANDARD, 1000, 262_144),
        (Tier.PREMIUM, None, 1_048_576),
        (Tier.PREMIUM, 2048, 2_097_152),
        (Tier.PREMIUM, 1, 1024),
    ],
)
def test_a_message_has_the_size_that_tier_and_queue_allow(tier: Tier, allowed: int | None, limit: int) -> None:
    queue = Registry(tier).create_queue("q", QueueOptions(max_message_size_kb=allowed))
    overhead = len(sent("x" * limit).payload) - limit
    queue.check([sent("x" * (limit - overhead))])
    assert refused(queue, sent("x" * (limit - overhead + 1))) is Condition.MESSAGE_SIZE_EXCEEDED


@pytest.mark.parametrize(("value", "message_id"), [("x", None), (b"y", None), ("x", "behind other sections")])
def test_a_property_has_at_most_32_kilobytes(queue: Queue, value: str | bytes, message_id: str | None) -> None:
    queue.check([sent("x", message_id=message_id, properties={"other": 1, "a": value * 32_768})])
    with pytest.raises(RefusedError, match="A property of the message has 32769 bytes, the limit is 32768") as caught:
        queue.check([sent("x", message_id=message_id, properties={"a": value * 32_769, "other": 1})])
    assert caught.value.condition is Condition.MESSAGE_SIZE_EXCEEDED


def test_a_queue_with_sessions_asks_for_one(registry: Registry) -> None:
    queue = registry.create_queue("q", QueueOptions(requires_session=True))
    assert refused(queue, sent("x")) is Condition.NOT_ALLOWED
    assert refused(queue, sent("x", session_id="s" * 129)) is Condition.ARGUMENT_ERROR
    queue.check([sent("x", session_id="s" * 128)])


def test_an_unreadable_message_is_refused_where_it_is_read(registry: Registry) -> None:
    damaged = read_sent(bytes.fromhex("005373c00401a101ff005375a00178"))
    registry.create_queue("plain").check([damaged])
    unique = registry.create_queue("unique", QueueOptions(requires_duplicate_detection=True))
    parted = registry.create_queue("parted", QueueOptions(enable_partitioning=True))
    for entity in (unique, parted, registry.create_topic("topic")):
        with pytest.raises(AmqpDecodeError):
            entity.check([damaged])


# ------------------------------------------------------------------------------------- time to live


@pytest.mark.parametrize(
    ("tier", "own", "default", "expires_at"),
    [
        (Tier.PREMIUM, None, None, None),
        (Tier.PREMIUM, 5, None, 105),
        (Tier.PREMIUM, None, 1007, 1107),
        (Tier.PREMIUM, 5, 1007, 105),
        (Tier.PREMIUM, 1009, 1007, 1107),
        (Tier.BASIC, None, None, 14 * DAY + 100),
    ],
)
def test_the_shortest_time_to_live_holds(
    tier: Tier, own: int | None, default: int | None, expires_at: int | None
) -> None:
    queue = Registry(tier).create_queue("q", QueueOptions(default_time_to_live=default))
    queue.send(sent("x", time_to_live=own), 100)
    assert next(queue.peek(0, 1)).expires_at == expires_at


# ------------------------------------------------------------------------------- duplicate detection


@pytest.fixture
def unique(registry: Registry) -> Queue:
    options = QueueOptions(requires_duplicate_detection=True, duplicate_detection_window=20_000)
    return registry.create_queue("unique", options)


def test_a_duplicate_is_dropped_until_the_window_ends(unique: Queue) -> None:
    for now, count in ((0, 1), (19_999, 1), (20_000, 2), (20_001, 2)):
        unique.send(sent("x", message_id="a"), now)
        assert len(unique.log) == count
    unique.send(sent("x"), 0)
    unique.send(sent("x"), 0)
    assert len(unique.log) == 4  # Without an id there is nothing to compare.


def test_an_id_stays_seen_when_its_message_is_gone(unique: Queue) -> None:
    unique.send(sent("x", message_id="a", scheduled_time=50), 0)
    unique.cancel_scheduled([1])
    unique.send(sent("x", message_id="a"), 1)
    assert len(unique.log) == 0


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        ({"partition_key": "a"}, {"partition_key": "a"}, 1),
        ({"partition_key": "a"}, {"partition_key": "b"}, 2),
        ({"session_id": "a"}, {"session_id": "b"}, 2),
        ({}, {}, 1),
    ],
)
def test_among_partitions_the_key_counts_too(
    registry: Registry, first: dict[str, Any], second: dict[str, Any], count: int
) -> None:
    options = QueueOptions(requires_duplicate_detection=True, enable_partitioning=True)
    queue = registry.create_queue("q", options)
    for more in (first, second):
        queue.send(sent("x", message_id="m", **more), 0)
    assert len(queue.log) == count


# ----------------------------------------------------------------------------------------- partitions


def test_a_number_begins_with_its_partition(registry: Registry) -> None:
    queue = registry.create_queue("q", QueueOptions(enable_partitioning=True))
    numbers = [queue.send(sent("x"), 0) for _ in range(32)]
    assert [number & (2**48 - 1) for number in numbers] == list(range(1, 33))
    assert {number >> 48 for number in numbers} == set(range(16))
    keyed = {queue.send(sent("x", partition_key="k"), 0) >> 48 for _ in range(5)}
    assert len(keyed) == 1
    scheduled = queue.send(sent("x", partition_key="k", scheduled_time=9), 0)
    registry.expire(9)
    active = max(queue.peek(0, 99), key=lambda message: message.sequence_number & (2**48 - 1))
    assert active.sequence_number >> 48 == scheduled >> 48
    assert active.enqueued_sequence_number == scheduled


def test_the_limits_of_a_queue_count_to_the_last_byte(registry: Registry) -> None:
    queue = registry.create_queue("q", QueueOptions(max_size_mb=1, max_message_size_kb=2048))
    overhead = len(sent("x" * 1_048_000).payload) - 1_048_000
    queue.check([sent("x" * (1_048_576 - overhead))])
    assert refused(queue, sent("x" * (1_048_577 - overhead))) is Condition.RESOURCE_LIMIT_EXCEEDED


def test_the_header_may_have_65536_bytes(queue: Queue) -> None:
    large = {"b": "x" * 32_000, "c": "x" * 3_000}
    overhead = sent("x", properties={"a": "x" * 30_000, **large}).header_size - 30_000
    queue.check([sent("x", properties={"a": "x" * (65_536 - overhead), **large})])
    assert (
        refused(queue, sent("x", properties={"a": "x" * (65_537 - overhead), **large}))
        is Condition.MESSAGE_SIZE_EXCEEDED
    )


def test_an_id_has_at_most_128_characters(registry: Registry) -> None:
    unique = registry.create_queue("u", QueueOptions(requires_duplicate_detection=True))
    unique.check([sent("x", message_id="m" * 128)])
    assert refused(unique, sent("x", message_id="m" * 129)) is Condition.ARGUMENT_ERROR


@pytest.mark.parametrize("when", [99, 100, 101])
def test_only_a_later_time_schedules(registry: Registry, when: int) -> None:
    queue = registry.create_queue("q")
    queue.send(sent("x", scheduled_time=when, time_to_live=5), 100)
    message = next(queue.peek(0, 1))
    assert (message.scheduled_time, queue.scheduled_count) == ((when, 1) if when > 100 else (None, 0))
    assert message.expires_at == max(when, 100) + 5


def test_only_an_entity_with_sessions_keeps_the_session(registry: Registry) -> None:
    plain = registry.create_queue("plain")
    sessions = registry.create_queue("sessions", QueueOptions(requires_session=True))
    for queue, session_id in ((plain, None), (sessions, "s")):
        queue.send(sent("x", session_id="s"), 0)
        assert next(queue.peek(0, 1)).session_id == session_id


def test_partitions_follow_the_session_or_the_key_or_the_id(registry: Registry) -> None:
    plain = registry.create_queue("plain", QueueOptions(enable_partitioning=True))
    options = QueueOptions(enable_partitioning=True, requires_duplicate_detection=True)
    unique = registry.create_queue("unique", options)

    def partition(queue: Queue, **more: Any) -> int:
        return queue.send(sent("x", **more), 0) >> 48

    assert partition(plain, session_id="a", partition_key="b") == partition(plain, session_id="a") == crc32(b"a") % 16
    assert partition(plain, partition_key="b") == crc32(b"b") % 16
    assert [partition(plain, message_id="c") for _ in range(3)] == [3, 4, 5]  # in turns
    assert partition(unique, message_id="c") == crc32(b"c") % 16
    # What a transaction compares: messages of two keys may have the same partition.
    assert plain.keyed_partition(sent("x", partition_key="b")) == crc32(b"b") % 16
    assert plain.keyed_partition(sent("x")) is None
