from __future__ import annotations

import pytest

from sbnotebook.emulator.entities.message import BrokeredMessage
from sbnotebook.emulator.entities.sessions import Sessions


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


def come(sessions: Sessions, number: int, session_id: str) -> BrokeredMessage:
    message = BrokeredMessage(number, number, 0, b"", session_id=session_id)
    sessions.added(message)
    sessions.make_ready(message)
    return message


def test_a_put_back_message_does_not_recreate_its_session(sessions: Sessions) -> None:
    message = come(sessions, 1, "a")
    sessions.withdraw(message)
    sessions.removed(message)
    sessions.put_back(message, "place")
    assert sessions.get("a") is None
