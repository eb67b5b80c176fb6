"""Pages that are asked for ahead, against a service that gives pages of any length from numbers with any gaps."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbnotebook.amqp import Symbol, encode
from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import EntityAddress
from sbnotebook.model.message import partition_of
from sbnotebook.settlement import AsyncNamespace, Connection
from sbnotebook.settlement.peek import AT_ONCE, PAGE, Page, PeekCursor, Peeker
from sbnotebook.settlement.sdk import management
from tests.filled_queues import filled_queue

CONNECTION = "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=a2V5;UseDevelopmentEmulator=true"
_PARTITIONS = (0, 5, 2, 9)
"""In the order in which the service gives them."""


def payload_of(number: int, size: int = 1) -> bytes:
    body = b"\x00\x53\x75\xb0" + size.to_bytes(4) + bytes(size)
    return b"\x00\x53\x72" + encode({Symbol("x-opt-sequence-number"): number}) + body


@dataclass
class Asked:
    """A request, and how many had been answered one after the other before it was made."""

    first: int
    count: int
    depth: int
    got: int = 0


@dataclass
class Requests:
    """Every request that was made, and the longest chain of those that waited for each other."""

    all: list[Asked] = field(default_factory=list[Asked])
    round_trips: int = 0
    under_way: int = 0
    most: int = 0

    def begin(self, first: int, count: int) -> Asked:
        self.all.append(asked := Asked(first, count, self.round_trips + 1))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        return asked

    def end(self, asked: Asked, got: int) -> None:
        asked.got = got
        self.under_way -= 1
        self.round_trips = max(self.round_trips, asked.depth)


class Service(Peeker):
    """A service with these numbers, instead of a socket.

    Args:
        numbers: of its messages, of any partitions.
        page: gives the length of the next answer.
        turns: gives how often other tasks run before the next answer comes.
        fails: says whether the next request that is made ahead fails.
        size: bytes of each body.
    """

    def __init__(
        self,
        numbers: Iterable[int],
        page: Callable[[], int] = lambda: PAGE,
        turns: Callable[[], int] = lambda: 1,
        fails: Callable[[], bool] = lambda: False,
        size: int = 1,
    ) -> None:
        super().__init__(Connection(CONNECTION), EntityAddress("q"))
        order = [(_PARTITIONS.index(partition_of(number)), number) for number in set(numbers)]
        self.order = sorted(order)
        self.requests = Requests()
        self._length, self._turns, self._fails, self._size = page, turns, fails, size

    async def _page(self, first: int, count: int, session_id: str | None, attempts: int) -> Page:
        del session_id, attempts
        return await self._answer(first, count)

    async def _page_once(self, first: int, count: int, session_id: str | None) -> Page | None:
        del session_id
        answer = await self._answer(first, count)
        return None if self._fails() else answer

    async def _answer(self, first: int, count: int) -> Page:
        asked, got = self.requests.begin(first, count), 0
        try:
            begin = bisect_left(self.order, (_PARTITIONS.index(partition_of(first)), first))
            there = [number for _, number in self.order[begin : begin + min(count, self._length())]]
            for _ in range(self._turns()):
                await asyncio.sleep(0)
            got = len(there)
            return Page(self.address, first, [payload_of(number, self._size) for number in there])
        finally:
            self.requests.end(asked, got)


async def _all(service: Service, cursor: PeekCursor | None = None) -> list[int]:
    found: list[int] = []
    cursor = cursor or PeekCursor()
    async for page in service.unread_pages(cursor):
        found += [message.sequence_number for message in cursor.take(page.messages(()))]
    return found


def _numbers(blocks: list[tuple[int, int, int]], partition: int = 0) -> list[int]:
    numbers, at = list[int](), partition << 48
    for gap, count, step in blocks:
        numbers += range(at + gap, at + gap + count * step, step)
        at += gap + count * step
    return numbers


blocks = st.lists(
    st.tuples(st.sampled_from([1, 3, 400, 10**6]), st.integers(1, 900), st.sampled_from([1, 1, 1, 2, 7, 300])),
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(_PARTITIONS), blocks), st.integers(0, 2**32), st.data())
def test_pages_are_complete_and_in_order_whatever_comes(
    partitions: dict[int, list[tuple[int, int, int]]], seed: int, data: st.DataObject
) -> None:
    random = Random(seed)  # noqa: S311
    longest = data.draw(st.sampled_from([1, 7, 60, PAGE]))
    shortest = data.draw(st.sampled_from([1, longest]))
    failures = data.draw(st.sampled_from([0.0, 0.0, 0.1]))
    numbers = [number for partition, each in partitions.items() for number in _numbers(each, partition)]
    numbers = random.sample(numbers, min(len(numbers), 12 * longest))
    service = Service(
        numbers,
        page=lambda: random.randint(shortest, longest),
        turns=lambda: random.randint(0, 4),
        fails=lambda: random.random() < failures,
    )
    in_order = [number for _, number in service.order]
    most = data.draw(st.one_of(st.none(), st.integers(0, len(numbers) + 1)))
    first = data.draw(st.sampled_from([1, *in_order]))
    last = data.draw(st.sampled_from([None, *in_order]))
    wanted = [n for place, n in service.order if (place, n) >= (_PARTITIONS.index(partition_of(first)), first)]
    if last is not None:
        if partition_of(last) == partition_of(first):
            wanted = [n for n in wanted if partition_of(n) == partition_of(first) and n <= last]
        else:
            wanted = [n for n in wanted if first <= n <= last]
    found = asyncio.run(_all(service, PeekCursor(first, last, most)))
    assert found == wanted[:most]


@pytest.mark.anyio
async def test_a_long_queue_is_peeked_in_few_round_trips() -> None:
    service = Service(range(1, 10_001))
    assert await _all(service) == list(range(1, 10_001))
    assert service.requests.round_trips <= 12  # one after the other, they would be 42
    assert service.requests.most == AT_ONCE


# ---------------------------------------------------------------------- by number


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(_PARTITIONS), blocks), st.integers(0, 2**32), st.data())
def test_numbers_are_found_wherever_they_are(
    partitions: dict[int, list[tuple[int, int, int]]], seed: int, data: st.DataObject
) -> None:
    random = Random(seed)  # noqa: S311
    longest = data.draw(st.sampled_from([7, 60, PAGE]))
    numbers = [number for partition, each in partitions.items() for number in _numbers(each, partition)]
    numbers = random.sample(numbers, min(len(numbers), 12 * longest))
    service = Service(
        numbers,
        page=lambda: random.randint(1, longest),
        turns=lambda: random.randint(0, 4),
        fails=lambda: random.random() < 0.02,
    )
    wanted = random.sample(numbers, data.draw(st.integers(0, len(numbers))))
    absent = [number + 1 for number in wanted[::5]] + [partition << 48 | 2**40 for partition in _PARTITIONS]
    there = sorted({*wanted, *absent} & {*numbers})
    assert asyncio.run(_of_numbers(service, [*wanted, *absent])) == there


async def _of_numbers(service: Service, wanted: Iterable[int]) -> list[int]:
    return [message.sequence_number async for page in service.pages_of(wanted) for _, message in page]


# ---------------------------------------------------------------------- over the SDK


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """Every peek of a page over a socket."""
    requests, ask = Requests(), management.peek_payloads

    async def peek_payloads(browser: Any, first: int, count: int, *options: Any, **named: Any) -> list[bytes]:
        asked, got = requests.begin(first, count), list[bytes]()
        try:
            got = await ask(browser, first, count, *options, **named)
        finally:
            requests.end(asked, len(got))
        return got

    monkeypatch.setattr(management, "peek_payloads", peek_payloads)
    return requests


@pytest.mark.anyio
@pytest.mark.parametrize("one_way_ms", [0, 100])
async def test_pages_over_a_socket_take_few_round_trips(
    own: AsyncNamespace, emulator: RunningEmulator, requests: Requests, one_way_ms: int
) -> None:
    queue = await filled_queue(own, "far", 4_000)
    await queue.peek(1)  # opens the connection
    emulator.faults.network_delay_ms = one_way_ms
    assert [message.body for message in await queue.peek()] == [b"%d" % n for n in range(4_000)]
    assert requests.most > AT_ONCE / 2
    # One after the other, they would be 18. Where the network takes no time, each answer comes by itself.
    assert requests.round_trips <= 10 or not one_way_ms


@pytest.mark.anyio
@pytest.mark.parametrize("fault", ["drop_connections", "close_links", "server_busy", "empty_peeks", "short"])
async def test_pages_ahead_survive_faults(
    own: AsyncNamespace, emulator: RunningEmulator, requests: Requests, fault: str
) -> None:
    body = b"x" * 6_000 if fault == "short" else b"x"  # an answer of the emulator has a megabyte
    queue = await filled_queue(own, fault.replace("_", "-"), [body] * 2_600)
    emulator.faults.network_delay_ms = 5
    seen: list[int] = []
    async for page in queue.peeker.pages():
        seen += [message.sequence_number for message in page]
        if len(seen) == 5 * PAGE:
            faults = emulator.faults.entity(queue.address.path)
            if fault in ("drop_connections", "close_links"):
                getattr(emulator, fault)(queue.address.path)
            elif fault == "server_busy":
                faults.server_busy = 3
            elif fault == "empty_peeks":
                faults.empty_peeks = 1
    assert seen == list(range(1, 2_601))
    assert requests.most > 1


@pytest.mark.anyio
async def test_no_more_messages_are_peeked_than_are_wanted(own: AsyncNamespace, requests: Requests) -> None:
    queue = await filled_queue(own, "few-wanted", 600)
    assert len(await queue.peek(300)) == 300
    assert sum(asked.got for asked in requests.all) == 300


@pytest.mark.anyio
async def test_few_messages_are_peeked_in_vain_where_numbers_have_gaps() -> None:
    numbers = [10**6 * block + at for block in range(20) for at in range(1, 601)]
    service = Service(numbers)
    assert await _all(service) == numbers
    assert sum(asked.got for asked in service.requests.all) < 4 * len(numbers)
