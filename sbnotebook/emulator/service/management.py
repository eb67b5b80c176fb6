"""The nodes that take requests: ``ENTITY/$management`` with the table of its operations, and ``$cbs`` for tokens.

Sources: Service Bus documentation, "AMQP 1.0 in Azure Service Bus request-response-based operations" and "AMQP 1.0 in
Azure Service Bus and Event Hubs protocol guide", "Claims-based authorization".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from sbnotebook.amqp import AmqpValue, Int, Symbol
from sbnotebook.emulator.entities.box import Receivable, ReceivingEntity
from sbnotebook.emulator.entities.options import Claim
from sbnotebook.emulator.entities.queue import Queue
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.emulator.entities.registry import AnyEntity
from sbnotebook.emulator.entities.topic import Subscription, Topic
from sbnotebook.emulator.faults import SERVER_BUSY
from sbnotebook.emulator.service import message_operations as messages
from sbnotebook.emulator.service import rule_operations as rules
from sbnotebook.emulator.service.access import LISTEN, SEND, ConnectionAccess
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.conditions import with_tracking_id
from sbnotebook.emulator.service.requests import Call, Node, Reply, Request
from sbnotebook.errors import ConfigurationError

CBS: Final = "$cbs"
_PREFIX: Final = "com.microsoft:"
_LINK_NAME: Final = "associated-link-name"


def _takes_in(entity: object) -> bool:
    return isinstance(entity, Queue | Topic)


def _gives_out(entity: object) -> bool:
    return isinstance(entity, Receivable)


def _has_sessions(entity: object) -> bool:
    return isinstance(entity, ReceivingEntity) and entity.sessions is not None


def _has_rules(entity: object) -> bool:
    return isinstance(entity, Subscription)


class _Operation(NamedTuple):
    act: Callable[[Call], Reply]
    exists: Callable[[object], bool]
    claim: Claim = LISTEN
    # Only for the link that holds the session that it names (documentation, "Message sessions").
    is_for_holder: bool = False


_OPERATIONS: Final = {
    "schedule-message": _Operation(messages.schedule, _takes_in, SEND),
    "cancel-scheduled-message": _Operation(messages.cancel_scheduled, _takes_in, SEND),
    "peek-message": _Operation(messages.peek, _gives_out),
    "renew-lock": _Operation(messages.renew_lock, _gives_out),
    "receive-by-sequence-number": _Operation(messages.receive_deferred, _gives_out, is_for_holder=True),
    "update-disposition": _Operation(messages.update_disposition, _gives_out, is_for_holder=True),
    "batch-delete-messages": _Operation(messages.batch_delete, _gives_out, is_for_holder=True),
    "get-session-state": _Operation(messages.get_session_state, _has_sessions, is_for_holder=True),
    "set-session-state": _Operation(messages.set_session_state, _has_sessions, is_for_holder=True),
    "renew-session-lock": _Operation(messages.renew_session_lock, _has_sessions, is_for_holder=True),
    "get-message-sessions": _Operation(messages.list_sessions, _has_sessions),
    "add-rule": _Operation(rules.add, _has_rules),
    "remove-rule": _Operation(rules.remove, _has_rules),
    "enumerate-rules": _Operation(rules.enumerate_rules, _has_rules),
}


def management_node(
    address: str, broker: Broker, access: ConnectionAccess, entity: AnyEntity | Receivable | None, missing: str
) -> Node:
    """Return the node of an entity; of one that is missing, it replies to every request with a sentence."""

    def answer(request: Request) -> Reply:
        if entity is None:
            raise RefusedError(Condition.NOT_FOUND, missing)
        operation = _OPERATIONS.get(request.operation.removeprefix(_PREFIX))
        access.require(address, LISTEN if operation is None else operation.claim)
        if broker.faults.at(entity.path).happens("server_busy") or broker.is_throttled():
            raise RefusedError(Condition.SERVER_BUSY, SERVER_BUSY)
        if operation is None or not operation.exists(entity):
            raise RefusedError(Condition.NOT_IMPLEMENTED, f"There is no operation {request.operation[:80]!r} here.")
        reply = _carry_out(operation, broker, entity, request)
        broker.charge(max(_length(request.body), _length(reply.body), 1))
        return reply

    return Node(address, entity, answer, _failure)


def _carry_out(operation: _Operation, broker: Broker, entity: AnyEntity | Receivable, request: Request) -> Reply:
    if not isinstance(request.body, dict):
        raise RefusedError(Condition.ARGUMENT_ERROR, "The body of a request must be a map.")
    try:
        body = _arguments(operation, broker, entity, request.body, request.application_properties.get(_LINK_NAME))
        return operation.act(Call(broker, entity, body, broker.advance(), request.transaction))
    except ConfigurationError as error:
        raise RefusedError(Condition.ARGUMENT_ERROR, str(error)) from None
    except (KeyError, TypeError, ValueError) as error:
        text = f"The arguments of {request.operation} are not as documented: {error!r:.80}."
        raise RefusedError(Condition.ARGUMENT_ERROR, text) from None


def _arguments(
    operation: _Operation, broker: Broker, entity: AnyEntity | Receivable, body: dict[Any, Any], link: AmqpValue
) -> dict[Any, Any]:
    """Return the arguments of a request, with the session of its link if it names only the link."""
    if not isinstance(entity, ReceivingEntity) or entity.sessions is None or not isinstance(link, str):
        return body
    held = broker.session_links.get((entity, link))
    session_id = body.get("session-id")
    if session_id is None:
        return body if held is None else {**body, "session-id": held}
    if operation.is_for_holder and session_id != held:
        raise entity.lock_lost()
    return body


def _length(body: AmqpValue) -> int:
    """Return how many messages, numbers or lock tokens a request or a reply is about."""
    lists = (value for value in body.values() if isinstance(value, list)) if isinstance(body, dict) else ()
    return max(map(len, lists), default=0)


def _failure(condition: Condition, sentence: str) -> Reply:
    return Reply(
        {
            "statusCode": Int(condition.status),
            "statusDescription": with_tracking_id(sentence),
            "errorCondition": Symbol(condition.symbol),
        }
    )


# ------------------------------------------------------------ $cbs


def cbs_node(access: ConnectionAccess) -> Node:
    return Node(CBS, None, partial(_put_token, access), _refused_token)


def _put_token(access: ConnectionAccess, request: Request) -> Reply:
    """Accept a token; one for an entity that does not exist is refused as in Azure, with the status NOT_FOUND."""
    if request.operation != "put-token":
        raise RefusedError(Condition.NOT_IMPLEMENTED, f"There is no operation {request.operation[:80]!r}.")
    if not isinstance(request.body, str):
        raise RefusedError(Condition.ARGUMENT_ERROR, "The body of put-token must be the token, as a string.")
    access.put_token(request.body, str(request.application_properties.get("name") or ""))
    return _reply(202, "Accepted")


def _refused_token(condition: Condition, sentence: str) -> Reply:
    return _reply(condition.status, with_tracking_id(sentence))


def _reply(status: int, description: str) -> Reply:
    # With hyphens, unlike those of a management node.
    return Reply({"status-code": Int(status), "status-description": description})
