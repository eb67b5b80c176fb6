"""Transactions, frame by frame, with a clock to turn by hand."""

from __future__ import annotations

from typing import Any

import pytest

from sbnotebook.amqp import Symbol, encode
from sbnotebook.emulator import ManualClock, RunningEmulator, running
from sbnotebook.emulator.amqp.performatives import (
    Accepted,
    Coordinator,
    Discharge,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Rejected,
    Released,
    TransactionalState,
    Transfer,
    encode_composite,
)
from sbnotebook.emulator.entities.options import Tier
from tests.emulator.service.conftest import RawClient
from tests.emulator.service.transaction_client import VALUE, TransactionClient, Work, body, held, refusal

BATCH = 0x80013700


@pytest.fixture
def emulator(transaction_emulator: RunningEmulator) -> RunningEmulator:
    """The emulator of ``connect`` and ``work``."""
    return transaction_emulator


# ------------------------------------------------------------------------------ declare and discharge


@pytest.mark.parametrize("capabilities", [(), ("amqp:local-transactions",), ("a", "b")])
def test_a_control_link_gets_both_ends_and_credit(work: Work, capabilities: tuple[str, ...]) -> None:
    client = work(control=False)
    answer = client.coordinate(capabilities=capabilities)
    assert isinstance(answer.target, Coordinator)
    assert answer.source is not None
    assert client.raw.read(Flow).link_credit == 100


def test_the_ids_of_transactions_are_unique(work: Work) -> None:
    first, second = work(), work()
    ids = [first.declare(), first.declare(global_id=b"mine"), second.declare()]
    assert len({*ids}) == 3
    assert all(0 < len(txn_id) <= 255 and txn_id.isascii() for txn_id in ids)


@pytest.mark.parametrize(
    ("payload", "condition"),
    [
        (b"", "amqp:decode-error"),
        (VALUE + encode("x"), "amqp:decode-error"),
        (VALUE + encode_composite(Accepted()), "amqp:decode-error"),
        (VALUE + b"\x00\x53\x32\x45", "amqp:decode-error"),
        (b"\x00\x53\x75\xa0\x00", "amqp:decode-error"),
        (VALUE + encode_composite(Discharge(b"txn:1")), "amqp:transaction:unknown-id"),
    ],
)
def test_bad_words_to_a_coordinator_are_rejected(work: Work, payload: bytes, condition: str) -> None:
    client = work()
    assert refusal(client.send("control", payload)).startswith(condition)
    client.commit(client.declare())


def test_a_declare_that_is_sent_settled_detaches_the_link(work: Work) -> None:
    client = work()
    txn_id = client.declare()
    client.push("control", VALUE + encode_composite(Discharge(txn_id)), settled=True)
    assert "amqp:not-allowed" in client.raw.refusal()


def test_a_repeated_discharge_is_refused(work: Work) -> None:
    client = work()
    txn_id = client.declare()
    client.commit(txn_id)
    for fail in (False, True):
        answer = refusal(client.discharge(txn_id, fail=fail))
        assert answer.startswith("amqp:transaction:unknown-id Transaction is not declared.")


def test_open_transactions_are_limited(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbnotebook.emulator.service.links._MAX_OPEN", 3)
    client = work()
    ids = [client.declare() for _ in range(3)]
    state = client.send("control", VALUE + b"\x00\x53\x31\x45")
    assert refusal(state).startswith("amqp:resource-limit-exceeded")
    client.commit(ids[0])
    client.declare()


def test_the_bytes_of_open_transactions_are_limited(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbnotebook.emulator.service.links._MAX_BYTES", 100)
    client = work()
    client.sender("orders")
    txn_id, other = client.declare(), client.declare()
    assert client.send("orders", body("x" * 60), txn_id) == TransactionalState(txn_id, Accepted())
    for each in (txn_id, other):
        assert refusal(client.send("orders", body("more"), each)).startswith("amqp:resource-limit-exceeded")
    client.commit(txn_id)
    assert client.send("orders", body("more"), other) == TransactionalState(other, Accepted())


def test_the_basic_tier_has_no_transactions() -> None:
    with running(queues=["orders"], tier=Tier.BASIC) as emulator:
        client = TransactionClient(RawClient(emulator.connection_string), control=False)
        assert client.coordinate().target is None
        assert client.raw.refusal().startswith("amqp:not-allowed Transactions are not supported")
        client.raw.socket.close()


# --------------------------------------------------------------------------------------------- sending


def test_a_message_shows_only_after_the_commit(work: Work, emulator: RunningEmulator) -> None:
    client = work()
    client.sender("orders")
    txn_id = client.declare()
    assert client.send("orders", body("a"), txn_id) == TransactionalState(txn_id, Accepted())
    assert emulator.counts("orders").active == 0
    client.commit(txn_id)
    assert emulator.counts("orders").active == 1
    client.receiver("orders")
    client.receive("orders")


def test_a_rollback_leaves_nothing(work: Work, emulator: RunningEmulator) -> None:
    client = work()
    client.sender("once")
    for _ in range(2):
        txn_id = client.declare()
        client.send("once", body("same"), txn_id)
        assert client.discharge(txn_id, fail=True) == Accepted()
    assert emulator.counts("once").active == 0
    # Nor is its id remembered.
    client.send("once", body("same"))
    assert emulator.counts("once").active == 1


def test_a_batch_counts_each_of_its_messages(work: Work, emulator: RunningEmulator) -> None:
    client = work()
    client.sender("orders")
    txn_id = client.declare()
    fifty = (b"\x00\x53\x75" + encode(body("x"))) * 50
    for _ in range(2):
        state = client.send("orders", fifty, txn_id, message_format=BATCH)
        assert state == TransactionalState(txn_id, Accepted())
    assert "More than 100 messages" in refusal(client.send("orders", body("one more"), txn_id))
    client.commit(txn_id)
    assert emulator.counts("orders").active == 100


def test_a_message_in_several_frames_needs_its_state_once(work: Work, emulator: RunningEmulator) -> None:
    client = work()
    client.sender("orders")
    txn_id = client.declare()
    large = body("large") + b"\x00\x53\x75" + encode(b"x" * 200_000)
    assert client.send("orders", large, txn_id) == TransactionalState(txn_id, Accepted())
    client.push("orders", large[:1000], txn_id, more=True)
    client.raw.write(Transfer(handle=client.handles["orders"]), large[1000:])
    assert client.raw.read(Disposition).state == TransactionalState(txn_id, Accepted())
    client.commit(txn_id)
    assert emulator.counts("orders").active == 2


def test_a_discharge_amid_a_message_rolls_back(work: Work, emulator: RunningEmulator) -> None:
    client = work()
    client.sender("orders")
    txn_id = client.declare()
    client.send("orders", body("first"), txn_id)
    client.push("orders", body("second")[:5], txn_id, more=True)
    assert refusal(client.discharge(txn_id)).startswith("amqp:transaction:rollback")
    client.raw.write(Transfer(handle=client.handles["orders"]), body("second")[5:])
    assert refusal(client.raw.read(Disposition).state).startswith("amqp:transaction:unknown-id")
    assert emulator.counts("orders").active == 0


def test_a_refused_settled_message_prevents_the_commit(work: Work, emulator: RunningEmulator) -> None:
    client = work()
    client.sender("talks")
    txn_id = client.declare()
    client.push("talks", body("no session"), txn_id, settled=True)
    assert refusal(client.discharge(txn_id)).startswith("amqp:transaction:rollback")
    assert emulator.counts("talks").active == 0


def test_a_partitioned_queue_takes_one_partition(work: Work, emulator: RunningEmulator) -> None:
    def keyed(key: str) -> bytes:
        return b"\x00\x53\x72" + encode({Symbol("x-opt-partition-key"): key}) + body(key)

    client = work()
    client.sender("parts")
    txn_id = client.declare()
    assert client.send("parts", keyed("a"), txn_id) == TransactionalState(txn_id, Accepted())
    assert client.send("parts", keyed("a"), txn_id) == TransactionalState(txn_id, Accepted())
    for other in (keyed("b"), body("without a key")):
        assert "cannot span multiple entities or partitions" in refusal(client.send("parts", other, txn_id))
    client.commit(txn_id)
    assert emulator.counts("parts").active == 2


# -------------------------------------------------------------------------------------------- settling


@pytest.mark.parametrize(
    ("outcome", "echo", "counts"),
    [
        (Accepted(), Accepted(), (0, 0, 0)),
        (Released(), Released(), (1, 0, 0)),
        (Modified(delivery_failed=True), Modified(delivery_failed=True), (1, 0, 0)),
        (Modified(undeliverable_here=True), Modified(undeliverable_here=True), (0, 1, 0)),
        (Rejected(Error("com.microsoft:dead-letter", "x", {"DeadLetterReason": "bad"})), Rejected(), (0, 0, 1)),
    ],
)
def test_a_settlement_takes_effect_with_the_commit(
    work: Work, emulator: RunningEmulator, outcome: Any, echo: Any, counts: tuple[int, ...]
) -> None:
    client = work()
    delivery = held(client)
    for ends in ("rolled back", "committed"):
        txn_id = client.declare()
        answer = client.settle(delivery, outcome, txn_id)
        assert (answer.state, answer.settled) == (TransactionalState(txn_id, echo), True)
        assert emulator.counts("orders").locked == 1
        # After the rollback the lock is the same, and the message can be settled again.
        assert client.discharge(txn_id, fail=ends == "rolled back") == Accepted()
    found = emulator.counts("orders")
    assert (found.active, found.deferred, found.dead_letter) == counts
    assert found.locked == 0


def test_a_settlement_may_stay_unsettled_until_the_discharge(work: Work, emulator: RunningEmulator) -> None:
    emulator.faults.settles_before_discharge = False
    client = work()
    delivery = held(client)
    txn_id = client.declare()
    assert not client.settle(delivery, Accepted(), txn_id).settled
    client.commit(txn_id)
    assert emulator.counts("orders").active == 0


@pytest.mark.parametrize("parent", ["orders", "events/subscriptions/audit"])
def test_a_dead_letter_goes_back_to_its_entity(work: Work, emulator: RunningEmulator, parent: str) -> None:
    client, dead = work(), f"{parent}/$DeadLetterQueue"
    root = parent.partition("/")[0]
    client.sender(root)
    client.receiver(parent)
    client.receiver(dead)
    client.send(root, body("original"))
    client.settle(client.receive(parent), Rejected())
    original = client.receive(dead)
    txn_id = client.declare()
    client.send(root, body("clone"), txn_id)
    assert client.settle(original, Accepted(), txn_id).state == TransactionalState(txn_id, Accepted())
    assert emulator.counts(parent).dead_letter == 1
    client.commit(txn_id)
    counts = emulator.counts(parent)
    assert (counts.active, counts.dead_letter) == (1, 0)


def test_a_lock_that_ends_prevents_the_commit(work: Work, emulator: RunningEmulator, clock: ManualClock) -> None:
    client = work()
    delivery, txn_id = held(client), client.declare()
    client.send("orders", body("clone"), txn_id)
    client.settle(delivery, Accepted(), txn_id)
    clock.advance(31)
    answer = refusal(client.discharge(txn_id))
    assert answer.startswith("amqp:transaction:rollback")
    assert "The lock supplied is invalid" in answer
    assert emulator.counts("orders").active == 1
    # Nor does a lock that was lost before come into a transaction.
    answer = refusal(client.settle(delivery, Accepted(), client.declare()).state)
    assert answer.startswith("com.microsoft:message-lock-lost")


def test_a_message_is_settled_once_in_a_transaction(work: Work, emulator: RunningEmulator) -> None:
    client = work()
    delivery, txn_id = held(client), client.declare()
    client.settle(delivery, Modified(delivery_failed=True), txn_id)
    assert refusal(client.settle(delivery, Accepted(), txn_id).state).startswith("amqp:not-allowed")
    client.commit(txn_id)
    assert emulator.counts("orders").active == 1


def test_two_transactions_for_one_message_end_the_control_link(work: Work, emulator: RunningEmulator) -> None:
    client = work()
    delivery, first, second = held(client), client.declare(), client.declare()
    client.settle(delivery, Accepted(), first)
    number = delivery.number
    client.raw.write(Disposition(role=True, first=number, last=number, state=TransactionalState(second, Accepted())))
    assert client.raw.refusal().startswith("amqp:transaction:rollback")
    assert refusal(client.raw.read(Disposition).state).startswith("amqp:transaction:unknown-id")
    assert emulator.counts("orders").locked == 1
    client.coordinate("another")
    assert refusal(client.discharge(first, control="another")).startswith("amqp:transaction:unknown-id")


# ---------------------------------------------------------------------------- which transaction it is


def test_two_transactions_go_side_by_side(work: Work, emulator: RunningEmulator) -> None:
    client = work()
    client.sender("orders")
    client.sender("bills")
    first, second = client.declare(), client.declare()
    for _ in range(2):
        client.send("orders", body("x"), first)
        client.send("bills", body("y"), second)
    client.commit(second)
    client.discharge(first, fail=True)
    assert (emulator.counts("orders").active, emulator.counts("bills").active) == (0, 2)


@pytest.mark.parametrize("variant", ["rejected", "in_state", "detach"])
def test_unknown_transactions_are_refused(work: Work, emulator: RunningEmulator, variant: Any) -> None:
    emulator.faults.transaction_refusal = variant
    client, other = work(), work()
    delivery = held(client)
    discharged = client.declare()
    client.commit(discharged)
    for txn_id in (other.declare(), discharged, b"", b"\xff" * 300):
        client.push("orders", body("x"), txn_id)
        if variant == "detach":
            assert client.raw.refusal().startswith("amqp:transaction:unknown-id")
            client.sender("orders")
        else:
            state = client.raw.read(Disposition).state
            assert isinstance(state, TransactionalState) == (variant == "in_state")
            assert refusal(state).startswith("amqp:transaction:unknown-id Transaction hasn't been declared yet")
        assert refusal(client.discharge(txn_id)).startswith("amqp:transaction:unknown-id")
    assert emulator.counts("orders").active == 1
    if variant != "detach":
        state = client.settle(delivery, Accepted(), discharged).state
        assert refusal(state).startswith("amqp:transaction:unknown-id")
    assert client.settle(delivery, Accepted()).state == Accepted()


@pytest.mark.parametrize("end", ["link", "session", "socket"])
def test_a_transaction_ends_with_its_control_link(work: Work, emulator: RunningEmulator, end: str) -> None:
    client, other = work(), work(control=False)
    delivery, txn_id = held(client), client.declare()
    client.send("orders", body("clone"), txn_id)
    client.settle(delivery, Accepted(), txn_id)
    match end:
        case "link":
            client.detach("control")
        case "session":
            client.raw.write(End())
            client.raw.read(End)
        case _:
            client.raw.socket.close()
            other.sender("orders")  # The emulator has seen the end by then.
    counts = emulator.counts("orders")
    assert (counts.active, counts.locked) == (1, 1)
    if end == "link":
        client.coordinate("another")
        assert refusal(client.discharge(txn_id, control="another")).startswith("amqp:transaction:unknown-id")
        assert client.settle(delivery, Accepted()).state == Accepted()


def test_the_time_of_a_transaction_runs_from_its_first_work(
    work: Work, emulator: RunningEmulator, clock: ManualClock
) -> None:
    client = work()
    client.sender("orders")
    txn_id = client.declare()
    clock.advance(3600)
    client.send("orders", body("x"), txn_id)
    clock.advance(119)
    client.send("orders", body("x"), txn_id)
    clock.advance(2)
    assert refusal(client.send("orders", body("x"), txn_id)).startswith("amqp:transaction:unknown-id")
    assert refusal(client.discharge(txn_id)).startswith("amqp:transaction:unknown-id")
    assert emulator.counts("orders").active == 0


def test_a_late_discharge_may_be_accepted_for_nothing(
    work: Work, emulator: RunningEmulator, clock: ManualClock
) -> None:
    emulator.faults.late_discharge = "accepted"
    emulator.faults.transaction_timeout_ms = 1_000
    client = work()
    client.sender("orders")
    txn_id = client.declare()
    client.send("orders", body("x"), txn_id)
    clock.advance(2)
    client.commit(txn_id)
    assert emulator.counts("orders").active == 0
