"""Messages as a client encodes them, and a queue to put them in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sbnotebook.emulator.entities import Change, Queue, QueueOptions, SentMessage, read_sent
from sbnotebook.model.amqp import AmqpValue, Described, ULong, encode
from sbnotebook.model.sections import DATA

Encode = Callable[..., bytes]


def encoded(body: bytes = b"body", sections: dict[int, AmqpValue] | None = None) -> bytes:
    """A message with a data section, and others by their codes."""
    parts: dict[int, AmqpValue] = {**(sections or {}), DATA: body}
    return b"".join(encode(Described(ULong(code), value)) for code, value in sorted(parts.items()))


@pytest.fixture
def encode_message() -> Encode:
    return encoded


@pytest.fixture
def changes() -> list[Change]:
    return []


@pytest.fixture
def queue(changes: list[Change]) -> Queue:
    """A queue whose locks last 10 seconds, and whose messages may fail three times."""
    return Queue("orders", QueueOptions(lock_duration=10_000, max_delivery_count=3), changes)


@pytest.fixture
def sent() -> Callable[[Any], SentMessage]:
    """A message with this body."""
    return lambda body: read_sent(encoded(str(body).encode()))
