"""Probes of sending, of the connection itself, and of transactions."""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID, uuid4

from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError
from azure.servicebus.management import AccessRights, AuthorizationRule

from sbnotebook.model import DeadLetter, Message
from sbnotebook.probe.probe import Saw, Site, blank, probe, words_of
from sbnotebook.settlement import payload_of
from sbnotebook.settlement.sdk import connections
from sbnotebook.settlement.sdk.management import browser
from sbnotebook.settlement.sdk.transactions import TransactionLine

_FRAME: Final = 65_536
_MEGABYTES: Final = 1_024
_UNAUTHORIZED: Final = 401


@probe
async def batch_refused_whole(site: Site) -> Saw:
    """A batch in which one message is refused is refused as a whole."""
    await site.queue(requires_session=True)
    return await _refused_batch(site, [ServiceBusMessage("", session_id="one"), ServiceBusMessage("")])


@probe
async def batch_of_one_partition_key(site: Site) -> Saw:
    """A batch with two partition keys is refused by a partitioned queue with duplicate detection."""
    await site.queue(enable_partitioning=True, requires_duplicate_detection=True)
    return await _refused_batch(site, [ServiceBusMessage("", partition_key=key) for key in ("one", "two")])


async def _refused_batch(site: Site, messages: list[ServiceBusMessage]) -> Saw:
    error = await site.refusal(site.send(messages))
    arrived = await site.count()
    return Saw(error is not None and arrived == 0, f"{words_of(error)}; {arrived} of {len(messages)} arrived")


@probe
async def partitioned_size(site: Site) -> Saw:
    """A partitioned queue takes in 16 times the size that was asked for."""
    queue = await site.queue(enable_partitioning=True, max_size_in_megabytes=_MEGABYTES)
    async with site.connection.administration_client() as client:
        size = (await client.get_queue(queue)).max_size_in_megabytes
    return Saw(size == 16 * _MEGABYTES, f"{_MEGABYTES:,} MB were asked for, {size or 0:,} MB given")


@probe
async def frame_size(site: Site) -> Saw:
    """Service Bus takes frames of 64 KiB."""
    async with site.filled() as receiver:
        await site.peek(receiver)
        size = connections.frame_size(receiver)
    return Saw(None if size is None else size == _FRAME, f"{size or 0:,} bytes")


@probe
async def websocket(site: Site) -> Saw:
    """A WebSocket over port 443 carries the same."""
    queue = await site.queue()
    try:
        return await _over_websocket(site, queue)
    except ServiceBusConnectionError as error:
        return Saw(is_expected=False, words=words_of(error))


async def _over_websocket(site: Site, queue: str) -> Saw:
    async with (
        site.connection.new_client(retries=0, over_websocket=True) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        await sender.send_messages(ServiceBusMessage("over a WebSocket"))
        found = [str(message) for message in await site.peek(receiver)]
    return Saw(found == ["over a WebSocket"], f"{len(found)} of 1 message")


@probe
async def listen_key_counts(site: Site) -> Saw:
    """A key with Listen alone gets 401 for a list and for counts."""
    if site.connection.parsed is None:
        return Saw(is_expected=None, words="a connection string is needed for this")
    rule = AuthorizationRule(
        key_name="listen", rights=[AccessRights.LISTEN], primary_key=_new_key(), secondary_key=_new_key()
    )
    queue = await site.queue(authorization_rules=[rule])
    statuses: list[int | None] = []
    async with site.with_key("listen", str(rule.primary_key)).administration_client() as client:
        for attempt in (client.list_queues().__anext__(), client.get_queue_runtime_properties(queue)):
            try:
                await attempt
                statuses.append(None)
            except HttpResponseError as error:
                statuses.append(error.status_code)
    return Saw(
        statuses == [_UNAUTHORIZED] * 2, ", ".join("allowed" if each is None else str(each) for each in statuses)
    )


@probe
async def administration_statuses(site: Site) -> Saw:
    """Administration answers 409 for an existing name, 404 for a missing one to remove, and else an empty feed."""
    queue = await site.queue()
    missing = f"{queue}-missing"
    async with site.connection.administration_client() as client:
        taken = await _status(client.create_queue(queue))
        removed = await _status(client.delete_queue(missing))
        found = await _status(client.get_queue(missing))
        subscriptions = [each async for each in client.list_subscriptions(missing)]
    words = f"taken: {taken}; removed: {removed}; not there: {found}; {len(subscriptions)} subscriptions"
    # Of a feed without entries the SDK makes an error without a status.
    return Saw((taken, removed, found, subscriptions) == ("409", "404", "ResourceNotFoundError", []), words)


async def _status(attempt: Awaitable[object]) -> str:
    try:
        await attempt
    except HttpResponseError as error:
        return str(error.status_code or type(error).__name__)
    return "no error"


def _new_key() -> str:
    return b64encode(secrets.token_bytes(32)).decode()


# ---------------------------------------------------------------- transactions, which resubmit can use

_CLONE: Final = payload_of(Message(body=b"clone"))


@probe
async def transaction_committed(site: Site) -> Saw:
    """In one transaction a dead letter that another connection locked is completed, and its clone sent to its queue."""
    token = await _dead_letter(site)
    error = await site.refusal(_move(site, token))
    there, letters = await _left(site)
    words = f"{words_of(error)}; {there} of 1 clone came, {letters} of 1 dead letter is left"
    return Saw((error, there, letters) == (None, 1, 0), words)


@probe
async def transaction_rolled_back(site: Site) -> Saw:
    """A message is not sent if the completion in its transaction is refused."""
    await _dead_letter(site)
    error = await site.refusal(_move(site, uuid4()))
    there, letters = await _left(site)
    words = f"{words_of(error)}; {there} of 1 clone came, {letters} of 1 dead letter is left"
    return Saw(error is not None and (there, letters) == (0, 1), words)


@probe
async def transaction_to_another(site: Site) -> Saw:
    """In one transaction a dead letter is completed, and its clone sent to another queue by way of its own."""
    token = await _dead_letter(site)
    another = await site.queue(is_second=True)
    error = await site.refusal(_move(site, token, another))
    await site.wait(1)  # forwarded messages arrive a little later
    there, letters = await _left(site, another)
    words = f"{words_of(error)}; {there} of 1 clone came, {letters} of 1 dead letter is left"
    return Saw((error, there, letters) == (None, 1, 0), words)


@probe
async def peek_in_transaction(site: Site) -> Saw:
    """While a transaction is open, a peek shows the message that it completes, and not the one that it sends."""
    token = await _dead_letter(site)
    async with _line(site) as line:
        await line.begin(_CLONE, token)
        there, letters = await _left(site)
    words = f"{there} clones and {letters} of 1 dead letter in the open transaction"
    return Saw((there, letters) == (0, 1), words)


async def _dead_letter(site: Site) -> UUID:
    """Make a queue with a dead letter that is locked, and return its lock token."""
    async with site.filled(blank()) as receiver:
        await site.settle(receiver, DeadLetter(), await site.take(receiver, 1))
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
