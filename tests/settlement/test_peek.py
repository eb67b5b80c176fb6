from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from sbnotebook.amqp import ULong, encode, type_name
from sbnotebook.emulator import RunningEmulator
from sbnotebook.emulator.entities import QueueOptions
from sbnotebook.model import Complete, Defer, EntityAddress, Message, MessageState
from sbnotebook.model.partition import end_of_partition, partition_of
from sbnotebook.settlement import AsyncNamespace, Connection, Journal
from sbnotebook.settlement.peek import PAGE
from sbnotebook.settlement.sending import packing
from sbnotebook.settlement.wire.encoding import payload_of
from tests.filled_queues import filled_queue

pytestmark = pytest.mark.anyio


async def test_peek_pages_to_the_end_in_order(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("pages")
    queue = namespace.entity("pages")
    count = 2 * PAGE + 30
    await queue.send((Message(body=b"%d" % n) for n in range(count)), max_in_flight=1)

    messages = await queue.peek()

    assert [message.body for message in messages] == [b"%d" % n for n in range(count)]
    numbers = [message.sequence_number for message in messages]
    assert numbers == sorted(set(numbers))
    assert len(await queue.peek(PAGE + 1)) == PAGE + 1
    middle = await queue.peek(from_sequence_number=numbers[10], to_sequence_number=numbers[12])
    assert [message.sequence_number for message in middle] == numbers[10:13]


async def test_peek_tells_states_apart_and_says_what_the_service_knows(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("states")
    queue = namespace.entity("states")
    await queue.send([Message(body=b"a", subject="first", application_properties={"n": ULong(5)}), Message(body=b"b")])
    async with queue.batch() as batch:
        first, *_ = await batch.receive(1)
        await batch.settle(Defer(), [first])

        peeked = await queue.peek()

        assert [message.state for message in peeked] == [MessageState.DEFERRED, MessageState.ACTIVE]
        assert peeked[0].subject == "first"
        assert type_name(peeked[0].application_properties["n"]) == "ulong"
        assert peeked[0].enqueued_time is not None
        assert [m.body for m in await queue.peek(state=MessageState.DEFERRED)] == [b"a"]


async def test_an_empty_answer_is_asked_for_again(namespace: AsyncNamespace, shared_emulator: RunningEmulator) -> None:
    queue = await filled_queue(namespace, "now-and-then", PAGE + 1)
    faults = shared_emulator.faults.entity("now-and-then")
    faults.empty_peeks = 1
    messages = await queue.peek()
    assert len(messages) == PAGE + 1
    faults.empty_peeks = 1
    peeker = namespace.peeker(queue.address)
    assert len(await peeker.messages_of([message.sequence_number for message in messages])) == PAGE + 1
    assert faults.empty_peeks == 0


@pytest.mark.parametrize("fault", ["close_links", "drop_connections"])
async def test_peek_reopens_a_warm_connection(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, fault: str
) -> None:
    name = f"idle-{fault.replace('_', '-')}"
    await namespace.create_queue(name)
    queue = namespace.entity(name)
    assert (await queue.send([Message(body=b"x")])).ok
    assert len(await queue.peek()) == 1
    getattr(shared_emulator, fault)(name)
    assert len(await queue.peek()) == 1


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


async def test_messages_behind_a_gap_are_found_by_their_numbers(namespace: AsyncNamespace) -> None:
    name = f"gap-{uuid.uuid4().hex[:8]}"
    await namespace.create_queue(name)
    queue = namespace.entity(name)
    (await queue.send(Message(body=b"%d" % n) for n in range(PAGE + 60))).raise_for_failures()
    async with queue.batch() as batch:
        held = await batch.receive(PAGE + 40)
        assert (await batch.settle(Complete(), held[5:])).ok
    # The page that begins at 1 is as long as the first two are apart, and reaches over the gap to the third.
    numbers = [1, PAGE - 1, PAGE + 45]
    assert (await namespace.peeker(queue.address).payloads_of(numbers)).keys() == {1, PAGE + 45}


async def test_messages_that_cannot_be_read_hide_no_others(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A broker looks neither into the properties nor into the body.
    damaged = b"\x00\x53\x73" + b"\xc0\x08\x02" + encode("id") + b"\xa1\x01\xff" + b"\x00\x53\x75\xa0\x01x"

    def written(message: Message) -> bytes:
        return damaged if message.subject == "x" else payload_of(message)

    monkeypatch.setattr(packing, "payload_of", written)
    await namespace.create_queue("damaged")
    queue = namespace.entity("damaged")
    (await queue.send([Message(subject=name) for name in "axbx"], max_in_flight=1)).raise_for_failures()

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
    connection, journal = Connection(shared_emulator.connection_string), Journal(tmp_path / "journal")
    async with AsyncNamespace(connection, journal=journal, archive=None) as namespace:
        await namespace.create_queue("closed-with-peeker")
        assert await namespace.entity("closed-with-peeker").peek() == []
        peeker = namespace.peeker(EntityAddress("closed-with-peeker"))
        assert peeker._browser is not None  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    assert peeker._browser is None  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
