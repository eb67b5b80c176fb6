"""Errors as the clients get them: a condition, and a sentence with a tracking ID."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from sbnotebook.emulator.amqp.performatives import Error
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.errors import AmqpDecodeError, ProtocolViolationError

KNOW_MORE: Final = "To know more visit https://aka.ms/sbResourceMgrExceptions."
"""The end of some descriptions of Service Bus."""


def new_error(condition: Condition, sentence: str) -> Error:
    return Error(condition.symbol, with_tracking_id(sentence))


def error_of(error: RefusedError | AmqpDecodeError | ProtocolViolationError) -> Error:
    """Return the error of an operation that is refused, or whose bytes cannot be read."""
    condition = error.condition if isinstance(error, RefusedError) else Condition.DECODE_ERROR
    return new_error(condition, str(error))


def with_tracking_id(sentence: str, tracker: str = "emulator") -> str:
    """Return a description as Service Bus writes it, with a tracking ID."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{sentence} TrackingId:{uuid4()}, SystemTracker:{tracker}, Timestamp:{now}"
