"""The node ``$cbs``, which takes the tokens of clients. Every token is good here.

Source: Service Bus documentation, "AMQP 1.0 in Azure Service Bus and Event Hubs protocol guide",
"Claims-based authorization".
"""

from __future__ import annotations

from sbnotebook.emulator.entities import Receivable
from sbnotebook.emulator.service.conditions import Condition, explain
from sbnotebook.emulator.service.requests import Reply, Request
from sbnotebook.model.amqp import Int

__all__ = ["CbsNode"]


class CbsNode:
    """Answers ``put-token``."""

    entity: Receivable | None = None

    def __init__(self, address: str) -> None:
        self.address = address

    def answer(self, request: Request) -> Reply:
        """Accept a token; nothing else can be asked here."""
        if request.operation != "put-token":
            return self.failure(Condition.NOT_IMPLEMENTED, f"There is no operation {request.operation[:80]!r}.")
        return _reply(202, "Accepted")

    def failure(self, condition: Condition, sentence: str) -> Reply:
        """The reply that says what went wrong."""
        return _reply(condition.status, explain(sentence))


def _reply(status: int, description: str) -> Reply:
    # With hyphens, unlike those of a management node.
    return Reply({"status-code": Int(status), "status-description": description})
