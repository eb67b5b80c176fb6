"""Packing messages into transfers: by session and partition key, as many as fit, and few in memory."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sbnotebook.model import EntityAddress, Message, Outcome, OutcomeStatus
from sbnotebook.model.amqp import AmqpValue, Symbol, encode
from sbnotebook.model.sections import DATA, MESSAGE_ANNOTATIONS, PROPERTIES
from sbnotebook.settlement.connecting.connection import scrub
from sbnotebook.settlement.wire.conversion import payload_of
from sbnotebook.settlement.wire.layout import as_text

__all__ = ["Haul", "Item", "Pack", "Packer", "Sizes"]

_MAX_WAITING: Final = 5000
"""Messages that wait for others of their session."""
_MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
_MAX_BEHIND: Final = 10_000
"""Messages that may be pulled after one that still waits for others of its session: the report is kept in order."""
_MAX_WAIT: Final = 1.0
"""Seconds that a message waits for others."""
_MAX_REFUSED: Final = 1000
_MAX_DESCRIPTION: Final = 500
_PARTITION_KEY: Final = Symbol("x-opt-partition-key")
_MESSAGE_ID, _GROUP_ID = 0, 10
"""Positions in the list of the properties section (AMQP 1.0 section 3.2.4)."""
_ITEM_HEAD: Final = bytes((0x00, 0x53, DATA, 0xB0))
_ITEM_BYTES: Final = len(_ITEM_HEAD) + 4


class Sizes(NamedTuple):
    """What an entity takes.

    Args:
        message: bytes of one message.
        batch: bytes of one transfer with several messages.
    """

    message: int
    batch: int


@dataclass(slots=True)
class Item:
    """One message on its way.

    Args:
        index: its position in the input.
        message_id: its identifier, where it has one.
        payload: its AMQP bytes.
    """

    index: int
    message_id: str | None
    payload: bytes


@dataclass(slots=True, eq=False)
class Pack:
    """Messages that travel in one transfer: of one session and partition key, or of none.

    Args:
        session_id: of all of them.
        partition_key: of all of them.
        envelope: the sections in front of them when there are several.
        asked: whether they may have reached the service, and the answer is not known.
        since: when the first one came.
    """

    session_id: str | None
    partition_key: str | None
    envelope: bytes
    items: list[Item] = field(default_factory=list[Item])
    size: int = 0
    asked: bool = False
    since: float = field(default_factory=time.monotonic)

    @property
    def key(self) -> str | None:
        """What keeps the order of messages: those of one key are sent one transfer after the other."""
        return self.session_id if self.session_id is not None else self.partition_key

    @property
    def is_batch(self) -> bool:
        """Whether it travels as a batch; a message alone travels as it is."""
        return len(self.items) > 1

    def transfer(self) -> bytes:
        """The bytes that travel.

        A batch is an envelope of which the data sections are whole messages (the SDK's ``ServiceBusMessageBatch``).
        """
        if not self.is_batch:
            return self.items[0].payload
        parts = [self.envelope]
        for item in self.items:
            parts += (_ITEM_HEAD, len(item.payload).to_bytes(4, "big"), item.payload)
        return b"".join(parts)

    def fits(self, item: Item, max_bytes: int) -> bool:
        """Whether one more message fits in."""
        return not self.items or len(self.envelope) + self.size + len(item.payload) + _ITEM_BYTES <= max_bytes

    def add(self, item: Item) -> None:
        """Take one more message in."""
        self.items.append(item)
        self.size += len(item.payload) + _ITEM_BYTES

    def halves(self) -> tuple[Pack, Pack]:
        """Two packs with half of the messages each."""
        middle = len(self.items) // 2
        return self._part(self.items[:middle]), self._part(self.items[middle:])

    def _part(self, items: list[Item]) -> Pack:
        size = sum(len(item.payload) + _ITEM_BYTES for item in items)
        return Pack(self.session_id, self.partition_key, self.envelope, items, size)


class Haul(NamedTuple):
    """What one pull gave.

    Args:
        pack: messages to be sent, None where there are none.
        refused: the outcomes of messages that cannot be sent at all, with their positions.
    """

    pack: Pack | None
    refused: list[tuple[int, Outcome]]


class Packer:
    """Pulls messages, encodes and packs them; in a thread, because the input is the user's code.

    Args:
        messages: what is pulled.
        verb: what is done with them, for the outcomes.
        address: where they go.
        sizes: what goes into a transfer.
        max_count: messages in one transfer at most.
        wake: called from the thread when there is something to take.
    """

    def __init__(
        self,
        messages: Iterable[Message],
        verb: str,
        address: EntityAddress,
        sizes: Sizes,
        max_count: int,
        wake: Callable[[], object],
    ) -> None:
        self.failure: Exception | None = None
        """What the iterable raised, once its messages are all packed."""
        self._input = iter(messages)
        self._verb = verb
        self._address = address
        self._sizes = sizes
        self._max_count = max_count
        self._wake = wake
        self._count = 0
        self._wanted = 0
        self._open: dict[tuple[str | None, str | None], Pack] = {}
        self._waiting = self._waiting_bytes = 0
        self._ready: deque[Pack] = deque()
        self._ready_bytes = 0
        self._refused: list[tuple[int, Outcome]] = []
        self._ended = self._stopped = self._closed = self._has_woken = False
        self._changed = threading.Condition()

    # ------------------------------------------------------------------ in the thread

    def run(self) -> None:
        """Pull messages as packs are wanted, to the end of the input or until it is stopped."""
        while self._goes_on():
            self._pull_one()
            if (self._ready or self._refused or self._ended) and not self._has_woken:
                self._has_woken = True
                self._wake()

    def _goes_on(self) -> bool:
        if not self._may_pull():
            with self._changed:
                self._changed.wait_for(lambda: self._may_pull() or self._ended or self._stopped)
        return not (self._ended or self._stopped)

    def _may_pull(self) -> bool:
        full = len(self._ready) >= self._wanted or self._ready_bytes > _MAX_WAITING_BYTES
        return not (full or self._stopped or self._ended or len(self._refused) >= _MAX_REFUSED)

    def _pull_one(self) -> None:
        try:
            message = next(self._input)
        except StopIteration:
            self._end(None)
        except Exception as error:  # noqa: BLE001 (the user's own; it is raised when what came before is sent)
            self._end(error)
        else:
            item = self._encoded(message)
            with self._changed:
                if not self._closed:
                    self._count += 1
                    self._place(item, message)

    def _end(self, failure: Exception | None) -> None:
        with self._changed:
            if not self._closed:
                for key in list(self._open):
                    self._finish(key)
                # Last, because who sends looks at it at any moment, and does not send what comes after it.
                self.failure, self._ended = failure, True

    def _encoded(self, message: Message) -> Item | Outcome:
        try:
            # An id that is a number or a UUID goes as what it is; a report has texts only.
            payload, message_id = payload_of(message), as_text(message.message_id)
        except Exception as error:  # noqa: BLE001 (an input may hold anything; the others go on)
            said = scrub(f"{type(error).__name__}: {error}")[:_MAX_DESCRIPTION]
            return self._refusal(getattr(message, "message_id", None), "amqp:encode-error", said)
        if len(payload) > self._sizes.message:
            said = f"The message is {len(payload):,} bytes, {self._address} takes {self._sizes.message:,}."
            return self._refusal(message_id, "amqp:link:message-size-exceeded", said)
        return Item(self._count, message_id, payload)

    # ------------------------------------------------------------------ for who sends

    @property
    def is_done(self) -> bool:
        """Whether nothing more comes."""
        return self._stopped or (self._ended and not self._ready and not self._refused)

    def want(self, count: int) -> None:
        """Have so many packs ready, as far as the input gives them."""
        self._wanted = count
        if self._runs_low():
            with self._changed:
                self._changed.notify()

    def take(self) -> Haul:
        """What was pulled, a pack at a time."""
        with self._changed:
            self._has_woken = False
            if not self._ready:
                self._finish_the_oldest()
            refused, self._refused = self._refused, []
            pack = self._ready.popleft() if self._ready else None
            self._ready_bytes -= pack.size if pack else 0
            if refused or self._runs_low():
                self._changed.notify()
            return Haul(pack, refused)

    def _runs_low(self) -> bool:
        # Not for each pack that is taken: to wake a thread costs as much as to send a message.
        return len(self._ready) <= self._wanted // 2

    def stop(self) -> None:
        """Pull nothing more; what is being pulled at this moment is taken in."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def leftovers(self) -> tuple[list[Pack], list[tuple[int, Outcome]]]:
        """Everything that was pulled and not taken, at the end; what still comes after this is dropped."""
        with self._changed:
            self._stopped = self._closed = True
            self._changed.notify()
            return [*self._ready, *self._open.values()], self._refused

    # ------------------------------------------------------------------ packing, under the lock

    def _place(self, item: Item | Outcome, message: Message) -> None:
        index = self._count - 1
        if isinstance(item, Outcome):
            self._refused.append((index, item))
            return
        # In an entity with sessions the session is the partition key, whether a message says so or not.
        key = (message.session_id, message.partition_key if message.session_id is None else None)
        pack = self._open.get(key)
        if pack is not None and not pack.fits(item, self._sizes.batch):
            self._finish(key)
            pack = None
        if pack is None:
            pack = self._open[key] = Pack(*key, _envelope(message) if self._max_count > 1 else b"")
        pack.add(item)
        self._waiting += 1
        self._waiting_bytes += len(item.payload)
        if len(pack.items) >= self._max_count or pack.size > self._sizes.batch:
            self._finish(key)
        self._finish_the_oldest()

    def _finish_the_oldest(self) -> None:
        while self._open:
            key, oldest = next(iter(self._open.items()))
            if not (
                self._waiting > _MAX_WAITING
                or self._waiting_bytes > _MAX_WAITING_BYTES
                or self._count - oldest.items[0].index > _MAX_BEHIND
                or time.monotonic() - oldest.since > _MAX_WAIT
            ):
                return
            self._finish(key)

    def _finish(self, key: tuple[str | None, str | None]) -> None:
        pack = self._open.pop(key)
        self._waiting -= len(pack.items)
        self._waiting_bytes -= sum(len(item.payload) for item in pack.items)
        self._ready.append(pack)
        self._ready_bytes += pack.size

    def _refusal(self, message_id: str | None, condition: str, description: str) -> Outcome:
        return Outcome(
            OutcomeStatus.FAILED,
            self._verb,
            self._address,
            message_id=message_id,
            condition=condition,
            description=description,
            retryable=False,
        )


def _envelope(first: Message) -> bytes:
    """The sections of a batch in front of its messages, which name the first one's id and everybody's keys."""
    parts: list[bytes] = []
    if first.partition_key is not None:
        parts.append(_section(MESSAGE_ANNOTATIONS, {_PARTITION_KEY: first.partition_key}))
    if first.message_id is not None or first.session_id is not None:
        values: list[AmqpValue] = [None] * (_GROUP_ID + 1)
        values[_MESSAGE_ID], values[_GROUP_ID] = first.message_id, first.session_id
        parts.append(_section(PROPERTIES, values))
    return b"".join(parts)


def _section(code: int, value: AmqpValue) -> bytes:
    return bytes((0x00, 0x53, code)) + encode(value)
