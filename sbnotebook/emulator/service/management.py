"""The nodes that take requests: ``ENTITY/$management`` with the table of its operations, and ``$cbs`` for tokens.

Sources: Service Bus documentation, "AMQP 1.0 in Azure Service Bus request-response-based operations" and "AMQP 1.0 in
Azure Service Bus and Event Hubs protocol guide", "Claims-based authorization".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sbnotebook.amqp import AmqpValue
from sbnotebook.emulator.entities.box import Receivable, ReceivingEntity
from sbnotebook.emulator.entities.queue import Queue
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.emulator.entities.topic import Subscription, Topic
from sbnotebook.emulator.service import message_operations as messages
from sbnotebook.emulator.service import rule_operations as rules
from sbnotebook.emulator.service.access import LISTEN, SEND, ConnectionAccess
from sbnotebook.emulator.service.requests import Call, Reply, of_token
from sbnotebook.errors import ConfigurationError

_PREFIX: Final = "com.microsoft:"
_LINK_NAME: Final = "associated-link-name"

_OPERATIONS: Final[dict[str, tuple[Callable[[Call], Reply], Any]]] = {
    "schedule-message": (messages.schedule, Queue | Topic),
    "cancel-scheduled-message": (messages.cancel_scheduled, Queue | Topic),
    "peek-message": (messages.peek, Receivable),
    "renew-lock": (messages.renew_lock, Receivable),
    "receive-by-sequence-number": (messages.receive_deferred, Receivable),
    "update-disposition": (messages.update_disposition, Receivable),
    "batch-delete-messages": (messages.batch_delete, Receivable),
    "get-session-state": (messages.get_session_state, ReceivingEntity),
    "set-session-state": (messages.set_session_state, ReceivingEntity),
    "renew-session-lock": (messages.renew_session_lock, ReceivingEntity),
    "get-message-sessions": (messages.list_sessions, ReceivingEntity),
    "add-rule": (rules.add, Subscription),
    "remove-rule": (rules.remove, Subscription),
    "enumerate-rules": (rules.enumerate_rules, Subscription),
}
"""The function that carries out each operation, and the class of entities that has the operation."""
_OF_SESSIONS: Final = frozenset(
    ("get-session-state", "set-session-state", "renew-session-lock", "get-message-sessions")
)
# For all others a client needs the claim Listen.
_NEED_SEND: Final = frozenset(("schedule-message", "cancel-scheduled-message"))
# Only for the link that holds the session that they name (documentation, "Message sessions")
_FOR_HOLDER: Final = frozenset(
    ("receive-by-sequence-number", "update-disposition", "batch-delete-messages", "get-session-state",
     "set-session-state", "renew-session-lock")
)  # fmt: skip


def answer(address: str, access: ConnectionAccess, missing: str, call: Call) -> Reply:
    """Answer a request to the node of an entity; one that is missing is named by a sentence."""
    broker, entity = call.broker, call.entity
    if entity is None:
        raise RefusedError(Condition.NOT_FOUND, missing)
    name = call.operation.removeprefix(_PREFIX)
    act, kinds = _OPERATIONS.get(name, (None, ()))
    access.require(address, SEND if name in _NEED_SEND else LISTEN)
    broker.admit(call.faults)
    if act is None or not isinstance(entity, kinds) or (name in _OF_SESSIONS and entity.sessions is None):
        raise RefusedError(Condition.NOT_IMPLEMENTED, f"There is no operation {call.operation[:80]!r} here.")
    reply = _carry_out(act, name, call)
    broker.charge(max(_length(call.body), _length(reply[1]), 1))
    return reply


def _carry_out(act: Callable[[Call], Reply], name: str, call: Call) -> Reply:
    if not isinstance(call.body, dict):
        raise RefusedError(Condition.ARGUMENT_ERROR, "The body of a request must be a map.")
    try:
        _name_session(name, call)
        return act(call)
    except ConfigurationError as error:
        raise RefusedError(Condition.ARGUMENT_ERROR, str(error)) from None
    except (KeyError, TypeError, ValueError) as error:
        text = f"The arguments of {call.operation} are not as documented: {error!r:.80}."
        raise RefusedError(Condition.ARGUMENT_ERROR, text) from None


def _name_session(name: str, call: Call) -> None:
    """Add the session of its link to the arguments of a request that names only the link."""
    entity, link = call.entity, call.properties.get(_LINK_NAME)
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
    lists = (value for value in body.values() if isinstance(value, list)) if isinstance(body, dict) else ()
    return max(map(len, lists), default=0)


def put_token(access: ConnectionAccess, call: Call) -> Reply:
    """Accept a token; one for an entity that does not exist is refused as in Azure, with the status NOT_FOUND."""
    if call.operation != "put-token":
        raise RefusedError(Condition.NOT_IMPLEMENTED, f"There is no operation {call.operation[:80]!r}.")
    if not isinstance(call.body, str):
        raise RefusedError(Condition.ARGUMENT_ERROR, "The body of put-token must be the token, as a string.")
    access.put_token(call.body, str(call.properties.get("name") or ""))
    return of_token(202, "Accepted")
