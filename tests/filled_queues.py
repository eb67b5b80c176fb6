"""The one way in which tests create a queue that holds messages, settle some of them, and look at the others."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from sbnotebook.model import Decision, Message, Report

if TYPE_CHECKING:
    from sbnotebook.client import Entity, Namespace
    from sbnotebook.settlement import AsyncEntity, AsyncNamespace

__all__ = [
    "dead_letter_queue",
    "deferred_queue",
    "delivery_counts",
    "filled_client_queue",
    "filled_queue",
    "message_ids",
    "partly_deferred_queue",
    "sequence_numbers",
    "session_messages",
    "settle_first",
]


async def filled_queue(
    namespace: AsyncNamespace, name: str, messages: int | Sequence[bytes | Message], **options: Any
) -> AsyncEntity:
    """Create a queue and send it messages in their order; a number or bodies make messages m0, m1 and so on.

    ``options`` are those of :meth:`AsyncNamespace.create_queue`.
    """
    await namespace.create_queue(name, **options)
    queue = namespace.entity(name)
    assert (await queue.send(_numbered(messages), max_in_flight=1)).ok
    return queue


async def deferred_queue(namespace: AsyncNamespace, count: int, deferred: int) -> AsyncEntity:
    """Create a queue under a new name with messages 1, 2 and so on, and defer the first of them."""
    messages = [Message(body=b"x", message_id=str(n)) for n in range(1, count + 1)]
    queue = await filled_queue(namespace, f"queue-{uuid.uuid4().hex[:8]}", messages)
    assert (await (await queue.defer_all(max_messages=deferred)).apply()).settled == deferred
    return queue


def filled_client_queue(
    namespace: Namespace, name: str, messages: int | Sequence[bytes | Message], **options: Any
) -> Entity:
    """Do what :func:`filled_queue` does, with the synchronous client."""
    namespace.create_queue(name, **options)
    queue = namespace.entity(name)
    assert queue.send(_numbered(messages), max_in_flight=1, show_progress=False).ok
    return queue


def dead_letter_queue(
    namespace: Namespace,
    name: str,
    messages: int | Sequence[bytes | Message],
    *,
    reason: str = "Bad",
    description: str | None = None,
    **options: Any,
) -> Entity:
    """Create a queue with messages as :func:`filled_client_queue` does, dead-letter them, and return where they are."""
    queue = filled_client_queue(namespace, name, messages, **options)
    with queue.lock(messages if isinstance(messages, int) else len(messages)) as batch:
        batch.dead_letter(reason=reason, description=description).raise_for_failures()
    return namespace.entity(queue.address.dead_letter)


def partly_deferred_queue(namespace: Namespace, name: str, count: int, *, deferred: int) -> Entity:
    """Send an existing queue messages m1, m2 and so on, of subjects s0 to s3, and defer the first of them."""
    queue = namespace.entity(name)
    sent = [Message(body=b"%d" % n, message_id=f"m{n}", subject=f"s{n % 4}") for n in range(1, count + 1)]
    assert queue.send(sent, max_in_flight=1, show_progress=False).ok
    if deferred:
        plan = queue.defer_all(max_messages=deferred, show_progress=False)
        assert plan.apply(show_progress=False).settled == deferred
    return queue


def session_messages(sessions: Iterable[str]) -> list[Message]:
    """Return messages m0, m1 and so on, one for each session id, in order."""
    return [Message(body=b"%d" % n, message_id=f"m{n}", session_id=each) for n, each in enumerate(sessions)]


async def sequence_numbers(queue: AsyncEntity) -> list[int]:
    """Return the sequence numbers of all messages in a queue, in order."""
    return [message.sequence_number for message in await queue.peek()]


async def message_ids(queue: AsyncEntity) -> list[str | None]:
    """Return the ids of all messages in a queue, in order."""
    return [message.message_id for message in await queue.peek()]


async def delivery_counts(queue: AsyncEntity) -> dict[int, int]:
    """Return how often each message of a queue was delivered, by its sequence number, in order."""
    return {message.sequence_number: message.delivery_count for message in await queue.peek()}


async def settle_first(queue: AsyncEntity, decision: Decision, count: int = 1) -> Report:
    """Lock the first messages of a queue and settle them, as another consumer does."""
    async with queue.batch() as batch:
        while len(batch.messages) < count:
            assert await batch.receive(count - len(batch.messages), max_wait=30)
        report = await batch.settle(decision)
    assert report.ok, report.failures
    return report


def _numbered(messages: int | Sequence[bytes | Message]) -> list[Message]:
    """Return messages m0, m1 and so on; a count gives each its number as its body. Whole messages stay as they are."""
    given = [b"%d" % n for n in range(messages)] if isinstance(messages, int) else messages
    return [
        Message(body=each, message_id=f"m{n}", subject=("even", "odd")[n % 2]) if isinstance(each, bytes) else each
        for n, each in enumerate(given)
    ]
