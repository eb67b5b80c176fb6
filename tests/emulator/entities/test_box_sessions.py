from __future__ import annotations

from sbnotebook.emulator.entities.options import QueueOptions
from sbnotebook.emulator.entities.registry import Registry
from tests.emulator.entities.conftest import sent


def test_a_message_that_expires_under_a_lock_leaves_no_session(registry: Registry) -> None:
    queue = registry.create_queue("calls", QueueOptions(5_000, requires_session=True))
    queue.send(sent("x", session_id="a", time_to_live=1_000), 0)
    accepted = queue.accept_session("a", 0)
    assert accepted is not None
    assert queue.receive(0, accepted[0]) is not None
    registry.expire(5_000)
    assert queue.message_count == 0
    assert queue.sessions is not None
    assert queue.sessions.get("a") is None
