from __future__ import annotations

import pytest

from sbnotebook.model import Message
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.picking.standing import standing

pytestmark = pytest.mark.anyio


async def test_those_that_are_there_are_found_and_no_others(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("standing")
    queue = namespace.entity("standing")
    assert await standing(queue, [1, 2]) == {}
    assert (await queue.send(Message(body=b"%d" % n) for n in range(700))).ok
    numbers = [message.sequence_number for message in await queue.peek()]
    wanted = [numbers[699], numbers[0], numbers[350], numbers[350], numbers[699] + 1, -5, 2**63 - 1]
    found = await standing(queue, wanted)
    assert {number: message.body for number, message in found.items()} == {
        numbers[0]: b"0",
        numbers[350]: b"350",
        numbers[699]: b"699",
    }
    assert await standing(queue, []) == {}
