"""Locks without their messages, below the SDK's public interface, as :mod:`sbnotebook.settlement.sdk_internals` is.

Who locks ten thousand messages to reach ten of them needs the locks of the others, and not their bodies: a body is
dropped here as it arrives, before the next one does. And who gives ten thousand back needs no frame for each: one says
"released" of a whole range of deliveries (AMQP 1.0 section 2.7.6, fields ``first`` and ``last``).
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import logging
import time
from collections.abc import Container, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from azure.servicebus._pyamqp.error import AMQPException
from azure.servicebus._pyamqp.outcomes import Released
from azure.servicebus.exceptions import ServiceBusError

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusReceiver

__all__ = ["BareLock", "keep_bodies_of", "keep_locks_alone", "ranges", "release_range"]

_LOGGER: Final = logging.getLogger(__name__)

_WANTED: Final = "_sbnotebook_wanted"
_NUMBER: Final = b"x-opt-sequence-number"
_LOCKED_UNTIL: Final = b"x-opt-locked-until"
_RANGE: Final = 100
"""Deliveries in a range at most. The SDK walks all that it waits for at each confirmation."""
_AT_ONCE: Final = 0.001


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
            await arrived(frame, message)

        handler._message_received_async = keep_or_drop

    def build_unless_bare(received: Any) -> Any:
        _, message = received
        return message if isinstance(message, BareLock) else build(received)

    receiver._create_handler = create_with_filter
    receiver._build_received_message = build_unless_bare


def keep_bodies_of(receiver: ServiceBusReceiver, wanted: Container[int] | None) -> None:
    """From now on keep only the locks of messages whose number is not among the wanted; None keeps everything."""
    setattr(receiver, _WANTED, wanted)


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


async def release_range(
    receiver: ServiceBusReceiver, messages: Sequence[ServiceBusReceivedMessage], answer_within: float
) -> list[Exception | None]:
    """Give messages back without raising their delivery counts, in one frame, and wait for each confirmation.

    Args:
        receiver: the one that received them, all on the link that is open now.
        messages: whose deliveries follow one another, see :func:`ranges`.
        answer_within: seconds to wait for the confirmations.

    Returns:
        For each message what went wrong, None where it was confirmed.
    """
    handler: Any = receiver._handler
    if handler is None:
        return [ServiceBusError("The receiver is closed.")] * len(messages)
    link, transport = handler._link, receiver._amqp_transport
    numbers = [message._delivery_id for message in messages]
    ends: list[Exception | None] = []
    until = time.monotonic() + answer_within
    link._pending_dispositions.update((number, {"settled": False, "outcome": None}) for number in numbers)
    try:
        await link.send_disposition(
            first_delivery_id=numbers[0],
            last_delivery_id=numbers[-1],
            delivery_tag=messages[0]._delivery_tag,
            settled=False,
            delivery_state=Released(),
        )
        # As the SDK does for the one tag that it is given: what was tried once is not tried on this link again.
        link._received_delivery_tags.difference_update(message._delivery_tag for message in messages)
        for number in numbers:
            left = max(until - time.monotonic(), _AT_ONCE)
            try:
                await link._wait_for_disposition_outcome([number], left, "released")
            except AMQPException as error:
                ends.append(transport.create_servicebus_exception(_LOGGER, error))
            else:
                ends.append(None)
    except Exception as error:  # noqa: BLE001 (the SDK raises whatever comes of a link that is gone)
        ends += [error] * (len(messages) - len(ends))
    finally:
        for number in numbers:
            link._pending_dispositions.pop(number, None)
    return ends
