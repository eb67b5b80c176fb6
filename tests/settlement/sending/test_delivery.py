from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import anyio
import anyio.lowlevel
import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Message, OutcomeStatus
from sbnotebook.settlement import AsyncNamespace
from tests.filled_queues import filled_queue
from tests.settlement.waiting import until

pytestmark = pytest.mark.anyio


async def test_outcomes_are_in_the_order_of_the_input(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "outcomes", 0)
    too_large = Message(body=b"x" * 2_000_000, message_id="large")
    no_amqp_type = Message(message_id="odd", application_properties={"set": {1, 2}})  # pyright: ignore[reportArgumentType]
    good = [Message(body=b"%d" % n, message_id=f"m{n}") for n in range(50)]

    done: list[int] = []
    messages = [*good[:25], too_large, no_amqp_type, *good[25:]]
    report = await queue.send(messages, max_in_flight=4, batch_size=10, progress=done.append)

    assert [outcome.message_id for outcome in report] == [
        *(message.message_id for message in good[:25]), "large", "odd", *(message.message_id for message in good[25:]),
    ]  # fmt: skip
    assert report.settled == 50
    assert sum(done) == 52
    assert {outcome.message_id: outcome.status for outcome in report.failures} == {
        "large": OutcomeStatus.FAILED,
        "odd": OutcomeStatus.FAILED,
    }
    assert report[25].condition == "amqp:link:message-size-exceeded"
    assert sorted(m.message_id or "" for m in await queue.peek()) == sorted(m.message_id or "" for m in good)


async def test_input_is_pulled_as_there_is_room(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("pulled")
    pulled = 0
    finished = 0
    furthest_ahead = 0

    def messages() -> Iterator[Message]:
        nonlocal pulled, furthest_ahead
        for number in range(300):
            pulled += 1
            furthest_ahead = max(furthest_ahead, pulled - finished)
            yield Message(body=b"%d" % number)

    def progress(count: int) -> None:
        nonlocal finished
        finished += count

    await namespace.entity("pulled").send(messages(), max_in_flight=3, batch_size=1, progress=progress)

    assert finished == 300
    # Three in flight, one handed over, one being packed.
    assert furthest_ahead <= 6


async def test_rate_is_kept_after_a_transfer_that_takes_long(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    await namespace.create_queue("stalled")
    faults = shared_emulator.faults.entity("stalled")
    faults.accept_delay_ms = 1_000

    async def confirm_at_once_later() -> None:
        await until(lambda: shared_emulator.counts("stalled").active)
        faults.accept_delay_ms = 0

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(confirm_at_once_later)
        messages = [Message(session_id="s") for _ in range(40)]
        assert (await namespace.entity("stalled").send(messages, batch_size=5, rate=20)).ok
    times = [m.enqueued_time for m in await namespace.entity("stalled").peek() if m.enqueued_time is not None]
    assert len(times) == 40
    for start in times:
        within = sum(start <= other < start + timedelta(seconds=0.9) for other in times)
        assert within <= 20, "more than 20 messages in a second"


async def test_impossible_limits_and_addresses_are_refused(namespace: AsyncNamespace) -> None:
    with pytest.raises(ConfigurationError, match="max_in_flight"):
        await namespace.entity("orders").send([Message()], max_in_flight=0)
    for size in (0, -1):
        with pytest.raises(ConfigurationError, match="batch_size is 1 or more"):
            await namespace.entity("orders").send([Message()], batch_size=size)
    with pytest.raises(ConfigurationError, match="queue or a topic"):
        await namespace.entity("orders/$dlq").send([Message()])


async def test_an_input_that_exits_ends_the_send_only(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "exits", 0)

    def messages() -> Iterator[Message]:
        yield Message(body=b"1")
        sys.exit("no more")

    with pytest.raises(RuntimeError, match=r"^SystemExit ended the messages to send\.") as caught:
        await queue.send(messages())
    assert traceback.extract_tb(caught.value.__traceback__)[-1].line == 'sys.exit("no more")'
    assert len(await queue.peek()) == 1


async def test_failing_iterable_raises_after_the_rest_is_settled(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "failing", 0)

    def messages() -> Iterator[Message]:
        for number in range(30):
            yield Message(body=b"%d" % number)
        raise KeyError("the 31st")

    with pytest.raises(KeyError, match="the 31st") as caught:
        await queue.send(messages(), batch_size=7)
    assert caught.value.__notes__ == ["Until then: Sent 30 messages."]
    assert len(await queue.peek()) == 30


async def test_slow_iterable_does_not_block_the_loop(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("steady")
    ticks = threading.Event()

    def messages() -> Iterator[Message]:
        assert ticks.wait(30), "the loop stood still while the iterable worked"
        yield Message(body=b"x")

    async def tick() -> None:
        await anyio.lowlevel.checkpoint()
        ticks.set()

    async with anyio.create_task_group() as tasks:
        await namespace.entity("steady").send([Message(body=b"warm")])
        tasks.start_soon(tick)
        assert (await namespace.entity("steady").send(messages())).ok


async def test_auto_opens_more_senders_on_a_long_line(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    queue = await filled_queue(own, "far", 0)
    emulator.faults.network_delay_ms = 100
    messages = [Message(message_id=str(n), body=b"%d" % n, session_id=f"s{n % 100}") for n in range(250)]
    report = await queue.send(messages, batch_size=1)
    emulator.faults.network_delay_ms = 0
    assert report.ok
    assert report.speed is not None
    assert 12 < report.speed.in_flight <= 50
    stored = [(message.session_id, int(message.message_id or "")) for message in await queue.peek()]
    assert len(stored) == len(set(stored)) == 250
    for session in range(100):
        numbers = [number for each, number in stored if each == f"s{session}"]
        assert numbers == sorted(numbers)
    # A number is an exact limit, also after that.
    limited = await queue.send(messages, batch_size=1, max_in_flight=4)
    assert limited.speed is not None
    assert limited.speed.in_flight <= 4


async def test_ids_of_other_types_are_texts_in_the_report(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "odd-ids", 0)
    ids: list[Any] = [kind for n in range(500) for kind in (UUID(int=n), b"b%d" % n, n)]
    report = await queue.send(Message(message_id=each) for each in ids)
    assert report.ok
    stored = [message.message_id or "" for message in await queue.peek()]
    assert sorted(outcome.message_id or "" for outcome in report) == sorted(stored)
