"""Locks without their messages, below the SDK's public interface, as :mod:`sbnotebook.settlement.sdk_internals` is.

Who locks ten thousand messages to reach ten of them needs the locks of the others, and not their bodies: a body is
dropped here as it arrives, before the next one does. And who gives ten thousand back needs no frame for each: one says
"released" of a whole range of deliveries (AMQP 1.0 section 2.7.6, fields ``first`` and ``last``).
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusReceiver

__all__ = ["BareLock", "keep_bodies_of", "keep_locks_alone", "ranges", "waiting"]

_WANTED: Final = "_sbnotebook_wanted"
_NUMBER: Final = b"x-opt-sequence-number"
_LOCKED_UNTIL: Final = b"x-opt-locked-until"
_RANGE: Final = 100
"""Deliveries in a range at most. The SDK walks all that it waits for at each confirmation."""


class BareLock:
    """What is kept of a message that nobody asked for: enough to renew its lock and to give it back.

    It stands in for the SDK's received message, and has those of its attributes that locks are about.
    """

    __slots__ = ("_delivery_id", "_delivery_tag", "_expiry", "lock_token", "sequence_number")

    def __init__(self, frame: Any, annotations: dict[bytes, Any]) -> None:
        stamp = annotations.get(_LOCKED_UNTIL)
        self._delivery_id: int = frame[1]
        self._delivery_tag: bytes = frame[2]
        self._expiry = datetime.fromtimestamp(stamp / 1000, UTC) if stamp else None
        self.lock_token = UUID(bytes_le=frame[2])
        self.sequence_number: int = annotations.get(_NUMBER) or 0

    @property
    def locked_until_utc(self) -> datetime | None:
        """When the lock ends, as it was renewed last."""
        return self._expiry


def keep_locks_alone(receiver: ServiceBusReceiver) -> None:
    """Prepare a receiver, before it is opened, for :func:`keep_bodies_of`."""
    create: Any = receiver._create_handler
    build: Any = receiver._build_received_message
    setattr(receiver, _WANTED, None)

    def create_with_filter(auth: Any) -> None:
        create(auth)
        handler: Any = receiver._handler
        arrived = handler._message_received_async

        async def keep_or_drop(frame: Any, message: Any) -> None:
            wanted: Container[int] | None = getattr(receiver, _WANTED)
            annotations: dict[bytes, Any] = message.message_annotations or {}
            if wanted is not None and annotations.get(_NUMBER, 0) not in wanted:
                frame, message = frame[:11], BareLock(frame, annotations)
            if wanted is not None and not receiver._receive_context.is_set():
                # The SDK would release what comes between two calls, and it would come again behind later ones.
                handler._received_messages.put((frame, message))
            else:
                await arrived(frame, message)

        handler._message_received_async = keep_or_drop

    def build_unless_bare(received: Any) -> Any:
        _, message = received
        return message if isinstance(message, BareLock) else build(received)

    receiver._create_handler = create_with_filter
    receiver._build_received_message = build_unless_bare


def keep_bodies_of(receiver: ServiceBusReceiver, wanted: Container[int] | None) -> None:
    """From now on keep only the locks of messages whose number is not among the wanted; None keeps everything.

    As long as it is not None, what comes between two calls waits for the next one, so that the order is kept.
    """
    setattr(receiver, _WANTED, wanted)


def waiting(receiver: ServiceBusReceiver) -> int:
    """How many messages have come between two calls, and wait for the next one.

    A call that asks for more than these takes them, waits, and loses them when it is cancelled.
    """
    handler: Any = receiver._handler
    return 0 if handler is None else handler._received_messages.qsize()


def ranges(messages: Sequence[ServiceBusReceivedMessage]) -> list[slice]:
    """Cut messages where their deliveries do not follow one another; each slice can be released at once.

    Example:
        >>> class Got:
        ...     def __init__(self, number: int) -> None:
        ...         self._delivery_id = number
        >>> ranges([Got(1), Got(2), Got(7)])
        [slice(0, 2, None), slice(2, 3, None)]
    """
    found: list[slice] = []
    start = 0
    for end in range(1, len(messages) + 1):
        follows = end < len(messages) and messages[end]._delivery_id == messages[end - 1]._delivery_id + 1
        if not follows or end - start == _RANGE:
            found.append(slice(start, end))
            start = end
    return found
