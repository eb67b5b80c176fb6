from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from sbnotebook.client import Namespace, connect
from sbnotebook.client.monitor_sampling import Sample, Sampler
from sbnotebook.emulator import QueueOptions, running
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Message


class Hand:
    """A clock that is turned by hand; it begins now, because the emulator's messages have the machine's time."""

    def __init__(self) -> None:
        self.time = datetime.now(UTC)

    def now(self) -> datetime:
        return self.time

    def turn(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def send(namespace: Namespace, name: str, count: int) -> None:
    namespace.entity(name).send([Message(body=b"x")] * count).raise_for_failures()


def take(namespace: Namespace, name: str, count: int) -> None:
    with namespace.entity(name).lock(count) as batch:
        batch.complete().raise_for_failures()


def rates(sample: Sample) -> tuple[float | None, float | None]:
    return sample.arrived, sample.left


def test_counts_age_and_rates(namespace: Namespace) -> None:
    namespace.create_queue("watched")
    send(namespace, "watched", 5)
    clock = Hand()
    sampler = Sampler(namespace, ["Watched"], now=clock.now)
    clock.turn(60)
    (first,) = sampler.sample()
    assert (str(first.entity), first.active, first.newest) == ("watched", 5, 5)
    assert rates(first) == (None, None)
    assert first.oldest_age == pytest.approx(60, abs=30)

    send(namespace, "watched", 20)
    take(namespace, "watched", 10)
    with namespace.entity("watched").lock(1) as batch:
        batch.dead_letter(reason="Bad")
    clock.turn(10)
    (second,) = sampler.sample()
    assert (second.active, second.dead_letter) == (14, 1)
    assert rates(second) == pytest.approx((2.0, 1.1)), "what came and went is known by the sequence numbers"

    take(namespace, "watched", 14)
    send(namespace, "watched", 3)
    take(namespace, "watched", 3)
    clock.turn(10)
    (third,) = sampler.sample()
    assert (third.active, third.oldest_age) == (0, None)
    assert rates(third) == pytest.approx((0.0, 1.4)), "nobody saw the last three"

    send(namespace, "watched", 1)
    clock.turn(10)
    (fourth,) = sampler.sample()
    assert rates(fourth) == pytest.approx((0.4, 0.3)), "but now they are counted"
    namespace.delete_queue("watched")


def test_messages_arriving_in_a_sample_are_not_counted_as_left(namespace: Namespace) -> None:
    namespace.create_queue("flooded")
    send(namespace, "flooded", 10)
    sampler, ended = Sampler(namespace, ["flooded"]), threading.Event()

    def flood() -> None:
        while not ended.is_set():
            send(namespace, "flooded", 200)

    sending = threading.Thread(target=flood)
    sending.start()
    try:
        samples = [sampler.sample()[0] for _ in range(8)]
    finally:
        ended.set()
        sending.join()
    assert [sample.left for sample in samples] == [None] + [0.0] * 7
    assert samples[-1].active > samples[0].active
    namespace.delete_queue("flooded")


def test_oldest_active_skips_scheduled_and_deferred(namespace: Namespace) -> None:
    namespace.create_queue("aging")
    queue = namespace.entity("aging")
    queue.send([Message(body=b"x")])
    with queue.lock(1) as batch:
        batch.defer()
    queue.schedule([Message(body=b"x")], delay="1h")
    clock = Hand()
    sampler = Sampler(namespace, ["aging"], now=clock.now)
    (sample,) = sampler.sample()
    assert (sample.scheduled, sample.oldest_age) == (1, None)
    send(namespace, "aging", 1)
    clock.turn(100)
    (sample,) = sampler.sample()
    assert sample.oldest_age == pytest.approx(100, abs=30)
    namespace.delete_queue("aging")


def test_of_partitions_only_the_change_of_the_counts_is_told() -> None:
    queues = {"parts": QueueOptions(enable_partitioning=True)}
    with running(queues=queues) as emulator, connect(emulator.connection_string) as namespace:
        parts = namespace.entity("parts")
        parts.send([Message(body=b"x", partition_key=f"key-{n}") for n in range(40)]).raise_for_failures()
        assert len({message.sequence_number >> 48 for message in parts.peek()}) > 1
        clock = Hand()
        sampler = Sampler(namespace, ["parts"], now=clock.now)
        (first,) = sampler.sample()
        assert (first.active, first.newest) == (40, None)
        send(namespace, "parts", 20)
        clock.turn(10)
        (second,) = sampler.sample()
        assert (second.active, rates(second)) == (60, (2.0, 0.0))


def test_which_entities_are_watched() -> None:
    topics = {"events": ["audit", "billing"], "empty": []}
    with running(queues=["b", "a"], topics=topics) as emulator, connect(emulator.connection_string) as namespace:

        def watched(*names: str) -> list[str]:
            return [str(sample.entity) for sample in Sampler(namespace, names or None).sample()]

        assert watched() == ["a", "b", "events/subscriptions/audit", "events/subscriptions/billing"]
        assert watched("events", "b", "events/subscriptions/audit") == [*watched()[2:], "b"]
        for name in ("empty", "nowhere", "events/subscriptions/none"):
            with pytest.raises(ConfigurationError, match=rf"no queue.* or subscription '?{name}"):
                watched(name)
        with pytest.raises(ConfigurationError, match="is counted with a: watch that"):
            Sampler(namespace, ["a/$dlq"])
