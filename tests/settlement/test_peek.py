from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from sbnotebook.amqp import ULong, encode, type_name
from sbnotebook.emulator import QueueOptions, RunningEmulator
from sbnotebook.model import Defer, Message, MessageState
from sbnotebook.model.message import end_of_partition, partition_of
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.peek import PAGE
from sbnotebook.settlement.sending import packing
from sbnotebook.settlement.wire.encoding import payload_of
from tests.filled_queues import filled_queue
from tests.settlement.namespaces import namespace_of

pytestmark = pytest.mark.anyio


async def test_peek_pages_to_the_end_in_order(namespace: AsyncNamespace) -> None:
    count = 2 * PAGE + 30
    queue = await filled_queue(namespace, "pages", count)

    messages = await queue.peek()

    assert [message.body for message in messages] == [b"%d" % n for n in range(count)]
    numbers = [message.sequence_number for message in messages]
    assert numbers == sorted(set(numbers))
    assert len(await queue.peek(PAGE + 1)) == PAGE + 1
    middle = await queue.peek(from_sequence_number=numbers[10], to_sequence_number=numbers[12])
    assert [message.sequence_number for message in middle] == numbers[10:13]


async def test_peek_tells_states_apart_and_says_what_the_service_knows(namespace: AsyncNamespace) -> None:
    typed = Message(body=b"a", subject="first", application_properties={"n": ULong(5)})
    queue = await filled_queue(namespace, "states", [typed, b"b"])
    async with queue.batch() as batch:
        first, *_ = await batch.receive(1)
        await batch.settle(Defer(), [first])

        peeked = await queue.peek()

        assert [message.state for message in peeked] == [MessageState.DEFERRED, MessageState.ACTIVE]
        assert peeked[0].subject == "first"
        assert type_name(peeked[0].application_properties["n"]) == "ulong"
        assert peeked[0].enqueued_time is not None
        assert [m.body for m in await queue.peek(state=MessageState.DEFERRED)] == [b"a"]


@pytest.fixture
def partitioned(shared_emulator: RunningEmulator) -> str:
    name = f"partitioned-{uuid.uuid4().hex[:8]}"
    shared_emulator.create_queue(name, QueueOptions(enable_partitioning=True))
    return name


async def test_partitions_that_come_in_no_order_are_peeked_to_the_end(
    namespace: AsyncNamespace, partitioned: str
) -> None:
    queue = namespace.entity(partitioned)
    (await queue.send([Message(message_id=str(n)) for n in range(2 * PAGE)], max_in_flight=1)).raise_for_failures()
    messages = await queue.peek()
    numbers = [message.sequence_number for message in messages]
    assert {message.message_id for message in messages} == {str(n) for n in range(2 * PAGE)}
    assert numbers != sorted(numbers), "the emulator's partitions come in no order, as the service's do"

    # Bounds within one partition, and bounds in two.
    middle = numbers[PAGE]
    own = sorted(number for number in numbers if partition_of(number) == partition_of(middle))
    for first, last in ((own[1], own[-2]), (own[0], end_of_partition(partition_of(middle))), (own[3], max(numbers))):
        some = await queue.peek(from_sequence_number=first, to_sequence_number=last)
        behind = numbers[numbers.index(first) :]
        assert [message.sequence_number for message in some] == [n for n in behind if first <= n <= last]
    peeker = namespace.peeker(queue.address)
    absent = own[-1] + 1000
    assert (await peeker.payloads_of([*numbers[::7], absent])).keys() == set(numbers[::7])
    assert (await peeker.messages_of([*numbers[::5], absent])).keys() == set(numbers[::5])


async def test_messages_that_cannot_be_read_hide_no_others(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A broker looks neither into the properties nor into the body.
    damaged = b"\x00\x53\x73" + b"\xc0\x08\x02" + encode("id") + b"\xa1\x01\xff" + b"\x00\x53\x75\xa0\x01x"

    def written(message: Message) -> bytes:
        return damaged if message.subject == "x" else payload_of(message)

    monkeypatch.setattr(packing, "payload_of", written)
    queue = await filled_queue(namespace, "damaged", [Message(subject=name) for name in "axbx"])

    messages = await queue.peek()

    assert [message.subject for message in messages] == ["a", None, "b", None]
    assert [message.unreadable is None for message in messages] == [True, False, True, False]
    assert damaged[-6:] in messages[1].body
    numbers = [message.sequence_number for message in messages]
    assert numbers == sorted(set(numbers))
    assert [message.sequence_number for message in await queue.peek(from_sequence_number=numbers[1])] == numbers[1:]
    assert all(message.enqueued_time is not None for message in messages)
    # Nothing may send them, and they stay where they are.
    report = await queue.send(messages)
    assert [outcome.ok for outcome in report] == [True, False, True, False]
    assert "could not be read" in str(report[1].description)

    # The pages know their last numbers without reading the messages.
    peeker = namespace.peeker(queue.address)
    for count, last in ((2, numbers[1]), (3, numbers[2])):
        assert (await peeker.page(numbers[0], count)).last_number == last
    assert (await peeker.page(numbers[-1] + 5)).last_number == numbers[-1] + 4


async def test_a_closed_namespace_keeps_no_peeker_open(shared_emulator: RunningEmulator, tmp_path: Path) -> None:
    async with namespace_of(shared_emulator, tmp_path, archive=None) as namespace:
        queue = await filled_queue(namespace, "closed-with-peeker", 1)
        assert len(await queue.peek()) == 1
        peeker = namespace.peeker(queue.address)
        assert peeker._browser is not None  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    assert peeker._browser is None  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
