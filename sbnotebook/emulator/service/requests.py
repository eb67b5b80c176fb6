"""Requests to nodes such as ``$management``, and their replies: two links, correlated by the request's message ID.

Source: Service Bus documentation, "AMQP 1.0 in Azure Service Bus request-response-based operations".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from sbnotebook.amqp import AmqpValue, Int, Symbol
from sbnotebook.amqp.limits import ITEMS
from sbnotebook.amqp.sections import APPLICATION_PROPERTIES, PROPERTIES, VALUE, encode_section, section_value, split
from sbnotebook.emulator.amqp.link import ReceivingLink, SendingLink, TransferReceived
from sbnotebook.emulator.amqp.performatives import Accepted
from sbnotebook.emulator.entities.box import Receivable
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.emulator.entities.registry import AnyEntity
from sbnotebook.emulator.entities.transaction import Transaction
from sbnotebook.emulator.faults import EntityFaults
from sbnotebook.emulator.logs import clean_logger
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.conditions import with_tracking_id
from sbnotebook.emulator.service.links import LinkHandler
from sbnotebook.errors import AmqpDecodeError

if TYPE_CHECKING:
    from sbnotebook.emulator.service.peer import AmqpPeer

CBS: Final = "$cbs"
"""The address of the node that takes tokens."""
_LOGGER: Final = clean_logger(__name__)
_CREDIT: Final = 100
_MAX_PAGE: Final = 1000  # Rules or sessions in one answer
_MOST_ITEMS: Final = 2000  # Items of a section of a request to ``$cbs``, which anyone can send
_MESSAGE_ID, _REPLY_TO = 0, 4  # places among the properties (AMQP 1.0 part 3, section 3.2.4)


Reply = tuple[dict[str, AmqpValue], AmqpValue]
"""The application properties and the body of an answer."""


@dataclass(slots=True)
class Call:
    """A request, and what carries it out."""

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
        """Return the place of the page of a list that a request asks for."""
        skip, top = int(self.body["skip"]), int(self.body["top"])
        if skip < 0 or top < 0:
            raise RefusedError(Condition.ARGUMENT_ERROR, "skip and top must not be negative.")
        return slice(skip, skip + min(top, _MAX_PAGE))


def done(body: AmqpValue) -> Reply:
    return {"statusCode": Int(200), "statusDescription": "OK"}, body


def nothing() -> Reply:
    return {"statusCode": Int(204), "statusDescription": "No messages"}, None


def of_token(status: int, description: str) -> Reply:
    """Return an answer of ``$cbs``: its names have hyphens, unlike those of a management node."""
    return {"status-code": Int(status), "status-description": description}, None


class RequestLink(LinkHandler):
    """A client's requests to a node. The errors that ``answer`` raises become replies."""

    def __init__(
        self,
        peer: AmqpPeer,
        link: ReceivingLink,
        address: str,
        entity: AnyEntity | Receivable | None,
        answer: Callable[[Call], Reply],
    ) -> None:
        super().__init__(peer, entity)
        self._link = link
        self._address = address
        self._answer = answer
        link.grant_credit(_CREDIT)

    def transfer_received(self, event: TransferReceived, faults: EntityFaults) -> None:  # noqa: ARG002
        """Answer a request. It is carried out even if no link waits for the reply."""
        self._link.grant_credit(_CREDIT)
        call = self._read(event.payload)
        self._link.settle(event.delivery_id, Accepted())
        reply = self._carry_out(call, event.txn_id)
        link = self._reply_link(call.reply_to)
        if link is not None:
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
        fields = [*cast("list[Any]", fields), *[None] * (_REPLY_TO + 1)]
        given = cast("dict[str, Any]", properties)
        return Call(
            self._peer.broker,
            self.attached_to,
            operation=str(given.get("operation", "")),
            body=values.get(VALUE),
            properties=given,
            message_id=fields[_MESSAGE_ID],
            reply_to=fields[_REPLY_TO],
            now=self._peer.broker.advance(),
        )

    def _reply_link(self, reply_to: AmqpValue) -> ReplyLink | None:
        """Return the link that ``reply_to`` names, or else the first link from this node; None if there is none."""
        links = [each for each in self._peer.handlers if isinstance(each, ReplyLink) and each.address == self._address]
        named = (each for each in links if reply_to is not None and reply_to in each.names)
        return next(named, links[0] if links else None)

    def _carry_out(self, call: Call, txn_id: bytes | None) -> Reply:
        try:
            if txn_id is not None:
                call.transaction = self._peer.transactions.find(txn_id)
            return self._answer(call)
        except RefusedError as error:
            return self._refusal(error.condition, str(error))
        except AmqpDecodeError as error:
            return self._refusal(Condition.DECODE_ERROR, str(error))
        except Exception:
            _LOGGER.exception("The request %s was not answered.", call.operation)
            text = "The emulator failed to handle the request; its log says why."
            return self._refusal(Condition.INTERNAL_ERROR, text)

    def _refusal(self, condition: Condition, sentence: str) -> Reply:
        said = with_tracking_id(sentence)
        if self._address == CBS:
            return of_token(condition.status, said)
        condition_name = Symbol(condition.symbol)
        return {"statusCode": Int(condition.status), "statusDescription": said, "errorCondition": condition_name}, None


class ReplyLink(LinkHandler):
    def __init__(self, peer: AmqpPeer, link: SendingLink, address: str, entity: AnyEntity | Receivable | None) -> None:
        super().__init__(peer, entity)
        self._link = link
        self.address = address
        self._waiting: deque[bytes] = deque()
        self._sent = 0

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
            self._sent += 1
            payload = self._waiting.popleft()
            self._peer.held.add_answers(-len(payload))
            self._link.send(self._sent.to_bytes(16), payload, settled=True)
        if self._link.drain:
            self._link.drained()
        self._peer.broker.touch(self._peer)


def _written(reply: Reply, correlation_id: AmqpValue) -> bytes:
    properties, body = reply
    fields: list[AmqpValue] = [None, None, None, None, None, correlation_id]
    head = encode_section(PROPERTIES, fields) + encode_section(APPLICATION_PROPERTIES, properties)
    return head + encode_section(VALUE, body)
