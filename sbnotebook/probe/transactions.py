"""Probes of transactions, which ``resubmit`` uses where it is asked to."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from sbnotebook.model import Message
from sbnotebook.probe.probe import Saw, probe, words_of
from sbnotebook.probe.site import blank
from sbnotebook.settlement import payload_of
from sbnotebook.settlement.sdk.management import browser
from sbnotebook.settlement.sdk.transactions import TransactionLine

if TYPE_CHECKING:
    from sbnotebook.probe.site import Site

_CLONE: Final = payload_of(Message(body=b"clone"))


@probe(
    "transaction-committed",
    "A dead letter is completed by a token that came over another connection, and its clone sent to its queue, in one "
    "transaction.",
    operations=14,
    seconds=8,
)
async def _committed(site: Site) -> Saw:
    token = await _dead_letter(site)
    error = await site.refusal(_move(site, token))
    there, letters = await _left(site)
    words = f"{words_of(error)}; {there} of 1 clone came, {letters} of 1 dead letter is left"
    return Saw((error, there, letters) == (None, 1, 0), words)


@probe(
    "transaction-rolled-back",
    "Where the completion in a transaction is refused, the message is not sent.",
    operations=14,
    seconds=8,
)
async def _rolled_back(site: Site) -> Saw:
    await _dead_letter(site)
    error = await site.refusal(_move(site, uuid4()))
    there, letters = await _left(site)
    words = f"{words_of(error)}; {there} of 1 clone came, {letters} of 1 dead letter is left"
    return Saw(error is not None and (there, letters) == (0, 1), words)


@probe(
    "transaction-to-another",
    "In one transaction a dead letter is completed, and its clone sent to another queue by way of its own.",
    operations=18,
    seconds=10,
)
async def _to_another(site: Site) -> Saw:
    token = await _dead_letter(site)
    another = await site.queue(is_second=True)
    error = await site.refusal(_move(site, token, another))
    await site.wait(1)  # forwarded messages arrive a little later
    there, letters = await _left(site, another)
    words = f"{words_of(error)}; {there} of 1 clone came, {letters} of 1 dead letter is left"
    return Saw((error, there, letters) == (None, 1, 0), words)


@probe(
    "peek-in-transaction",
    "While a transaction is open, a peek shows the message that it completes, and not the one that it sends.",
    operations=14,
    seconds=8,
)
async def _peeked(site: Site) -> Saw:
    token = await _dead_letter(site)
    async with _line(site) as line:
        await line.begin(_CLONE, token)
        there, letters = await _left(site)
    words = f"{there} clones and {letters} of 1 dead letter in the open transaction"
    return Saw((there, letters) == (0, 1), words)


async def _dead_letter(site: Site) -> UUID:
    """Make a queue with a dead letter that is locked, and return its lock token."""
    async with site.filled(blank()) as receiver:
        await site.settle(receiver, "dead-letter", await site.take(receiver, 1))
    async with site.letters() as letters:
        (letter,) = await site.take(letters, 1)
        if letter.lock_token is None:
            raise ValueError("The dead letter came without a lock token.")
        return UUID(str(letter.lock_token))


async def _move(site: Site, token: UUID, to: str | None = None) -> None:
    """Send a message and complete a dead letter in one transaction."""
    async with _line(site, to) as line:
        await line.move(_CLONE, token)


@asynccontextmanager
async def _line(site: Site, to: str | None = None) -> AsyncGenerator[TransactionLine]:
    """Open a connection for transactions; its end rolls back open ones."""
    own = site.client.get_queue_sender(site.name)
    senders = (own, None) if to is None else (site.client.get_queue_sender(to), own)
    line = TransactionLine(browser(site.client, f"{site.name}/$DeadLetterQueue"), *senders)
    try:
        await line.open()
        yield line
    finally:
        await line.close()


async def _left(site: Site, to: str | None = None) -> tuple[int, int]:
    """Return how many clones have come, and how many dead letters are left."""
    async with site.receiver(to) as receiver, site.letters() as letters:
        return len(await site.peek(receiver)), len(await site.peek(letters))
