from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from sbnotebook.emulator.entities import BrokeredMessage, MessageSession
from sbnotebook.emulator.entities.sessions import Sessions
from tests.costs import steps


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


def come(sessions: Sessions, number: int, session_id: str) -> BrokeredMessage:
    message = BrokeredMessage(number, number, 0, b"", session_id=session_id)
    sessions.added(message)
    sessions.make_ready(message)
    return message


def take(session: MessageSession) -> BrokeredMessage:
    message = session.take_ready()
    assert message is not None
    session.hold(message)
    return message


def test_a_lock_is_found_quickly_among_many_sessions(sessions: Sessions) -> None:
    tokens: list[UUID] = []
    for number in range(1_000):
        come(sessions, number, str(number))
        session = sessions.find_or_create(str(number))
        sessions.lock(session, 10)
        tokens.append(take(session).lock_token or uuid4())
    assert all(sessions.find_held(token, 0) for token in tokens)
    assert steps(lambda: sessions.find_held(tokens[-1], 0)) < 50
    assert sessions.held_messages == 1_000


def test_a_put_back_message_does_not_recreate_its_session(sessions: Sessions) -> None:
    message = come(sessions, 1, "a")
    sessions.withdraw(message)
    sessions.removed(message)
    sessions.put_back(message, "place")
    assert sessions.get("a") is None
