"""Pack messages into transfers by session and partition key: as many as fit, with few of them in memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple, TypeAlias

from sbnotebook.amqp import AmqpValue, Symbol
from sbnotebook.amqp.sections import DATA, MESSAGE_ANNOTATIONS, PROPERTIES, encode_section, section_head
from sbnotebook.model import EntityAddress, Message, Outcome, OutcomeStatus
from sbnotebook.model.amqp_layout import as_text
from sbnotebook.model.connection_strings import scrub
from sbnotebook.settlement.requests import halves
from sbnotebook.settlement.wire.encoding import EncodedRows, payload_of

_MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
"""Bytes of messages in open packs, which wait for others of their session."""
_MAX_BEHIND: Final = 10_000
"""Messages that may be pulled after one in an open pack, because the report is kept in order."""
_MAX_WAIT: Final = 1.0
"""Seconds that a pack stays open for more messages."""
_PULL_SECONDS: Final = 0.01
"""Seconds of one pull: then its messages are sent, although more may come."""
_PULL_BYTES: Final = 1024 * 1024
_PARTITION_KEY: Final = Symbol("x-opt-partition-key")
_MESSAGE_ID, _GROUP_ID = 0, 10
"""Positions in the list of the properties section (AMQP 1.0 section 3.2.4)."""
_ITEM_HEAD: Final = section_head(DATA) + b"\xb0"
_ITEM_BYTES: Final = len(_ITEM_HEAD) + 4
_Keys: TypeAlias = tuple[str | None, str | None]
"""The session, and the partition key of messages without a session."""


class Sizes(NamedTuple):
    message: int
    batch: int


@dataclass(slots=True)
class EncodedMessage:
    index: int
    message_id: str | None
    payload: bytes


_Item: TypeAlias = EncodedMessage | tuple[int, Outcome]
"""A message, or its position and its outcome if it cannot be sent."""


@dataclass(slots=True, eq=False)
class Pack:
    """Messages that travel in one transfer: all of one session and partition key, or of none."""

    session_id: str | None
    partition_key: str | None
    envelope: bytes
    items: list[EncodedMessage] = field(default_factory=list[EncodedMessage])
    size: int = 0
    in_doubt: bool = False
    since: float = field(default_factory=time.monotonic)

    @property
    def key(self) -> str | None:
        """Return the key that keeps the order of messages. Packs of one key are sent one after the other."""
        return self.session_id if self.session_id is not None else self.partition_key

    @property
    def is_batch(self) -> bool:
        """Tell whether the pack travels as a batch. A single message travels as it is."""
        return len(self.items) > 1

    def transfer(self) -> bytes:
        """Return the bytes that travel; a batch is as the SDK's ``ServiceBusMessageBatch``."""
        if not self.is_batch:
            return self.items[0].payload
        parts = [self.envelope]
        for item in self.items:
            parts += (_ITEM_HEAD, len(item.payload).to_bytes(4, "big"), item.payload)
        return b"".join(parts)

    def add(self, items: Sequence[EncodedMessage], max_bytes: int, max_count: int) -> int:
        """Add as many of these messages as fit, at least one to an empty pack. Return how many were added."""
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

    def halves(self) -> list[Pack]:
        sized = [(sum(len(each.payload) + _ITEM_BYTES for each in items), items) for items in halves(self.items)]
        return [Pack(self.session_id, self.partition_key, self.envelope, [*items], size) for size, items in sized]


class Packer:
    """Pulls messages and encodes them in a thread, because the input is the user's code, and packs them on the loop.

    The two share ``_pulled``, and the number of messages that were pulled, which is raised last.
    """

    def __init__(
        self, messages: Iterable[Message | EncodedRows], verb: str, address: EntityAddress, sizes: Sizes, max_count: int
    ) -> None:
        self.max_count = max_count
        """Messages in the next transfers at most."""
        self.is_ended = False
        self.failure: Exception | None = None
        """The exception that ended the input."""
        self._input = iter(messages)
        self._verb = verb
        self._address = address
        self._sizes = sizes
        self._is_stopped = False
        self.count = 0
        self._pulled: deque[tuple[Message | EncodedRows, list[_Item]]] = deque()
        self._open: dict[_Keys, Pack] = {}
        self._waiting_bytes = 0
        self._ready: list[Pack] = []

    # ------------------------------------------------------------------ in the thread

    def pull(self, most: int) -> None:
        """Pull so many messages at most, and no more than come in a moment."""
        count = size = 0
        until = time.monotonic() + _PULL_SECONDS
        while not (self.is_ended or self._is_stopped or count >= most or size > _PULL_BYTES):
            items = self._pull_one()
            count += len(items)
            size += sum(len(item.payload) for item in items if isinstance(item, EncodedMessage))
            if time.monotonic() > until:
                break

    def _pull_one(self) -> list[_Item]:
        try:
            pulled = next(self._input)
        except StopIteration:
            self.is_ended = True
            return []
        except BaseException as error:  # noqa: BLE001 (the user's own; it is raised after earlier messages are sent)
            # On the loop, where it is raised, sys.exit() would end the loop.
            exits = RuntimeError(f"{type(error).__name__} ended the messages to send.").with_traceback(
                error.__traceback__
            )
            self.failure, self.is_ended = error if isinstance(error, Exception) else exits, True
            return []
        if isinstance(pulled, EncodedRows):
            items = [*map(self._checked, count(self.count), pulled.message_ids, pulled.payloads)]
        else:
            items = [self._encoded(pulled)]
        self._pulled.append((pulled, items))
        self.count += len(items)
        return items

    def _encoded(self, message: Message) -> _Item:
        try:
            # An ID that is a number or a UUID is sent as it is; a report has text only.
            payload, message_id = payload_of(message), as_text(message.message_id)
        except Exception as error:  # noqa: BLE001 (an input may hold anything; the rest is sent)
            said = scrub(f"{type(error).__name__}: {error}", 500)
            message_id = getattr(message, "message_id", None)
            return self._refusal(self.count, message_id, "amqp:encode-error", said)
        return self._checked(self.count, message_id, payload)

    def _checked(self, index: int, message_id: str | None, payload: bytes) -> _Item:
        if len(payload) <= self._sizes.message:
            return EncodedMessage(index, message_id, payload)
        said = f"The message is {len(payload):,} bytes, {self._address} takes {self._sizes.message:,}."
        return self._refusal(index, message_id, "amqp:link:message-size-exceeded", said)

    def _refusal(self, index: int, message_id: str | None, condition: str, description: str) -> tuple[int, Outcome]:
        place = self._verb, self._address, None, message_id
        return index, Outcome(OutcomeStatus.FAILED, *place, condition, description, retryable=False)

    # ------------------------------------------------------------------ on the loop

    def take(self, *, all_open: bool = False) -> tuple[list[Pack], list[tuple[int, Outcome]]]:
        """Pack pulled messages. Return full and old packs, or all, and the messages that were refused, by position."""
        refused: list[tuple[int, Outcome]] = []
        while self._pulled:
            origin, pulled = self._pulled.popleft()
            refused += [item for item in pulled if not isinstance(item, EncodedMessage)]
            self._pack([item for item in pulled if isinstance(item, EncodedMessage)], origin)
            self._finish_the_oldest()
        self._finish_the_oldest()
        for keys in [*self._open] if all_open else ():
            self._finish(keys)
        ready, self._ready = self._ready, []
        return ready, refused

    def stop(self) -> None:
        """Pull nothing more. The message that is being pulled at this moment is still packed."""
        self._is_stopped = True

    def _pack(self, items: Sequence[EncodedMessage], origin: Message | EncodedRows) -> None:
        keys: _Keys = None, None
        if isinstance(origin, Message):
            # In an entity with sessions, the session is the partition key, even of a message that has another one.
            keys = origin.session_id, origin.partition_key if origin.session_id is None else None
        while items:
            pack = self._open.get(keys)
            if pack is None:
                envelope = _envelope(origin, items[0]) if self.max_count > 1 else b""
                pack = self._open[keys] = Pack(*keys, envelope)
            before = pack.size
            taken = pack.add(items, self._sizes.batch, self.max_count)
            self._waiting_bytes += pack.size - before
            items = items[taken:]
            if items or len(pack.items) >= self.max_count or pack.size > self._sizes.batch:
                self._finish(keys)

    def _finish_the_oldest(self) -> None:
        while self._open:
            keys, oldest = next(iter(self._open.items()))
            if not (
                self._waiting_bytes > _MAX_WAITING_BYTES
                or self.count - oldest.items[0].index > _MAX_BEHIND
                or time.monotonic() - oldest.since > _MAX_WAIT
            ):
                return
            self._finish(keys)

    def _finish(self, keys: _Keys) -> None:
        pack = self._open.pop(keys)
        self._waiting_bytes -= pack.size
        self._ready.append(pack)


def _envelope(origin: Message | EncodedRows, first: EncodedMessage) -> bytes:
    """Return the sections in front of a batch's messages: the first message's ID, and the keys of all."""
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
