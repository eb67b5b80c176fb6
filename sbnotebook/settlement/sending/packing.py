"""Packing messages into transfers: by session and partition key, as many as fit, and few in memory."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple, TypeAlias

from sbnotebook.model import EntityAddress, Message, Outcome, OutcomeStatus
from sbnotebook.model.amqp import AmqpValue, Symbol
from sbnotebook.model.sections import DATA, MESSAGE_ANNOTATIONS, PROPERTIES, encode_section, section_head
from sbnotebook.settlement.connecting.connection import scrub
from sbnotebook.settlement.wire.conversion import payload_of
from sbnotebook.settlement.wire.encoded_rows import EncodedRows
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
_ITEM_HEAD: Final = section_head(DATA) + b"\xb0"
_ITEM_BYTES: Final = len(_ITEM_HEAD) + 4
_Keys: TypeAlias = tuple[str | None, str | None]
"""The session, and the partition key of messages without one."""


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

    def take_in(self, items: Sequence[Item], max_bytes: int, max_count: int) -> int:
        """Take in as many of these messages as fit, the first one always where it is empty; says how many."""
        taken, room, size = 0, max_count - len(self.items), self.size
        most = max_bytes - len(self.envelope)
        for item in items[:room]:
            larger = size + len(item.payload) + _ITEM_BYTES
            if larger > most and size:
                break
            size = larger
            taken += 1
        self.items += items[:taken]
        self.size = size
        return taken

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
        messages: Iterable[Message | EncodedRows],
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
        self._open: dict[_Keys, Pack] = {}
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
            pulled = next(self._input)
        except StopIteration:
            self._end(None)
        except Exception as error:  # noqa: BLE001 (the user's own; it is raised when what came before is sent)
            self._end(error)
        else:
            items = self._of_rows(pulled) if isinstance(pulled, EncodedRows) else [self._encoded(pulled)]
            with self._changed:
                if not self._closed:
                    self._count += len(items)
                    self._place(items, pulled)

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
        return self._checked(self._count, message_id, payload)

    def _of_rows(self, rows: EncodedRows) -> list[Item | Outcome]:
        return [*map(self._checked, count(self._count), rows.message_ids, rows.payloads)]

    def _checked(self, index: int, message_id: str | None, payload: bytes) -> Item | Outcome:
        if len(payload) <= self._sizes.message:
            return Item(index, message_id, payload)
        said = f"The message is {len(payload):,} bytes, {self._address} takes {self._sizes.message:,}."
        return self._refusal(message_id, "amqp:link:message-size-exceeded", said)

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

    def _place(self, pulled: Sequence[Item | Outcome], origin: Message | EncodedRows) -> None:
        items = [item for item in pulled if isinstance(item, Item)]
        if len(items) < len(pulled):
            first = self._count - len(pulled)
            self._refused += [(first + at, item) for at, item in enumerate(pulled) if isinstance(item, Outcome)]
        if items:
            self._pack(items, origin)
        self._finish_the_oldest()

    def _pack(self, items: Sequence[Item], origin: Message | EncodedRows) -> None:
        keys = _keys_of(origin)
        while items:
            pack = self._open.get(keys)
            if pack is None:
                envelope = _envelope(origin, items[0]) if self._max_count > 1 else b""
                pack = self._open[keys] = Pack(*keys, envelope)
            before = pack.size
            taken = pack.take_in(items, self._sizes.batch, self._max_count)
            self._waiting += taken
            self._waiting_bytes += pack.size - before
            items = items[taken:]
            if items or len(pack.items) >= self._max_count or pack.size > self._sizes.batch:
                self._finish(keys)

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

    def _finish(self, key: _Keys) -> None:
        pack = self._open.pop(key)
        self._waiting -= len(pack.items)
        self._waiting_bytes -= pack.size
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


def _keys_of(origin: Message | EncodedRows) -> _Keys:
    if isinstance(origin, EncodedRows):
        return None, None
    # In an entity with sessions the session is the partition key, whether a message says so or not.
    return origin.session_id, origin.partition_key if origin.session_id is None else None


def _envelope(origin: Message | EncodedRows, first: Item) -> bytes:
    """The sections of a batch in front of its messages, which name the first one's id and everybody's keys."""
    if isinstance(origin, EncodedRows):
        message_id = first.message_id
        session_id = partition_key = None
    else:
        message_id, session_id, partition_key = origin.message_id, origin.session_id, origin.partition_key
    parts: list[bytes] = []
    if partition_key is not None:
        parts.append(encode_section(MESSAGE_ANNOTATIONS, {_PARTITION_KEY: partition_key}))
    if message_id is not None or session_id is not None:
        values: list[AmqpValue] = [None] * (_GROUP_ID + 1)
        values[_MESSAGE_ID], values[_GROUP_ID] = message_id, session_id
        parts.append(encode_section(PROPERTIES, values))
    return b"".join(parts)
