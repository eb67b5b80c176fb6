"""Pick refuses bad input in a sentence, and handles odd messages."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pytest
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.amqp import AmqpValue, Long, Symbol, encode
from sbnotebook.errors import ArchiveError, DecisionError
from sbnotebook.model import (
    Complete,
    DeadLetter,
    EntityAddress,
    Message,
    OutcomeStatus,
    PeekedMessage,
    Release,
    Resubmit,
)
from sbnotebook.settlement import AsyncEntity, AsyncNamespace
from sbnotebook.settlement.engine import PickReport
from sbnotebook.settlement.sdk import senders
from tests.filled_queues import filled_queue, sequence_numbers

pytestmark = pytest.mark.anyio


async def counts(queue: AsyncEntity) -> dict[int, int]:
    return {message.sequence_number: message.delivery_count for message in await queue.peek()}


@pytest.mark.parametrize("number", [0, -1, True, 1.5, "7", None, 2**63, b"8", "\x00" * 10_000])
async def test_what_is_no_sequence_number_is_refused(namespace: AsyncNamespace, number: object) -> None:
    wrong: Sequence[int] = [number]  # pyright: ignore[reportAssignmentType]
    with pytest.raises(DecisionError, match="is not a sequence number") as raised:
        await namespace.entity("orders").pick(wrong, Complete())
    assert len(str(raised.value)) < 300


async def test_decisions_that_make_no_sense_are_refused(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "pick-senseless", 3)
    numbers = await sequence_numbers(queue)
    with pytest.raises(DecisionError, match="would change nothing"):
        await queue.pick(numbers, Release())
    with pytest.raises(DecisionError, match="An edit changes what a resubmit sends"):
        await queue.pick(numbers, Complete(), edit=lambda message: message)
    with pytest.raises(DecisionError, match="is a dead-letter queue already"):
        await namespace.entity("pick-senseless/$dlq").pick(numbers, DeadLetter())
    for other in ("a", "z"):
        with pytest.raises(DecisionError, match="pick it there"):
            await queue.pick([PeekedMessage(entity=namespace.entity(other).address, sequence_number=1)], Complete())
    with pytest.raises(DecisionError, match=r"2 other messages are before .* allow more with max_held \(it is 2\)"):
        await queue.pick(numbers[2:], Complete(), max_held=2)
    with pytest.raises(DecisionError, match=r"2 other messages are before .* \(it is 1\)"):
        await queue.pick(numbers[2:], Complete(), max_held=1)
    with pytest.raises(DecisionError, match="max_held is 1 or more"):
        await queue.pick(numbers, Complete(), max_held=0)
    assert await counts(queue) == dict.fromkeys(numbers, 0)


async def test_only_others_count_for_how_many_are_held(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "pick-all-but-one", 30)
    numbers = await sequence_numbers(queue)
    report = await (await queue.pick(numbers[1:], Complete(), max_held=2)).apply()
    assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED] * 29
    assert await counts(queue) == {numbers[0]: 0}


async def test_nothing_chosen_is_nothing_done(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "pick-nothing", 3)
    numbers = await sequence_numbers(queue)
    plan = await queue.pick([], Complete())
    assert plan.preview().sentence == "complete 0 messages of pick-nothing."
    assert len(await plan.apply()) == 0
    again = await (await queue.pick([numbers[1], numbers[1]], Complete())).apply()
    assert [outcome.status for outcome in again] == [OutcomeStatus.SETTLED], "one chosen twice is chosen once"


def section(code: int, value: AmqpValue) -> bytes:
    return bytes((0x00, 0x53, code)) + encode(value)


async def test_pick_handles_odd_messages_like_others(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "pick-odd", 3)
    body = section(0x75, b"x")
    odd = [
        b"\x00\x53\x75\xa1\x03bad",  # a data section that holds text
        b"\x00\x53\x75",  # a section without its value
        b"\xff\xff\xff",  # nothing at all
        section(0x72, {Symbol("x-opt-sequence-number"): Long(5), Symbol("x-opt-locked-until"): "soon"}) + body,
        section(0x72, {Symbol("x-opt-sequence-number"): "text"}) + section(0x74, {"": None, "\x00": [1]}) + body,
        section(0x77, [[[[[None]]]]]),
    ]
    accepted = 0
    async with namespace.connection.sender(queue.address) as sender:
        for payload in odd:
            with contextlib.suppress(ServiceBusError):  # the service may refuse invalid messages
                await senders.make_ready(sender)
                await senders.send_payload(sender, payload)
                accepted += 1
    assert accepted >= 4
    await queue.send((Message(message_id=f"n{n}") for n in range(3)), max_in_flight=1)
    numbers = [message.sequence_number for message in await queue.peek()]
    assert numbers == list(range(1, 7 + accepted)), "the service numbers them, whatever the sender says"

    report = await (await queue.pick([numbers[-1]], Complete())).apply()
    assert report.ok, report.failures
    assert isinstance(report, PickReport)
    assert (len(report.rest), report.rest.ok) == (5 + accepted, True)
    assert await counts(queue) == dict.fromkeys(numbers[:-1], 0)

    report = await (await queue.pick(numbers[:-1], Complete())).apply()
    assert report.ok, report.failures
    assert await counts(queue) == {}


@pytest.mark.parametrize("is_pick", [False, True])
async def test_room_in_the_archive_is_for_whole_rows(namespace: AsyncNamespace, *, is_pick: bool) -> None:
    name = f"no-room-for-rows-{is_pick}"
    queue = await filled_queue(namespace, name, 300)
    await namespace.create_queue(f"{name}-to")
    decision = Resubmit(to=EntityAddress(f"{name}-to"))
    messages = await queue.peek()
    plan = await queue.pick(messages, decision) if is_pick else queue.plan_resubmit(messages, decision)
    assert namespace.archive is not None
    namespace.archive.max_bytes = namespace.archive.size + 50_000
    with pytest.raises(ArchiveError, match="is full"):
        await plan.apply()
    assert await namespace.entity(f"{name}-to").peek() == [], "no message is there twice"
    assert len(await queue.peek()) == 300
    namespace.archive.max_bytes = 10**9
    assert (await plan.apply()).settled == 300, "it had done nothing, so it is applied now"


async def test_a_purge_without_room_in_the_archive_removes_nothing(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "no-room-to-purge", 2_000)
    plan = await queue.purge()
    assert namespace.archive is not None
    namespace.archive.max_bytes = namespace.archive.size + 400_000
    with pytest.raises(ArchiveError, match="is full"):
        await plan.apply()
    assert (await queue.peek())[0].sequence_number == 1, "not even those that there is room for"
