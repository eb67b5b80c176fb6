"""Looking at messages without locking them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Final

import anyio
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.model import EntityAddress, MessageState, PeekedMessage
from sbnotebook.settlement import sdk_internals
from sbnotebook.settlement.connecting.connection import Connection
from sbnotebook.settlement.wire.conversion import peeked_from_payload

__all__ = ["PAGE", "Peeker"]

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
        self._address = address
        self._browser: sdk_internals.Browser | None = None
        self._busy = anyio.Lock()

    async def page(
        self, from_sequence_number: int, count: int = PAGE, session_id: str | None = None
    ) -> list[PeekedMessage]:
        """The next messages from a sequence number on, in its order; none when there are no more.

        A page may be shorter than asked for although more messages follow. A message that cannot be read is in it and
        says so.
        """
        payloads = await self.payloads(from_sequence_number, count, session_id)
        return _numbered([peeked_from_payload(each, self._address) for each in payloads], from_sequence_number)

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
            self._browser = self._connection.browser(self._address)
        return await sdk_internals.peek_payloads(self._browser, from_sequence_number, count, session_id)

    async def payloads_of(self, sequence_numbers: Iterable[int]) -> dict[int, bytes]:
        """The AMQP bytes of messages by their numbers; those that are not there are left out."""
        found: dict[int, bytes] = {}
        wanted = sorted(set(sequence_numbers))
        while wanted:
            near = [number for number in wanted if number < wanted[0] + PAGE]
            page = await self.payloads(wanted[0], near[-1] - wanted[0] + 1)
            read = {peeked_from_payload(payload, self._address).sequence_number: payload for payload in page}
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
        given, start = 0, from_sequence_number
        while max_messages is None or given < max_messages:
            wanted = PAGE if max_messages is None or state is not None else min(PAGE, max_messages - given)
            page = await self.page(start, wanted, session_id)
            if not page:
                return
            start = page[-1].sequence_number + 1
            kept = [m for m in page if (state is None or m.state is state)]
            past_the_end = to_sequence_number is not None and page[-1].sequence_number > to_sequence_number
            if to_sequence_number is not None:
                kept = [message for message in kept if message.sequence_number <= to_sequence_number]
            if max_messages is not None:
                kept = kept[: max_messages - given]
            given += len(kept)
            if kept:
                yield kept
            if past_the_end:
                return

    async def close(self) -> None:
        """Close the connection; the next page opens another."""
        browser, self._browser = self._browser, None
        if browser is not None:
            await browser.close()


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
