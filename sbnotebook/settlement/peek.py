"""Looking at messages without locking them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass
from typing import Final

import anyio
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.model import EntityAddress, MessageState, PeekedMessage
from sbnotebook.model.sections import SECTIONS
from sbnotebook.settlement import sdk_internals
from sbnotebook.settlement.connecting.connection import Connection
from sbnotebook.settlement.wire.conversion import peeked_from_payload

__all__ = ["PAGE", "PayloadPage", "Peeker", "Wanted"]

PAGE: Final = 250
"""Messages asked for at once; the service gives no more (azure-sdk-for-python issue 26643), and often fewer."""


class Peeker:
    """Peeks one entity over one connection that is kept warm.

    Args:
        connection: the namespace.
        address: a queue, a subscription, or a sub-queue of one.
    """

    def __init__(self, connection: Connection, address: EntityAddress) -> None:
        self._connection = connection
        self.address = address
        self._browser: sdk_internals.Browser | None = None
        self._busy = anyio.Lock()

    async def page(
        self, from_sequence_number: int, count: int = PAGE, session_id: str | None = None
    ) -> list[PeekedMessage]:
        """The next messages from a sequence number on, in its order; none when there are no more.

        A page may be shorter than asked for although more messages follow. A message that cannot be read is in it and
        says so.
        """
        page = await self.payload_page(from_sequence_number, count, session_id)
        return page.messages()

    async def payload_page(
        self, from_sequence_number: int, count: int = PAGE, session_id: str | None = None
    ) -> PayloadPage:
        """The same page, to be read later, and perhaps only in part."""
        payloads = await self.payloads(from_sequence_number, count, session_id)
        return PayloadPage(self.address, from_sequence_number, payloads)

    async def payloads(
        self, from_sequence_number: int, count: int = PAGE, session_id: str | None = None
    ) -> list[bytes]:
        """The same page as AMQP bytes."""
        async with self._busy:  # a browser is not safe to share between tasks
            was_open = self._browser is not None
            try:
                return await self._peek(from_sequence_number, count, session_id)
            except ServiceBusError as error:
                # The service detaches a link that is idle for ten minutes, and the SDK fails then, as for what it does
                # not know; by the next use it has opened another. To peek twice does no harm.
                if not was_open or type(error) is not ServiceBusError:
                    raise
                return await self._peek(from_sequence_number, count, session_id)

    async def _peek(self, from_sequence_number: int, count: int, session_id: str | None) -> list[bytes]:
        if self._browser is None:
            self._browser = self._connection.browser(self.address)
        return await sdk_internals.peek_payloads(self._browser, from_sequence_number, count, session_id)

    async def payloads_of(self, sequence_numbers: Iterable[int]) -> dict[int, bytes]:
        """The AMQP bytes of messages by their numbers; those that are not there are left out."""
        found: dict[int, bytes] = {}
        wanted = sorted(set(sequence_numbers))
        while wanted:
            near = [number for number in wanted if number < wanted[0] + PAGE]
            page = await self.payloads(wanted[0], near[-1] - wanted[0] + 1)
            read = {peeked_from_payload(payload, self.address).sequence_number: payload for payload in page}
            found |= {number: payload for number, payload in read.items() if number in near}
            past = max(wanted[0], max(read, default=near[-1]))
            wanted = [number for number in wanted if number > past]
        return found

    async def pages(
        self,
        *,
        from_sequence_number: int = 1,
        to_sequence_number: int | None = None,
        max_messages: int | None = None,
        state: MessageState | None = None,
        session_id: str | None = None,
    ) -> AsyncIterator[list[PeekedMessage]]:
        """Page after page to the end, or until ``max_messages`` were given.

        Args:
            from_sequence_number: where to begin; that number included.
            to_sequence_number: where to stop, that number included; None for the end of the entity.
            max_messages: how many messages to give at most, None for all.
            state: only messages in this state; the others are passed over.
            session_id: only messages of this session, which is not locked by that; None for all.
        """
        wanted = Wanted(from_sequence_number, to_sequence_number, max_messages, state)
        while wanted.count:
            page = await self.page(wanted.next_number, wanted.count, session_id)
            if not page:
                return
            if kept := wanted.take(page):
                yield kept

    async def close(self) -> None:
        """Close the connection; the next page opens another."""
        browser, self._browser = self._browser, None
        if browser is not None:
            await browser.close()


@dataclass(frozen=True, slots=True)
class PayloadPage:
    """A page of messages as AMQP bytes.

    Args:
        entity: where they were peeked.
        first: the sequence number that was asked for.
        payloads: the messages; none when there are no more.
    """

    entity: EntityAddress
    first: int
    payloads: list[bytes]

    def messages(self, sections: Collection[int] = SECTIONS) -> list[PeekedMessage]:
        """The messages, each with a number.

        Args:
            sections: what is read of them: see :func:`peeked_from_payload`.
        """
        return _numbered([peeked_from_payload(each, self.entity, sections) for each in self.payloads], self.first)

    @property
    def last_number(self) -> int:
        """The number of the last message; the one before ``first`` when there is none."""
        if not self.payloads:
            return self.first - 1
        last = peeked_from_payload(self.payloads[-1], self.entity, ()).sequence_number
        return last or self.messages(())[-1].sequence_number


@dataclass(slots=True)
class Wanted:
    """Which messages are wanted of pages that come one after the other.

    Args:
        next_number: where the next page begins.
        to_sequence_number: where to stop, that number included; None for the end of the entity.
        max_messages: how many at most, None for all.
        state: only messages in this state.
    """

    next_number: int = 1
    to_sequence_number: int | None = None
    max_messages: int | None = None
    state: MessageState | None = None

    @property
    def count(self) -> int:
        """How many messages to ask for; 0 when nothing more is wanted."""
        bounds = [PAGE]
        if self.to_sequence_number is not None:
            bounds.append(self.to_sequence_number - self.next_number + 1)
        # Of those that come, any number may be in another state.
        if self.max_messages is not None and (self.state is None or not self.max_messages):
            bounds.append(self.max_messages)
        return max(0, min(bounds))

    def take(self, page: list[PeekedMessage]) -> list[PeekedMessage]:
        """Those of a page that are wanted."""
        self.next_number = page[-1].sequence_number + 1
        state, last = self.state, self.to_sequence_number
        kept = page if state is None else [message for message in page if message.state is state]
        if last is not None and self.next_number > last:
            kept = [message for message in kept if message.sequence_number <= last]
        if self.max_messages is not None:
            kept = kept[: self.max_messages]
            self.max_messages -= len(kept)
        return kept


def _numbered(page: list[PeekedMessage], first: int) -> list[PeekedMessage]:
    """A page in which each message has a number, so that the next page begins behind it.

    One that does not even show the service's annotations gets the least number that it can have.
    """
    if all(message.sequence_number for message in page):
        return page
    numbered: list[PeekedMessage] = []
    for message in page:
        if not message.sequence_number:
            numbered.append(message.with_changes(sequence_number=first))
        else:
            numbered.append(message)
        first = numbered[-1].sequence_number + 1
    return numbered
