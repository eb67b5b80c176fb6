"""Picking from synchronous code."""

from __future__ import annotations

import os
import re
import signal
import threading

import pytest

from sbnotebook.client import Namespace
from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import DecisionError
from sbnotebook.model import Complete, DeadLetter, Message, OutcomeStatus, Release


def test_pick_is_previewed_and_applied(shared_emulator: RunningEmulator, namespace: Namespace) -> None:
    shared_emulator.create_queue("picked")
    queue = namespace.entity("picked")
    queue.send([Message(message_id=f"m{n}", subject="bad" if n == 7 else None) for n in range(20)], batch_size=20)

    plan = queue.pick(queue.peek(where="subject = 'bad'"), DeadLetter("Bad"))
    assert "dead-letter 1 message of picked" in repr(plan)
    assert "7 other messages before the last of them" in repr(plan)
    report = plan.apply()

    assert report.ok
    assert str(report) == "dead-letter: 1 settled; 7 others released unchanged"
    assert {message.delivery_count for message in queue.peek()} == {0}
    assert [message.message_id for message in namespace.entity("picked/$dlq").peek()] == ["m7"]
    with pytest.raises(DecisionError, match="would change nothing"):
        queue.pick([1], Release())


def test_what_matches_nothing_says_what_is_there(shared_emulator: RunningEmulator, namespace: Namespace) -> None:
    shared_emulator.create_queue("unmatched")
    queue, letters = namespace.entity("unmatched"), namespace.entity("unmatched/$dlq")
    nothing = "There are no messages to choose from."
    assert repr(queue.peek(where="subject = 'x'")) == f"unmatched: 0 messages. {nothing}"
    assert repr(queue.pick(None, Complete(), where="subject = 'x'")).endswith(nothing)
    assert repr(queue.purge()) == f"Plan: purge 0 messages of unmatched. {nothing}"

    queue.send([Message(subject="a"), Message(subject="b\x1b"), Message(subject="a")]).raise_for_failures()
    subjects = "Messages looked at: 3, with these subjects: 'a' 2, 'b\\x1b' 1."
    found = queue.peek(where="subject = 'x'")
    assert repr(found[:5]) == f"unmatched: 0 messages. {subjects}"
    assert "these subjects: &#x27;a&#x27; 2" in found._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert subjects in repr(queue.peek().where("subject = 'x'"))
    assert subjects in repr(queue.pick(None, Complete(), where="subject = 'x'"))
    assert subjects in repr(queue.resubmit(where="subject = 'x'", to="unmatched"))
    with queue.lock(3) as batch:
        with pytest.warns(match=re.escape(subjects)):
            assert batch.complete(where="subject = 'x'").settled == 0
        batch.dead_letter(reason="CarrierAway")
    reasons = "Messages looked at: 3, with these dead-letter reasons: 'CarrierAway' 3."
    assert reasons in repr(letters.peek(where="subject = 'x'"))
    assert reasons in repr(letters.pick(None, Complete(), where="subject = 'x'"))
    assert reasons in namespace.find(["unmatched"], where="subject = 'x'").summary
    assert reasons in repr(namespace.entity("unmatched/$dlq").peek()[:3].where("subject = 'x'"))


def test_the_stop_button_gives_everything_back(shared_emulator: RunningEmulator, namespace: Namespace) -> None:
    shared_emulator.create_queue("stopped-pick")
    queue = namespace.entity("stopped-pick")
    queue.send([Message(message_id=f"m{n}") for n in range(500)], batch_size=500)
    numbers = [message.sequence_number for message in queue.peek()]
    plan = queue.pick([numbers[0], numbers[-1]], Complete())
    shared_emulator.faults.entity("stopped-pick").settle_delay_ms = 2_000

    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt) as caught:
        plan.apply()

    shared_emulator.faults.entity("stopped-pick").settle_delay_ms = 0
    first, last = caught.value.__dict__["report"]
    assert last.status in {OutcomeStatus.SETTLED, OutcomeStatus.SKIPPED}
    left = {message.sequence_number: message.delivery_count for message in queue.peek()}
    settled = {outcome.sequence_number for outcome in (first, last) if outcome.ok}
    assert left == {number: 0 for number in numbers if number not in settled}
    with queue.lock(5) as batch:
        assert [message.sequence_number for message in batch.messages] == list(left)[:5]
