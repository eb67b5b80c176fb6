"""The node ``$cbs``, which takes the tokens of clients.

Source: Service Bus documentation, "AMQP 1.0 in Azure Service Bus and Event Hubs protocol guide",
"Claims-based authorization".
"""

from __future__ import annotations

from functools import partial
from typing import Final

from sbnotebook.amqp import Int
from sbnotebook.emulator.entities import Condition, RefusedError
from sbnotebook.emulator.service.access import ConnectionAccess
from sbnotebook.emulator.service.conditions import with_tracking_id
from sbnotebook.emulator.service.requests import Node, Reply, Request

CBS: Final = "$cbs"


def cbs_node(access: ConnectionAccess) -> Node:
    return Node(CBS, None, partial(_put_token, access), _failure)


def _put_token(access: ConnectionAccess, request: Request) -> Reply:
    """Accept a token; there is no other operation.

    A token for an entity that does not exist is refused as in Azure: with the status NOT_FOUND, which
    azure-servicebus turns into a ServiceBusAuthenticationError.
    """
    if request.operation != "put-token":
        raise RefusedError(Condition.NOT_IMPLEMENTED, f"There is no operation {request.operation[:80]!r}.")
    if not isinstance(request.body, str):
        raise RefusedError(Condition.ARGUMENT_ERROR, "The body of put-token must be the token, as a string.")
    access.put_token(request.body, str(request.application_properties.get("name") or ""))
    return _reply(202, "Accepted")


def _failure(condition: Condition, sentence: str) -> Reply:
    return _reply(condition.status, with_tracking_id(sentence))


def _reply(status: int, description: str) -> Reply:
    # With hyphens, unlike those of a management node.
    return Reply({"status-code": Int(status), "status-description": description})
