"""What is asked of an entity that messages are sent to or received from.

Source: Service Bus documentation, "AMQP 1.0 in Azure Service Bus request-response-based operations".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast
from uuid import UUID

from sbnotebook.emulator.entities import (
    DeadLetterReason,
    Queue,
    Receivable,
    Refusal,
    RefusedError,
    SentMessage,
    Session,
    Topic,
    read_sent,
)
from sbnotebook.emulator.service.conditions import Condition, explain
from sbnotebook.emulator.service.requests import Reply
from sbnotebook.model.amqp import AmqpValue, Array, Int, Long, Symbol, Timestamp

__all__ = ["Operation", "done", "failure", "nothing", "receiving", "scheduling"]

Operation = Callable[[dict[str, Any], int], Reply]

_MAX_PEEKED: Final = 250
"""Messages in one answer; the service has the same limit, which it does not document."""
_MAX_PEEKED_BYTES: Final = 1_000_000
"""Bytes in one answer, unless its first message alone is larger."""
_MAX_DELETED: Final = 4000
"""Messages that one request removes (Service Bus documentation, "Batch delete messages")."""


def receiving(entity: Receivable) -> dict[str, Operation]:
    """The operations of everything that messages are received from."""
    node = _Receiving(entity)
    return {
        "com.microsoft:peek-message": node.peek,
        "com.microsoft:renew-lock": node.renew_lock,
        "com.microsoft:receive-by-sequence-number": node.receive_by_sequence_number,
        "com.microsoft:update-disposition": node.update_disposition,
        "com.microsoft:batch-delete-messages": node.batch_delete,
    }


def scheduling(destination: Queue | Topic, max_size: int) -> dict[str, Operation]:
    """The operations of everything that messages are sent to.

    Args:
        destination: the queue or topic.
        max_size: bytes of all messages of one request.
    """

    def schedule(body: dict[str, Any], now: int) -> Reply:
        messages: list[SentMessage] = [read_sent(item["message"]) for item in body["messages"]]
        size = sum(len(message.payload) for message in messages)
        if size > max_size:
            raise RefusedError(Refusal.TOO_LARGE, f"The messages have {size} bytes, the limit is {max_size}.")
        destination.admission.check(messages)
        numbers = [Long(destination.send(message, now)) for message in messages]
        return done({"sequence-numbers": Array(numbers, Long)})

    def cancel(body: dict[str, Any], now: int) -> Reply:
        del now
        if not destination.cancel_scheduled([int(number) for number in body["sequence-numbers"]]):
            text = "One or more of the messages are not scheduled: they are active already, cancelled, or unknown."
            raise RefusedError(Refusal.MESSAGE_NOT_FOUND, text)
        return done(None)

    return {"com.microsoft:schedule-message": schedule, "com.microsoft:cancel-scheduled-message": cancel}


class _Receiving:
    def __init__(self, entity: Receivable) -> None:
        self._entity = entity

    def peek(self, body: dict[str, Any], now: int) -> Reply:
        self._entity.owner.record.accessed_time = now
        count = min(int(body["message-count"]), _MAX_PEEKED)
        session_id = body.get("session-id")
        session_id = None if session_id is None or self._entity.sessions is None else str(session_id)
        rendered: list[AmqpValue] = []
        size = 0
        for message in self._entity.peek(int(body["from-sequence-number"]), max(count, 0), session_id):
            payload = self._entity.rendered(message)
            size += len(payload)
            if rendered and size > _MAX_PEEKED_BYTES:
                break
            rendered.append({"message": payload})
        return done({"messages": rendered}) if rendered else nothing()

    def renew_lock(self, body: dict[str, Any], now: int) -> Reply:
        if self._entity.sessions is not None:
            raise RefusedError(Refusal.NOT_ALLOWED, "The entity has sessions: renew the lock of the session.")
        tokens = self._held_tokens(body, now)
        ends = [self._entity.renew(token, now) or 0 for token in tokens]
        return done({"expirations": Array([Timestamp(end) for end in ends], Timestamp)})

    def receive_by_sequence_number(self, body: dict[str, Any], now: int) -> Reply:
        numbers = [int(number) for number in body["sequence-numbers"]]
        delete = int(body["receiver-settle-mode"]) == 0
        messages = self._entity.receive_deferred(numbers, now, delete=delete, session=self._session(body, now))
        if messages is None:
            text = "Failed to lock one or more specified messages: they do not exist, are not deferred, or are locked."
            raise RefusedError(Refusal.MESSAGE_NOT_FOUND, text)
        items: list[AmqpValue] = []
        for message in messages:
            is_locked = message.lock_token is not None
            payload = self._entity.rendered(message, with_lock=is_locked and self._entity.sessions is None)
            items.append({"message": payload, **({"lock-token": message.lock_token} if is_locked else {})})
        return done({"messages": items})

    def update_disposition(self, body: dict[str, Any], now: int) -> Reply:
        settle = self._settlement(str(body["disposition-status"]), body)
        if body.get("session-id") is not None:
            self._session(body, now)
        tokens = self._held_tokens(body, now)
        for token in tokens:
            self._entity.check_properties(token, now, _properties(body))
        for token in tokens:
            settle(token, now)
        return done(None)

    def batch_delete(self, body: dict[str, Any], now: int) -> Reply:
        session = self._session(body, now)
        count = min(int(body["message-count"]), _MAX_DELETED)
        before = int(body["enqueued-time-utc"])
        deleted = self._entity.delete(max(count, 0), before, now, session)
        return done({"message-count": Int(deleted)}) if deleted else nothing()

    def _settlement(self, status: str, body: dict[str, Any]) -> Callable[[UUID, int], bool]:
        entity = self._entity
        properties = _properties(body)
        match status:
            case "completed":
                return entity.complete
            case "abandoned":
                return lambda token, now: entity.abandon(token, now, properties)
            case "defered" | "deferred":  # The first is how the SDKs spell it.
                return lambda token, now: entity.defer(token, now, properties)
            case "released" | "unlocked":
                return entity.release
            case "suspended" if entity.dead_letter is not None:
                why = DeadLetterReason(*(_text(body.get(f"deadletter-{part}")) for part in ("reason", "description")))
                return lambda token, now: entity.dead_letter_message(token, now, why, properties)
            case "suspended":
                raise RefusedError(Refusal.NOT_ALLOWED, "A message of a dead-letter queue cannot be dead-lettered.")
            case _:
                raise RefusedError(Refusal.BAD_ARGUMENT, f"There is no disposition {status[:80]!r}.")

    def _held_tokens(self, body: dict[str, Any], now: int) -> list[UUID]:
        """The lock tokens of a request; if one lock is lost, nothing is done at all."""
        tokens = cast("list[UUID]", body["lock-tokens"])
        if all(self._entity.holds(token, now) for token in tokens):
            return tokens
        if self._entity.sessions is not None:
            raise RefusedError(Refusal.SESSION_LOCK_LOST, "The session lock was lost. Accept the session again.")
        text = "The lock supplied is invalid: it has expired, or the message is no longer in the queue."
        raise RefusedError(Refusal.MESSAGE_LOCK_LOST, text)

    def _session(self, body: dict[str, Any], now: int) -> Session | None:
        if self._entity.sessions is None:
            return None
        session_id = body.get("session-id")
        if session_id is None:
            raise RefusedError(Refusal.NOT_ALLOWED, "The entity has sessions: say which session is meant.")
        return self._entity.owner.held_session(str(session_id), now)


def done(body: AmqpValue) -> Reply:
    """The reply to a request that was carried out."""
    return Reply({"statusCode": Int(200), "statusDescription": "OK"}, body)


def nothing() -> Reply:
    """The reply to a request that found nothing."""
    return Reply({"statusCode": Int(204), "statusDescription": "No messages"})


def failure(condition: Condition, sentence: str) -> Reply:
    """The reply that says what went wrong."""
    return Reply(
        {
            "statusCode": Int(condition.status),
            "statusDescription": explain(sentence),
            "errorCondition": Symbol(condition.symbol),
        }
    )


def _properties(body: dict[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any] | None", body.get("properties-to-modify")) or {}


def _text(value: object) -> str | None:
    return None if value is None else str(value)
