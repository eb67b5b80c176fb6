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


def ids(found: MessageSession | None) -> str | None:
    return None if found is None else found.session_id


def take(session: MessageSession) -> BrokeredMessage:
    message = session.take_ready()
    assert message is not None
    session.hold(message)
    return message


def test_the_session_that_has_waited_longest_is_next(sessions: Sessions) -> None:
    for number, name in enumerate("bacb"):
        come(sessions, number, name)
    first = sessions.next_free()
    assert first is not None
    sessions.lock(first, 10)
    assert (first.session_id, ids(sessions.next_free())) == ("b", "a")
    sessions.unlock(first)  # it has to wait again
    assert [ids(sessions.next_free()), sessions.has_free] == ["a", True]


def test_messages_come_by_number_also_when_they_come_back(sessions: Sessions) -> None:
    for number in (3, 1, 2):
        come(sessions, number, "a")
    session = sessions.find_or_create("a")
    sessions.lock(session, 10)
    first = take(session)
    sessions.drop(first)
    sessions.make_ready(first)
    assert [take(session).sequence_number for _ in range(3)] == [1, 2, 3]
    assert session.take_ready() is None


@pytest.mark.parametrize(
    ("order", "expected"),
    [("front", [2, 1, 3, 4, 5]), ("place", [1, 2, 3, 4, 5]), ("back", [3, 4, 1, 2, 5])],
)
def test_messages_that_are_put_back_have_their_place(sessions: Sessions, order: str, expected: list[int]) -> None:
    for number in range(1, 5):
        come(sessions, number, "a")
    session = sessions.find_or_create("a")
    sessions.lock(session, 10)
    for message in [take(session) for _ in range(2)]:
        sessions.drop(message)
        sessions.make_ready(message)
        sessions.put_back(message, order)
    come(sessions, 5, "a")
    assert [take(session).sequence_number for _ in range(5)] == expected
    assert session.take_ready() is None


def test_a_message_is_locked_as_long_as_its_session(sessions: Sessions) -> None:
    come(sessions, 1, "a")
    session = sessions.find_or_create("a")
    sessions.lock(session, 10)
    message = take(session)
    assert message.lock_token is not None
    assert (sessions.held_messages, message.locked_until, sessions.next_end) == (1, 10, 10)
    assert sessions.find_held(message.lock_token, 9) is message
    assert [sessions.find_held(message.lock_token, now) for now in (10, 11)] == [None, None]
    assert [session.is_held(now) for now in (9, 10, 11)] == [True, False, False]
    assert sessions.find_held(uuid4(), 0) is None
    sessions.renew(session, 20)
    assert sessions.find_held(message.lock_token, 19) is message
    assert (message.locked_until, sessions.expired(19), sessions.expired(20)) == (20, [], [session])
    sessions.drop(message)
    assert (message.lock_token, message.locked_until, sessions.held_messages) == (None, 0, 0)


def test_a_held_session_is_not_free_whatever_comes(sessions: Sessions) -> None:
    session = sessions.find_or_create("a")
    sessions.lock(session, 10)
    message = come(sessions, 1, "a")
    assert not sessions.has_free
    sessions.unlock(session)
    assert sessions.next_free() is session
    sessions.withdraw(message)
    assert not sessions.has_free


def test_on_lost_is_called_once(sessions: Sessions) -> None:
    told: list[str] = []
    session = sessions.find_or_create("a")
    sessions.lock(session, 10)
    session.on_lost = lambda until: told.append(f"lost {until}")
    sessions.unlock(session)
    sessions.lock(sessions.find_or_create("a"), 10)
    sessions.unlock(sessions.find_or_create("a"))
    assert told == ["lost 10"]


def test_a_session_is_there_as_long_as_something_is_in_it(sessions: Sessions) -> None:
    message = come(sessions, 1, "a")
    sessions.withdraw(message)
    assert [each.session_id for each in sessions.listed(None)] == ["a"]  # it may be deferred
    sessions.removed(message)
    assert sessions.get("a") is None
    session = sessions.find_or_create("a")
    sessions.lock(session, 10)
    assert list(sessions.listed(None)) == []
    session.state = b""
    sessions.unlock(session)
    assert sessions.get("a") is session
    session.state = None
    sessions.forget_empty(session)
    assert sessions.get("a") is None


def test_sessions_are_listed_by_id_or_by_time_of_state(sessions: Sessions) -> None:
    for name in "cab":
        come(sessions, 1, name)
    for name, when in (("c", 5), ("d", 7)):
        sessions.find_or_create(name).state, sessions.find_or_create(name).updated_time = b"x", when
    assert [each.session_id for each in sessions.listed(None)] == ["a", "b", "c", "d"]
    assert [each.session_id for each in sessions.listed(6)] == ["d"]
    assert [each.session_id for each in sessions.listed(5)] == ["c", "d"]


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


def test_a_held_session_outlives_its_last_message(sessions: Sessions) -> None:
    message = come(sessions, 1, "a")
    session = sessions.find_or_create("a")
    sessions.lock(session, 10)
    assert take(session) is message
    sessions.drop(message)
    sessions.removed(message)
    assert sessions.get("a") is session
    sessions.unlock(session)
    assert sessions.get("a") is None
