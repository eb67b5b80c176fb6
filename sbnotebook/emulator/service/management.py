"""The node ``ENTITY/$management``: what is asked of an entity beside sending and receiving.

Source: Service Bus documentation, "AMQP 1.0 in Azure Service Bus request-response-based operations".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sbnotebook.emulator.entities import (
    AnyEntity,
    Queue,
    Receivable,
    ReceivingEntity,
    RefusedError,
    Subscription,
    Topic,
)
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.conditions import SERVER_BUSY, Condition, condition_of
from sbnotebook.emulator.service.operations import failure, receiving, scheduling
from sbnotebook.emulator.service.requests import Reply, Request
from sbnotebook.emulator.service.rule_operations import rule_operations
from sbnotebook.emulator.service.session_operations import session_operations
from sbnotebook.errors import AmqpDecodeError, ConfigurationError

__all__ = ["ManagementNode"]

_LINK_NAME: Final = "associated-link-name"


class ManagementNode:
    """Answers requests about one entity or sub-queue.

    Args:
        address: where it is asked, in lower case.
        broker: the namespace.
        entity: the queue, topic, subscription or sub-queue.
    """

    entity: AnyEntity | Receivable | None

    def __init__(self, address: str, broker: Broker, entity: AnyEntity | Receivable) -> None:
        self.address = address
        self.entity = entity
        self._path = entity.path
        self._broker = broker
        self._operations: dict[str, Callable[[dict[str, Any], int], Reply]] = {}
        if isinstance(entity, Queue | Topic):
            self._operations |= scheduling(entity, broker.max_message_size(entity))
        if isinstance(entity, ReceivingEntity) and entity.sessions is not None:
            self._operations |= session_operations(entity)
        if isinstance(entity, Subscription):
            self._operations |= rule_operations(broker, entity)
        if isinstance(entity, Receivable):
            self._operations |= receiving(entity)

    def answer(self, request: Request) -> Reply:
        """Carry out a request, or say why not."""
        if self._broker.faults.at(self._path).is_busy():
            return self.failure(Condition.SERVER_BUSY, SERVER_BUSY)
        operation = self._operations.get(request.operation)
        if operation is None:
            text = f"There is no operation {request.operation[:80]!r} here."
            return self.failure(Condition.NOT_IMPLEMENTED, text)
        if not isinstance(request.body, dict):
            return self.failure(Condition.ARGUMENT_ERROR, "The body of a request must be a map.")
        try:
            return operation(self._arguments(request.body, request), self._broker.moment())
        except RefusedError as error:
            return self.failure(condition_of(error), str(error))
        except AmqpDecodeError as error:
            return self.failure(Condition.DECODE_ERROR, str(error))
        except ConfigurationError as error:
            return self.failure(Condition.ARGUMENT_ERROR, str(error))
        except (KeyError, TypeError, ValueError) as error:
            text = f"The arguments of {request.operation} are not as documented: {error!r:.80}."
            return self.failure(Condition.ARGUMENT_ERROR, text)

    def _arguments(self, body: dict[Any, Any], request: Request) -> dict[Any, Any]:
        """A request that does not say which session it means, but which link it belongs to, means that link's."""
        name = request.application_properties.get(_LINK_NAME)
        if isinstance(self.entity, ReceivingEntity) and isinstance(name, str) and body.get("session-id") is None:
            session_id = self._broker.session_links.get((self.entity, name))
            return body if session_id is None else {**body, "session-id": session_id}
        return body

    def failure(self, condition: Condition, sentence: str) -> Reply:
        """The reply that says what went wrong."""
        return failure(condition, sentence)
