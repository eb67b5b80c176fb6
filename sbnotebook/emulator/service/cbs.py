"""The node ``$cbs``, which takes the tokens of clients, and the guard that checks their claims on other nodes.

Source: Service Bus documentation, "AMQP 1.0 in Azure Service Bus and Event Hubs protocol guide",
"Claims-based authorization".
"""

from __future__ import annotations

from typing import Final

from sbnotebook.amqp import Int
from sbnotebook.emulator.entities import Receivable
from sbnotebook.emulator.entities.refusals import EntityNotFoundError
from sbnotebook.emulator.service.access import LISTEN, SEND, AccessRefusedError, ConnectionAccess
from sbnotebook.emulator.service.conditions import Condition, with_tracking_id
from sbnotebook.emulator.service.requests import Node, Reply, Request

_SEND_OPERATIONS: Final = frozenset({"com.microsoft:schedule-message", "com.microsoft:cancel-scheduled-message"})
"""Operations of a management node that need the claim Send. The others, rules too, need Listen."""


class CbsNode:
    """Answers ``put-token``.

    A token for an entity that does not exist is refused as in Azure: with the status NOT_FOUND, which
    azure-servicebus turns into a ServiceBusAuthenticationError.

    Args:
        address: its address, in lower case.
        access: the claims of the connection.
    """

    entity: Receivable | None = None

    def __init__(self, address: str, access: ConnectionAccess) -> None:
        self.address = address
        self._access = access

    def answer(self, request: Request) -> Reply:
        """Accept a token, or reply with the reason for which it is refused. There is no other operation."""
        if request.operation != "put-token":
            return self.failure(Condition.NOT_IMPLEMENTED, f"There is no operation {request.operation[:80]!r}.")
        if not isinstance(request.body, str):
            return self.failure(Condition.ARGUMENT_ERROR, "The body of put-token must be the token, as a string.")
        try:
            self._access.put_token(request.body, str(request.application_properties.get("name") or ""))
        except AccessRefusedError as error:
            return self.failure(Condition.UNAUTHORIZED_ACCESS, str(error))
        except EntityNotFoundError as error:
            return self.failure(Condition.NOT_FOUND, str(error))
        return _reply(202, "Accepted")

    def failure(self, condition: Condition, sentence: str) -> Reply:
        """Return the reply for an error."""
        return _reply(condition.status, with_tracking_id(sentence))


class GuardedNode:
    """A management node that carries out only what the connection has the claim for.

    Args:
        node: the management node.
        access: the claims of the connection.
    """

    def __init__(self, node: Node, access: ConnectionAccess) -> None:
        self.address = node.address
        self.entity = node.entity
        self._node = node
        self._access = access

    def answer(self, request: Request) -> Reply:
        """Carry out a request, or reply with the claim that it needs."""
        claim = SEND if request.operation in _SEND_OPERATIONS else LISTEN
        try:
            self._access.require(self.address, claim)
        except AccessRefusedError as error:
            return self.failure(Condition.UNAUTHORIZED_ACCESS, str(error))
        return self._node.answer(request)

    def failure(self, condition: Condition, sentence: str) -> Reply:
        """Return the reply for an error."""
        return self._node.failure(condition, sentence)


def _reply(status: int, description: str) -> Reply:
    # With hyphens, unlike those of a management node.
    return Reply({"status-code": Int(status), "status-description": description})
