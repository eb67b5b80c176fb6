from __future__ import annotations

import pytest

from sbnotebook.model import LockedMessage, Message, Release
from sbnotebook.settlement import AsyncNamespace, Policy, RejectMessage

pytestmark = pytest.mark.anyio


def consumer(message: LockedMessage) -> None:
    if message.body == b"bad":
        raise RejectMessage("Invalid", "it is bad")
    if message.body == b"broken":
        raise ZeroDivisionError


async def test_a_message_is_settled_by_how_the_function_ended(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("consumed", max_delivery_count=3)
    queue = namespace.entity("consumed")
    await queue.send([Message(body=body) for body in (b"good", b"bad", b"broken", b"good")], max_in_flight=1)

    report = await queue.process(consumer, max_wait=1)

    verbs = [outcome.verb for outcome in report]
    assert verbs.count("complete") == 2
    assert verbs.count("dead-letter") == 1
    assert verbs.count("abandon") == 3, "a message that fails is tried until its delivery count is used up"
    assert report.ok
    assert await queue.peek() == []
    dead = {message.body: message for message in await namespace.entity("consumed/$dlq").peek()}
    assert (dead[b"bad"].dead_letter_reason, dead[b"bad"].dead_letter_error_description) == ("Invalid", "it is bad")
    assert dead[b"broken"].dead_letter_reason == "MaxDeliveryCountExceeded"


async def test_the_policy_and_the_number_of_messages_can_be_chosen(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("tried")
    queue = namespace.entity("tried")
    await queue.send([Message(body=b"good")] * 5)

    report = await queue.process(consumer, policy=Policy(completed=Release()), max_messages=2, max_wait=1)

    assert [outcome.verb for outcome in report] == ["release", "release"]
    assert [message.delivery_count for message in await queue.peek()] == [0] * 5
