"""Transactions of several entities, by requests, and with answers that are lost."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from sbnotebook.amqp import Array, Symbol, Timestamp, encode
from sbnotebook.amqp.sections import APPLICATION_PROPERTIES, section_value, split
from sbnotebook.amqp.sections import VALUE as VALUE_SECTION
from sbnotebook.emulator import ManualClock, QueueOptions, RunningEmulator
from sbnotebook.emulator.amqp.performatives import Accepted, Attach, Begin, Source, Target, TransactionalState
from sbnotebook.emulator.entities.options import AuthorizationRule, Claim
from tests.emulator.service.conftest import Connect, token
from tests.emulator.service.transaction_client import VALUE, TransactionClient, Work, body, held, refusal


@pytest.fixture
def emulator(transaction_emulator: RunningEmulator) -> RunningEmulator:
    """The emulator of ``connect`` and ``work``."""
    return transaction_emulator


# ------------------------------------------------------------------------------------ several entities


def test_one_transaction_is_for_one_entity(work: Work, emulator: RunningEmulator) -> None:
    client = work(control=False)
    client.sender("orders")
    client.sender("bills")
    client.coordinate()
    txn_id = client.declare()
    client.send("orders", body("x"), txn_id)
    assert "amqp:not-allowed Local transactions cannot span" in refusal(client.send("bills", body("y"), txn_id))
    client.commit(txn_id)
    assert (emulator.counts("orders").active, emulator.counts("bills").active) == (1, 0)


@pytest.mark.parametrize("fail", [True, False])
def test_the_first_entity_sends_on_to_others(work: Work, emulator: RunningEmulator, fail: bool) -> None:
    other = work(control=False)
    other.sender("orders")
    other.send("orders", body("original"))
    client = work()
    client.receiver("orders")
    client.sender("bills")
    client.sender("events")
    delivery, txn_id = client.receive("orders"), client.declare()
    for destination in ("bills", "events"):
        assert client.send(destination, body("clone"), txn_id) == TransactionalState(txn_id, Accepted())
    client.settle(delivery, Accepted(), txn_id)
    client.discharge(txn_id, fail=fail)
    counts = [emulator.counts(path).active for path in ("orders", "bills", "events/subscriptions/audit")]
    assert counts == ([1, 0, 0] if fail else [0, 1, 1])


def test_only_the_first_entity_can_be_received_from(work: Work) -> None:
    client = work()
    client.receiver("orders")
    client.receiver("orders/$DeadLetterQueue")
    client.receiver("orders/$management")
    for other in ("bills", "bills/$management", "events/subscriptions/audit"):
        assert client.receiver(other).source is None
        assert client.raw.refusal().startswith("amqp:not-allowed Local transactions cannot span")
    # Another session of the connection is not concerned.
    client.raw.write(Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10), channel=3)
    client.raw.read(Begin)
    client.raw.write(Attach(name="n", handle=0, role=True, source=Source("bills"), target=None), channel=3)
    assert client.raw.read(Attach).source is not None


VIA = Symbol("com.microsoft:transfer-destination-address")


@pytest.mark.parametrize("form", ["bills", "amqps://emulator.example/bills"])
def test_a_link_via_an_entity_sends_on(work: Work, emulator: RunningEmulator, form: str) -> None:
    client = work(control=False)
    delivery = held(client)
    client.coordinate()
    client.handles["plain"] = client.handles.pop("orders")
    answer = client.sender("orders", properties={VIA: form})
    assert answer.properties is not None
    assert answer.properties[VIA] == form
    txn_id = client.declare()
    client.send("orders", body("clone"), txn_id)
    client.settle(delivery, Accepted(), txn_id)
    assert emulator.counts("bills").active == 0
    client.commit(txn_id)
    assert (emulator.counts("orders").active, emulator.counts("bills").active) == (0, 1)


def test_a_link_via_an_entity_needs_its_destination(work: Work, emulator: RunningEmulator) -> None:
    client = work(control=False)
    assert client.sender("orders", properties={VIA: "nowhere"}).target is None
    assert client.raw.refusal().startswith("amqp:not-found")
    client.coordinate()
    client.sender("bills", properties={VIA: "events"})
    client.sender("orders", properties={VIA: "bills"})
    # Deleted later, it leaves the message to the transfer dead-letter queue.
    txn_id = client.declare()
    client.send("orders", body("clone"), txn_id)
    emulator.delete("bills")
    client.commit(txn_id)
    counts = emulator.counts("orders")
    assert (counts.active, counts.transfer_dead_letter) == (0, 1)


def test_a_topic_sends_on_only_what_can_arrive(work: Work, emulator: RunningEmulator) -> None:
    client = work()
    client.sender("events")
    client.sender("bills")
    for is_there in (True, False):
        txn_id = client.declare()
        client.send("bills", body("clone"), txn_id)
        if is_there:
            client.commit(txn_id)
            assert emulator.counts("bills").active == 1
        else:
            # A topic has no transfer dead-letter queue in which the message could stay.
            emulator.delete("bills")
            client.raw.refusal()
            assert refusal(client.discharge(txn_id)).startswith("amqp:transaction:rollback")


def test_a_message_via_an_entity_needs_send_there(connect: Connect, emulator: RunningEmulator) -> None:
    listener = AuthorizationRule("listener", "listen", "", frozenset({Claim.LISTEN}))
    emulator.create_queue("kept", QueueOptions(authorization_rules=(listener,)))
    raw = connect(text=token("kept", key_name="listener", key="listen"))
    raw.put_token(token("bills"))
    client = TransactionClient(raw)
    assert client.receiver("kept").source is not None
    assert client.sender("bills").target is None
    assert "'Send' claim(s) are required" in raw.refusal()


# ----------------------------------------------------------------------------------------- by requests


def _request(operation: str, arguments: dict[str, Any]) -> bytes:
    properties = b"\x00\x53\x73" + encode(["1", None, None, None, "replies"])
    return properties + b"\x00\x53\x74" + encode({"operation": operation}) + VALUE + encode(arguments)


def request(client: TransactionClient, address: str, operation: str, txn_id: bytes | None, **arguments: Any) -> Any:
    """The reply to a request to the management node of an entity: its status, and its body."""
    if f"from {address}/$management" not in client.handles:
        client.sender(f"{address}/$management")
        client.receiver(f"{address}/$management", target=Target("replies"))
        client.credit(f"{address}/$management", 10)
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    payload = _request(f"com.microsoft:{operation}", named)
    client.push(f"{address}/$management", payload, txn_id)
    reply = client.raw.read_message()
    sections = {section.code: section_value(reply, section) for section in split(reply)}
    properties: Any = sections[APPLICATION_PROPERTIES]
    return properties["statusCode"], sections.get(VALUE_SECTION)


def test_requests_settle_in_a_transaction(work: Work, emulator: RunningEmulator) -> None:
    client = work()
    delivery = held(client)
    tokens = Array([UUID(bytes_le=delivery.tag)], UUID)
    arguments: dict[str, Any] = {"disposition_status": "completed", "lock_tokens": tokens}
    for fail in (True, False):
        txn_id = client.declare()
        assert request(client, "orders", "update-disposition", txn_id, **arguments)[0] == 200
        assert emulator.counts("orders").locked == 1
        client.discharge(txn_id, fail=fail)
    assert emulator.counts("orders").active == 0
    assert request(client, "orders", "update-disposition", b"txn:none", **arguments)[0] == 400


def test_requests_schedule_in_a_transaction(work: Work, emulator: RunningEmulator, clock: ManualClock) -> None:
    client = work()
    when: dict[Any, Any] = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(clock.now() + 60_000)}
    messages: Any = [{"message": b"\x00\x53\x72" + encode(when) + body("later")}]
    for fail in (True, False):
        txn_id = client.declare()
        status, answer = request(client, "orders", "schedule-message", txn_id, messages=messages)
        assert (status, emulator.counts("orders").scheduled) == (200, 0)
        client.discharge(txn_id, fail=fail)
        assert emulator.counts("orders").scheduled == (0 if fail else 1)
    # The number that was given at once is the one that it has.
    numbers = answer["sequence-numbers"]
    for fail in (True, False):
        txn_id = client.declare()
        assert request(client, "orders", "cancel-scheduled-message", txn_id, sequence_numbers=numbers)[0] == 200
        client.discharge(txn_id, fail=fail)
        assert emulator.counts("orders").scheduled == (1 if fail else 0)
    assert request(client, "orders", "cancel-scheduled-message", client.declare(), sequence_numbers=numbers)[0] == 404


def test_a_scheduled_message_that_came_prevents_the_commit(
    work: Work, emulator: RunningEmulator, clock: ManualClock
) -> None:
    client = work()
    when: dict[Any, Any] = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(clock.now() + 60_000)}
    messages: Any = [{"message": b"\x00\x53\x72" + encode(when) + body("later")}]
    _, answer = request(client, "orders", "schedule-message", None, messages=messages)
    txn_id = client.declare()
    numbers = answer["sequence-numbers"]
    assert request(client, "orders", "cancel-scheduled-message", txn_id, sequence_numbers=numbers)[0] == 200
    clock.advance(61)
    assert refusal(client.discharge(txn_id)).startswith("amqp:transaction:rollback")
    assert emulator.counts("orders").active == 1


def test_a_session_state_is_set_in_a_transaction(work: Work) -> None:
    client = work()
    client.receiver("talks", source=Source("talks", filter={Symbol("com.microsoft:session-filter"): "one"}))
    for fail in (True, False):
        txn_id = client.declare()
        arguments: dict[str, Any] = {"session_id": "one", "session_state": b"state"}
        assert request(client, "talks", "set-session-state", txn_id, **arguments)[0] == 200
        client.discharge(txn_id, fail=fail)
        _, answer = request(client, "talks", "get-session-state", None, session_id="one")
        assert answer["session-state"] == (None if fail else b"state")


# ------------------------------------------------------------------------------------- lost answers


@pytest.mark.parametrize(("fault", "is_committed"), [("drop_before_nth", False), ("drop_after_nth", True)])
def test_a_connection_that_ends_amid_a_discharge(
    work: Work, emulator: RunningEmulator, fault: str, is_committed: bool
) -> None:
    client = work()
    delivery, txn_id = held(client), client.declare()
    client.send("orders", body("clone"), txn_id)
    client.settle(delivery, Accepted(), txn_id)
    setattr(emulator.faults.entity("$coordinator"), fault, 1)
    with pytest.raises((AssertionError, ConnectionError)):
        client.discharge(txn_id)
    counts = emulator.counts("orders")
    assert (counts.active, counts.locked) == ((1, 0) if is_committed else (1, 1))
