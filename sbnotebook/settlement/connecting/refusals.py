"""Refusals of an entity by the service, explained in one sentence that says what to do.

The service answers ``put-token`` with the status of the problem, or refuses the link. azure-servicebus turns the first
into a ServiceBusAuthenticationError that says only that there was an error, and retries all of it for fifteen seconds,
although the answer stays the same.
"""

from __future__ import annotations

import re
from typing import Final

from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from sbnotebook.model import EntityAddress

__all__ = ["refusal"]

_NOT_FOUND: Final = 404
_REFUSED: Final = frozenset({400, 401, 403, _NOT_FOUND})
_NOT_ALLOWED, _NOT_IMPLEMENTED = "amqp:not-allowed", "amqp:not-implemented"
_ABOUT_SESSIONS: Final = (
    ("SessionId was not set", "requires sessions: give each message a session_id"),
    ("entity that requires sessions", "requires sessions: use one of its sessions in place of all"),
    ("sessionful message receiver cannot be created", "has no sessions: use it without naming one"),
)
# The operating systems' words for a name that is not in the DNS, not for a DNS that did not answer.
_NO_SUCH_HOST: Final = re.compile(r"Errno -2\]|Errno -5\]|nodename nor servname|Errno 1100[14]\]")
# What the SDK puts before an answer of a management node, what Azure adds for its support, and a second mention of the
# status.
_NOISE: Final = re.compile(
    r"(?i)\AService request failed\. b[\"']| ?(?:tracking-?id|reference) ?:.*| ?Error condition: ?[\w:.-]++ ?$"
)


def refusal(error: ServiceBusError, address: EntityAddress, host: str) -> str | None:
    """Return why an entity refuses everything, and what to do; None for another error, which may pass.

    Args:
        error: of opening a sender or a receiver.
        address: the entity.
        host: the namespace.
    """
    status, words = _answer(error)
    place = f"{_kind(address)} {str(address)!r}"
    if status == _NOT_FOUND or isinstance(error, MessagingEntityNotFoundError):
        return (
            f"There is no {place} in {host}: check the name, or list what is there with entities(). "
            f"The service says: {words}"
        )
    if status in _REFUSED or isinstance(error, ServiceBusAuthorizationError):
        return (
            f"{host} does not let this connection use the {place}: check that the key or token is right, has not "
            f"expired and has the right to do this. The service says: {words}"
        )
    if isinstance(error, MessagingEntityDisabledError):
        return f"The {place} is disabled: enable it, or wait until it is. The service says: {words}"
    if _NO_SUCH_HOST.search(words):
        return f"There is no host {host}: check the namespace's name, and the network of this machine."
    condition = getattr(error, "_condition", None)
    if condition == _NOT_IMPLEMENTED or (condition == _NOT_ALLOWED and "from the topic" in words):
        return (
            f"The {place} cannot do this: if it is a topic, whose messages stand in its subscriptions, name one of "
            f"these, {address.name}/subscriptions/NAME. The service says: {words}"
        )
    if condition == _NOT_ALLOWED:
        return next(
            (f"The {place} {what}. The service says: {words}" for found, what in _ABOUT_SESSIONS if found in words),
            None,
        )
    return None


def _answer(error: ServiceBusError) -> tuple[int | None, str]:
    """Return the status of a refused token, and the service's own words."""
    inner: object = error.inner_exception
    status: object = getattr(inner, "status_code", None)
    words: object = getattr(inner, "status_description", None) if isinstance(status, int) else None
    text = words.decode(errors="replace") if isinstance(words, bytes) else str(words or error)
    return (status if isinstance(status, int) else None), _NOISE.sub("", " ".join(text.split())).strip() or "nothing"


def _kind(address: EntityAddress) -> str:
    return "subscription" if address.subscription is not None else "queue or topic"
