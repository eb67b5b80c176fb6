"""The transactions of one connection, which other connections do not know, and the links that control them.

Sources: AMQP 1.0 part 4, transactions; Service Bus documentation, "AMQP 1.0 in Azure Service Bus and Event Hubs
protocol guide", "Transactional operations". What Azure does, where neither says so, is a choice that the faults offer.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from sbnotebook.amqp.sections import VALUE, split
from sbnotebook.emulator.amqp.link import Link, ReceivingLink, TransferReceived
from sbnotebook.emulator.amqp.performatives import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    DeliveryState,
    Discharge,
    Rejected,
    decode_composite,
)
from sbnotebook.emulator.entities.options import Tier
from sbnotebook.emulator.entities.refusals import Condition, RefusedError, new_error
from sbnotebook.emulator.entities.transaction import Transaction
from sbnotebook.emulator.faults import EntityFaults
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.links import LinkHandler
from sbnotebook.errors import AmqpDecodeError, ProtocolViolationError

if TYPE_CHECKING:
    from sbnotebook.emulator.service.peer import AmqpPeer

COORDINATOR: Final = "$coordinator"
"""The path of control links, for the faults that end a connection."""
_CREDIT: Final = 100
_MAX_OPEN: Final = 1000  # Open transactions of a connection, each of which may have been forgotten by its client
_MAX_BYTES: Final = 134_217_728  # Bytes of messages in all open transactions of all connections
_NUMBERS: Final = count(1)
_UNKNOWN: Final = "Transaction hasn't been declared yet, or has already been discharged."
_NOT_DECLARED: Final = "Transaction is not declared."


class Transactions:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.open: dict[bytes, Transaction] = {}  # by id
        self._size = 0

    def declare(self, link: Link) -> bytes:
        if len(self.open) >= _MAX_OPEN:
            raise RefusedError(
                Condition.RESOURCE_LIMIT_EXCEEDED, f"A connection has at most {_MAX_OPEN} open transactions."
            )
        # As those that Azure was seen to give.
        txn_id = f"txn:{uuid4().hex}__G0:{next(_NUMBERS)}_G0".encode()
        self.open[txn_id] = Transaction(txn_id, link)
        return txn_id

    def find(self, txn_id: bytes) -> Transaction:
        """Return a transaction for an operation; from the first one on its time runs."""
        found = self._find_open(txn_id)
        if found is None:
            raise RefusedError(Condition.UNKNOWN_TRANSACTION, _UNKNOWN)
        if found.end is None:
            clock = self._broker.clock
            found.end = clock.now() + self._broker.faults.transaction_timeout_ms
            found.cancel_alarm = clock.wake_at(found.end, partial(self.roll_back, txn_id))
        self._count()
        if self._broker.memory.transactions > _MAX_BYTES:
            text = f"The open transactions of all connections have at most {_MAX_BYTES} bytes of messages."
            raise RefusedError(Condition.RESOURCE_LIMIT_EXCEEDED, text)
        return found

    def settles_elsewhere(self, transaction: Transaction, token: UUID) -> bool:
        """Tell whether another transaction settles the same message."""
        return any(token in each.tokens for each in self.open.values() if each is not transaction)

    def end(self, txn_id: bytes) -> Transaction:
        """Return a transaction that its client ends, to be committed or forgotten."""
        found = self._find_open(txn_id)
        if found is None:
            raise RefusedError(Condition.UNKNOWN_TRANSACTION, _NOT_DECLARED)
        self.roll_back(txn_id)
        return found

    def roll_back(self, txn_id: bytes) -> None:
        """Forget a transaction, if it is open: nothing of it was carried out."""
        found = self.open.pop(txn_id, None)
        if found is not None:
            found.cancel_alarm()
            self._count()

    def roll_back_all(self, link: Link) -> None:
        for txn_id in [txn_id for txn_id, each in self.open.items() if each.link is link]:
            self.roll_back(txn_id)

    def _find_open(self, txn_id: bytes) -> Transaction | None:
        found = self.open.get(txn_id)
        if found is not None and found.end is not None and found.end <= self._broker.clock.now():
            self.roll_back(txn_id)  # Its alarm may not have been heard yet.
            return None
        return found

    def _count(self) -> None:
        before, self._size = self._size, sum(each.size for each in self.open.values())
        self._broker.memory.transactions += self._size - before


class CoordinatorLink(LinkHandler):
    """A client declares and discharges transactions. Those that are open are rolled back with the link."""

    def __init__(self, peer: AmqpPeer, link: ReceivingLink) -> None:
        super().__init__(peer, None)
        self._link = link
        self.path = COORDINATOR
        link.grant_credit(_CREDIT)

    def transfer_received(self, event: TransferReceived, faults: EntityFaults) -> None:  # noqa: ARG002
        self._link.grant_credit(_CREDIT)
        if event.settled:
            text = "A message to a coordinator must not be sent settled: its outcome is the answer."
            self._peer.detach(self._link, new_error(Condition.NOT_ALLOWED, text))
            return
        self._link.settle(event.delivery_id, self._answer(_body(event.payload)))

    def detached(self) -> None:
        self._peer.transactions.roll_back_all(self._link)

    def _answer(self, body: object) -> DeliveryState:
        match body:
            case Declare():
                return Declared(self._peer.transactions.declare(self._link))
            case Discharge():
                return self._discharge(body)
            case _:
                raise AmqpDecodeError("A coordinator takes a declare or a discharge.")

    def _discharge(self, discharge: Discharge) -> DeliveryState:
        broker, transactions = self._peer.broker, self._peer.transactions
        now = broker.advance()
        try:
            if not discharge.fail:
                self._expect_no_part_of(discharge.txn_id)
            transaction = transactions.end(discharge.txn_id)
            if not discharge.fail:
                transaction.commit(now)
        except RefusedError as error:
            if error.condition is not Condition.UNKNOWN_TRANSACTION:
                text = f"The transaction was rolled back. {error}"
                return Rejected(new_error(Condition.TRANSACTION_ROLLBACK, text))
            if broker.faults.late_discharge != "accepted":
                raise
        return Accepted()

    def _expect_no_part_of(self, txn_id: bytes) -> None:
        links = (link for link in self._peer.held.links.values() if isinstance(link, ReceivingLink))
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
    link.session.notes.setdefault("via", [])
    return CoordinatorLink(peer, link)


def _body(payload: bytes) -> object:
    for section in split(payload, in_order=False):
        if section.code == VALUE:
            try:
                return decode_composite(payload, section.value_start)[0]
            except ProtocolViolationError as error:
                raise AmqpDecodeError(str(error)) from None
    raise AmqpDecodeError("A message to a coordinator has an amqp-value as its body.")
