from __future__ import annotations

import threading

import anyio
import pytest

from sbnotebook.errors import DecisionError
from sbnotebook.model import DeadLetter, LockedMessage, Message, OutcomeStatus, Release, Report, Resubmit
from sbnotebook.settlement import AsyncNamespace, Policy, RejectMessage
from sbnotebook.testing.clock import HandClock

pytestmark = pytest.mark.anyio


def consumer(message: LockedMessage) -> None:
    if message.body == b"bad":
        raise RejectMessage("Invalid", "it is bad")
    if message.body == b"broken":
        raise ZeroDivisionError("nothing goes into nothing")


async def test_a_message_is_settled_by_how_the_function_ended(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("consumed")
    queue = namespace.entity("consumed")
    await queue.send([Message(body=body) for body in (b"good", b"bad", b"broken", b"good")], max_in_flight=1)

    report = await queue.process(consumer, max_wait=1)

    verbs = [outcome.verb for outcome in report]
    assert verbs.count("complete") == 2
    assert verbs.count("dead-letter") == 1
    assert verbs.count("abandon") == 1, "a message that fails is tried once in one run"
    assert [outcome.description for outcome in report if outcome.verb == "abandon"] == [
        "The function failed: ZeroDivisionError: nothing goes into nothing"
    ]
    (failed,) = await queue.peek()
    assert (failed.body, failed.delivery_count) == (b"broken", 1)
    (dead,) = await namespace.entity("consumed/$dlq").peek()
    assert (dead.body, dead.dead_letter_reason, dead.dead_letter_error_description) == (b"bad", "Invalid", "it is bad")


async def test_the_policy_and_the_number_of_messages_can_be_chosen(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("tried")
    queue = namespace.entity("tried")
    await queue.send([Message(body=b"good")] * 5)

    report = await queue.process(consumer, policy=Policy(completed=Release()), max_messages=2, max_wait=1)

    assert [outcome.verb for outcome in report] == ["release", "release"]
    assert [message.delivery_count for message in await queue.peek()] == [0] * 5


async def test_locks_are_renewed_while_the_function_works(namespace_by_hand: AsyncNamespace, clock: HandClock) -> None:
    await namespace_by_hand.create_queue("long")
    queue = namespace_by_hand.entity("long")
    await queue.send([Message(body=b"good")] * 3, max_in_flight=1)
    turned = threading.Event()

    def work(_message: LockedMessage) -> None:
        assert turned.wait(30), "the loop stood still while the function worked"

    async def turn() -> None:
        await clock.turn(150)  # a lock lasts a minute
        turned.set()

    report = Report()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn)
        report = await queue.process(work, max_messages=3, max_wait=5)
    assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED] * 3


async def test_what_cannot_be_right_is_refused_before_anything_is_locked(namespace: AsyncNamespace) -> None:
    async def later(message: LockedMessage) -> None: ...

    with pytest.raises(DecisionError, match="not an async one"):
        await namespace.entity("nowhere").process(later)  # pyright: ignore[reportArgumentType]
    with pytest.raises(DecisionError, match="plan of their own"):
        Policy(completed=Resubmit())
    with pytest.raises(DecisionError, match="dead-letter queue already"):
        await namespace.entity("nowhere/$dlq").process(consumer, policy=Policy(failed=DeadLetter("x")))


async def test_a_dead_letter_that_is_rejected_stays_where_it_is(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("rejected")
    await namespace.entity("rejected").send([Message(body=b"bad")])
    assert (await namespace.entity("rejected").process(consumer, max_wait=1)).ok
    report = await namespace.entity("rejected/$dlq").process(consumer, max_wait=1)
    assert [outcome.status for outcome in report] == [OutcomeStatus.FAILED]
    (still_there,) = await namespace.entity("rejected/$dlq").peek()
    assert still_there.delivery_count == 0
