from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from sbnotebook.client import Namespace
from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import DecisionError
from sbnotebook.model import Message, OutcomeStatus


def test_interrupted_send_reports_confirmed_and_unsent(shared_emulator: RunningEmulator, namespace: Namespace) -> None:
    shared_emulator.create_queue("interrupted")
    queue = namespace.entity("interrupted")
    queue.warm(2)
    shared_emulator.faults.entity("interrupted").accept_delay_ms = 200
    pulled = 0

    def rows() -> Iterator[Message]:
        nonlocal pulled
        for number in range(100_000):
            pulled += 1
            if number == 6:
                os.kill(os.getpid(), signal.SIGINT)  # as the notebook's stop button does
            yield Message(message_id=f"m{number}")

    with pytest.raises(KeyboardInterrupt) as caught:
        queue.send(rows(), max_in_flight=2, batch_size=1)
    report = caught.value.__dict__["report"]
    assert pulled <= 20
    assert set(report.counts) <= {OutcomeStatus.SETTLED, OutcomeStatus.SKIPPED}
    assert report.counts[OutcomeStatus.SETTLED] >= 2
    assert "settled" in caught.value.__notes__[0]
    confirmed = [outcome.message_id for outcome in report if outcome.ok]
    assert sorted(message.message_id or "" for message in queue.peek()) == sorted(confirmed)
    assert queue.send(["and it goes on"]).ok


def test_failing_input_reports_what_was_sent(shared_emulator: RunningEmulator, namespace: Namespace) -> None:
    shared_emulator.create_queue("failing-rows")

    def rows() -> Iterator[str]:
        yield "first"
        raise KeyError("second")

    with pytest.raises(KeyError, match="second") as caught:
        namespace.entity("failing-rows").send(rows())
    assert caught.value.__dict__["report"].settled == 1


def test_messages_are_scheduled_listed_and_cancelled(shared_emulator: RunningEmulator, namespace: Namespace) -> None:
    shared_emulator.create_queue("later")
    queue = namespace.entity("later")
    at = datetime(2099, 1, 1, tzinfo=UTC)
    timed = queue.schedule(["at a time", "too"], at=at)
    delayed = queue.schedule([{"row": 1}], delay="90m", rate=100)
    assert timed.ok
    assert delayed.ok
    listed = queue.scheduled()
    assert [message.scheduled_enqueue_time for message in listed][:2] == [at, at]
    assert listed[2].body_text == '{"row": 1}'
    left = (listed[2].scheduled_enqueue_time or at) - datetime.now(UTC)
    assert timedelta(minutes=80) < left <= timedelta(minutes=90)
    plan = queue.cancel_scheduled([timed[0].sequence_number or 0, *queue.scheduled(where="body_text = 'too'")])
    assert str(plan.preview()) == "cancel 2 messages of later."
    assert plan.apply().ok
    again = queue.cancel_scheduled(list(plan.messages))
    assert [outcome.status for outcome in again.apply()] == [OutcomeStatus.NOT_FOUND] * 2
    assert len(queue.scheduled()) == 1
    with pytest.raises(DecisionError, match="not both"):
        queue.schedule(["x"], at=at, delay="5m")
