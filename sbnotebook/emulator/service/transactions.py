"""The transactions of one connection, which other connections do not know.

Sources: AMQP 1.0 part 4, transactions; Service Bus documentation, "AMQP 1.0 in Azure Service Bus and Event Hubs
protocol guide", "Transactional operations". What Azure does, where neither says so, is a choice that the faults offer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final
from uuid import UUID, uuid4
from weakref import WeakKeyDictionary

from sbnotebook.emulator.amqp import Link
from sbnotebook.emulator.entities import SPANS_ENTITIES, Condition, Queue, RefusedError, Topic, Transaction
from sbnotebook.emulator.service.broker import Broker

_MAX_OPEN: Final = 1000  # Open transactions of a connection, each of which may have been forgotten by its client
_MAX_BYTES: Final = 134_217_728  # Bytes of messages in all open transactions of all connections
_NUMBERS: Final = count(1)
_UNKNOWN: Final = "Transaction hasn't been declared yet, or has already been discharged."
_NOT_DECLARED: Final = "Transaction is not declared."


@dataclass(slots=True, eq=False)
class _Open:
    transaction: Transaction
    link: Link
    end: int | None = None
    cancel_alarm: Callable[[], None] | None = None


class Transactions:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._open: dict[bytes, _Open] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def tokens(self) -> set[UUID]:
        return {token for each in self._open.values() for token in each.transaction.tokens}

    def declare(self, link: Link) -> bytes:
        if len(self._open) >= _MAX_OPEN:
            raise RefusedError(
                Condition.RESOURCE_LIMIT_EXCEEDED, f"A connection has at most {_MAX_OPEN} open transactions."
            )
        # As those that Azure was seen to give.
        txn_id = f"txn:{uuid4().hex}__G0:{next(_NUMBERS)}_G0".encode()
        self._open[txn_id] = _Open(Transaction(txn_id), link)
        return txn_id

    def find(self, txn_id: bytes) -> Transaction:
        """Return a transaction for an operation; from the first one on its time runs."""
        self._forget_ended(txn_id)
        found = self._open.get(txn_id)
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
        return found.transaction

    def other_link(self, transaction: Transaction, token: UUID) -> Link | None:
        """Return this transaction's control link if another transaction settles the same message; None if none does."""
        others = (each.transaction for each in self._open.values() if each.transaction is not transaction)
        return self._open[transaction.txn_id].link if any(token in each.tokens for each in others) else None

    def commit(self, txn_id: bytes, now: int) -> None:
        self._forget_ended(txn_id)
        self._end(txn_id).transaction.commit(now)

    def discard(self, txn_id: bytes) -> None:
        """Roll a transaction back because its client wants that."""
        self._forget_ended(txn_id)
        self._end(txn_id)

    def roll_back(self, txn_id: bytes) -> None:
        if txn_id in self._open:
            self._end(txn_id)

    def roll_back_all(self, link: Link) -> None:
        for txn_id in [txn_id for txn_id, each in self._open.items() if each.link is link]:
            self._end(txn_id)

    def _forget_ended(self, txn_id: bytes) -> None:
        # Its alarm may not have been heard yet.
        found = self._open.get(txn_id)
        if found is not None and found.end is not None and found.end <= self._broker.clock.now():
            self._end(txn_id)

    def _end(self, txn_id: bytes) -> _Open:
        found = self._open.pop(txn_id, None)
        if found is None:
            raise RefusedError(Condition.UNKNOWN_TRANSACTION, _NOT_DECLARED)
        if found.cancel_alarm is not None:
            found.cancel_alarm()
        self._count()
        return found

    def _count(self) -> None:
        before, self._size = self._size, sum(each.transaction.size for each in self._open.values())
        self._broker.memory.transactions += self._size - before


class ViaEntities:
    """The AMQP sessions on which a control link came before any link to an entity.

    The entity of the first link after it takes all that is sent in transactions on such a session and sends it on. So a
    transaction can cover several entities.

    Source: azure-sdk-for-net, AmqpConnectionScope ("EnableCrossEntityTransactions"); azure-sdk-for-java 19137.
    """

    def __init__(self) -> None:
        self._vias: WeakKeyDictionary[object, list[Queue | Topic] | None] = WeakKeyDictionary()

    def coordinate(self, link: Link) -> None:
        self._vias.setdefault(link.session, [])

    def attach(self, link: Link, root: Queue | Topic) -> Queue | Topic | None:
        via = self._vias.setdefault(link.session, None)
        if via is None:
            return None
        if not via:
            via.append(root)
        return via[0]

    def check_receiver(self, link: Link, root: Queue | Topic) -> None:
        if self.attach(link, root) not in (None, root):
            raise RefusedError(Condition.NOT_ALLOWED, SPANS_ENTITIES)
