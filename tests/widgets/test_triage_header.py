"""What the head of the triage says of when messages were peeked at."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Self

from sbnotebook.widgets.triage import TriageHeader

if TYPE_CHECKING:
    import pytest


class Clock(datetime):
    """Stands still at an hour that tests set."""

    stands_at = 8

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        assert tz is UTC
        return cls(2026, 11, 21, cls.stands_at, tzinfo=tz)


def test_what_could_not_be_peeked_at_again_is_as_old_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbnotebook.widgets.triage.datetime", Clock)
    header = TriageHeader(lambda: None)
    header.end("0 messages (there may be more)", is_fresh=False)
    assert header.words == "0 messages (there may be more)"
    header.end("3 messages")
    assert header.words == "3 messages, peeked at 08:00:00 UTC"
    monkeypatch.setattr(Clock, "stands_at", 9)
    header.end("3 messages", is_fresh=False)
    assert header.words == "3 messages, peeked at 08:00:00 UTC"
    header.end("4 messages")
    assert header.words == "4 messages, peeked at 09:00:00 UTC"
