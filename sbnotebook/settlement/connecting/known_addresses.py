"""The addresses in a namespace that a misspelt one may mean."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
from azure.core.exceptions import AzureError

from sbnotebook.errors import near_match
from sbnotebook.model import EntityAddress
from sbnotebook.settlement.connecting.administration_clients import AsyncServiceBusAdministrationClient

__all__ = ["known_addresses"]

_WITHIN: Final = 3.0
"""Seconds."""
_MOST: Final = 1_000
"""Queues, topics, or subscriptions that are listed: each hundred takes a management operation."""


async def known_addresses(client: AsyncServiceBusAdministrationClient, address: EntityAddress) -> list[str]:
    """Return addresses of a namespace that a misspelt address may mean, as far as the connection may list them.

    Args:
        client: of the namespace. Listing needs the right Manage.
        address: tells whether subscriptions and sub-queues are of interest.
    """
    found: list[str] = []
    # Without the right to list, or without a quick answer, there is only less to suggest.
    with anyio.move_on_after(_WITHIN), contextlib.suppress(AzureError, OSError):
        async for queue in _names(client.list_queues()):
            found += (queue, f"{queue}/$dlq")
        topics = [topic async for topic in _names(client.list_topics())]
        found += topics
        near = near_match(address.name.partition("/")[0], topics)
        if near is not None:
            async for name in _names(client.list_subscriptions(near)):
                subscription = EntityAddress(near, name, address.sub_queue)
                found.append(str(subscription))
    return found


async def _names(listed: Any) -> AsyncIterator[str]:
    count = 0
    async for each in listed:
        yield str(each.name)
        count += 1
        if count == _MOST:
            return
