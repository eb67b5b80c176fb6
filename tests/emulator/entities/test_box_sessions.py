from __future__ import annotations

import pytest

from sbnotebook.emulator.entities.message_log import MessageLog
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
    assert len(queue.log) == 0
    assert queue.sessions is not None
    assert queue.sessions.get("a") is None


@pytest.mark.parametrize(("since", "listed"), [(None, ["a", "b"]), (0, [])])
def test_sessions_are_listed_without_a_look_at_their_messages(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, since: int | None, listed: list[str]
) -> None:
    queue = registry.create_queue("calls", QueueOptions(requires_session=True))
    for session_id in ("b", "a", "b"):
        queue.send(sent("x", session_id=session_id), 0)
    queue.send(sent("x", session_id="later", scheduled_time=1_000), 0)
    monkeypatch.delattr(MessageLog, "walk")
    assert queue.session_ids(since) == listed
