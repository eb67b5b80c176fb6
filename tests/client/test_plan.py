"""Plans that are carried out in the background: watched, paused, and cut off."""

from __future__ import annotations

import io
import re
import threading
from typing import Any

import pytest
from tqdm._monitor import TMonitor

from sbnotebook.client import Namespace
from sbnotebook.client.plan import Running
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Complete, Message, Outcome, OutcomeStatus
from tests.filled_queues import filled_client_queue

SETTLED, SKIPPED = OutcomeStatus.SETTLED, OutcomeStatus.SKIPPED


def more_outcomes(running: Running) -> list[Outcome]:
    """Wait until there are some, asking for them as a panel does."""
    found: list[Outcome] = []
    while not found:
        ended = running.wait(0.02)
        found = running.new_outcomes()
        assert found or not ended
    return found


def test_running_plan_yields_outcomes_as_they_come(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "background", 300)
    plan = queue.purge()
    running = plan.start()
    told = more_outcomes(running)
    report = running.result()
    told += running.new_outcomes()
    assert report.ok
    assert len(report) == plan.total == running.done == 300
    assert sorted(told, key=lambda outcome: outcome.sequence_number or 0) == list(report)
    assert running.new_outcomes() == []
    assert running.wait(0)
    assert len(queue.peek()) == 0


def test_previews_say_operations_and_each_estimate_once(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "costs", 200)
    assert "about 200 operations" in queue.plan_send([Message()] * 200).preview().sentence
    assert "operations" not in queue.plan_send(["a"]).preview().sentence
    pick = queue.pick(queue.peek()[50:150], Complete())
    assert "about 300 operations" in pick.preview().sentence  # 50 others are locked and released
    removed = pick.apply()
    removed.raise_for_failures()
    undo = namespace.undo(removed)
    assert undo.preview().sentence.endswith("It costs a Standard namespace about 100 operations.")
    undo.apply().raise_for_failures()
    with queue.lock(100) as batch:
        first = batch.plan(Complete())
        assert "This takes" not in first.preview().sentence  # a pick takes longer: it locks, too
        removed = first.apply()
    removed.raise_for_failures()
    assert (
        "the speed of the last undo over this connection, or longer with a rate."
        in namespace.undo(removed).preview().sentence
    )
    again = queue.pick(queue.peek(), Complete()).preview().sentence
    assert (again.count("This takes"), again.count("operations")) == (1, 1)
    with queue.lock(100) as batch:
        said = batch.plan(Complete()).preview().sentence
    assert "the speed of the last complete of locked messages over this connection" in said
    assert said.endswith("It costs a Standard namespace about 100 operations.")


class _Terminal(io.StringIO):
    """Holds the output of a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_bar_shows_messages_a_second_and_in_flight(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = filled_client_queue(namespace, "bar", 120)
    monkeypatch.setattr("sbnotebook.client.portal._SHOW_AFTER", 0.0)
    monkeypatch.setattr("sys.stderr", terminal := _Terminal())
    report = queue.purge().apply(max_in_flight=7, rate=60)
    report.raise_for_failures()
    assert re.search(r"\d messages/s, [1-7] in flight", terminal.getvalue())  # as many as began together at the last
    assert report.speed is not None
    assert report.speed.in_flight == 7
    plan = queue.plan_send([Message()] * 100)
    background = plan.start(max_in_flight=1)
    background.result().raise_for_failures()
    assert background.in_flight == 100
    assert not [thread for thread in threading.enumerate() if isinstance(thread, TMonitor)], "one for each bar"


def test_running_plan_raises_with_its_report(namespace: Namespace) -> None:
    plan = filled_client_queue(namespace, "gone-meanwhile", 3).purge()
    namespace.delete_queue("gone-meanwhile")
    running = plan.start()
    with pytest.raises(Exception, match="gone-meanwhile"):
        running.result()
    assert running.report.counts == {SKIPPED: 3}


def test_arguments_that_moved_are_answered_with_their_place(namespace: Namespace) -> None:
    filled_client_queue(namespace, "moved", 1)
    plan: Any = namespace.entity("moved").purge()
    for verb in (plan.apply, plan.start, plan.asynchronous.apply):
        with pytest.raises(TypeError, match=r"has no argument ramp: use plan\.with_ramp\(…\)\."):
            verb(ramp=2)
    assert len(plan.apply(max_in_flight=1)) == 1


def test_plan_is_a_frame_of_its_messages(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "framed", 3)
    frame = queue.purge().to_pandas()
    assert [*frame.columns][:3] == ["decision", "entity", "sequence_number"]
    assert frame["decision"].tolist() == ["purge"] * 3
    assert frame["message_id"].tolist() == ["m0", "m1", "m2"]
    sent = queue.plan_send([f"text {n}" for n in range(9)]).to_pandas()
    assert sent["body_text"].tolist() == [f"text {n}" for n in range(9)], "more than the preview shows"
    assert set(sent["decision"]) == {"send"}


def test_send_plan_sends_only_when_applied(namespace: Namespace) -> None:
    namespace.create_queue("planned")
    queue = namespace.entity("planned")
    plan = queue.plan_send([f"<b>{n}</b>" for n in range(7)])
    assert (str(plan.entity), len(plan), len(plan.preview().messages), len(plan.preview(2).messages)) == (
        "planned",
        7,
        5,
        2,
    )
    assert repr(plan).startswith("Plan: send 7 messages to planned.")
    assert "&lt;b&gt;0&lt;/b&gt;" in plan._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert len(queue.peek()) == 0
    assert plan.apply(max_in_flight=2, rate=1000, show_progress=False).settled == 7
    assert len(queue.peek()) == 7


def test_an_iterator_is_planned_as_it_is_sent(namespace: Namespace) -> None:
    namespace.create_queue("iterated")
    queue = namespace.entity("iterated")
    plan = queue.plan_send(Message(body=str(n).encode()) for n in range(7))
    assert repr(plan).startswith("Plan: send 7 messages to iterated.")
    assert len(plan) == len(plan.to_pandas()) == plan.apply().settled == len(queue.peek()) == 7
    with pytest.raises(ConfigurationError, match="Messages cannot be made of int"):
        queue.plan_send(7)
    with pytest.raises(ConfigurationError, match=r"at most 100,000 .* nothing was sent"):
        queue.plan_send("a" for _ in range(100_001))
