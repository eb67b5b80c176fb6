from __future__ import annotations

import pytest

from sbnotebook.client import Entity, Namespace
from sbnotebook.errors import BatchClosedError
from sbnotebook.model import Message


def filled(namespace: Namespace, name: str, sessions: str) -> Entity:
    namespace.create_queue(name, requires_session=True)
    queue = namespace.entity(name)
    assert queue.send([Message(message_id=f"m{n}", session_id=each) for n, each in enumerate(sessions)]).ok
    return queue


def test_a_session_is_held_and_its_messages_settled(namespace: Namespace) -> None:
    queue = filled(namespace, "held", "aab")
    assert sorted(queue.sessions()) == ["a", "b"]
    assert [message.message_id for message in queue.peek(session_id="a")] == ["m0", "m1"]
    with queue.session("a", renew_for="5m") as session:
        assert session.session_id == "a"
        session.receive(10, max_wait=1)
        assert session.complete(where="message_id = 'm0'").settled == 1
        session.set_state({"done": 1})
        assert not session.is_lost
        assert "session 'a'" in repr(session)
    with queue.next_session(max_wait=5) as following, queue.next_session(max_wait=5) as other:
        assert {following.session_id, other.session_id} == {"a", "b"}
    with queue.session("a") as session:
        assert session.get_state() == b'{"done": 1}'
        assert session.get_state_text() == '{"done": 1}'
        assert session.get_state_json() == {"done": 1}
        session.set_state(None)
        assert session.get_state() is None
    assert {message.message_id: message.delivery_count for message in queue.peek()} == {"m1": 0, "m2": 0}


def test_a_session_that_is_closed_says_so(namespace: Namespace) -> None:
    session = filled(namespace, "closed", "a").session("a")
    session.close()
    assert session.session_id == "a"
    with pytest.raises(BatchClosedError):
        session.get_state()
    with pytest.raises(BatchClosedError):
        session.receive(1)


def test_sessions_are_processed_in_order(namespace: Namespace) -> None:
    queue = filled(namespace, "processed", "aabb")
    done: list[str] = []
    report = queue.process(lambda message: done.append(str(message.message_id)), by_session=True, max_wait=1)
    assert report.settled == 4
    assert done in (["m0", "m1", "m2", "m3"], ["m2", "m3", "m0", "m1"])
