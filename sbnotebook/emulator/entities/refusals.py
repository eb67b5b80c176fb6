"""Errors of operations that are refused, each with its condition; they have no effect.

Source: AMQP 1.0 part 2, sections 2.8.15 to 2.8.18; Service Bus documentation, "AMQP errors in Azure Service Bus" and
"AMQP 1.0 in Azure Service Bus request-response-based operations".
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import Final
from uuid import uuid4

from sbnotebook.emulator.amqp.performatives import Error
from sbnotebook.errors import AmqpDecodeError, EmulatorError, ProtocolViolationError


class Condition(Enum):
    ARGUMENT_ERROR = ("com.microsoft:argument-error", 400)
    DECODE_ERROR = ("amqp:decode-error", 400)
    DETACH_FORCED = ("amqp:link:detach-forced", 503)
    ENTITY_ALREADY_EXISTS = ("com.microsoft:entity-already-exists", 409)
    ENTITY_DISABLED = ("com.microsoft:entity-disabled", 400)
    INTERNAL_ERROR = ("amqp:internal-error", 500)
    MESSAGE_LOCK_LOST = ("com.microsoft:message-lock-lost", 410)
    MESSAGE_NOT_FOUND = ("com.microsoft:message-not-found", 404)
    MESSAGE_SIZE_EXCEEDED = ("amqp:link:message-size-exceeded", 413)
    NOT_ALLOWED = ("amqp:not-allowed", 400)
    NOT_FOUND = ("amqp:not-found", 404)
    NOT_IMPLEMENTED = ("amqp:not-implemented", 501)
    RESOURCE_LIMIT_EXCEEDED = ("amqp:resource-limit-exceeded", 403)
    SERVER_BUSY = ("com.microsoft:server-busy", 503)
    SESSION_CANNOT_BE_LOCKED = ("com.microsoft:session-cannot-be-locked", 410)
    SESSION_LOCK_LOST = ("com.microsoft:session-lock-lost", 410)
    TIMEOUT = ("com.microsoft:timeout", 408)
    TRANSACTION_ROLLBACK = ("amqp:transaction:rollback", 400)
    UNAUTHORIZED_ACCESS = ("amqp:unauthorized-access", 401)
    UNKNOWN_TRANSACTION = ("amqp:transaction:unknown-id", 400)

    def __init__(self, symbol: str, status: int) -> None:
        self.symbol = symbol
        self.status = status


class RefusedError(EmulatorError):
    def __init__(self, condition: Condition, sentence: str) -> None:
        super().__init__(sentence)
        self.condition = condition


KNOW_MORE: Final = "To know more visit https://aka.ms/sbResourceMgrExceptions."


def new_error(condition: Condition, sentence: str) -> Error:
    return Error(condition.symbol, with_tracking_id(sentence))


def error_of(error: RefusedError | AmqpDecodeError | ProtocolViolationError) -> Error:
    return new_error(error.condition if isinstance(error, RefusedError) else Condition.DECODE_ERROR, str(error))


def with_tracking_id(sentence: str, tracker: str = "emulator") -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{sentence} TrackingId:{uuid4()}, SystemTracker:{tracker}, Timestamp:{now}"
