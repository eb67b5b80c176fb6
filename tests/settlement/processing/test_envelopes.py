from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import anyio
import pytest
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.amqp import Int, ULong, type_name
from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    EntityAddress,
    LockedMessage,
    Message,
    OutcomeStatus,
    PeekedMessage,
)
from sbnotebook.settlement import AsyncEntity, AsyncNamespace, Policy, PolicyRow, RejectMessage, SkipMessage, Then
from sbnotebook.settlement.processing.calls import EndedCall, consumer
from sbnotebook.settlement.processing.envelopes import envelope_of
from sbnotebook.settlement.processing.finish import send_envelopes
from sbnotebook.settlement.processing.policy import End, Fault
from tests.filled_queues import filled_queue
from tests.hand_clock import HandClock
from tests.settlement.waiting import until

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def original(**changes: object) -> PeekedMessage:
    fields: dict[str, object] = {"entity": EntityAddress("orders"), "sequence_number": 7, "message_id": "m"} | changes
    return PeekedMessage(**fields)  # pyright: ignore[reportArgumentType]


def fault(error: BaseException) -> Fault:
    return Fault.of(error, component="module.work", component_kind="function", time=NOW)


def test_envelope_describes_fault_source_and_message() -> None:
    message = original(
        body=b"\x00body",
        subject="UA",
        session_id="s",
        enqueued_time=NOW,
        delivery_count=3,
        application_properties={"n": ULong(5), "OriginalMessageId": "first"},
    )
    envelope = envelope_of(message, fault(RejectMessage("Bad", "no carrier")), namespace="here", now=NOW)
    assert (envelope.body, envelope.subject, envelope.session_id) == (b"\x00body", "UA", "s")
    assert type_name(envelope.application_properties["n"]) == "ulong"
    properties = dict(envelope.application_properties)
    times = {str(properties.pop(name)) for name in ("FaultTime", "DeadLetterTime", "SourceEnqueuedTime")}
    assert times == {str(round(NOW.timestamp() * 1000))}
    assert properties == {
        "n": 5,
        "FaultComponent": "module.work",
        "FaultComponentKind": "function",
        "FaultType": "RejectMessage",
        "FaultText": "no carrier",
        "DeadLetterReason": "Bad",
        "DeadLetterErrorDescription": "no carrier",
        "SourceNamespace": "here",
        "SourceEntity": "orders",
        "SourceSequenceNumber": 7,
        "SourceMessageId": "m",
        "SourceDeliveryCount": Int(3),
        "SourceConsumer": consumer(),
        "OriginalMessageId": "first",
    }


def test_fault_has_the_type_of_the_cause_of_a_rejection() -> None:
    rejection = RejectMessage("Bad")
    rejection.__cause__ = KeyError("carrier")
    assert (fault(rejection).type, fault(rejection).reason) == ("KeyError", "Bad")
    assert (fault(ValueError("x")).type, fault(ValueError("x")).reason, fault(ValueError("x")).text) == (
        "ValueError",
        "ValueError",
        "x",
    )


def test_fault_has_no_secrets_and_no_hostile_texts() -> None:
    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert fault(UnspeakableError()).text == "(its text is not available)"
    secret = fault(ValueError("Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=abcdef="))
    assert "abcdef" not in str(secret)
    assert len(fault(ValueError("x" * 10_000)).text or "") == 1_000
    assert len(fault(RejectMessage("r" * 10_000)).reason) == 200


def test_envelope_replaces_forged_properties() -> None:
    forged = original(application_properties={"FaultType": "Forged", "SourceEntity": "elsewhere", "FaultText": "lie"})
    envelope = envelope_of(forged, fault(ZeroDivisionError()), namespace="here", now=NOW)
    properties = envelope.application_properties
    assert (properties["FaultType"], properties["SourceEntity"]) == ("ZeroDivisionError", "orders")
    assert "FaultText" not in properties


def test_envelope_id_depends_on_the_message_alone() -> None:
    def made(**changes: object) -> Message:
        return envelope_of(original(**changes), fault(ValueError()), namespace="here", now=NOW)

    assert made().message_id == made(delivery_count=5).message_id
    others = [made(sequence_number=8), made(message_id="n"), made(entity=EntityAddress("x")), made(enqueued_time=NOW)]
    others += [made(message_id=None), made(message_id="i" * 128)]
    ids = [made().message_id, *(other.message_id for other in others)]
    assert len(set(ids)) == len(ids)
    assert all(each is not None and len(each) <= 128 for each in ids)


@pytest.mark.parametrize(("length", "kept"), [(105, True), (106, False)])
def test_envelope_id_begins_with_an_id_that_leaves_room(length: int, kept: bool) -> None:
    message = original(message_id="i" * length)
    made = envelope_of(message, fault(ValueError()), namespace="here", now=NOW).message_id or ""
    assert made.startswith("i" * length) is kept
    assert (len(made) == 128) is kept


# -------------------------------------------------------------------- in a run


async def queue_and_faults(namespace: AsyncNamespace, name: str, count: int = 3) -> tuple[AsyncEntity, AsyncEntity]:
    return await filled_queue(namespace, name, count), await filled_queue(namespace, f"{name}-faults", 0)


def reject(message: LockedMessage) -> None:
    raise RejectMessage("Bad", f"{message.message_id} is bad")


async def test_envelope_replaces_the_message(namespace: AsyncNamespace) -> None:
    queue, faults = await queue_and_faults(namespace, "enveloped")
    policy = Policy(rejected=PolicyRow(Complete(), envelope_to=faults.address))
    report = await queue.process(reject, policy=policy, max_wait=0.5)
    assert [outcome.verb for outcome in report] == ["complete"] * 3
    assert await queue.peek() == await namespace.entity("enveloped/$dlq").peek() == []
    envelopes = await faults.peek()
    assert {str(each.application_properties["SourceMessageId"]) for each in envelopes} == {"m0", "m1", "m2"}
    assert {(each.dead_letter_reason, str(each.application_properties["FaultComponent"])) for each in envelopes} == {
        ("Bad", "reject")
    }


async def test_envelope_and_dead_letter_are_possible_together(namespace: AsyncNamespace) -> None:
    queue, faults = await queue_and_faults(namespace, "both", 1)

    def fail(_message: LockedMessage) -> None:
        raise ZeroDivisionError("by nothing")

    policy = Policy(failed=PolicyRow(DeadLetter(), Then.GO_ON, faults.address))
    assert (await queue.process(fail, policy=policy, max_wait=0.5)).ok
    (letter,) = await namespace.entity("both/$dlq").peek()
    (envelope,) = await faults.peek()
    assert letter.dead_letter_reason == envelope.dead_letter_reason == "ZeroDivisionError"


async def test_missing_envelope_destination_is_found_before_the_work(namespace: AsyncNamespace) -> None:
    queue, _ = await queue_and_faults(namespace, "nowhere-to-go", 1)
    calls: list[LockedMessage] = []
    policy = Policy(rejected=PolicyRow(Complete(), envelope_to="not-there"))
    with pytest.raises(ServiceBusError):
        await queue.process(calls.append, policy=policy, max_wait=0.5)
    assert calls == []
    (left,) = await queue.peek()
    assert left.delivery_count == 0


@pytest.mark.parametrize(("fault", "sent"), [("reject_nth", 2), ("drop_before_nth", 2), ("drop_after_nth", 3)])
async def test_message_with_unconfirmed_envelope_stays_in_the_queue(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, fault: str, sent: int
) -> None:
    name = f"envelope-{fault.replace('_', '-')}"
    queue, faults = await queue_and_faults(namespace, name)
    policy = Policy(rejected=PolicyRow(Complete(), envelope_to=faults.address))

    def work(message: LockedMessage) -> None:
        # Each is finished before the next: so that it is the third envelope that does not get through.
        if message.message_id == "m2":
            setattr(shared_emulator.faults.entity(f"{name}-faults"), fault, 1)
        reject(message)

    report = await queue.process(work, policy=policy, max_wait=0.5, rate=1)
    (failed,) = report.failures
    assert failed.status in (OutcomeStatus.FAILED, OutcomeStatus.UNCONFIRMED)
    assert (failed.message_id, failed.verb) == ("m2", "dead-letter")
    assert "The envelope to" in str(failed.description)
    assert [(left.message_id, left.delivery_count) for left in await queue.peek()] == [("m2", 0)]
    assert len(await faults.peek()) == sent

    again = await queue.process(reject, policy=policy, max_wait=0.5)
    assert again.ok
    assert await queue.peek() == []
    counts = Counter(each.message_id for each in await faults.peek())
    assert len(counts) == 3
    assert max(counts.values()) == sent - 1, "a repeat has the same id"


async def test_no_envelope_is_sent_after_a_lost_lock(namespace_by_hand: AsyncNamespace, clock: HandClock) -> None:
    queue, faults = await queue_and_faults(namespace_by_hand, "too-late", 1)
    policy = Policy(rejected=PolicyRow(Complete(), envelope_to=faults.address))
    pools = {faults.address: namespace_by_hand.pool(faults.address)}
    async with queue.batch() as batch:
        (message,) = await batch.receive(1)
        clock.emulators.advance(61)
        ended = EndedCall(message, End.REJECTED, fault(RejectMessage("Bad")))
        (outcome,) = (await send_envelopes(policy, pools, "local", batch, [ended])).values()
    assert outcome.status is OutcomeStatus.LOCK_LOST
    assert await faults.peek() == [], "another consumer may have the message, and send an envelope of its own"


async def test_only_faults_of_rows_with_a_destination_are_sent(namespace: AsyncNamespace) -> None:
    queue, faults = await queue_and_faults(namespace, "some-enveloped")

    def work(message: LockedMessage) -> None:
        if message.message_id == "m1":
            raise SkipMessage("not ours " * 200)
        if message.message_id == "m2":
            reject(message)

    policy = Policy(skipped=DeadLetter(), rejected=PolicyRow(Complete(), envelope_to=faults.address))
    report = await queue.process(work, policy=policy, max_wait=0.5)
    assert [(outcome.verb, outcome.ok) for outcome in report] == [
        ("complete", True),
        ("dead-letter", True),
        ("complete", True),
    ]
    assert str(report[1].description).startswith("The function skipped it: not ours not ours")
    assert len(str(report[1].description)) == 1_000
    assert [each.dead_letter_reason for each in await faults.peek()] == ["Bad"]


@pytest.mark.parametrize("by_session", [False, True])
async def test_redelivered_message_gets_no_second_envelope(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, *, by_session: bool
) -> None:
    name = f"told-once-{by_session}"
    await namespace.create_queue(name, requires_session=by_session)
    await namespace.create_queue(f"{name}-envelopes")
    queue = namespace.entity(name)
    assert (await queue.send([Message(message_id="m", session_id="s" if by_session else None)])).ok
    shared_emulator.faults.entity(f"{name}-envelopes").accept_delay_ms = 1_500

    async def lose_its_lock() -> None:
        await until(lambda: shared_emulator.counts(f"{name}-envelopes").active)
        shared_emulator.lose_locks(name)

    policy = Policy(rejected=PolicyRow(Complete(), envelope_to=f"{name}-envelopes"))
    processing = queue.processing(reject, policy=policy, max_wait=1, by_session=by_session, archived=False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lose_its_lock)
        await processing.run()
    assert [outcome.status for outcome in processing.report] == [OutcomeStatus.SETTLED]
    assert await queue.peek() == []
    assert len(await namespace.entity(f"{name}-envelopes").peek()) == 1


async def test_unconfirmed_envelope_abandons_in_an_endless_run(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    await namespace.create_queue("hopeless", max_delivery_count=2)
    await namespace.create_queue("full")
    queue = namespace.entity("hopeless")
    assert (await queue.send([Message(message_id="m")])).ok
    calls: list[int] = []

    def work(message: LockedMessage) -> None:
        calls.append(message.delivery_count)
        faults = shared_emulator.faults.entity("full")
        faults.reject_condition, faults.reject_nth = "amqp:not-allowed", 1
        if len(calls) == 2:
            processing.stop()
        reject(message)

    policy = Policy(rejected=PolicyRow(Complete(), envelope_to="full"), failed=Abandon())
    processing = queue.processing(work, policy=policy, max_wait=None)
    report = await processing.run()
    assert calls == [0, 1]
    assert report.settled == 0
    (dead,) = await namespace.entity("hopeless/$dlq").peek()
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert await namespace.entity("full").peek() == []
