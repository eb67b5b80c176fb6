"""The nodes that take requests: ``ENTITY/$management`` with all of its operations, and ``$cbs`` for tokens.

Sources: Service Bus documentation, "AMQP 1.0 in Azure Service Bus request-response-based operations" and "AMQP 1.0 in
Azure Service Bus and Event Hubs protocol guide", "Claims-based authorization". The codes of rules are those of Azure's
SDKs for .NET and JavaScript.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from sbnotebook.amqp import AmqpValue, Array, Described, Int, Long, Symbol, Timestamp, ULong
from sbnotebook.amqp.decoding import ITEMS
from sbnotebook.amqp.sections import APPLICATION_PROPERTIES, PROPERTIES, VALUE, encode_section, section_value, split
from sbnotebook.emulator.amqp.link import ReceivingLink, SendingLink, TransferReceived
from sbnotebook.emulator.amqp.performatives import Accepted
from sbnotebook.emulator.entities.box import MessageSession, Receivable, ReceivingEntity
from sbnotebook.emulator.entities.message import read_sent
from sbnotebook.emulator.entities.message_log import PARTITION_SHIFT
from sbnotebook.emulator.entities.options import Tier
from sbnotebook.emulator.entities.queue import Queue, Subscription, Topic
from sbnotebook.emulator.entities.refusals import Condition, RefusedError, with_tracking_id
from sbnotebook.emulator.entities.registry import AnyEntity
from sbnotebook.emulator.entities.rules.rule import (
    CORRELATION_PROPERTIES,
    Filter,
    Rule,
    SqlAction,
    filter_of,
    sql_filter,
)
from sbnotebook.emulator.entities.transaction import Transaction
from sbnotebook.emulator.faults import EntityFaults
from sbnotebook.emulator.logs import clean_logger
from sbnotebook.emulator.service.access import LISTEN, MANAGEMENT, SEND, ConnectionAccess
from sbnotebook.emulator.service.broker import Broker, asked_settlement, settle, settle_later
from sbnotebook.emulator.service.links import LinkHandler
from sbnotebook.errors import AmqpDecodeError, ConfigurationError

if TYPE_CHECKING:
    from sbnotebook.emulator.service.peer import AmqpPeer

CBS: Final = "$cbs"
_LOGGER: Final = clean_logger(__name__)
_CREDIT: Final = 100
_MAX_PAGE: Final = 1000  # Rules or sessions in one answer
_MOST_ITEMS: Final = 2000  # Items of a section of a request to ``$cbs``, which anyone can send


Reply = tuple[dict[str, AmqpValue], AmqpValue]
"""The application properties and the body of an answer."""


@dataclass(slots=True)
class Call:
    broker: Broker
    entity: Any  # which has the operation: the table of operations says of what kind; None for a node without one
    operation: str
    body: Any  # of an operation of the table: a map
    properties: dict[str, AmqpValue]
    message_id: AmqpValue
    reply_to: AmqpValue
    now: int  # ms
    transaction: Transaction | None = None  # None to take effect at once

    @property
    def faults(self) -> EntityFaults:
        return self.broker.faults.at(self.entity.path)

    @property
    def page(self) -> slice:
        skip, top = int(self.body["skip"]), int(self.body["top"])
        if skip < 0 or top < 0:
            raise RefusedError(Condition.ARGUMENT_ERROR, "skip and top must not be negative.")
        return slice(skip, skip + min(top, _MAX_PAGE))


def done(body: AmqpValue) -> Reply:
    return {"statusCode": Int(200), "statusDescription": "OK"}, body


_NOTHING: Final[Reply] = {"statusCode": Int(204), "statusDescription": "No messages"}, None


def of_token(status: int, description: str) -> Reply:
    """Return an answer of ``$cbs``: its names have hyphens, unlike those of a management node."""
    return {"status-code": Int(status), "status-description": description}, None


class RequestLink(LinkHandler[ReceivingLink]):
    """A client's requests to a node. The errors that ``answer`` raises become replies."""

    def __init__(
        self,
        peer: AmqpPeer,
        link: ReceivingLink,
        address: str,
        entity: AnyEntity | Receivable | None,
    ) -> None:
        super().__init__(peer, link, entity)
        self._address = address
        link.grant_credit(_CREDIT)

    def received(self, event: TransferReceived, faults: EntityFaults) -> None:  # noqa: ARG002
        """Answer a request. It is carried out even if no link waits for the reply."""
        self._link.grant_credit(_CREDIT)
        call = self._read(event.payload)
        self._link.settle(event.delivery_id, Accepted())
        reply = self._carry_out(call, event.txn_id)
        # Over the link that the request names, or else over the first one from this node
        links = [each for each in self._peer.handlers if isinstance(each, ReplyLink) and each.address == self._address]
        named = [each for each in links if call.reply_to is not None and call.reply_to in each.names]
        for link in (named or links)[:1]:
            link.send(_written(reply, call.message_id))

    def _read(self, payload: bytes) -> Call:
        items = _MOST_ITEMS if self.attached_to is None else ITEMS
        values: dict[int, Any] = {
            section.code: section_value(payload, section, items=items)
            for section in split(payload, in_order=False)
            if section.code in (PROPERTIES, APPLICATION_PROPERTIES, VALUE)
        }
        fields, properties = values.get(PROPERTIES, []), values.get(APPLICATION_PROPERTIES, {})
        if not isinstance(fields, list) or not isinstance(properties, dict):
            raise AmqpDecodeError("The properties of a request must be a list, its application properties a map.")
        # As AMQP 1.0 has them (part 3, section 3.2.4), of which the last may be left out.
        message_id, _, _, _, reply_to = cast("list[Any]", [*fields, None, None, None, None, None])[:5]
        given = cast("dict[str, Any]", properties)
        return Call(
            self._peer.broker,
            self.attached_to,
            operation=str(given.get("operation", "")),
            body=values.get(VALUE),
            properties=given,
            message_id=message_id,
            reply_to=reply_to,
            now=self._peer.broker.advance(),
        )

    def _carry_out(self, call: Call, txn_id: bytes | None) -> Reply:
        try:
            if txn_id is not None:
                call.transaction = self._peer.transactions.find(txn_id)
            return (put_token if self._address == CBS else answer)(self._address, self._peer.access, call)
        except (RefusedError, AmqpDecodeError) as error:
            condition = error.condition if isinstance(error, RefusedError) else Condition.DECODE_ERROR
            return self._refusal(condition, str(error))
        except Exception:
            _LOGGER.exception("The request %s was not answered.", call.operation)
            return self._refusal(
                Condition.INTERNAL_ERROR, "The emulator failed to handle the request; its log says why."
            )

    def _refusal(self, condition: Condition, sentence: str) -> Reply:
        said = with_tracking_id(sentence)
        if self._address == CBS:
            return of_token(condition.status, said)
        return {
            "statusCode": Int(condition.status),
            "statusDescription": said,
            "errorCondition": Symbol(condition.symbol),
        }, None


class ReplyLink(LinkHandler[SendingLink]):
    def __init__(self, peer: AmqpPeer, link: SendingLink, address: str, entity: AnyEntity | Receivable | None) -> None:
        super().__init__(peer, link, entity)
        self.address = address
        self._waiting: deque[bytes] = deque()

    @property
    def names(self) -> tuple[AmqpValue, ...]:
        """Return its names in ``reply-to``: its target's address, and its own name, which the JavaScript SDK uses."""
        return getattr(self._link.target, "address", None), self._link.name

    def detached(self) -> None:
        self._peer.held.add_answers(-sum(map(len, self._waiting)))
        self._waiting.clear()

    def send(self, payload: bytes) -> None:
        self._waiting.append(payload)
        self._peer.held.add_answers(len(payload))
        self.credit_changed()
        if len(self._waiting) > _CREDIT:
            self._peer.drop("the client does not take the answers to its requests.")

    def credit_changed(self) -> None:
        while self._waiting and self._link.credit > 0 and self._peer.is_writable:
            payload = self._waiting.popleft()
            self._peer.held.add_answers(-len(payload))
            self._link.send(b"", payload, settled=True)
        if self._link.drain:
            self._link.drained()
        self._peer.broker.touch(self._peer)


def _written(reply: Reply, correlation_id: AmqpValue) -> bytes:
    fields: list[AmqpValue] = [None, None, None, None, None, correlation_id]
    sections = (PROPERTIES, fields), (APPLICATION_PROPERTIES, reply[0]), (VALUE, reply[1])
    return b"".join(encode_section(code, value) for code, value in sections)


_MAX_PEEKED: Final = 250  # Messages in one answer; the service has the same limit, which it does not document
_MAX_PEEKED_BYTES: Final = 1_000_000  # Bytes in one answer, unless its first message alone is larger
_MAX_DELETED: Final = 500
# Messages that one request removes at most (Service Bus documentation, "Batch delete messages")
_MAX_DELETED_PREMIUM: Final = 4000
# The last second of .NET (ms): a client that asks for sessions updated since then wants all that have messages
_EVER: Final = 253_402_300_799_000


def schedule(call: Call) -> Reply:
    destination, messages = call.entity, [read_sent(item["message"]) for item in call.body["messages"]]
    # Check all messages before the first is scheduled.
    size, limit = sum(len(message.payload) for message in messages), call.broker.max_message_size(destination)
    if size > limit:
        raise RefusedError(Condition.MESSAGE_SIZE_EXCEEDED, f"The messages have {size} bytes, the limit is {limit}.")
    destination.check(messages)
    if call.transaction is None:
        numbers = [destination.send(message, call.now) for message in messages]
    else:
        numbers = call.transaction.schedule(destination, messages)
    return done({"sequence-numbers": Array([Long(number) for number in numbers], Long)})


def cancel_scheduled(call: Call) -> Reply:
    destination, numbers = call.entity, [int(number) for number in call.body["sequence-numbers"]]

    def check(_now: int) -> None:
        if any(destination.find_scheduled(number) is None for number in numbers):
            raise RefusedError(
                Condition.MESSAGE_NOT_FOUND,
                "One or more of the messages are not scheduled: they are active already, cancelled, or unknown.",
            )

    check(call.now)
    if call.transaction is None:
        destination.cancel_scheduled(numbers)
    else:
        call.transaction.do(destination, check, lambda _: destination.cancel_scheduled(numbers))
    return done(None)


def peek(call: Call) -> Reply:
    """Return messages from a number on: as many as fit into one answer, and at least one."""
    entity, faults = call.entity, call.faults
    if faults.count_down("empty_peeks"):
        return _NOTHING
    entity.owner.accessed_time = call.now
    count = min(int(call.body["message-count"]), _MAX_PEEKED)
    session_id = None if entity.sessions is None else call.body.get("session-id")
    options = {
        "without_body": call.body.get("omit-message-body") is True,
        "keeps_scheduled": faults.activated_state == "scheduled",
    }
    rendered: list[AmqpValue] = []
    size = 0
    for message in entity.peek(int(call.body["from-sequence-number"]), max(count, 0), session_id):
        payload = entity.rendered(message, **options)
        size += len(payload)
        if rendered and size > _MAX_PEEKED_BYTES:
            break
        rendered.append({"message": payload})
    return done({"messages": rendered}) if rendered else _NOTHING


def renew_lock(call: Call) -> Reply:
    """Renew the locks of messages, all of them or none."""
    if call.entity.sessions is not None:
        raise RefusedError(Condition.NOT_ALLOWED, "The entity has sessions: renew the lock of the session.")
    tokens = _tokens(call)
    if any(call.entity.held(token, call.now) is None for token in tokens):
        raise call.entity.lock_lost()
    return done({"expirations": Array([Timestamp(call.entity.renew(token, call.now)) for token in tokens], Timestamp)})


def receive_deferred(call: Call) -> Reply:
    entity = call.entity
    numbers = [int(number) for number in call.body["sequence-numbers"][: call.faults.short_answers or None]]
    delete = int(call.body["receiver-settle-mode"]) == 0
    messages = entity.receive_deferred(numbers, call.now, delete=delete, session=_session(call))
    if messages is None:
        raise RefusedError(
            Condition.MESSAGE_NOT_FOUND,
            "Failed to lock one or more specified messages: they do not exist, are not deferred, or are locked.",
        )
    # A deleted message has no lock; a session's messages share the session's lock.
    with_lock = not delete and entity.sessions is None
    items = [{"message": entity.rendered(message, with_lock=with_lock)} for message in messages]
    if not delete:
        items = [item | {"lock-token": message.lock_token} for item, message in zip(items, messages, strict=True)]
    return done({"messages": cast("list[AmqpValue]", items)})


def update_disposition(call: Call) -> Reply:
    """Settle messages, all of them or none."""
    settlement = asked_settlement(call.body)
    session = None if call.body.get("session-id") is None else _session(call)
    tokens = _tokens(call)
    if session is not None and not session.held.keys() >= set(tokens):
        raise call.entity.lock_lost()
    if call.transaction is None:
        settle(call.entity, tokens, settlement, call.now, call.faults)
    else:
        settle_later(call.transaction, call.entity, tokens, settlement, call.now)
    return done(None)


def batch_delete(call: Call) -> Reply:
    """Remove messages, the oldest first; locked ones stay (Service Bus documentation, "Batch delete messages")."""
    entity, faults, count = call.entity, call.faults, int(call.body["message-count"])
    if faults.batch_delete == "refused":
        raise RefusedError(Condition.NOT_IMPLEMENTED, "The operation is not supported.")
    if entity.owner.is_partitioned:
        raise RefusedError(Condition.NOT_ALLOWED, "Batch delete is not supported with partitioned entities.")
    most = _MAX_DELETED_PREMIUM if call.broker.registry.tier is Tier.PREMIUM else _MAX_DELETED
    # Which condition Service Bus gives, no source says (azure-sdk-for-net issue 43801).
    if not 0 < count <= most:
        raise RefusedError(Condition.ARGUMENT_ERROR, f"A request removes 1 to {most} messages.")
    count = min(count, faults.short_deletes or count)
    deleted = entity.delete(count, int(call.body["enqueued-time-utc"]), call.now, _session(call))
    return done({"message-count": Int(deleted)}) if deleted or faults.batch_delete == "zero" else _NOTHING


def get_session_state(call: Call) -> Reply:
    return done({"session-state": call.entity.held_session(str(call.body["session-id"]), call.now).state})


def set_session_state(call: Call) -> Reply:
    check = partial(call.entity.held_session, str(call.body["session-id"]))
    act = partial(call.entity.set_session_state, check(call.now), call.body["session-state"])
    if not isinstance(call.body["session-state"], bytes | None):
        raise RefusedError(Condition.ARGUMENT_ERROR, "The state of a session must be bytes.")
    if call.transaction is None:
        act(call.now)
    else:
        call.transaction.do(call.entity, check, act)
    return done(None)


def renew_session_lock(call: Call) -> Reply:
    session = call.entity.held_session(str(call.body["session-id"]), call.now)
    return done({"expiration": Timestamp(call.entity.renew_session(session, call.now))})


def list_sessions(call: Call) -> Reply:
    since, place = int(call.body["last-updated-time"]), call.page
    page = call.entity.session_ids(None if since >= _EVER else since)[place]
    return done({"skip": Int(place.start + len(page)), "sessions-ids": Array(page, str)}) if page else _NOTHING


def _tokens(call: Call) -> list[UUID]:
    tokens = cast("list[UUID]", call.body["lock-tokens"])
    if call.faults.mixed_partitions == "refused":
        held = filter(None, (call.entity.held(token, call.now) for token in tokens))
        if len({message.sequence_number >> PARTITION_SHIFT for message in held}) > 1:
            raise RefusedError(Condition.NOT_ALLOWED, "Batching lock tokens for different partitions is not supported.")
    return tokens


def _session(call: Call) -> MessageSession | None:
    entity: Any = call.entity
    if entity.sessions is None:
        return None
    session_id = call.body.get("session-id")
    if session_id is None:
        raise RefusedError(Condition.NOT_ALLOWED, "The entity has sessions: say which session is meant.")
    return entity.owner.held_session(str(session_id), call.now)


_CODES: Final = {
    "RuleDescription": ULong(0x0000013700000004),
    "EmptyRuleAction": ULong(0x0000013700000005),
    "SqlRuleAction": ULong(0x0000013700000006),
    # Those of filters have one zero less, in Service Bus and its SDKs.
    "SqlFilter": ULong(0x000001370000006),
    "TrueFilter": ULong(0x000001370000007),
    "FalseFilter": ULong(0x000001370000008),
    "CorrelationFilter": ULong(0x000001370000009),
}

_COMPATIBILITY_LEVEL: Final = Int(20)
_KINDS: Final = {f"{kind.lower()}-filter": kind for kind in ("Sql", "Correlation", "True", "False")}
_NEXT_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")
# The names in a request, such as ``reply-to``, by the properties of a filter
_CORRELATION: Final = {name: _NEXT_WORD.sub("-", name).lower() for name in CORRELATION_PROPERTIES}


def add(call: Call) -> Reply:
    description = _map(call.body["rule-description"], "rule-description")
    given = description.get("sql-rule-action")
    action = None if given is None else SqlAction(_expression(given, "sql-rule-action"))
    rule = Rule(call.body["rule-name"], _read_filter(description), action, call.now)
    if call.entity.find_rule(rule.name) is not None:
        raise RefusedError(
            Condition.ENTITY_ALREADY_EXISTS, f"The subscription '{call.entity.path}' already has a rule '{rule.name}'."
        )
    call.broker.registry.put_rule(call.entity, rule, now=call.now)
    return done(None)


def remove(call: Call) -> Reply:
    name = str(call.body["rule-name"])
    if call.entity.find_rule(name) is None:
        raise RefusedError(
            Condition.NOT_FOUND,
            f"The messaging entity '{call.entity.path}|{name[:80]}' could not be found: it has no such rule.",
        )
    call.broker.registry.remove_rule(call.entity, name, now=call.now)
    return done(None)


def enumerate_rules(call: Call) -> Reply:
    rules: list[AmqpValue] = [{"rule-description": _rule_written(rule)} for rule in call.entity.rules[call.page]]
    return done({"rules": rules}) if rules else _NOTHING


def _map(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RefusedError(Condition.ARGUMENT_ERROR, f"{name} must be a map.")
    return cast("dict[str, Any]", value)


def _expression(value: object, name: str) -> str:
    expression = _map(value, name).get("expression")
    if not isinstance(expression, str):
        raise RefusedError(Condition.ARGUMENT_ERROR, f"{name} needs an expression, which must be a text.")
    return expression


def _read_filter(description: dict[str, Any]) -> Filter:
    named = [name for name in _KINDS if description.get(name) is not None]
    if len(named) != 1:
        raise RefusedError(Condition.ARGUMENT_ERROR, f"A rule-description needs one of {', '.join(_KINDS)}.")
    name, parts = named[0], description[named[0]]
    if name == "sql-filter":
        return sql_filter(_expression(parts, name))
    if name != "correlation-filter":
        return filter_of(_KINDS[name], {}, {})
    parts = _map(parts, name)
    texts = {key: parts.get(theirs) for key, theirs in _CORRELATION.items()}
    properties = _map(parts.get("properties") or {}, "properties")
    given = [*cast("dict[object, Any]", properties), *(text for text in texts.values() if text is not None)]
    if not all(isinstance(text, str) for text in given):
        text = "The properties of a correlation filter, and the names of the other properties, must be texts."
        raise RefusedError(Condition.ARGUMENT_ERROR, text)
    return filter_of(_KINDS[name], texts, properties)


def _rule_written(rule: Rule) -> Described:
    action = Described(_CODES["EmptyRuleAction"], [])
    if rule.action is not None:
        action = Described(_CODES["SqlRuleAction"], [rule.action.expression, _COMPATIBILITY_LEVEL])
    parts: list[AmqpValue] = []
    if rule.filter.kind == "Sql":
        parts = [rule.filter.texts["SqlExpression"], _COMPATIBILITY_LEVEL]
    elif rule.filter.kind == "Correlation":
        parts = [*map(rule.filter.texts.get, _CORRELATION), dict(rule.filter.values)]
    written = Described(_CODES[f"{rule.filter.kind}Filter"], parts)
    return Described(_CODES["RuleDescription"], [written, action, rule.name, Timestamp(rule.created_time)])


_OPERATIONS: Final[dict[str, tuple[Callable[[Call], Reply], Any]]] = {
    "schedule-message": (schedule, Queue | Topic),
    "cancel-scheduled-message": (cancel_scheduled, Queue | Topic),
    "peek-message": (peek, Receivable),
    "renew-lock": (renew_lock, Receivable),
    "receive-by-sequence-number": (receive_deferred, Receivable),
    "update-disposition": (update_disposition, Receivable),
    "batch-delete-messages": (batch_delete, Receivable),
    "get-session-state": (get_session_state, ReceivingEntity),
    "set-session-state": (set_session_state, ReceivingEntity),
    "renew-session-lock": (renew_session_lock, ReceivingEntity),
    "get-message-sessions": (list_sessions, ReceivingEntity),
    "add-rule": (add, Subscription),
    "remove-rule": (remove, Subscription),
    "enumerate-rules": (enumerate_rules, Subscription),
}
"""The function of each operation, and the class of entities that has it.

Operations of ``Queue | Topic`` need the claim Send, all others Listen. Those of ``ReceivingEntity`` need sessions.
"""
# Only for the link that holds the session that they name (documentation, "Message sessions")
_FOR_HOLDER: Final = frozenset(
    ("receive-by-sequence-number", "update-disposition", "batch-delete-messages", "get-session-state",
     "set-session-state", "renew-session-lock")
)  # fmt: skip


def answer(address: str, access: ConnectionAccess, call: Call) -> Reply:
    broker, entity = call.broker, call.entity
    if entity is None:
        raise access.missing(address.removesuffix(MANAGEMENT))
    name = call.operation.removeprefix("com.microsoft:")
    act, kinds = _OPERATIONS.get(name, (None, ()))
    access.require(address, SEND if kinds == Queue | Topic else LISTEN)
    broker.admit(call.faults)
    if act is None or not isinstance(entity, kinds) or (kinds is ReceivingEntity and entity.sessions is None):
        raise RefusedError(Condition.NOT_IMPLEMENTED, f"There is no operation {call.operation[:80]!r} here.")
    if not isinstance(call.body, dict):
        raise RefusedError(Condition.ARGUMENT_ERROR, "The body of a request must be a map.")
    try:
        _name_session(name, call)
        reply = act(call)
    except ConfigurationError as error:
        raise RefusedError(Condition.ARGUMENT_ERROR, str(error)) from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RefusedError(
            Condition.ARGUMENT_ERROR, f"The arguments of {call.operation} are not as documented: {error!r:.80}."
        ) from None
    broker.operations += max(_length(cast("AmqpValue", call.body)), _length(reply[1]), 1)
    return reply


def _name_session(name: str, call: Call) -> None:
    """Add the session of its link to the arguments of a request that names only the link."""
    entity, link = call.entity, call.properties.get("associated-link-name")
    if not isinstance(entity, ReceivingEntity) or entity.sessions is None or not isinstance(link, str):
        return
    held = call.broker.session_links.get((entity, link))
    session_id = call.body.get("session-id")
    if session_id is None and held is not None:
        call.body["session-id"] = held
    elif session_id is not None and name in _FOR_HOLDER and session_id != held:
        raise entity.lock_lost()


def _length(body: AmqpValue) -> int:
    """Return how many messages, numbers or lock tokens a request or a reply is about."""
    values = body.values() if isinstance(body, dict) else ()
    return max((len(value) for value in values if isinstance(value, list)), default=0)


def put_token(_address: str, access: ConnectionAccess, call: Call) -> Reply:
    """Accept a token; one for an entity that does not exist is refused as in Azure, with the status NOT_FOUND."""
    if call.operation != "put-token":
        raise RefusedError(Condition.NOT_IMPLEMENTED, f"There is no operation {call.operation[:80]!r}.")
    if not isinstance(call.body, str):
        raise RefusedError(Condition.ARGUMENT_ERROR, "The body of put-token must be the token, as a string.")
    access.put_token(call.body, str(call.properties.get("name") or ""))
    return of_token(202, "Accepted")
