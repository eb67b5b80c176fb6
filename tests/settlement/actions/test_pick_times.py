"""For how long a pick holds locks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest

from sbnotebook.errors import DecisionError
from sbnotebook.model import Abandon, Complete
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.actions import pick
from sbnotebook.settlement.actions.selection import Survey
from tests.filled_queues import filled_queue, sequence_numbers

pytestmark = pytest.mark.anyio


async def test_the_preview_says_for_how_long_others_are_locked(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, survey = await filled_queue(namespace, "pick-slow", 3), pick.survey

    async def look_slowly(*given: Any) -> Survey:
        seen = await survey(*given)
        seen.seconds = 7.0
        return seen

    monkeypatch.setattr(pick, "survey", look_slowly)
    sentence = (await queue.pick((await sequence_numbers(queue))[2:], Complete())).preview().sentence
    assert "2 other messages before the last of them: locked for about 14s and then released" in sentence


@pytest.mark.parametrize("days", [7, 8])
async def test_locks_are_held_for_less_than_a_week(namespace: AsyncNamespace, days: int) -> None:
    queue = await filled_queue(namespace, f"pick-weeks-{days}", 1)
    plan = await queue.pick(await sequence_numbers(queue), Abandon(timedelta(days=days)))
    with anyio.fail_after(20), pytest.raises(DecisionError, match="renewed for 7 days at most: resubmit with a delay"):
        await plan.apply()
    assert [message.delivery_count for message in await queue.peek()] == [0]
