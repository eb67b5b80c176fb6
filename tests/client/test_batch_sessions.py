from __future__ import annotations

import pytest

from sbnotebook.client import Namespace
from sbnotebook.errors import BatchClosedError
from tests.filled_queues import filled_client_queue, session_messages


def test_session_is_held_and_its_messages_settled(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "held", session_messages("aab"), requires_session=True)
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


def test_closed_session_says_so(namespace: Namespace) -> None:
    session = filled_client_queue(namespace, "closed", session_messages("a"), requires_session=True).session("a")
    session.close()
    assert session.session_id == "a"
    with pytest.raises(BatchClosedError):
        session.get_state()
    with pytest.raises(BatchClosedError):
        session.receive(1)


def test_sessions_are_processed_in_order(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "processed", session_messages("aabb"), requires_session=True)
    done: list[str] = []
    report = queue.process(lambda message: done.append(str(message.message_id)), by_session=True, max_wait=1)
    assert report.settled == 4
    assert done in (["m0", "m1", "m2", "m3"], ["m2", "m3", "m0", "m1"])
