"""The error conditions of Service Bus.

Source: AMQP 1.0 part 2, sections 2.8.15 to 2.8.18; Service Bus documentation, "AMQP errors in Azure
Service Bus" and "AMQP 1.0 in Azure Service Bus request-response-based operations".
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from uuid import uuid4

from sbnotebook.emulator.amqp import Error
from sbnotebook.emulator.entities import Refusal, RefusedError

KNOW_MORE = "To know more visit https://aka.ms/sbResourceMgrExceptions."
"""The end of some descriptions of Service Bus."""


class Condition(Enum):
    """An error condition: its symbol, and its status code in a reply."""

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

    @property
    def symbol(self) -> str:
        """Return the condition's name on the wire."""
        return self.value[0]

    @property
    def status(self) -> int:
        """Return the status code of a reply."""
        return self.value[1]

    def error(self, sentence: str) -> Error:
        """Return the error to send, its description with a tracking ID."""
        return Error(self.symbol, with_tracking_id(sentence))


_CONDITIONS = {
    Refusal.DISABLED: Condition.ENTITY_DISABLED,
    Refusal.QUOTA_EXCEEDED: Condition.RESOURCE_LIMIT_EXCEEDED,
    Refusal.TOO_LARGE: Condition.MESSAGE_SIZE_EXCEEDED,
    Refusal.NO_SESSION_ID: Condition.NOT_ALLOWED,
    Refusal.NOT_ALLOWED: Condition.NOT_ALLOWED,
    Refusal.BAD_ARGUMENT: Condition.ARGUMENT_ERROR,
    Refusal.MESSAGE_LOCK_LOST: Condition.MESSAGE_LOCK_LOST,
    Refusal.SESSION_IS_LOCKED: Condition.SESSION_CANNOT_BE_LOCKED,
    Refusal.SESSION_LOCK_LOST: Condition.SESSION_LOCK_LOST,
    Refusal.MESSAGE_NOT_FOUND: Condition.MESSAGE_NOT_FOUND,
    Refusal.UNKNOWN_TRANSACTION: Condition.UNKNOWN_TRANSACTION,
    Refusal.BROKEN_OFF: Condition.INTERNAL_ERROR,
    Refusal.SERVER_BUSY: Condition.SERVER_BUSY,
}


def condition_for(error: RefusedError) -> Condition:
    """Return the condition for the refusal of an entity."""
    return _CONDITIONS[error.refusal]


def with_tracking_id(sentence: str, tracker: str = "emulator") -> str:
    """Return a description as Service Bus writes it, with a tracking ID."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{sentence} TrackingId:{uuid4()}, SystemTracker:{tracker}, Timestamp:{now}"
