"""A client of our own that works in transactions, frame by frame."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sbnotebook.amqp import Array, Symbol, encode
from sbnotebook.emulator.amqp.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    Flow,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode_composite,
)

if TYPE_CHECKING:
    from tests.emulator.service.conftest import RawClient

__all__ = ["TransactionClient", "Work", "body", "held", "refusal"]

VALUE = b"\x00\x53\x77"


class Delivery(NamedTuple):
    """A message that came in: its number on the session, and its lock token."""

    number: int
    tag: bytes


def body(text: str) -> bytes:
    """A message whose id is its text."""
    return b"\x00\x53\x73" + encode([text]) + b"\x00\x53\x75" + encode(text.encode())


def refusal(state: object) -> str:
    """Condition and description of a refusal, in a transactional state or not."""
    state = state.outcome if isinstance(state, TransactionalState) else state
    assert isinstance(state, Rejected)
    assert state.error is not None
    return f"{state.error.condition} {state.error.description}"


class TransactionClient:
    """One AMQP session with links by name.

    Args:
        raw: an open connection.
        control: whether a control link is attached at once.
    """

    def __init__(self, raw: RawClient, *, control: bool = True) -> None:
        self.raw = raw
        self.handles: dict[str, int] = {}
        self._deliveries = count()
        self._credits: dict[str, int] = {}
        if control:
            self.coordinate()

    def _attach(self, name: str, **fields: Any) -> Attach:
        handle = self.handles[name] = len(self.handles)
        self.raw.write(Attach(name=name, handle=handle, initial_delivery_count=0, **fields))
        return self.raw.read(Attach)

    def coordinate(self, name: str = "control", capabilities: tuple[str, ...] = ()) -> Attach:
        """Attach a control link."""
        target = Coordinator(Array(map(Symbol, capabilities), Symbol))
        return self._attach(name, role=SENDER, source=Source("control"), target=target)

    def sender(self, address: str, **fields: Any) -> Attach:
        """Attach a link that sends; its name is the address."""
        return self._attach(address, role=SENDER, source=Source("x"), target=Target(address), **fields)

    def receiver(self, address: str, **fields: Any) -> Attach:
        """Attach a link that receives; its name is the address."""
        given: dict[str, Any] = {"source": Source(address), "target": Target("x"), "rcv_settle_mode": 1} | fields
        return self._attach(f"from {address}", role=RECEIVER, **given)

    def push(self, name: str, payload: bytes, txn_id: bytes | None = None, **fields: Any) -> None:
        """Send without waiting for the answer."""
        number = next(self._deliveries)
        state = None if txn_id is None else TransactionalState(txn_id)
        given: dict[str, Any] = {"message_format": 0, "settled": False, "state": state} | fields
        tag = number.to_bytes(4)
        transfer = Transfer(handle=self.handles[name], delivery_id=number, delivery_tag=tag, **given)
        self.raw.write(transfer, payload)

    def send(self, name: str, payload: bytes, txn_id: bytes | None = None, **fields: Any) -> object:
        """Send, and return the outcome."""
        self.push(name, payload, txn_id, **fields)
        return self.raw.read(Disposition).state

    def declare(self, control: str = "control", **fields: Any) -> bytes:
        """Declare a transaction, and return its id."""
        state = self.send(control, VALUE + encode_composite(Declare(**fields)))
        assert isinstance(state, Declared)
        return state.txn_id

    def discharge(self, txn_id: bytes, *, fail: bool = False, control: str = "control") -> object:
        """Commit a transaction, or roll it back, and return the outcome."""
        return self.send(control, VALUE + encode_composite(Discharge(txn_id, fail)))

    def commit(self, txn_id: bytes) -> None:
        """Commit a transaction, which succeeds."""
        assert self.discharge(txn_id) == Accepted()

    def receive(self, address: str) -> Delivery:
        """Receive the next message."""
        name = f"from {address}"
        self._credits[name] = self._credits.get(name, 0) + 1
        self.credit(address, self._credits[name])
        transfer = self.raw.read(Transfer)
        assert transfer.delivery_id is not None
        assert transfer.delivery_tag is not None
        return Delivery(transfer.delivery_id, transfer.delivery_tag)

    def credit(self, address: str, credit: int) -> None:
        """Give a link that receives so much credit, counted from its beginning."""
        window: dict[str, Any] = {"next_incoming_id": 0, "incoming_window": 10_000, "outgoing_window": 1000}
        given: dict[str, Any] = {"next_outgoing_id": 0, "delivery_count": 0, "link_credit": credit}
        self.raw.write(Flow(handle=self.handles[f"from {address}"], **window, **given))

    def settle(
        self, delivery: Delivery, outcome: Any, txn_id: bytes | None = None, *, settled: bool = False
    ) -> Disposition:
        """Settle a message that came in, and return the answer."""
        state = outcome if txn_id is None else TransactionalState(txn_id, outcome)
        number = delivery.number
        self.raw.write(Disposition(role=RECEIVER, first=number, last=number, settled=settled, state=state))
        return self.raw.read(Disposition)

    def detach(self, name: str) -> None:
        """Detach a link, and wait for the answer."""
        self.raw.write(Detach(handle=self.handles[name], closed=True))
        self.raw.read(Detach)


class Work(Protocol):
    """Connects a client, with a control link unless said."""

    def __call__(self, *, control: bool = True) -> TransactionClient: ...


def held(client: TransactionClient, address: str = "orders", *, text: str = "original") -> Delivery:
    """A message that was sent to a queue and is locked."""
    if address not in client.handles:
        client.sender(address)
        client.receiver(address)
    client.send(address, body(text))
    return client.receive(address)
