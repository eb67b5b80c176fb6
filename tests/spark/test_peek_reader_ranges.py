from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from threading import Event

import anyio
import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.targets import NamespaceTarget
from sbnotebook.model import EntityAddress, Message
from sbnotebook.settlement.patience import PATIENCE
from sbnotebook.spark.peek_reader import prefetched, read_ranges
from sbnotebook.spark.schema import MessageBatches, message_schema
from sbnotebook.spark.sequence_ranges import SequenceRange

LONGEST = 60


def test_the_next_item_is_made_while_one_is_looked_at() -> None:
    begun = [Event() for _ in range(3)]

    async def items() -> AsyncIterator[int]:
        for number, event in enumerate(begun):
            event.set()
            yield number

    for number in prefetched(items()):
        assert all(event.wait(LONGEST) for event in begun[: number + 2])


def test_an_error_comes_after_what_was_made_before_it() -> None:
    async def items() -> AsyncIterator[int]:
        yield 1
        raise ConnectionError("gone")

    found = prefetched(items())
    assert next(found) == 1
    with pytest.raises(ConnectionError, match="gone"):
        next(found)


def test_who_stops_in_the_middle_does_not_wait_for_the_next() -> None:
    ended = Event()

    async def items() -> AsyncIterator[int]:
        yield 1
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    found = prefetched(items())
    assert next(found) == 1
    found.close()
    assert ended.wait(LONGEST)


def test_ranges_are_read_one_behind_the_other_over_one_connection(
    namespace: Namespace, queue: str, connection_string: str
) -> None:
    assert namespace.entity(queue).send([Message() for _ in range(30)]).ok
    numbers = [message.sequence_number for message in namespace.entity(queue).peek()]
    schema = message_schema()
    batches = MessageBatches(type(schema)([schema["sequence_number"]]))
    ranges = [SequenceRange(numbers[2], numbers[4]), SequenceRange(numbers[20], None)]
    target = NamespaceTarget(connection_string)
    read = read_ranges(target, EntityAddress.parse(queue), ranges, batches, patience=PATIENCE)
    (batch,) = list(read)
    assert batch.to_pydict()["sequence_number"] == [*numbers[2:5], *numbers[20:]]
    assert gc.isenabled()
