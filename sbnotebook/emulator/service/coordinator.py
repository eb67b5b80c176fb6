"""Control links, on which a client declares and discharges transactions.

Source: AMQP 1.0 part 4, transactions, sections 4.2 to 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sbnotebook.amqp.sections import VALUE, split
from sbnotebook.emulator.amqp import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    DeliveryState,
    Discharge,
    ReceivingLink,
    Rejected,
    TransferReceived,
)
from sbnotebook.emulator.amqp.composites import decode_composite
from sbnotebook.emulator.entities import Condition, RefusedError, Tier
from sbnotebook.emulator.faults import EntityFaults
from sbnotebook.emulator.service.conditions import error_of, new_error
from sbnotebook.emulator.service.links import LinkHandler
from sbnotebook.errors import AmqpDecodeError, ProtocolViolationError

if TYPE_CHECKING:
    from sbnotebook.emulator.service.peer import AmqpPeer

COORDINATOR: Final = "$coordinator"
"""The path of control links, for the faults that end a connection."""

_CREDIT: Final = 100


class CoordinatorLink(LinkHandler):
    """A client declares and discharges transactions. Those that are open are rolled back with the link."""

    def __init__(self, peer: AmqpPeer, link: ReceivingLink) -> None:
        super().__init__(None)
        self.path = COORDINATOR
        self._peer = peer
        self._link = link
        link.grant_credit(_CREDIT)

    def transfer_received(self, event: TransferReceived, faults: EntityFaults) -> None:  # noqa: ARG002
        self._link.grant_credit(_CREDIT)
        if event.settled:
            text = "A message to a coordinator must not be sent settled: its outcome is the answer."
            self._peer.detach(self._link, new_error(Condition.NOT_ALLOWED, text))
            return
        try:
            state = self._answer(_body(event.payload))
        except (AmqpDecodeError, ProtocolViolationError) as error:
            state = Rejected(new_error(Condition.DECODE_ERROR, str(error)))
        except RefusedError as error:
            state = Rejected(error_of(error))
        self._link.settle(event.delivery_id, state)

    def detached(self) -> None:
        self._peer.transactions.roll_back_all(self._link)

    def _answer(self, body: object) -> DeliveryState:
        match body:
            case Declare():
                return Declared(self._peer.transactions.declare(self._link))
            case Discharge():
                return self._discharge(body)
            case _:
                raise ProtocolViolationError("A coordinator takes a declare or a discharge.")

    def _discharge(self, discharge: Discharge) -> DeliveryState:
        broker, transactions = self._peer.broker, self._peer.transactions
        now = broker.advance()
        try:
            if discharge.fail:
                transactions.discard(discharge.txn_id)
                return Accepted()
            self._expect_no_part_of(discharge.txn_id)
            transactions.commit(discharge.txn_id, now)
        except RefusedError as error:
            if error.condition is not Condition.UNKNOWN_TRANSACTION:
                text = f"The transaction was rolled back. {error}"
                return Rejected(new_error(Condition.TRANSACTION_ROLLBACK, text))
            if broker.faults.late_discharge == "accepted":
                return Accepted()
            raise
        return Accepted()

    def _expect_no_part_of(self, txn_id: bytes) -> None:
        links = (link for link in self._peer.handlers if isinstance(link, ReceivingLink))
        if any(link.arriving_txn_id == txn_id for link in links):
            self._peer.transactions.roll_back(txn_id)
            raise RefusedError(Condition.NOT_ALLOWED, "One of its messages has not come in whole.")


def attach_coordinator(peer: AmqpPeer, link: ReceivingLink) -> LinkHandler:
    """Attach a control link, and return its handler.

    What Azure offers in its answer is not known. The emulator names no capabilities, so clients must cope with none.
    """
    if peer.broker.registry.tier is Tier.BASIC:
        text = "Transactions are not supported for the pricing tier Basic of a namespace."
        raise RefusedError(Condition.NOT_ALLOWED, text)
    link.target = Coordinator()
    link.accept()
    peer.vias.coordinate(link)
    return CoordinatorLink(peer, link)


def _body(payload: bytes) -> object:
    for section in split(payload, in_order=False):
        if section.code == VALUE:
            return decode_composite(payload, section.value_start)[0]
    raise ProtocolViolationError("A message to a coordinator has an amqp-value as its body.")
