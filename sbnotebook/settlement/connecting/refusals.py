"""Refusals of an entity by the service, explained in one sentence that says what to do.

The service answers ``put-token`` with the status of the problem, or refuses the link. azure-servicebus turns the first
into a ServiceBusAuthenticationError that says only that there was an error, and retries all of it for fifteen seconds,
although the answer stays the same.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Collection
from typing import TYPE_CHECKING, Any, Final

import anyio
from azure.core.exceptions import AzureError
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from sbnotebook.errors import near_match
from sbnotebook.model import EntityAddress

if TYPE_CHECKING:
    from azure.servicebus.aio.management import ServiceBusAdministrationClient

_NOT_FOUND: Final = 404
_REFUSED: Final = frozenset({400, 401, 403})
_LIST_SESSIONS: Final = "get-message-sessions"
_NOT_ALLOWED, _NOT_IMPLEMENTED = "amqp:not-allowed", "amqp:not-implemented"
_ABOUT_SESSIONS: Final = (
    ("SessionId was not set", "requires sessions: give each message a session_id"),
    (
        "entity that requires sessions",
        "requires sessions: lock one with %sb_lock {} --next-session, or in Python with next_session()",
    ),
    ("sessionful message receiver cannot be created", "has no sessions: use it without naming one"),
)
# The operating systems' words for a name that is not in the DNS, not for a DNS that did not answer.
_NO_SUCH_HOST: Final = re.compile(
    r"Errno -2\]|Errno -5\]|nodename nor servname|Name or service not known|Errno 1100[14]\]"
)
_NOTHING_LISTENS: Final = re.compile(r"Errno (?:111|61|10061|1225)\]|Connect call failed|Connection refused")
# What the SDK puts before an answer of a management node, what Azure adds for its support, and a second mention of the
# status.
_NOISE: Final = re.compile(
    r"(?i)\AService request failed\. b[\"']| ?(?:tracking-?id|reference) ?:.*| ?Error condition: ?[\w:.-]++ ?$"
)
_LISTED_WITHIN: Final = 3.0
"""Seconds that a suggestion may take."""
_MOST_LISTED: Final = 1_000
"""Queues, topics, or subscriptions that are listed: each hundred takes a management operation."""


def is_missing(error: ServiceBusError) -> bool:
    return _answer(error)[0] == _NOT_FOUND or isinstance(error, MessagingEntityNotFoundError)


def missing(address: EntityAddress, host: str, known: Collection[str] = ()) -> str:
    subscription = str(address).replace("/", "/subscriptions/", 1)  # of events/audit
    near = subscription if subscription in known else near_match(str(address), known)
    hint = f" (did you mean {near}?)" if near else ""
    return f"There is no {_kind(address)} {str(address)!r} in {host}{hint}: %sb_entities or entities() lists all."


def unreachable(host: str, words: str, *, is_emulator: bool) -> str | None:
    """Return why a host cannot be reached, and what to do; None for another reason, which may pass."""
    if _NO_SUCH_HOST.search(words):
        return f"There is no host {host}: check the namespace's name, and the network of this machine."
    if _NOTHING_LISTENS.search(words):
        advice = "start the emulator, or check its port" if is_emulator else "check the name, and the firewall"
        return f"Nothing listens at {host}: {advice}."
    return None


def refusal(error: ServiceBusError, address: EntityAddress, host: str) -> str | None:
    """Return why an entity refuses everything, and what to do; None for another error, which may pass."""
    status, words = _answer(error)
    place = f"{_kind(address)} {str(address)!r}"
    if status in _REFUSED or isinstance(error, ServiceBusAuthorizationError):
        return (
            f"{host} does not let this connection use the {place}: check that the key or token is right, has not "
            f"expired and has the right to do this{said(words)}."
        )
    if isinstance(error, MessagingEntityDisabledError):
        return f"The {place} is disabled: enable it, or wait until it is{said(words)}."
    condition = getattr(error, "_condition", None)
    if _LIST_SESSIONS in words:
        return f"The {place} has no sessions: look at its messages without naming one."
    if condition == _NOT_IMPLEMENTED or (condition == _NOT_ALLOWED and "from the topic" in words):
        return (
            f"The {place} cannot do this: the messages of a topic are in its subscriptions, so name one of these, "
            f"{address.name}/subscriptions/NAME."
        )
    if condition == _NOT_ALLOWED:
        return next((f"The {place} {what.format(address)}." for found, what in _ABOUT_SESSIONS if found in words), None)
    return None


def said(words: str) -> str:
    return f" (Service Bus says: {words.rstrip('.')})"


def _answer(error: ServiceBusError) -> tuple[int | None, str]:
    """Return the status of a refused token, and the service's own words."""
    inner: object = error.inner_exception
    status: object = getattr(inner, "status_code", None)
    words: object = getattr(inner, "status_description", None) if isinstance(status, int) else None
    return (status if isinstance(status, int) else None), service_words(words or error)


def service_words(description: object) -> str:
    text = description.decode(errors="replace") if isinstance(description, bytes) else str(description)
    return _NOISE.sub("", " ".join(text.split())).strip() or "nothing"


def _kind(address: EntityAddress) -> str:
    return "subscription" if address.subscription is not None else "queue or topic"


async def known_addresses(client: ServiceBusAdministrationClient, address: EntityAddress) -> list[str]:
    """Return addresses of a namespace that a misspelt address may mean, as far as the connection may list them."""
    found: list[str] = []
    # Without the right to list, or without a quick answer, there is only less to suggest.
    with anyio.move_on_after(_LISTED_WITHIN), contextlib.suppress(AzureError, OSError):
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
        if count == _MOST_LISTED:
            return
