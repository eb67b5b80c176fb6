"""Messages as a client encodes them, and a namespace to put them in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest

from sbnotebook.amqp import AmqpValue, Described, Symbol, Timestamp, UInt, ULong, encode
from sbnotebook.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    section_value,
    split,
)
from sbnotebook.emulator.entities.box import MessageSession, Receivable, Settlement
from sbnotebook.emulator.entities.message import BrokeredMessage, DeadLetterReason, SentMessage, read_sent
from sbnotebook.emulator.entities.options import QueueOptions
from sbnotebook.emulator.entities.queue import Queue
from sbnotebook.emulator.entities.refusals import RefusedError
from sbnotebook.emulator.entities.registry import Registry
from tests.emulator.entities.store_helpers import OnDisk

BURY = Settlement("dead_letter", why=DeadLetterReason("Bad", None))


def encoded(body: bytes = b"body", sections: Mapping[int, Any] | None = None) -> bytes:
    """A message with a data section, and others by their codes."""
    parts: dict[int, AmqpValue] = {**(sections or {}), DATA: body}
    return b"".join(encode(Described(ULong(code), value)) for code, value in sorted(parts.items()))


def sent(
    body: object = "body",
    *,
    message_id: str | None = None,
    session_id: str | None = None,
    label: str | None = None,
    scheduled_time: int | None = None,
    time_to_live: int | None = None,
    partition_key: str | None = None,
    properties: dict[str, Any] | None = None,
) -> SentMessage:
    """A message as it comes in."""
    annotations: dict[str, AmqpValue] = {}
    if scheduled_time is not None:
        annotations[Symbol("x-opt-scheduled-enqueue-time")] = Timestamp(scheduled_time)
    if partition_key is not None:
        annotations[Symbol("x-opt-partition-key")] = partition_key
    sections: dict[int, Any] = {MESSAGE_ANNOTATIONS: annotations} if annotations else {}
    if time_to_live is not None:
        sections[HEADER] = [None, None, UInt(time_to_live)]
    if message_id is not None or session_id is not None or label is not None:
        sections[PROPERTIES] = [message_id, None, None, label, *[None] * 6, session_id]
    if properties is not None:
        sections[APPLICATION_PROPERTIES] = properties
    return read_sent(encoded(str(body).encode(), sections))


def values(payload: bytes) -> dict[int, Any]:
    """The sections of a message, by their codes."""
    return {section.code: section_value(payload, section) for section in split(payload)}


def properties(message: BrokeredMessage) -> Any:
    """The application properties of a message; None if it has no section for them."""
    payload = message.payload or b""
    sections = (section for section in split(payload) if section.code == APPLICATION_PROPERTIES)
    return next((section_value(payload, section) for section in sections), None)


def lock(entity: Receivable, now: int = 0, session: MessageSession | None = None) -> tuple[BrokeredMessage, UUID]:
    """Receive the next message; the message and its lock token."""
    message = entity.receive(now, session)
    assert message is not None
    assert message.lock_token is not None
    return message, message.lock_token


def settles(box: Receivable, token: UUID, settlement: Settlement, now: int) -> bool:
    """Settle a message; whether its lock was held."""
    try:
        box.settle(token, settlement, now)
    except RefusedError:
        return False
    return True


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def kept() -> Iterator[OnDisk]:
    kept = OnDisk()
    yield kept
    kept.close()


@pytest.fixture
def queue(registry: Registry) -> Queue:
    """A queue whose locks last 10 seconds, and whose messages may fail three times."""
    return registry.create_queue("orders", QueueOptions(lock_duration=10_000, max_delivery_count=3))
