"""The node ``ENTITY/$management``: what is asked of an entity beside sending and receiving.

Source: Service Bus documentation, "AMQP 1.0 in Azure Service Bus request-response-based operations".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast
from uuid import UUID

from sbnotebook.emulator.entities import MAX_MESSAGE_SIZE, BrokeredMessage, Queue, Receivable, read_sent, render
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.conditions import Condition, explain
from sbnotebook.emulator.service.requests import Reply, Request
from sbnotebook.errors import AmqpDecodeError
from sbnotebook.model.amqp import AmqpValue, Array, Int, Long, Symbol, Timestamp

__all__ = ["ManagementNode"]

_MAX_PEEKED: Final = 250
"""Messages in one answer; the service has the same limit, which it does not document."""
_MAX_PEEKED_BYTES: Final = 1_000_000
"""Bytes in one answer, unless its first message alone is larger."""

_LOCK_LOST: Final = "The lock supplied is invalid: it has expired, or the message is no longer in the queue."


class _RefusedError(Exception):
    """A request that cannot be carried out; nothing was done."""

    def __init__(self, condition: Condition, sentence: str) -> None:
        super().__init__(sentence)
        self.condition = condition


class ManagementNode:
    """Answers requests about one queue or dead-letter queue.

    Args:
        address: where it is asked, in lower case.
        broker: the namespace.
        entity: the queue or dead-letter queue.
    """

    entity: Receivable | None

    def __init__(self, address: str, broker: Broker, entity: Receivable) -> None:
        self.address = address
        self.entity = entity
        self._entity = entity
        self._broker = broker
        self._operations: dict[str, Callable[[dict[str, Any], int], Reply]] = {
            "com.microsoft:peek-message": self._peek,
            "com.microsoft:renew-lock": self._renew_lock,
            "com.microsoft:receive-by-sequence-number": self._receive_by_sequence_number,
            "com.microsoft:update-disposition": self._update_disposition,
            "com.microsoft:schedule-message": self._schedule_message,
            "com.microsoft:cancel-scheduled-message": self._cancel_scheduled_message,
        }

    def answer(self, request: Request) -> Reply:
        """Carry out a request, or say why not."""
        operation = self._operations.get(request.operation)
        if operation is None:
            text = f"The emulator does not have the operation {request.operation[:80]!r}."
            return self.failure(Condition.NOT_IMPLEMENTED, text)
        if not isinstance(request.body, dict):
            return self.failure(Condition.ARGUMENT_ERROR, "The body of a request must be a map.")
        try:
            return operation(request.body, self._broker.moment())
        except _RefusedError as error:
            return self.failure(error.condition, str(error))
        except AmqpDecodeError as error:
            return self.failure(Condition.DECODE_ERROR, str(error))
        except (KeyError, TypeError, ValueError) as error:
            text = f"The arguments of {request.operation} are not as documented: {error!r:.80}."
            return self.failure(Condition.ARGUMENT_ERROR, text)

    def failure(self, condition: Condition, sentence: str) -> Reply:
        """The reply that says what went wrong."""
        return Reply(
            {
                "statusCode": Int(condition.status),
                "statusDescription": explain(sentence),
                "errorCondition": Symbol(condition.symbol),
            }
        )

    def _peek(self, body: dict[str, Any], now: int) -> Reply:
        del now
        count = min(int(body["message-count"]), _MAX_PEEKED)
        rendered: list[AmqpValue] = []
        size = 0
        for message in self._entity.peek(int(body["from-sequence-number"]), max(count, 0)):
            payload = render(message)
            size += len(payload)
            if rendered and size > _MAX_PEEKED_BYTES:
                break
            rendered.append({"message": payload})
        return _done({"messages": rendered}) if rendered else _nothing()

    def _renew_lock(self, body: dict[str, Any], now: int) -> Reply:
        tokens = self._held_tokens(body, now)
        ends = [self._entity.renew(token, now) or 0 for token in tokens]
        return _done({"expirations": Array([Timestamp(end) for end in ends], Timestamp)})

    def _receive_by_sequence_number(self, body: dict[str, Any], now: int) -> Reply:
        numbers = [int(number) for number in body["sequence-numbers"]]
        delete = int(body["receiver-settle-mode"]) == 0
        messages = self._entity.receive_deferred(numbers, now, delete=delete)
        if messages is None:
            text = "Failed to lock one or more specified messages: they do not exist, are not deferred, or are locked."
            raise _RefusedError(Condition.MESSAGE_NOT_FOUND, text)
        return _done({"messages": [_deferred(message) for message in messages]})

    def _update_disposition(self, body: dict[str, Any], now: int) -> Reply:
        settle = self._settlement(str(body["disposition-status"]), body)
        for token in self._held_tokens(body, now):
            settle(token, now)
        return _done(None)

    def _settlement(self, status: str, body: dict[str, Any]) -> Callable[[UUID, int], bool]:
        entity = self._entity
        # "defered" is how the SDKs spell it.
        known = {"completed": entity.complete, "abandoned": entity.abandon}
        known |= dict.fromkeys(("defered", "deferred"), entity.defer)
        if status == "suspended" and entity.dead_letter is not None:
            reason, description = (_text(body.get(f"deadletter-{part}")) for part in ("reason", "description"))
            return lambda token, now: entity.dead_letter_message(token, now, reason, description)
        if status not in known:
            raise _RefusedError(Condition.NOT_ALLOWED, f"A message cannot become {status[:40]!r} here.")
        return known[status]

    def _schedule_message(self, body: dict[str, Any], now: int) -> Reply:
        queue = self._queue()
        payloads: list[bytes] = [message["message"] for message in body["messages"]]
        size = sum(len(payload) for payload in payloads)
        if size > MAX_MESSAGE_SIZE:
            text = f"The messages have {size} bytes, the limit is {MAX_MESSAGE_SIZE}."
            raise _RefusedError(Condition.MESSAGE_SIZE_EXCEEDED, text)
        messages = [read_sent(payload) for payload in payloads]
        numbers = [Long(queue.send(message, now).sequence_number) for message in messages]
        return _done({"sequence-numbers": Array(numbers, Long)})

    def _cancel_scheduled_message(self, body: dict[str, Any], now: int) -> Reply:
        del now
        numbers = [int(number) for number in body["sequence-numbers"]]
        if not self._queue().cancel_scheduled(numbers):
            text = "One or more of the messages are not scheduled: they are active already, cancelled, or unknown."
            raise _RefusedError(Condition.MESSAGE_NOT_FOUND, text)
        return _done(None)

    def _queue(self) -> Queue:
        if isinstance(self._entity, Queue):
            return self._entity
        raise _RefusedError(Condition.NOT_ALLOWED, "Messages cannot be sent to a dead-letter queue.")

    def _held_tokens(self, body: dict[str, Any], now: int) -> list[UUID]:
        """The lock tokens of a request; if one lock is lost, nothing is done at all."""
        tokens = cast("list[UUID]", body["lock-tokens"])
        if not all(self._entity.holds(token, now) for token in tokens):
            raise _RefusedError(Condition.MESSAGE_LOCK_LOST, _LOCK_LOST)
        return tokens


def _deferred(message: BrokeredMessage) -> AmqpValue:
    item: dict[str, AmqpValue] = {"message": render(message, with_lock=message.lock_token is not None)}
    if message.lock_token is not None:
        item["lock-token"] = message.lock_token
    return item


def _done(body: AmqpValue) -> Reply:
    return Reply({"statusCode": Int(200), "statusDescription": "OK"}, body)


def _nothing() -> Reply:
    return Reply({"statusCode": Int(204), "statusDescription": "No messages"})


def _text(value: object) -> str | None:
    return None if value is None else str(value)
