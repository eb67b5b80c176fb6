"""The node ``ENTITY/$management``: operations on messages, sessions and rules.

Source: Service Bus documentation, "AMQP 1.0 in Azure Service Bus request-response-based operations". The codes of rules
are those of Azure's SDKs for .NET and JavaScript.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, cast
from uuid import UUID

from sbnotebook.amqp import AmqpValue, Array, Described, Int, Long, Symbol, Timestamp, ULong
from sbnotebook.emulator.entities import (
    AnyEntity,
    DeadLetterReason,
    MessageSession,
    Queue,
    Receivable,
    ReceivingEntity,
    Refusal,
    RefusedError,
    SentMessage,
    Subscription,
    Topic,
    Transaction,
    read_sent,
)
from sbnotebook.emulator.entities.partitions import PARTITION_SHIFT
from sbnotebook.emulator.entities.rules import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from sbnotebook.emulator.faults import SERVER_BUSY
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.conditions import Condition, condition_for, with_tracking_id
from sbnotebook.emulator.service.requests import Reply, Request
from sbnotebook.errors import AmqpDecodeError, ConfigurationError

_Operation = Callable[[dict[str, Any], int], Reply]


class _Transactional(Protocol):
    """An operation that takes effect at once or, in a transaction, when that is committed."""

    def __call__(self, body: dict[str, Any], now: int, transaction: Transaction | None = None) -> Reply: ...


_LINK_NAME: Final = "associated-link-name"
_UPDATE_DISPOSITION: Final = "com.microsoft:update-disposition"
_SET_STATE: Final = "com.microsoft:set-session-state"
_OF_HOLDERS: Final = frozenset(
    {
        *("com.microsoft:get-session-state", _SET_STATE, "com.microsoft:renew-session-lock", _UPDATE_DISPOSITION),
        *("com.microsoft:receive-by-sequence-number", "com.microsoft:batch-delete-messages"),
    }
)
"""Operations for the link that holds a session: one receiver has the lock (documentation, "Message sessions")."""
_NOT_HELD: Final = "The session lock was lost. Accept the session again."
_MAX_PEEKED: Final = 250
"""Messages in one answer; the service has the same limit, which it does not document."""
_MAX_PEEKED_BYTES: Final = 1_000_000
"""Bytes in one answer, unless its first message alone is larger."""
_MAX_DELETED: Final = 4000
"""Messages that one request removes (Service Bus documentation, "Batch delete messages")."""
_EVER: Final = 253_402_300_799_000
"""The last second of .NET (ms): a client that asks for sessions updated since then wants all that have messages."""
_MAX_SESSIONS: Final = 1000
# The codes of filters have one zero less than the others, in Service Bus and its SDKs.
_RULE_DESCRIPTION: Final = ULong(0x0000013700000004)
_EMPTY_ACTION: Final = ULong(0x0000013700000005)
_SQL_ACTION: Final = ULong(0x0000013700000006)
_SQL_FILTER: Final = ULong(0x000001370000006)
_TRUE_FILTER: Final = ULong(0x000001370000007)
_FALSE_FILTER: Final = ULong(0x000001370000008)
_CORRELATION_FILTER: Final = ULong(0x000001370000009)

_COMPATIBILITY_LEVEL: Final = Int(20)
_MAX_RULES: Final = 1000
"""Rules in one answer."""
_MAX_NAME: Final = 50
"""Characters of a rule's name (Service Bus documentation, "Service Bus quotas")."""
_FILTERS: Final = ("sql-filter", "correlation-filter", "true-filter", "false-filter")
_CORRELATION_FIELDS: Final = {
    "correlation-id": "correlation_id",
    "message-id": "message_id",
    "to": "to",
    "reply-to": "reply_to",
    "label": "subject",
    "session-id": "session_id",
    "reply-to-session-id": "reply_to_session_id",
    "content-type": "content_type",
}
"""The names in a request, and ours, in the order of an answer."""


class ManagementNode:
    """Answers requests about one entity or sub-queue.

    Args:
        address: its address, in lower case.
        broker: the namespace.
        entity: the queue, topic, subscription or sub-queue.
    """

    entity: AnyEntity | Receivable | None

    def __init__(self, address: str, broker: Broker, entity: AnyEntity | Receivable) -> None:
        self.address = address
        self.entity = entity
        self._path = entity.path
        self._broker = broker
        self._operations: dict[str, _Operation] = {}
        self._transactional: dict[str, _Transactional] = {}
        if isinstance(entity, Queue | Topic):
            self._transactional |= _scheduling_operations(entity, broker.max_message_size(entity))
        if isinstance(entity, ReceivingEntity) and entity.sessions is not None:
            self._operations |= _session_operations(entity)
            self._transactional[_SET_STATE] = _Sessions(entity).set_state
        if isinstance(entity, Subscription):
            self._operations |= _rule_operations(broker, entity)
        if isinstance(entity, Receivable):
            self._operations |= _message_operations(entity, broker)
            self._transactional[_UPDATE_DISPOSITION] = _Receiving(entity, broker).update_disposition

    def answer(self, request: Request) -> Reply:
        """Carry out a request, or reply with the error."""
        if self._broker.faults.at(self._path).is_busy() or self._broker.is_throttled():
            return self.failure(Condition.SERVER_BUSY, SERVER_BUSY)
        # Find the operation.
        operation = self._operation(request)
        if operation is None:
            text = f"There is no operation {request.operation[:80]!r} here."
            return self.failure(Condition.NOT_IMPLEMENTED, text)
        if not isinstance(request.body, dict):
            return self.failure(Condition.ARGUMENT_ERROR, "The body of a request must be a map.")
        # Carry it out; every error becomes a reply.
        try:
            return self._counted(request, operation(self._arguments(request.body, request), self._broker.advance()))
        except RefusedError as error:
            return self.failure(condition_for(error), str(error))
        except AmqpDecodeError as error:
            return self.failure(Condition.DECODE_ERROR, str(error))
        except ConfigurationError as error:
            return self.failure(Condition.ARGUMENT_ERROR, str(error))
        except (KeyError, TypeError, ValueError) as error:
            text = f"The arguments of {request.operation} are not as documented: {error!r:.80}."
            return self.failure(Condition.ARGUMENT_ERROR, text)

    def _operation(self, request: Request) -> _Operation | None:
        # One that has no part in transactions is carried out at once.
        transactional = self._transactional.get(request.operation)
        if transactional is None:
            return self._operations.get(request.operation)
        return partial(transactional, transaction=request.transaction)

    def _arguments(self, body: dict[Any, Any], request: Request) -> dict[Any, Any]:
        """Return the arguments of a request, with the session of its link if it names only the link."""
        name = request.application_properties.get(_LINK_NAME)
        if not isinstance(self.entity, ReceivingEntity) or self.entity.sessions is None or not isinstance(name, str):
            return body
        held = self._broker.session_links.get((self.entity, name))
        session_id = body.get("session-id")
        if session_id is None:
            return body if held is None else {**body, "session-id": held}
        if request.operation in _OF_HOLDERS and session_id != held:
            raise RefusedError(Refusal.SESSION_LOCK_LOST, _NOT_HELD)
        return body

    def _counted(self, request: Request, reply: Reply) -> Reply:
        self._broker.charge(max(_length(request.body), _length(reply.body), 1))
        return reply

    def failure(self, condition: Condition, sentence: str) -> Reply:
        """Return the reply for an error."""
        return _failure(condition, sentence)


def _length(body: AmqpValue) -> int:
    """Return how many messages, numbers or lock tokens a request or a reply is about."""
    return (
        max((len(value) for value in body.values() if isinstance(value, list)), default=0)
        if isinstance(body, dict)
        else 0
    )


def _settle_later(
    transaction: Transaction, entity: Receivable, settle: Callable[[UUID, int], bool], token: UUID, now: int
) -> None:
    transaction.settle(entity, token, partial(settle, token), now)


class MissingNode:
    """Refuses requests about a missing subscription. Azure gives no answer (azure-sdk-for-net 43492).

    Args:
        address: its address, in lower case.
        sentence: says that it is missing.
    """

    entity: AnyEntity | Receivable | None = None

    def __init__(self, address: str, sentence: str) -> None:
        self.address = address
        self._sentence = sentence

    def answer(self, request: Request) -> Reply:  # noqa: ARG002 (all have one answer)
        """Reply that it is missing."""
        return self.failure(Condition.NOT_FOUND, self._sentence)

    def failure(self, condition: Condition, sentence: str) -> Reply:
        """Return the reply for an error."""
        return _failure(condition, sentence)


def _message_operations(entity: Receivable, broker: Broker) -> dict[str, _Operation]:
    """Return the operations of entities and sub-queues that messages are received from."""
    node = _Receiving(entity, broker)
    return {
        "com.microsoft:peek-message": node.peek,
        "com.microsoft:renew-lock": node.renew_lock,
        "com.microsoft:receive-by-sequence-number": node.receive_by_sequence_number,
        "com.microsoft:batch-delete-messages": node.batch_delete,
    }


def _scheduling_operations(destination: Queue | Topic, max_size: int) -> dict[str, _Transactional]:
    """Return the operations of entities that messages are sent to."""

    def schedule(body: dict[str, Any], now: int, transaction: Transaction | None = None) -> Reply:
        messages: list[SentMessage] = [read_sent(item["message"]) for item in body["messages"]]
        # Check all messages before the first is scheduled.
        size = sum(len(message.payload) for message in messages)
        if size > max_size:
            raise RefusedError(Refusal.TOO_LARGE, f"The messages have {size} bytes, the limit is {max_size}.")
        destination.admission.check(messages)
        if transaction is None:
            numbers = [destination.send(message, now) for message in messages]
        else:
            numbers = transaction.schedule(destination, messages)
        return _done({"sequence-numbers": Array([Long(number) for number in numbers], Long)})

    def cancel(body: dict[str, Any], now: int, transaction: Transaction | None = None) -> Reply:
        numbers = [int(number) for number in body["sequence-numbers"]]

        def check(now: int) -> None:
            del now
            if not destination.schedule.holds(numbers):
                text = "One or more of the messages are not scheduled: they are active already, cancelled, or unknown."
                raise RefusedError(Refusal.MESSAGE_NOT_FOUND, text)

        check(now)
        if transaction is None:
            destination.cancel_scheduled(numbers)
        else:
            transaction.do(destination, check, lambda _: destination.cancel_scheduled(numbers))
        return _done(None)

    return {"com.microsoft:schedule-message": schedule, "com.microsoft:cancel-scheduled-message": cancel}


class _Receiving:
    def __init__(self, entity: Receivable, broker: Broker) -> None:
        self._entity = entity
        self._broker = broker

    def peek(self, body: dict[str, Any], now: int) -> Reply:
        faults = self._broker.faults.at(self._entity.path)
        if faults.hides_messages():
            return _nothing()
        self._entity.owner.record.accessed_time = now
        count = min(int(body["message-count"]), _MAX_PEEKED)
        session_id = body.get("session-id")
        session_id = None if session_id is None or self._entity.sessions is None else str(session_id)
        options = {
            "without_body": body.get("omit-message-body") is True,
            "keeps_scheduled": faults.activated_state == "scheduled",
        }
        # As many messages as fit into one answer, and at least one.
        rendered: list[AmqpValue] = []
        size = 0
        for message in self._entity.peek(int(body["from-sequence-number"]), max(count, 0), session_id):
            payload = self._entity.rendered(message, **options)
            size += len(payload)
            if rendered and size > _MAX_PEEKED_BYTES:
                break
            rendered.append({"message": payload})
        return _done({"messages": rendered}) if rendered else _nothing()

    def renew_lock(self, body: dict[str, Any], now: int) -> Reply:
        if self._entity.sessions is not None:
            raise RefusedError(Refusal.NOT_ALLOWED, "The entity has sessions: renew the lock of the session.")
        tokens = self._held_tokens(body, now)
        ends = [self._entity.renew(token, now) or 0 for token in tokens]
        return _done({"expirations": Array([Timestamp(end) for end in ends], Timestamp)})

    def receive_by_sequence_number(self, body: dict[str, Any], now: int) -> Reply:
        most = self._broker.faults.at(self._entity.path).short_answers or None
        numbers = [int(number) for number in body["sequence-numbers"][:most]]
        delete = int(body["receiver-settle-mode"]) == 0
        messages = self._entity.receive_deferred(numbers, now, delete=delete, session=self._session(body, now))
        if messages is None:
            text = "Failed to lock one or more specified messages: they do not exist, are not deferred, or are locked."
            raise RefusedError(Refusal.MESSAGE_NOT_FOUND, text)
        # A deleted message has no lock; a session's messages share the session's lock.
        items: list[AmqpValue] = []
        for message in messages:
            is_locked = message.lock_token is not None
            payload = self._entity.rendered(message, with_lock=is_locked and self._entity.sessions is None)
            items.append({"message": payload, **({"lock-token": message.lock_token} if is_locked else {})})
        return _done({"messages": items})

    def update_disposition(self, body: dict[str, Any], now: int, transaction: Transaction | None = None) -> Reply:
        settle = self._settlement(str(body["disposition-status"]), body)
        session = None if body.get("session-id") is None else self._session(body, now)
        try:
            tokens = self._held_tokens(body, now, session)
        except RefusedError as error:
            some = self._broker.faults.at(self._entity.path).refused_tokens == "settled" and transaction is None
            if some and error.refusal in (Refusal.MESSAGE_LOCK_LOST, Refusal.SESSION_LOCK_LOST):
                for token in body["lock-tokens"]:
                    settle(token, now)
            raise
        for token in tokens:
            self._entity.check_properties(token, now, _properties(body))
        if transaction is None:
            self._broker.faults.at(self._entity.path).break_off(lambda: [settle(token, now) for token in tokens])
        act = settle if transaction is None else partial(_settle_later, transaction, self._entity, settle)
        for token in tokens:
            act(token, now)
        return _done(None)

    def batch_delete(self, body: dict[str, Any], now: int) -> Reply:
        session = self._session(body, now)
        count = min(int(body["message-count"]), _MAX_DELETED)
        before = int(body["enqueued-time-utc"])
        deleted = self._entity.delete(max(count, 0), before, now, session)
        return _done({"message-count": Int(deleted)}) if deleted else _nothing()

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

    def _held_tokens(self, body: dict[str, Any], now: int, session: MessageSession | None = None) -> list[UUID]:
        """Return the lock tokens of a request; refuse the whole request if one lock is lost."""
        tokens = cast("list[UUID]", body["lock-tokens"])
        if self._broker.faults.at(self._entity.path).mixed_partitions == "refused":
            self._expect_one_partition(tokens, now)
        is_own = session is None or session.held.keys() >= set(tokens)
        if is_own and all(self._entity.holds(token, now) for token in tokens):
            return tokens
        if self._entity.sessions is not None:
            raise RefusedError(Refusal.SESSION_LOCK_LOST, _NOT_HELD)
        text = "The lock supplied is invalid: it has expired, or the message is no longer in the queue."
        raise RefusedError(Refusal.MESSAGE_LOCK_LOST, text)

    def _expect_one_partition(self, tokens: list[UUID], now: int) -> None:
        numbers = [number for token in tokens if (number := self._entity.number_of(token, now)) is not None]
        if len({number >> PARTITION_SHIFT for number in numbers}) > 1:
            text = "Batching lock tokens for different partitions is not supported."
            raise RefusedError(Refusal.NOT_ALLOWED, text)

    def _session(self, body: dict[str, Any], now: int) -> MessageSession | None:
        if self._entity.sessions is None:
            return None
        session_id = body.get("session-id")
        if session_id is None:
            raise RefusedError(Refusal.NOT_ALLOWED, "The entity has sessions: say which session is meant.")
        return self._entity.owner.held_session(str(session_id), now)


def _session_operations(entity: ReceivingEntity) -> dict[str, _Operation]:
    """Return the operations of an entity with sessions."""
    node = _Sessions(entity)
    return {
        "com.microsoft:get-session-state": node.get_state,
        "com.microsoft:renew-session-lock": node.renew_lock,
        "com.microsoft:get-message-sessions": node.list_sessions,
    }


class _Sessions:
    def __init__(self, entity: ReceivingEntity) -> None:
        self._entity = entity

    def get_state(self, body: dict[str, Any], now: int) -> Reply:
        return _done({"session-state": self._entity.held_session(str(body["session-id"]), now).state})

    def set_state(self, body: dict[str, Any], now: int, transaction: Transaction | None = None) -> Reply:
        session_id = str(body["session-id"])
        session = self._entity.held_session(session_id, now)
        state: object = body["session-state"]
        if state is not None and not isinstance(state, bytes):
            raise RefusedError(Refusal.BAD_ARGUMENT, "The state of a session must be bytes.")
        if transaction is None:
            self._entity.set_session_state(session, state, now)
        else:
            transaction.do(
                self._entity,
                partial(self._entity.held_session, session_id),
                partial(self._entity.set_session_state, session, state),
            )
        return _done(None)

    def renew_lock(self, body: dict[str, Any], now: int) -> Reply:
        session = self._entity.held_session(str(body["session-id"]), now)
        return _done({"expiration": Timestamp(self._entity.renew_session(session, now))})

    def list_sessions(self, body: dict[str, Any], now: int) -> Reply:
        del now
        since, skip, top = (int(body[key]) for key in ("last-updated-time", "skip", "top"))
        if skip < 0 or top < 0 or self._entity.sessions is None:
            raise RefusedError(Refusal.BAD_ARGUMENT, "skip and top must not be negative.")
        found = [session.session_id for session in self._entity.sessions.listed(None if since >= _EVER else since)]
        page = found[skip : skip + min(top, _MAX_SESSIONS)]
        if not page:
            return _nothing()
        return _done({"skip": Int(skip + len(page)), "sessions-ids": Array(page, str)})


def _rule_operations(broker: Broker, subscription: Subscription) -> dict[str, _Operation]:
    """Return the operations of a subscription on its rules."""
    node = _Rules(broker, subscription)
    return {
        "com.microsoft:add-rule": node.add,
        "com.microsoft:remove-rule": node.remove,
        "com.microsoft:enumerate-rules": node.enumerate,
    }


class _Rules:
    def __init__(self, broker: Broker, subscription: Subscription) -> None:
        self._broker = broker
        self._subscription = subscription

    def add(self, body: dict[str, Any], now: int) -> Reply:
        name, description = _name(body), _map(body["rule-description"], "rule-description")
        if self._subscription.find_rule(name) is not None:
            text = f"The subscription '{self._subscription.path}' already has a rule '{name}'."
            return _failure(Condition.ENTITY_ALREADY_EXISTS, text)
        action = description.get("sql-rule-action")
        rule = Rule(
            name,
            _read_filter(description),
            None if action is None else SqlAction(_expression(action, "sql-rule-action")),
            now,
        )
        self._broker.registry.put_rule(self._subscription, rule, now=now)
        return _done(None)

    def remove(self, body: dict[str, Any], now: int) -> Reply:
        name = _name(body)
        if self._subscription.find_rule(name) is None:
            text = f"The messaging entity '{self._subscription.path}|{name}' could not be found: it has no such rule."
            return _failure(Condition.NOT_FOUND, text)
        self._broker.registry.remove_rule(self._subscription, name, now=now)
        return _done(None)

    def enumerate(self, body: dict[str, Any], now: int) -> Reply:
        del now
        skip, top = int(body["skip"]), int(body["top"])
        if skip < 0 or top < 0:
            raise RefusedError(Refusal.BAD_ARGUMENT, "skip and top must not be negative.")
        page = self._subscription.rules[skip : skip + min(top, _MAX_RULES)]
        rules: list[AmqpValue] = [{"rule-description": _written(rule)} for rule in page]
        return _done({"rules": rules}) if rules else _nothing()


def _done(body: AmqpValue) -> Reply:
    """Return the reply to a request that was carried out."""
    return Reply({"statusCode": Int(200), "statusDescription": "OK"}, body)


def _nothing() -> Reply:
    """Return the reply to a request that found nothing."""
    return Reply({"statusCode": Int(204), "statusDescription": "No messages"})


def _failure(condition: Condition, sentence: str) -> Reply:
    """Return the reply for an error."""
    return Reply(
        {
            "statusCode": Int(condition.status),
            "statusDescription": with_tracking_id(sentence),
            "errorCondition": Symbol(condition.symbol),
        }
    )


def _properties(body: dict[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any] | None", body.get("properties-to-modify")) or {}


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _name(body: dict[str, Any]) -> str:
    name: object = body["rule-name"]
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        raise RefusedError(Refusal.BAD_ARGUMENT, f"rule-name must be a text of 1 to {_MAX_NAME} characters.")
    return name


def _map(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RefusedError(Refusal.BAD_ARGUMENT, f"{name} must be a map.")
    return cast("dict[str, Any]", value)


def _expression(value: object, name: str) -> str:
    expression = _map(value, name).get("expression")
    if not isinstance(expression, str):
        raise RefusedError(Refusal.BAD_ARGUMENT, f"{name} needs an expression, which must be a text.")
    return expression


def _read_filter(description: dict[str, Any]) -> Filter:
    given = [name for name in _FILTERS if description.get(name) is not None]
    if len(given) != 1:
        raise RefusedError(Refusal.BAD_ARGUMENT, f"A rule-description needs one of {', '.join(_FILTERS)}.")
    match given[0]:
        case "sql-filter":
            return SqlFilter(_expression(description["sql-filter"], "sql-filter"))
        case "correlation-filter":
            return _read_correlation(_map(description["correlation-filter"], "correlation-filter"))
        case "true-filter":
            return TrueFilter()
        case _:
            return FalseFilter()


def _read_correlation(given: dict[str, Any]) -> CorrelationFilter:
    fields = {ours: given.get(name) for name, ours in _CORRELATION_FIELDS.items()}
    for name, value in fields.items():
        if not (value is None or isinstance(value, str)):
            raise RefusedError(Refusal.BAD_ARGUMENT, f"{name} of a correlation filter must be a text.")
    properties = _map(given.get("properties") or {}, "properties")
    if not all(isinstance(name, str) for name in cast("dict[object, Any]", properties)):
        raise RefusedError(Refusal.BAD_ARGUMENT, "The names of properties must be texts.")
    return CorrelationFilter(**fields, properties=properties)


def _written(rule: Rule) -> Described:
    action = Described(_EMPTY_ACTION, [])
    if rule.action is not None:
        action = Described(_SQL_ACTION, [rule.action.expression, _COMPATIBILITY_LEVEL])
    return Described(_RULE_DESCRIPTION, [_written_filter(rule.filter), action, rule.name, Timestamp(rule.created_time)])


def _written_filter(filter_: Filter) -> Described:
    match filter_:
        case TrueFilter():
            return Described(_TRUE_FILTER, [])
        case FalseFilter():
            return Described(_FALSE_FILTER, [])
        case SqlFilter():
            return Described(_SQL_FILTER, [filter_.expression, _COMPATIBILITY_LEVEL])
        case CorrelationFilter():
            fields: list[AmqpValue] = [getattr(filter_, ours) for ours in _CORRELATION_FIELDS.values()]
            return Described(_CORRELATION_FILTER, [*fields, dict(filter_.properties)])
