"""Looking anew in a triage while messages are removed."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any, Self

from sbnotebook.client import Namespace
from sbnotebook.model import Complete
from sbnotebook.widgets import triage as module
from sbnotebook.widgets.peek_steps import peek_in_steps
from sbnotebook.widgets.triage import Triage
from tests.filled_queues import filled_client_queue
from tests.widgets.conftest import click, until

if TYPE_CHECKING:
    import pytest


def test_what_is_removed_while_it_looks_is_not_shown_again(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = filled_client_queue(namespace, "looked-at", 6)
    triage = Triage(namespace, "looked-at")
    assert triage.wait()
    chosen = triage.table.messages[:4]
    triage.actions.propose(lambda: queue.pick(chosen, Complete(), show_progress=False))
    until(lambda: not triage.actions.is_looking)

    peeked, go_on = threading.Event(), threading.Event()

    def look_slowly(*given: Any) -> Any:
        yield from peek_in_steps(*given)
        peeked.set()
        go_on.wait()

    monkeypatch.setattr(module, "peek_in_steps", look_slowly)  # many messages take their time
    triage.refresh()
    peeked.wait()
    click(triage.actions, "Carry out")
    until(lambda: triage.actions.report)
    go_on.set()
    assert triage.wait()
    assert [message.sequence_number for message in triage.table.messages] == [5, 6]
    until(lambda: "2 messages, peeked at" in repr(triage))
    triage.close()


class Clock(datetime):
    """Stands still at an hour that tests set."""

    stands_at = 8

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        assert tz is UTC
        return cls(2026, 11, 21, cls.stands_at, tzinfo=tz)


def test_what_could_not_be_peeked_at_again_is_as_old_as_it_was(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled_client_queue(namespace, "as-old", 3)
    monkeypatch.setattr(module, "datetime", Clock)
    triage = Triage(namespace, "as-old")
    assert triage.wait()
    assert "3 messages, peeked at 08:00:00 UTC" in repr(triage)
    monkeypatch.setattr(Clock, "stands_at", 9)
    with monkeypatch.context() as broken:
        broken.setattr(module, "peek_in_steps", lambda *_, **__: 1 / 0)
        triage.refresh()
        assert triage.wait()
    assert "3 messages (there may be more), peeked at 08:00:00 UTC\nPeeking did not come to its end" in repr(triage)
    triage.refresh()
    assert triage.wait()
    assert "3 messages, peeked at 09:00:00 UTC" in repr(triage)
    triage.close()
