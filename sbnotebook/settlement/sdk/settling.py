"""Settlement of many messages on one link, with an answer for each, and of a range of them by one frame.

The SDK settles one message for each task, and all tasks share one lock for reading and writing. A task that waits for
a frame keeps the others from sending, so 20 in flight take twice their round trips. Here one task sends and reads by
turns. The SDK also has no public way to release a message, and does not tell whether a release was confirmed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusServerBusyError

from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, Defer
from sbnotebook.settlement.pace import Limiter
from sbnotebook.settlement.sdk.connections import is_attached
from sbnotebook.settlement.sdk.private import (
    SEND_DISPOSITION_REJECT,
    Accepted,
    AMQPError,
    AMQPException,
    Frame,
    LinkState,
    Modified,
    Rejected,
    Released,
    check_disposition_outcome,
    constants,
    describe_performative,
    encode_value,
    outcome_name,
    private,
)
from sbnotebook.settlement.sdk.receivers import ReceivedLock

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver

_LOGGER: Final = logging.getLogger(__name__)
_GONE: Final = (LinkState.DETACHED, LinkState.ERROR)
_GLANCE: Final = 0.01
"""Seconds."""
_SILENT_AFTER: Final = 1.0
"""Seconds without any answer after which a late one is given up: until then it may wait to be read, behind others."""
_LONGEST: Final = 3
"""Times its own time that a late answer is awaited at most."""
_RANGE: Final = 100
"""Deliveries in a range at most."""
_WRITE: Final = 64 * 1024
"""Bytes after which a write ends: over WebSockets, each is a message, which the other side may refuse as too large."""
# The head of a disposition frame: its size, the size of the head with the type, the channel, the descriptor, and the
# size of the list. The list begins with the number of fields, and with role, first, last and settled.
_HEAD, _FIELDS = struct.Struct(">IHH4sI"), struct.Struct(">IBBIBIB")
_NO_EXTENSION, _CODE, _FIELD_COUNT, _TRUE, _FALSE, _UINT = 0x0200, b"\x00\x53\x15\xd0", 5, 0x41, 0x42, 0x70
# Positions in a disposition frame (AMQP 1.0 section 2.7.6).
_FRAME_ROLE, _FRAME_FIRST, _FRAME_LAST, _FRAME_SETTLED, _FRAME_STATE = range(5)
Ended: TypeAlias = Callable[[int, list[Exception | None]], None]
"""Gets the index of a part, and the errors of its messages."""
_PART: Final = "_sbnotebook_part"
"""In the SDK's note on the confirmation of a delivery: the part that it belongs to."""


def on_link(receiver: ServiceBusReceiver) -> set[bytes]:
    """Return the tags of the messages that came on the link that is open now and were not settled over it.

    Messages count, too, whose locks have ended, or that were settled over the management node: Service Bus waits for
    the link to settle them (azure-amqp, issue 152).
    """
    handler = private(receiver)._handler
    if handler is None or handler._link is None or not is_attached(handler):
        return set()
    return handler._link._received_delivery_tags


def is_used_up(receiver: ServiceBusReceiver, held: Iterable[ReceivedLock]) -> bool:
    """Return whether nothing on the link is held or waits for its answer, but some was never settled over it."""
    handler, tags = private(receiver)._handler, on_link(receiver)
    if not tags or any(lock.delivery_tag in tags for lock in held):
        return False
    requests = (node._mgmt_link._pending_operations for node in handler._mgmt_links.values())
    return not any((handler._link._pending_dispositions, *requests))


def ranges(locks: Sequence[ReceivedLock], first: int = _RANGE, later: int = _RANGE) -> list[slice]:
    """Cut messages into slices of at most so many consecutive deliveries, each of which one frame can settle."""
    numbers = [lock.delivery_id for lock in locks]
    found: list[slice] = []
    start = 0
    for end in range(1, len(numbers) + 1):
        follows = end < len(numbers) and numbers[end] == numbers[end - 1] + 1
        if not follows or end - start == min(later if found else first, _RANGE):
            found.append(slice(start, end))
            start = end
    return found


class LinkSettling:
    def __init__(self, receiver: ServiceBusReceiver, limiter: Limiter | None = None) -> None:
        handler = private(receiver)._handler
        if handler is None or handler._link is None or handler._connection is None:
            raise ServiceBusConnectionError(message="The receiver is not open.")
        self._link = handler._link
        self._link._incoming_disposition = partial(_confirm, self._link)
        self._connection = handler._connection
        self._transport = private(receiver)._amqp_transport
        self.limiter = limiter or Limiter()
        self._waiting: dict[int, _Waiting] = {}
        self.confirmed: list[int] = []
        """Indexes of parts that were confirmed of late."""
        self._looked_at = time.monotonic()

    async def run(
        self,
        parts: Sequence[tuple[Sequence[ReceivedLock], Decision]],
        *,
        answer_within: Callable[[], float],
        began: Callable[[int], bool],
        ended: Ended,
        in_flight: int | None = None,
    ) -> None:
        coming = deque(range(len(parts)))
        states = {decision: _state(decision) for decision in {decision for _, decision in parts}}
        encoded = {decision: _encoded(state) for decision, state in states.items()}

        def make(index: int) -> _Waiting:
            locks, decision = parts[index]
            self.limiter.began(len(locks))
            self.limiter.waiting += 1
            since, within = time.monotonic(), answer_within()
            return _Waiting(self, index, locks, states[decision], encoded[decision], since, within, len(locks))

        try:
            while True:
                # In two writes: the service settles the second half while the answers to the first are read.
                for _ in range(2):
                    begun = self._begin(coming, in_flight, began)
                    await self._send([make(index) for index in begun], ended)
                if not self._waiting and not coming:
                    return
                self._finish(await self._listen(), ended)
        finally:
            for part in tuple(self._waiting.values()):
                self._forget(part)

    def _begin(self, coming: deque[int], in_flight: int | None, began: Callable[[int], bool]) -> Iterator[int]:
        """Yield the indexes of the next parts, up to half of those that may wait at once, each to be sent."""
        most = in_flight or self.limiter.in_flight
        for _ in range(math.ceil(most / 2)):
            if not coming or self.limiter.waiting >= most or not self.limiter.is_open():
                return
            if not began(coming[0]):
                coming.clear()
                return
            yield coming.popleft()
            if self._connection._error is not None or self._link.state in _GONE:
                return  # its error ends the others before they begin

    async def _send(self, parts: Sequence[_Waiting], ended: Ended) -> None:
        """Send the frames of some parts in few writes; they end where they cannot be sent."""
        link, channel = self._link, self._link._session.channel
        for part in parts:
            self._waiting[part.index] = part
            for lock in part.locks:
                link._pending_dispositions[lock.delivery_id] = {"settled": False, "outcome": None, _PART: part}
                # As the SDK does for a single tag: do not try a message again on this link.
                link._received_delivery_tags.discard(lock.delivery_tag)
                lock.delivery_tag = None
        try:
            frames = bytearray()
            for part in parts:
                frames += _disposition(channel, part)
                if len(frames) >= _WRITE or part is parts[-1]:
                    await self._connection._process_outgoing_frame(channel, bytes(frames))
                    frames.clear()
        except Exception as error:  # noqa: BLE001 (the SDK raises various errors for a link that is gone)
            for part in parts:
                if part.left:  # others were confirmed between two writes
                    self._forget(part)
                    ended(part.index, [self._explained(error)] * len(part.locks))

    async def _listen(self) -> Exception | None:
        """Read a frame if one comes within a tenth of a second, and return the error when no more can come."""
        try:
            await self._connection.listen(wait=False)
        except Exception as error:  # noqa: BLE001 (as above)
            broken: Exception | None = error
        else:
            broken = self._connection._error
            if self._link.state in _GONE:
                broken = self._link._error or ServiceBusConnectionError(message="The link was detached.")
        if broken and not self._waiting:
            await asyncio.sleep(_GLANCE)  # others that share the limiter make room when they notice it, too
        return broken

    def _finish(self, broken: Exception | None, ended: Ended) -> None:
        now = time.monotonic()
        if now - self._looked_at > _SILENT_AFTER + self._connection._socket_timeout:
            self.limiter.heard_at = now  # the process was busy: it did not read
        self._looked_at = now
        finished, self.confirmed = (*self.confirmed, *self._not_in_time(broken, now)), []
        for index in finished:
            part = self._waiting[index]
            errors = [self._error_of(lock.delivery_id, part.state, broken) for lock in part.locks]
            self._forget(part)
            if any(isinstance(error, ServiceBusServerBusyError) for error in errors):
                self.limiter.refused()
            elif not part.left:
                self.limiter.accepted(len(errors))
            ended(index, errors)

    def _not_in_time(self, broken: Exception | None, now: float) -> Iterator[int]:
        times = 1 if now - self.limiter.heard_at >= _SILENT_AFTER else _LONGEST
        for index, part in self._waiting.items():
            if part.left and (broken or now >= part.since + times * part.within):
                yield index
            elif part.left and not broken:
                return  # those after it were sent later

    def _error_of(self, number: int, state: Any, broken: Exception | None) -> Exception | None:
        disposition = self._link._pending_dispositions[number]
        if not disposition["settled"]:
            # What ended the link says nothing about this message.
            why = f": {broken}" if broken else " in time"
            return ServiceBusConnectionError(message=f"The settlement was sent, and not confirmed{why}")
        if isinstance(state, Released) and SEND_DISPOSITION_REJECT not in (disposition["outcome"] or {}):
            return None  # with any other outcome, too, the message is not locked any more
        try:
            check_disposition_outcome(number, disposition["outcome"], outcome_name(state))
        except AMQPException as error:
            return self._explained(error)
        return None

    def _explained(self, error: Exception) -> Exception:
        if isinstance(error, AMQPException):
            return self._transport.create_servicebus_exception(_LOGGER, error)
        return error

    def _forget(self, part: _Waiting) -> None:
        self.limiter.waiting -= 1
        self._waiting.pop(part.index, None)
        for lock in part.locks:
            self._link._pending_dispositions.pop(lock.delivery_id, None)


@dataclass(slots=True, eq=False)
class _Waiting:
    settling: LinkSettling
    index: int
    locks: Sequence[ReceivedLock]
    state: Any
    encoded: bytes
    since: float
    within: float
    left: int

    def confirm_one(self) -> None:
        limiter = self.settling.limiter
        limiter.heard_at = now = time.monotonic()
        self.left -= 1
        if not self.left:
            limiter.answered(now - self.since)
            self.settling.confirmed.append(self.index)


async def _confirm(link: Any, frame: Frame) -> None:
    """Note what the service confirms, as the SDK's method does, which walks all that waits for its confirmation."""
    if frame[_FRAME_ROLE] or not frame[_FRAME_SETTLED]:  # of the receiver's own role, or no confirmation
        return
    pending, first, state = link._pending_dispositions, frame[_FRAME_FIRST], frame[_FRAME_STATE]
    last = first if frame[_FRAME_LAST] is None else frame[_FRAME_LAST]
    # The service chooses both numbers.
    numbers = range(first, last + 1) if last - first < len(pending) else tuple(pending)
    for number in numbers:
        if first <= number <= last and (note := pending.get(number)) is not None:
            is_new = not note["settled"]
            note["outcome"], note["settled"] = state, True
            if is_new and (part := note.get(_PART)) is not None:  # the SDK's own have none
                part.confirm_one()


def _disposition(channel: int, part: _Waiting) -> bytes:
    """Return the frame that settles a part (AMQP 1.0 sections 2.3.1 and 2.7.6), which the SDK encodes slowly."""
    first, last, state = part.locks[0].delivery_id, part.locks[-1].delivery_id, part.encoded
    fields = _FIELDS.size + len(state)
    head = _HEAD.pack(_HEAD.size + fields, _NO_EXTENSION, channel, _CODE, fields)
    return head + _FIELDS.pack(_FIELD_COUNT, _TRUE, _UINT, first, _UINT, last, _FALSE) + state


def _encoded(state: Any) -> bytes:
    encoded = bytearray()
    encode_value(encoded, describe_performative(state))
    return bytes(encoded)


def _state(decision: Decision) -> Any:
    """Return the outcome of a decision: Service Bus documentation, "AMQP 1.0 protocol guide", settlement."""
    match decision:
        case Complete():
            return Accepted()
        case Abandon():
            return Modified(delivery_failed=True, undeliverable_here=False)
        case Defer():
            return Modified(delivery_failed=True, undeliverable_here=True)
        case DeadLetter(reason, description):
            info = {
                constants.RECEIVER_LINK_DEAD_LETTER_REASON: reason,
                constants.RECEIVER_LINK_DEAD_LETTER_ERROR_DESCRIPTION: description,
            }
            return Rejected(error=AMQPError(condition=constants.DEADLETTERNAME, description=description, info=info))
        case _:
            return Released()
