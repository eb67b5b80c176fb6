from __future__ import annotations

from threading import Event

import pytest

from sbnotebook.client import Messages, Namespace
from sbnotebook.errors import ConfigurationError
from sbnotebook.widgets.peek_steps import PeekProgress, PeekRequest, peek_in_steps
from tests.filled_queues import filled_client_queue


def test_a_page_and_onward(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "paged", 700)
    with queue.lock(2) as batch:
        batch.defer().raise_for_failures()

    parts: list[Messages] = []

    def peek(ask: PeekRequest, most_steps: int = 100) -> PeekProgress:
        stop, looked = Event(), PeekProgress()
        for messages, looked in peek_in_steps(queue, ask, stop):  # noqa: B007 (returned)
            parts.append(messages)
            if len(parts) == most_steps:
                stop.set()
        return looked

    looked = peek(PeekRequest(count=600))
    assert (looked.found, looked.is_end, looked.next_number) == (600, False, 601)
    looked = peek(PeekRequest(count=600, from_sequence_number=601))
    assert looked == PeekProgress(100, 100, 701, is_end=True)
    assert [message.sequence_number for part in parts for message in part] == list(range(1, 701))

    parts.clear()
    ask = PeekRequest(count=200, where="subject = 'odd'", state="active")
    looked = peek(ask)
    assert sum(map(len, parts)) == looked.found == 200
    assert {message.subject for part in parts for message in part} == {"odd"}
    following = peek(PeekRequest(where="subject = 'odd'", from_sequence_number=looked.next_number))
    assert following.found + 200 == 349, "none twice and none left out: one of 350 is deferred"

    parts.clear()
    looked = peek(ask, most_steps=1)
    assert (looked.looked_at, looked.is_end) == (250, False)
    with pytest.raises(ConfigurationError):
        peek(PeekRequest(where="subjekt = 'odd'"))
    namespace.delete_queue("paged")
