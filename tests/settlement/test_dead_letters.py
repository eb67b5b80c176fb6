from __future__ import annotations

import pytest

from sbnotebook.model import EntityAddress
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.dead_letters import _look, look_at_dead_letters  # pyright: ignore[reportPrivateUsage]
from tests.filled_queues import filled_queue

pytestmark = pytest.mark.anyio


async def test_a_queue_that_goes_between_count_and_peek_is_told(namespace: AsyncNamespace) -> None:
    look = await _look(namespace, EntityAddress.parse("gone/$dlq"), 3, None, 250)
    assert (look.count, look.sample, look.last) == (3, (), None)
    assert look.problem is not None
    assert look.problem.startswith("There is no queue or topic 'gone/$dlq'")


async def test_a_journal_that_cannot_be_used_leaves_the_growth_unknown(namespace: AsyncNamespace) -> None:
    await filled_queue(namespace, "kept", 1)
    namespace.journal.path.write_bytes(b"no database, but text of some length" * 40)
    looks, counted = await look_at_dead_letters(namespace, [EntityAddress("kept")], sample=1)
    assert (looks, counted) == ([], 1)
