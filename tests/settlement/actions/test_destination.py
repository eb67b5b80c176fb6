from __future__ import annotations

from datetime import timedelta

import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.emulator.entities import QueueOptions, SubscriptionOptions, TopicOptions
from sbnotebook.model import EntityAddress, Message, SubQueue
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.actions.destination import Destination, destinations_of
from tests.filled_queues import filled_queue

pytestmark = pytest.mark.anyio


def destination(namespace: AsyncNamespace, name: str) -> Destination:
    found = destinations_of(namespace)(("", EntityAddress(name)))
    assert found is not None
    return found


async def test_the_time_for_which_duplicates_are_dropped_is_known(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    window = {"requires_duplicate_detection": True, "duplicate_detection_window": 120_000}
    shared_emulator.create_queue("twice-never", QueueOptions(**window))  # pyright: ignore[reportArgumentType]
    shared_emulator.create_topic("twice-never-told", TopicOptions(**window))  # pyright: ignore[reportArgumentType]
    shared_emulator.create_queue("twice")
    # There it goes by partition keys, too, which an edit may change.
    shared_emulator.create_queue("parted", QueueOptions(requires_duplicate_detection=True, enable_partitioning=True))
    names = ("twice-never", "twice-never-told", "twice", "parted")
    found = [await destination(namespace, name).duplicate_window() for name in names]
    assert found == [timedelta(minutes=2), timedelta(minutes=2), None, None]


async def test_destination_follows_circular_forwarding(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    shared_emulator.create_topic("circle")
    shared_emulator.create_queue("circle-end")
    shared_emulator.create_subscription("circle", "on", SubscriptionOptions(forward_to="circle-end"))
    shared_emulator.create_subscription("circle", "back", SubscriptionOptions(forward_to="circle"), rules=[])
    assert (await namespace.entity("circle").send([Message(message_id="here")])).ok
    place = destination(namespace, "circle")
    assert await place.find({"here", "nowhere"}) == {"here"}
    assert await place.find(set()) == set()
    assert list(place.doubts) == ["scheduled messages of the topic circle cannot be looked at"]
    assert EntityAddress("circle", "on", SubQueue.TRANSFER_DEAD_LETTER) in await place.places()
    # Where nothing is forwarded, nothing can fail to be.
    assert list(map(str, await destination(namespace, "circle-end").places())) == ["circle-end", "circle-end/$dlq"]


async def test_a_destination_that_is_gone_holds_nothing_and_says_so(namespace: AsyncNamespace) -> None:
    place = destination(namespace, "was-never")
    assert await place.find({"here"}) == set()
    assert await place.duplicate_window() is None
    assert list(place.doubts) == ["there is no queue or topic was-never any more"]


async def test_a_clone_is_found_behind_many_other_messages(namespace: AsyncNamespace) -> None:
    await filled_queue(namespace, "deep", 600)
    ids = {"m0", "m599"}
    assert await destination(namespace, "deep").find({*ids, "nowhere"}) == ids
    assert await destination(namespace, "deep").find(ids) == ids
