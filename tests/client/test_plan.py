"""Plans that are carried out in the background: watched, paused, and cut off."""

from __future__ import annotations

import io
import re
import threading
from datetime import UTC, datetime, timedelta

import pytest
from tqdm._monitor import TMonitor

from sbnotebook.client import Namespace
from sbnotebook.client.entity import Entity
from sbnotebook.client.plan import Running
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import Complete, Message, Outcome, OutcomeStatus
from sbnotebook.settlement import RampReport

SETTLED, SKIPPED = OutcomeStatus.SETTLED, OutcomeStatus.SKIPPED


def queue_of(count: int, name: str, namespace: Namespace) -> Entity:
    namespace.create_queue(name)
    queue = namespace.entity(name)
    queue.send([Message(message_id=f"m{n}") for n in range(count)]).raise_for_failures()
    return queue


def more_outcomes(running: Running) -> list[Outcome]:
    """Wait until there are some, asking for them as a panel does."""
    found: list[Outcome] = []
    while not found:
        ended = running.wait(0.02)
        found = running.new_outcomes()
        assert found or not ended
    return found


def test_running_plan_yields_outcomes_as_they_come(namespace: Namespace) -> None:
    queue = queue_of(300, "background", namespace)
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


def test_preview_estimates_the_time_of_the_next_plan(namespace: Namespace) -> None:
    queue = queue_of(150, "estimated", namespace)
    first = queue.purge()
    assert "This takes" not in first.preview().sentence
    first.start().result().raise_for_failures()
    queue.send([Message() for _ in range(120)]).raise_for_failures()
    assert "the speed of the last purge over this connection" in queue.purge().preview().sentence
    assert "This takes" in queue.plan_send(["a"]).preview().sentence


def test_previews_say_operations_and_each_estimate_once(namespace: Namespace) -> None:
    queue = queue_of(200, "costs", namespace)
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
    assert "the speed of the last undo over this connection" in namespace.undo(removed).preview().sentence
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
    queue = queue_of(120, "bar", namespace)
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


def test_running_plan_pauses_resumes_and_cancels(namespace: Namespace) -> None:
    queue = queue_of(300, "cut-off", namespace)
    running = queue.purge().start(rate=20)  # for 15 seconds
    told = more_outcomes(running)
    running.pause()
    while not running.is_held:
        assert not running.wait(0.02)
    told += running.new_outcomes()
    assert running.is_paused
    assert len(queue.peek()) == 300 - len(told)
    assert running.report.counts == {SETTLED: len(told), SKIPPED: 300 - len(told)}
    running.resume()
    assert not running.is_paused
    assert more_outcomes(running)
    running.cancel()
    report = running.result()
    assert running.wait(0)
    assert set(report.counts) == {SETTLED, SKIPPED}
    left = {message.sequence_number: message.delivery_count for message in queue.peek()}
    assert left == {outcome.sequence_number: 0 for outcome in report if outcome.status is SKIPPED}
    running.cancel()  # is too late, and does no harm


def test_paused_plan_ends_at_once_when_cancelled(namespace: Namespace) -> None:
    queue = queue_of(300, "cut-off-paused", namespace)
    running = queue.purge().start(rate=20)
    told = more_outcomes(running)
    running.pause()
    while not running.is_held:
        assert not running.wait(0.02)
    told += running.new_outcomes()
    running.cancel()
    assert running.result().counts == {SETTLED: len(told), SKIPPED: 300 - len(told)}
    assert len(queue.peek()) == 300 - len(told)


def test_running_plan_raises_with_its_report(namespace: Namespace) -> None:
    plan = queue_of(3, "gone-meanwhile", namespace).purge()
    namespace.delete_queue("gone-meanwhile")
    running = plan.start()
    with pytest.raises(Exception, match="gone-meanwhile"):
        running.result()
    assert running.report.counts == {SKIPPED: 3}


def test_plan_is_a_frame_of_its_messages(namespace: Namespace) -> None:
    queue = queue_of(3, "framed", namespace)
    frame = queue.purge().to_pandas()
    assert [*frame.columns][:3] == ["decision", "entity", "sequence_number"]
    assert frame["decision"].tolist() == ["purge"] * 3
    assert frame["message_id"].tolist() == ["m0", "m1", "m2"]
    sent = queue.plan_send([f"text {n}" for n in range(9)]).to_pandas()
    assert sent["body_text"].tolist() == [f"text {n}" for n in range(9)], "more than the preview shows"
    assert set(sent["decision"]) == {"send"}


def test_apply_sends_a_few_first_and_tells_its_fate(namespace: Namespace) -> None:
    queue = queue_of(5, "ramp", namespace)
    with queue.lock(5) as batch:
        batch.dead_letter(reason="Bad")
    letters = namespace.entity("ramp/$dlq")
    plan = letters.resubmit(letters.peek())
    with pytest.raises(ConfigurationError, match="stop_at goes with ramp"):
        plan.apply(stop_at=0.1)
    with pytest.raises(ConfigurationError, match="'soon' is not a duration"):
        plan.apply(ramp=2, watch="soon")
    with pytest.raises(DecisionError, match="apply this purge without"):
        letters.purge().apply(ramp=2)

    consumer = queue.start_processing(lambda _: None)
    running = plan.start(ramp=2, watch="20s")
    report = running.result()
    consumer.stop()
    assert isinstance(report, RampReport)
    assert (str(report), running.done) == ("resubmit: 5 settled; ramp: 2 consumed", 5)
    assert [fate.status for fate in report.fates] == ["consumed"] * 2


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


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ({"delay": "1h"}, "send 1 message to later, active 1h later."),
        ({"at": datetime(2050, 1, 2, tzinfo=UTC)}, "send 1 message to later, active at 2050-01-02 00:00:00+00:00."),
    ],
)
def test_send_plan_for_later_says_when(namespace: Namespace, when: dict[str, str | datetime], words: str) -> None:
    namespace.create_queue("later")
    queue = namespace.entity("later")
    plan = queue.plan_send(Message(body=b"x"), **when)  # pyright: ignore[reportArgumentType]
    assert plan.preview().sentence == words
    assert plan.apply().settled == 1
    (message,) = queue.scheduled()
    assert message.scheduled_enqueue_time is not None
    assert message.scheduled_enqueue_time > datetime.now(UTC) + timedelta(minutes=50)
    namespace.delete_queue("later")


def test_send_plan_refuses_wrong_data_at_once(namespace: Namespace) -> None:
    queue = namespace.entity("orders")
    with pytest.raises(DecisionError, match="not both"):
        queue.plan_send("x", at=datetime.now(UTC), delay="1h")
    with pytest.raises(ConfigurationError, match="cannot be made of int"):
        queue.plan_send([1])


def test_a_send_plan_is_applied_once(namespace: Namespace) -> None:
    namespace.create_queue("sent-once")
    queue = namespace.entity("sent-once")
    plan = queue.plan_send(["a", "b"])
    assert plan.start().result().settled == 2
    for again in (plan.apply, plan.start):
        with pytest.raises(DecisionError, match="applied already"):
            again()
    assert len(queue.peek()) == 2


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
