"""Settling on a link by private parts of the SDK; these tests fail if a version moves them."""

# ruff: noqa: SLF001 (the tests look into the SDK)
# pyright: reportPrivateUsage=false

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from azure.servicebus._pyamqp._decode import decode_frame
from azure.servicebus._pyamqp._encode import encode_frame
from azure.servicebus._pyamqp.performatives import DispositionFrame

from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, Defer, Release
from sbnotebook.settlement import AsyncEntity, AsyncNamespace
from sbnotebook.settlement.pace import Limiter
from sbnotebook.settlement.sdk import settling
from sbnotebook.settlement.sdk.connections import line_of
from sbnotebook.settlement.sdk.private import private
from sbnotebook.settlement.sdk.settling import LinkSettling
from tests.filled_queues import filled_queue

if TYPE_CHECKING:
    from sbnotebook.settlement.sdk.receivers import LockReceiver, ReceivedLock

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def received(
    namespace: AsyncNamespace, name: str, count: int
) -> AsyncGenerator[tuple[AsyncEntity, LockReceiver, list[ReceivedLock]]]:
    queue = await filled_queue(namespace, name, count)
    receiver = namespace.connection.receiver(queue.address)
    async with receiver:
        yield queue, receiver, await all_of(receiver, count)


async def all_of(receiver: LockReceiver, count: int) -> list[ReceivedLock]:
    """A receive ends where the messages that come leave a gap, as they do on a busy machine."""
    messages: list[ReceivedLock] = []
    while len(messages) < count:
        page = await receiver.take(count - len(messages), max_wait=5)
        assert page, f"{len(messages)} of {count} messages came"
        messages += page
    return messages


async def settled(
    receiver: LockReceiver,
    decision: Decision,
    parts: Sequence[Sequence[ReceivedLock]],
    *,
    in_flight: int = 10,
    answer_within: float = 20,
    most: int = 1_000,
) -> list[list[Exception | None]]:
    """The ends of all parts that were sent, in their order."""
    found: dict[int, list[Exception | None]] = {}

    def ended(index: int, errors: list[Exception | None]) -> None:
        assert index not in found, "each ends once"
        found[index] = errors

    await LinkSettling(receiver).run(
        [(part, decision) for part in parts],
        in_flight=in_flight,
        answer_within=lambda: answer_within,
        began=lambda index: index < most,
        ended=ended,
    )
    return [found[index] for index in sorted(found)]


@pytest.mark.parametrize(
    "decision", [Complete(), Abandon(), Defer(), DeadLetter("r", "d"), DeadLetter("r", "d" * 4_000), Release()]
)
async def test_disposition_says_what_that_of_the_sdk_says(decision: Decision) -> None:
    state = settling._state(decision)
    for first, last in ((0, 0), (1, 200), (300, 2**32 - 1)):
        locks = [SimpleNamespace(delivery_id=number) for number in (first, last)]
        part = SimpleNamespace(locks=locks, encoded=settling._encoded(state))
        ours = settling._disposition(7, part)  # pyright: ignore[reportArgumentType]
        frame = DispositionFrame(role=True, first=first, last=last, settled=False, state=state, batchable=None)
        size, its = encode_frame(frame)
        assert int.from_bytes(ours[:4], "big") == len(ours)
        assert ours[4:8] == size[4:6] + b"\0\7"
        assert decode_frame(memoryview(ours)[8:]) == decode_frame(memoryview(its or b""))


async def test_answers_that_wait_to_be_read_are_not_late(namespace: AsyncNamespace) -> None:
    async with received(namespace, "sdk-settling-busy", 60) as (queue, receiver, messages):
        errors: list[Exception | None] = []

        def began(index: int) -> bool:
            if index == 59:
                time.sleep(2.5)  # the process is busy, and the answers to the others arrive meanwhile
            return True

        await LinkSettling(receiver).run(
            [([one], Complete()) for one in messages],
            in_flight=60,
            answer_within=lambda: 2.0,
            began=began,
            ended=lambda _, ends: errors.extend(ends),
        )
        assert errors == [None] * 60
        assert await queue.peek() == []


@pytest.mark.thorough
async def test_silence_is_noticed_as_soon_over_websockets(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    async with received(namespace, "sdk-settling-silent", 1) as (_, receiver, messages):
        handler = private(receiver)._handler
        assert handler is not None
        assert handler._connection is not None
        handler._connection._socket_timeout = 1.0  # as the SDK sets it there
        shared_emulator.freeze("sdk-settling-silent")
        try:
            begun = time.monotonic()
            (ends,) = await settled(receiver, Complete(), [messages], answer_within=3)
            took = time.monotonic() - begun
        finally:
            shared_emulator.thaw()
    assert len(ends) == 1
    assert 3 <= took < 8, "three times as long where each look for a frame counts as busy"


async def test_what_was_confirmed_before_a_write_broke_is_settled(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with received(namespace, "sdk-settling-half-sent", 40) as (queue, receiver, messages):
        line, handler = line_of(receiver), private(receiver)._handler
        assert line is not None
        assert handler is not None
        link, connection, writes, write = handler._link, handler._connection, 0, line._write
        assert link is not None
        assert connection is not None

        async def break_second(data: bytes) -> None:
            nonlocal writes
            writes += 1
            if writes == 2:
                with anyio.fail_after(20):
                    while not any(each["settled"] for each in tuple(link._pending_dispositions.values())):
                        await connection.listen(wait=0.1)
                raise ConnectionResetError("the line broke")
            await write(data)

        monkeypatch.setattr(line, "_write", break_second)
        parts = [[one] for one in messages]
        ends = await settled(receiver, DeadLetter("r", "d" * 4_000), parts, in_flight=80)
        confirmed = {one.sequence_number for one, (error,) in zip(messages, ends, strict=True) if error is None}
        assert 0 < len(confirmed) < 40
        await namespace.peeker(queue.address).close()
        assert not confirmed & {message.sequence_number for message in await queue.peek()}


async def test_what_others_hear_does_not_keep_it_waiting(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    limiter, ends = Limiter(), dict[int, list[Exception | None]]()
    limiter.heard_at = math.inf  # answers to others come all the time
    async with received(namespace, "sdk-settling-ignored", 1) as (_, receiver, messages):
        shared_emulator.freeze("sdk-settling-ignored")
        try:
            with anyio.fail_after(20):
                await LinkSettling(receiver, limiter).run(
                    [(messages, Complete())],
                    answer_within=lambda: 0.5,
                    began=lambda _: True,
                    ended=ends.__setitem__,
                )
        finally:
            shared_emulator.thaw()
    assert [type(error).__name__ for error in ends[0]] == ["ServiceBusConnectionError"]


async def test_a_cancellation_leaves_the_link_as_it_can_be_used(namespace: AsyncNamespace) -> None:
    async with received(namespace, "sdk-settling-cut", 40) as (queue, receiver, messages):
        limiter = Limiter()
        with anyio.move_on_after(0.01):
            await LinkSettling(receiver, limiter).run(
                [([one], Complete()) for one in messages],
                in_flight=2,
                answer_within=lambda: 20,
                began=lambda _: True,
                ended=lambda _, ends: None,  # noqa: ARG005 (only the rest counts)
            )
        handler = private(receiver)._handler
        assert handler is not None
        assert handler._link is not None
        assert (limiter.waiting, handler._link._pending_dispositions) == (0, {})
        rest = [one for one in messages if one.delivery_tag in settling.on_link(receiver)]
        ends = await settled(receiver, Complete(), [[one] for one in rest])
        assert ends == [[None]] * len(rest)
        with anyio.fail_after(20):
            while await queue.peek():  # noqa: ASYNC110 (requests in progress are carried out, too)
                await anyio.sleep(0.1)


async def test_a_confirmation_counts_for_its_deliveries_alone(namespace: AsyncNamespace) -> None:
    async with received(namespace, "settling-confirmed", 1) as (_, receiver, _):
        LinkSettling(receiver)
        handler = private(receiver)._handler
        link = handler._link if handler is not None else None
        assert link is not None
        deliveries: dict[int, dict[str, Any]] = {}
        for number in range(100, 200):
            deliveries[number] = {"settled": False, "outcome": None}
        link._pending_dispositions.update(deliveries)
        for role, first, last, is_settled in (
            (True, 100, 199, True),  # of the receiver's role
            (False, 100, 199, False),  # not settled
            (False, 120, None, True),
            (False, 150, 152, True),
            (False, 160, 163, True),
            (False, 300, 2**32 - 1, True),  # none that waits
            (False, 198, 2**32 - 1, True),
        ):
            await link._incoming_disposition([role, first, last, is_settled, {"accepted": []}, False])
        confirmed = [number for number, delivery in deliveries.items() if delivery["settled"]]
        assert confirmed == [120, 150, 151, 152, 160, 161, 162, 163, 198, 199]
        assert all(deliveries[number]["outcome"] == {"accepted": []} for number in confirmed)
        link._pending_dispositions.clear()
