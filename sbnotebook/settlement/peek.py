"""Looking at messages without locking them.

Each page takes a round trip, which is long over a network. So a reader requests the pages behind the next one at the
same time, by the numbers with which they probably begin: see :class:`_Ahead`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

import anyio

from sbnotebook.amqp.sections import SECTIONS
from sbnotebook.model import EntityAddress, MessageState, PeekedMessage
from sbnotebook.model.budget import BYTES_AHEAD
from sbnotebook.model.message import end_of_partition, partition_of
from sbnotebook.settlement.connecting.connection import Connection
from sbnotebook.settlement.requests import OUTAGE_PATIENCE, patiently
from sbnotebook.settlement.sdk import connections, management
from sbnotebook.settlement.wire.decoding import peeked_from_payload

PAGE: Final = 250
"""Messages asked for at once; the service gives no more (azure-sdk-for-python issue 26643), and often fewer."""

_ATTEMPTS: Final = 2
"""Peeks until an empty answer counts."""
_CROWDED: Final = 2
"""Messages of a page for each chosen one from which on the others in between are too many to peek."""

AT_ONCE: Final = 8
"""Requests for pages that wait for their answers at once, at most."""
_STRETCH_BYTES: Final = 1024 * 1024
"""Bytes from which on the rest of a stretch is not asked for ahead."""
_IN_ORDER: Final = 4
"""Pages that are asked for in order after one that was asked for ahead in vain."""


def covered_up_to(first: int, numbers: Iterable[int]) -> int:
    """Return the number up to which a page says which messages there are.

    A page begins in the requested partition, and continues in others at its end. They come one after
    the other, but not in the order of their numbers.
    """
    # A message that does not show its number counts as the first.
    here = [n for n in numbers if not n or (n >= first and partition_of(n) == partition_of(first))]
    return max(first, *here) if here else end_of_partition(partition_of(first))


class Peeker:
    """Peeks one entity over one connection that is kept warm."""

    def __init__(self, connection: Connection, address: EntityAddress) -> None:
        self._connection = connection
        self.address = address
        self._browser: management.Browser | None = None
        self._busy = anyio.Lock()

    def page(
        self,
        from_sequence_number: int,
        count: int = PAGE,
        session_id: str | None = None,
        attempts: int = _ATTEMPTS,
        *,
        patience: float = 0.0,
        only_busy: bool = False,
    ) -> Awaitable[Page]:
        """Return the next messages from a sequence number on, in its order; none when there are no more.

        A page may be shorter than asked for although more messages follow. An unreadable message is in it and says so.
        An empty answer is asked for once more, because Azure gives one now and then although there are messages
        (azure-sdk-for-js issues 12450 and 13471, azure-sdk-for-python issue 39459).
        """
        ask = from_sequence_number, count, session_id, attempts
        return patiently(self._page, *ask, address=self.address, patience=patience, only_busy=only_busy)

    async def _page(self, first: int, count: int, session_id: str | None, attempts: int) -> Page:
        payloads: list[bytes] = []
        async with self._busy:  # only one task may open the browser
            for _ in range(attempts):
                payloads = await management.peek_payloads(self._warm_browser(), first, count, session_id)
                if payloads:
                    break
        return Page(self.address, first, payloads)

    def _warm_browser(self) -> management.Browser:
        if self._browser is None:
            self._browser = self._connection.browser(self.address, retries=0)
        return self._browser

    async def delete(self, count: int, before: datetime, *, beside: bool = False) -> int:
        """Ask once for the removal of messages by their age: see :func:`management.delete_messages`.

        With ``beside`` it does not wait for other tasks, and goes where :attr:`is_ready` only.
        """
        async with nullcontext() if beside else self._busy:
            return await management.delete_messages(self._warm_browser(), count, before, beside=beside)

    @property
    def is_ready(self) -> bool:
        """Return whether the link for requests is open."""
        return self._browser is not None and connections.is_ready(self._browser)

    async def _page_once(self, first: int, count: int, session_id: str | None) -> Page | None:
        """Return a page without waiting for other tasks; None where that is not possible now."""
        if not self.is_ready:
            return None
        try:
            payloads = await management.peek_payloads(self._warm_browser(), first, count, session_id, once=True)
        except Exception:  # noqa: BLE001 (the request in order raises the reason)
            return None
        return Page(self.address, first, payloads)

    async def payloads_of(self, sequence_numbers: Iterable[int], *, patience: float = 0.0) -> dict[int, bytes]:
        """Return the AMQP bytes of messages by sequence number; messages that are not in this entity are left out."""
        pages = self.pages_of(sequence_numbers, patience=patience)
        return {message.sequence_number: payload async for page in pages for payload, message in page}

    async def messages_of(
        self, sequence_numbers: Iterable[int], sections: Collection[int] = SECTIONS, *, patience: float = 0.0
    ) -> dict[int, PeekedMessage]:
        """Return messages by sequence number; messages that are not in this entity are left out."""
        pages = self.pages_of(sequence_numbers, sections, patience=patience)
        return {message.sequence_number: message async for page in pages for _, message in page}

    async def pages_of(
        self, sequence_numbers: Iterable[int], sections: Collection[int] = (), *, patience: float = 0.0
    ) -> AsyncGenerator[list[tuple[bytes, PeekedMessage]]]:
        """Yield messages, page after page, as AMQP bytes and as read: by default only what Service Bus wrote into them.

        Messages that are not in this entity are left out.
        """
        wanted, search = sorted(set(sequence_numbers)), _NumberSearch(sections, patience)
        # The first page tells how many others are in between, so all other parts wait for it.
        place, found = await self._page_of(wanted, 0, search)
        if found:
            yield found
        parts = deque[asyncio.Task[list[tuple[bytes, PeekedMessage]]]]()
        try:
            while place < len(wanted) or parts:
                at_once = max(1, min(AT_ONCE, BYTES_AHEAD // (search.at_once * max(search.largest, 1))))
                while place < len(wanted) and len(parts) < at_once:
                    end = place + search.at_once
                    if search.most == 1:
                        end = min(end, bisect_right(wanted, wanted[place] + PAGE - 1))
                    parts.append(asyncio.create_task(self._those_of(wanted[place:end], search)))
                    place = end
                if found := await parts.popleft():
                    yield found
        finally:
            for part in parts:
                # Its error is taken, which no reader waits for any more, so that asyncio does not log it.
                part.add_done_callback(lambda done: done.cancelled() or done.exception())
                part.cancel()

    async def _those_of(self, wanted: Sequence[int], search: _NumberSearch) -> list[tuple[bytes, PeekedMessage]]:
        found: list[tuple[bytes, PeekedMessage]] = []
        place = 0
        while place < len(wanted):
            place, some = await self._page_of(wanted, place, search)
            found += some
        return found

    async def _page_of(
        self, wanted: Sequence[int], place: int, search: _NumberSearch
    ) -> tuple[int, list[tuple[bytes, PeekedMessage]]]:
        """Peek a page from a place in sorted numbers on. Return the place behind it, and the messages."""
        if place == len(wanted):
            return place, []
        # Ask for all numbers close by. While there are few others in between, ask for those far away, too.
        first = wanted[place]
        near = wanted[bisect_right(wanted, first + PAGE - 1) - 1] - first + 1
        count = max(near, min(search.most, len(wanted) - place))
        page = await self._page_once(first, count, None)
        if page is None or not page.payloads:
            ask = first, count, None, _ATTEMPTS if page is None else _ATTEMPTS - 1
            page = await self.page(*ask, patience=search.patience)
        messages = page.messages(search.sections)
        end = bisect_right(wanted, covered_up_to(first, (message.sequence_number for message in messages)))
        asked = set(wanted[place:end])
        kept = [each for each in zip(page.payloads, messages, strict=True) if each[1].sequence_number in asked]
        if len(messages) > _CROWDED * len(kept):
            search.most = 1
        search.largest = max(search.largest // 2, *map(len, page.payloads), 0)
        return end, kept

    async def pages(self, cursor: PeekCursor | None = None) -> AsyncIterator[list[PeekedMessage]]:
        """Yield page after page, while the cursor wants more; to the end by default."""
        cursor = cursor or PeekCursor()
        async for page in self.unread_pages(cursor):
            if kept := cursor.take(page.messages()):
                yield kept

    async def unread_pages(
        self, cursor: PeekCursor, *, patience: float = OUTAGE_PATIENCE, only_busy: bool = True
    ) -> AsyncIterator[Page]:
        """Yield page after page, not read yet, while the cursor wants more.

        Service Bus counts each message that is peeked, and lets a whole second pass when it has returned as many as the
        tier allows (documentation, "Throttling operations in Azure Service Bus").
        """
        session_id = cursor.session_id
        ahead = _Ahead(lambda first, count: self._page_once(first, count, session_id))
        most, given = cursor.max_messages or 0, 0
        try:
            while count := cursor.count_from(cursor.next_number):
                # A reader with a cursor of its own does not tell which messages it took.
                ahead.ask(cursor, not_taken=given - (most - (cursor.max_messages or 0)))
                first = cursor.next_number
                page = await ahead.page(first)
                if page is None or not page.payloads:
                    ask = first, count, session_id, _ATTEMPTS if page is None else _ATTEMPTS - 1
                    page = await self.page(*ask, patience=patience, only_busy=only_busy)
                if not page.payloads:
                    return
                cursor.go_on_behind(page.last_number)
                ahead.learn(page, cursor.next_number)
                given += len(page.payloads)
                yield page
                patience = OUTAGE_PATIENCE
        finally:
            ahead.drop()

    async def close(self) -> None:
        """Close the connection; the next page opens another."""
        browser, self._browser = self._browser, None
        if browser is not None:
            await browser.close()


@dataclass(frozen=True, slots=True)
class Page:
    """A page of messages as AMQP bytes, to be read later, and perhaps only in part.

    Args:
        entity: of the messages.
        first: the sequence number that was asked for.
        payloads: the messages; none when there are no more.
    """

    entity: EntityAddress
    first: int
    payloads: list[bytes]

    def messages(self, sections: Collection[int] = SECTIONS) -> list[PeekedMessage]:
        """Return the messages, each with a number."""
        numbered: list[PeekedMessage] = []
        least = self.first
        for payload in self.payloads:
            message = peeked_from_payload(payload, self.entity, sections)
            # One that shows no number gets the least that it can have.
            numbered.append(message if message.sequence_number else message.with_changes(sequence_number=least))
            least = numbered[-1].sequence_number + 1
        return numbered

    def behind(self, number: int) -> Page:
        """Return the same page from a number on."""
        numbered = zip(self.payloads, self.messages(()), strict=True)
        payloads = [payload for payload, message in numbered if message.sequence_number >= number]
        return Page(self.entity, number, payloads)

    @property
    def first_number(self) -> int:
        """Return the number of the first message; ``first`` where it does not show it, or there is none."""
        head = Page(self.entity, self.first, self.payloads[:1]).messages(())
        return head[0].sequence_number if head else self.first

    @property
    def last_number(self) -> int:
        """Return the number of the last message; the one before ``first`` when there is none."""
        if not self.payloads:
            return self.first - 1
        last = peeked_from_payload(self.payloads[-1], self.entity, ()).sequence_number
        return last or self.messages(())[-1].sequence_number


_Numbered = TypeVar("_Numbered", bound=Any)
"""A message, or anything with its number, state and session."""


@dataclass(slots=True)
class _NumberSearch:
    sections: Collection[int]
    patience: float
    most: int = PAGE
    largest: int = 0

    @property
    def at_once(self) -> int:
        """Return how many messages to read before the first of them is shown."""
        return max(1, min(PAGE, _STRETCH_BYTES // max(self.largest, 1)))


class _Stretch(NamedTuple):
    """Numbers whose messages were asked for ahead."""

    first: int
    end: int
    asked: int
    page: asyncio.Task[Page | None]


class _Ahead:
    """Requests the pages behind the next one at the same time.

    Service Bus says neither how many messages an entity has nor where their numbers have gaps. So this class cuts the
    numbers behind the next page into stretches, each as long as the last page reached, and requests several of them at
    once. Each answer is complete from the requested number to its last message. Drop messages that the page before has
    shown already. Numbers that no answer reaches are requested in order.

    The number of requests in progress is fixed. It is one for the first page, and for the four pages after one of no
    use: a gap, the end of a partition, or a busy service.
    """

    def __init__(self, ask: Callable[[int, int], Awaitable[Page | None]]) -> None:
        self._ask = ask
        self._under_way: deque[_Stretch] = deque()
        self._span, self._largest = PAGE, 0
        self._in_order = 1
        """Pages to ask for in order, before others are asked for ahead; the first one opens the connection."""

    def ask(self, cursor: PeekCursor, not_taken: int = 0) -> None:
        """Request as many ranges as may be in progress, and as the cursor wants."""
        first = self._under_way[-1].end if self._under_way else cursor.next_number
        asked = not_taken + sum(stretch.asked for stretch in self._under_way)
        end = end_of_partition(partition_of(cursor.next_number))
        at_once = 0 if self._in_order else max(1, min(AT_ONCE, BYTES_AHEAD // max(self._largest, 1)))
        while len(self._under_way) < at_once and first <= end:
            count = min(cursor.count_from(first, asked), self._span)
            if count <= 0:
                return
            stretch = first, first + self._span, count
            self._under_way.append(_Stretch(*stretch, asyncio.create_task(self._messages_of(*stretch))))
            first, asked = first + self._span, asked + count

    async def page(self, first: int) -> Page | None:
        """Return the messages from a number on; an empty page where there are none, None where nothing is known."""
        while self._under_way and self._under_way[0].first <= first:
            stretch = self._under_way.popleft()
            page = await stretch.page
            if page is None:
                self._fall_back()
                return None
            if stretch.first == first:
                return page
            # If a partition ends in between, only the answer from this very number tells the next messages.
            if partition_of(page.last_number) == partition_of(first) and (rest := page.behind(first)).payloads:
                return rest
            self._fall_back()
        return None

    def learn(self, page: Page, following: int) -> None:
        """Learn from a page that is of use how far pages reach."""
        self._in_order = max(self._in_order - 1, 0)
        self._largest = max(sum(map(len, page.payloads)), self._largest // 2)
        last, count = page.last_number, len(page.payloads)
        if partition_of(last) != partition_of(page.first) or partition_of(following) != partition_of(last):
            # The next messages are of another partition.
            self._fall_back()
            return
        reach = last - page.first_number + 1
        if reach > count:
            reach = max(reach * 9 // 10, 1)  # where numbers have gaps, the next ones may have fewer
        self._span = reach if count >= PAGE or count < self._span else 2 * reach

    def drop(self) -> None:
        for stretch in self._under_way:
            stretch.page.cancel()
        self._under_way.clear()

    def _fall_back(self) -> None:
        self.drop()
        self._in_order = _IN_ORDER

    async def _messages_of(self, first: int, end: int, count: int) -> Page | None:
        whole = page = await self._ask(first, count)
        # A page may be shorter than asked for.
        while page is not None and page.payloads and whole is not None:
            behind = page.last_number + 1
            size = sum(map(len, whole.payloads))
            if behind >= end or len(whole.payloads) >= count or size >= _STRETCH_BYTES:
                break
            page = await self._ask(behind, count - len(whole.payloads))
            if page is not None:
                whole.payloads.extend(page.payloads)
        return whole


@dataclass(slots=True)
class PeekCursor:
    """The messages that a reader wants of pages that come one after the other.

    Within one partition they come in the order of their numbers, and the last wanted one ends it. Partitions come in
    any order, so that bounds in two of them choose, and only the end of the entity is an end.

    Args:
        next_number: where the next page begins.
        to_sequence_number: where to stop, that number included; None for the end of the entity.
        max_messages: how many at most, None for all.
        state: only messages in this state.
        session_id: only messages of this session. Service Bus does not say what it does with the session of a request
            to an entity without sessions; the emulator returns all messages.
    """

    next_number: int = 1
    to_sequence_number: int | None = None
    max_messages: int | None = None
    state: MessageState | None = None
    session_id: str | None = None
    _first: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        self._first = self.next_number

    def count_from(self, number: int, asked: int = 0) -> int:
        """Return how many messages to ask for from a number on, after so many that were asked for before it."""
        count, last, most = PAGE, self.to_sequence_number, self.max_messages
        if last is not None and self._is_in_order:
            count = min(count, last - number + 1)
        # Of those that come, any number may be in another state or session.
        if most is not None and (not most or (self.state is None and self.session_id is None)):
            count = min(count, most - asked)
        return max(0, count)

    @property
    def _is_in_order(self) -> bool:
        last = self.to_sequence_number
        return last is None or partition_of(last) == partition_of(self._first)

    def go_on_behind(self, number: int) -> None:
        """Let the next page begin behind this number, the last one of a page."""
        last = self.to_sequence_number
        is_over = last is not None and self._is_in_order and not self._first <= number <= last
        self.next_number = last + 1 if is_over and last is not None else number + 1

    def take(self, page: list[_Numbered]) -> list[_Numbered]:
        """Return the wanted messages of a page, or what stands for them, and move behind it."""
        self.go_on_behind(page[-1].sequence_number)
        state, last = self.state, self.to_sequence_number
        kept = page if state is None else [message for message in page if message.state is state]
        if self.session_id is not None:
            kept = [message for message in kept if message.session_id == self.session_id]
        if last is not None and (self.next_number > last or not self._is_in_order):
            kept = [message for message in kept if self._first <= message.sequence_number <= last]
        if self.max_messages is not None:
            kept = kept[: self.max_messages]
            self.max_messages -= len(kept)
        return kept
