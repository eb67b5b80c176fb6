from __future__ import annotations

from typing import TYPE_CHECKING

from sbnotebook.client import Namespace
from sbnotebook.client.portal import run
from sbnotebook.model import EntityAddress, Message
from sbnotebook.settlement import AsyncNamespace, Connection
from sbnotebook.spark.numbered_pages import numbered_pages

if TYPE_CHECKING:
    from collections.abc import Iterable


def found(connection_string: str, entity: str, numbers: Iterable[int]) -> list[int]:
    async def look() -> list[int]:
        async with AsyncNamespace(Connection(connection_string), archive=None) as namespace:
            pages = numbered_pages(namespace.entity(EntityAddress(entity)), numbers)
            return [message.sequence_number async for page in pages for message in page]

    return run(look)


def test_numbered_pages_peek_numbers_however_far_apart(
    namespace: Namespace, queue: str, connection_string: str
) -> None:
    assert namespace.entity(queue).send([Message(body=b"%d" % n) for n in range(900)]).ok
    assert namespace.entity(queue).process(lambda _: None, max_messages=100, show_progress=False).ok
    for numbers in (
        [],
        [50],
        [101],
        [900, 101, 101],
        range(1, 901),
        range(100, 900, 7),
        [300, 2**60],
        [99, 100, 2**60],
    ):
        assert found(connection_string, queue, numbers) == sorted({n for n in numbers if 100 < n <= 900})


def test_numbered_pages_peek_all_partitions(
    namespace: Namespace, partitioned_queue: str, connection_string: str
) -> None:
    queue = namespace.entity(partitioned_queue)
    assert queue.send([Message(partition_key=str(n)) for n in range(60)]).ok
    numbers = [message.sequence_number for message in queue.peek()]
    assert len(numbers) == 60
    assert numbers != sorted(numbers)
    assert found(connection_string, partitioned_queue, numbers) == sorted(numbers)
    assert found(connection_string, partitioned_queue, numbers[::3]) == sorted(numbers[::3])
    # One partition is empty from there on, and others have messages still.
    gone = [number + 1000 for number in numbers[::3]]
    assert found(connection_string, partitioned_queue, [*gone, *numbers[1::3]]) == sorted(numbers[1::3])
