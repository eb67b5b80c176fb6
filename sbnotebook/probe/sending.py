"""Probes of sending, and of the connection itself."""

from __future__ import annotations

import secrets
from base64 import b64encode
from typing import TYPE_CHECKING, Final

from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError
from azure.servicebus.management import AccessRights, AuthorizationRule

from sbnotebook.probe.probe import Saw, probe, words_of
from sbnotebook.settlement.sdk.links import frame_size

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sbnotebook.probe.site import Site

_FRAME: Final = 65_536
_MEGABYTES: Final = 1_024
_UNAUTHORIZED: Final = 401


@probe("batch-refused-whole", "A batch in which one message is refused is refused as a whole.", operations=8)
async def _batch(site: Site) -> Saw:
    await site.queue(requires_session=True)
    return await _refused_batch(site, [ServiceBusMessage("", session_id="one"), ServiceBusMessage("")])


@probe(
    "batch-of-one-partition-key",
    "A batch with two partition keys is refused by a partitioned queue with duplicate detection.",
    operations=8,
)
async def _partition_keys(site: Site) -> Saw:
    await site.queue(enable_partitioning=True, requires_duplicate_detection=True)
    return await _refused_batch(site, [ServiceBusMessage("", partition_key=key) for key in ("one", "two")])


async def _refused_batch(site: Site, messages: list[ServiceBusMessage]) -> Saw:
    error = await site.refusal(site.send(messages))
    arrived = await site.count()
    return Saw(error is not None and arrived == 0, f"{words_of(error)}; {arrived} of {len(messages)} arrived")


@probe("partitioned-size", "A partitioned queue takes in 16 times the size that was asked for.", operations=3)
async def _partitioned_size(site: Site) -> Saw:
    queue = await site.queue(enable_partitioning=True, max_size_in_megabytes=_MEGABYTES)
    async with site.connection.administration_client() as client:
        size = (await client.get_queue(queue)).max_size_in_megabytes
    return Saw(size == 16 * _MEGABYTES, f"{_MEGABYTES:,} MB were asked for, {size or 0:,} MB given")


@probe("frame-size", "Service Bus takes frames of 64 KiB.", operations=4)
async def _frames(site: Site) -> Saw:
    async with site.filled() as receiver:
        await site.peek(receiver)
        size = frame_size(receiver)
    return Saw(None if size is None else size == _FRAME, f"{size or 0:,} bytes")


@probe("websocket", "A WebSocket over port 443 carries the same.", operations=6, seconds=8)
async def _websocket(site: Site) -> Saw:
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


@probe("listen-key-counts", "A key with Listen alone gets 401 for a list and for counts.", operations=6, seconds=8)
async def _listen(site: Site) -> Saw:
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


@probe(
    "administration-statuses",
    "Administration answers 409 for an existing name, 404 if there is nothing to remove, and an empty feed for a "
    "missing entity.",
    operations=6,
)
async def _statuses(site: Site) -> Saw:
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
