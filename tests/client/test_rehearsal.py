"""Rehearsals: one emulator is the namespace, and another one of the rehearsal's own holds the copies."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.entity import Entity
from sbnotebook.client.plan import Plan
from sbnotebook.client.rehearsal import Rehearsal
from sbnotebook.emulator import QueueOptions, RunningEmulator, SubscriptionOptions
from sbnotebook.emulator.entities.rules.rule import Rule, sql_filter
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import Message, ReceivedMessage
from sbnotebook.model.clones import clone_id_of
from sbnotebook.settlement import RejectMessage
from tests.filled_queues import dead_letter_queue


def letters_of(namespace: Namespace, address: str, messages: Sequence[Message]) -> Entity:
    """Send messages to a queue, and dead-letter them."""
    place = namespace.entity(address)
    place.send(messages).raise_for_failures()
    with place.lock(len(messages)) as batch:
        batch.dead_letter(reason="Invalid", description="no price").raise_for_failures()
    return namespace.entity(f"{address}/$dlq")


def orders(*subjects: str) -> list[Message]:
    return [Message(body=subject.encode(), message_id=f"m-{subject}", subject=subject) for subject in subjects]


def results(rehearsal: Rehearsal) -> list[str]:
    return [str(each.result) for each in rehearsal]


def test_rehearse_tells_what_happens_to_each_message(namespace: Namespace, shared_emulator: RunningEmulator) -> None:
    shared_emulator.create_queue("tried", QueueOptions(max_message_size_kb=1024))
    letters = letters_of(namespace, "tried", orders("good", "bad", "late", "big"))
    before = [*letters.peek()]

    def fix(message: ReceivedMessage) -> Message:
        return message.with_changes(body=b"x" * 2_000_000) if message.subject == "big" else message

    def consumer(message: ReceivedMessage) -> None:
        if message.subject == "bad":
            raise RejectMessage("StillInvalid", "no carrier")
        if message.subject == "late":
            raise ValueError("too late")

    plan = letters.resubmit(before, edit=fix)
    rehearsal = namespace.rehearse(plan, consumer)
    assert results(rehearsal) == ["consumed", "dead-lettered again", "dead-lettered again", "too large"]
    assert [each.sequence_number for each in rehearsal] == [each.sequence_number for each in before]
    assert (rehearsal[1].reason, rehearsal[1].description) == ("StillInvalid", "no carrier")
    assert "too late" in f"{rehearsal[2].reason} {rehearsal[2].description}"
    assert "1 consumed, 2 dead-lettered again, 1 too large" in repr(rehearsal)
    assert list(rehearsal.to_pandas()["message_id"]) == ["m-good", "m-bad", "m-late", "m-big"]

    # The namespace is as it was, and the plan can still be applied.
    assert [*letters.peek()] == before
    assert list(namespace.entity("tried").peek()) == []
    assert namespace.unfinished() == []
    assert plan.apply().settled == 3


def test_rehearse_without_a_consumer_shows_what_arrives(namespace: Namespace, shared_emulator: RunningEmulator) -> None:
    letters = dead_letter_queue(namespace, "tray", orders("even", "odd"))
    only = [Rule("only", sql_filter("sys.Label <> 'odd'"))]
    shared_emulator.create_topic("narrow")
    shared_emulator.create_subscription("narrow", "some", rules=only)
    shared_emulator.create_subscription("narrow", "on", SubscriptionOptions(forward_to="tray"), rules=only)
    rehearsal = namespace.rehearse(letters.resubmit(letters.peek(), to="narrow"))
    assert results(rehearsal) == ["arrived", "refused by a filter"]


def test_rehearse_shows_clones_that_an_earlier_run_has_sent(
    namespace: Namespace, shared_emulator: RunningEmulator
) -> None:
    shared_emulator.create_queue("once", QueueOptions(requires_duplicate_detection=True))
    letters = letters_of(namespace, "once", orders("sent", "new"))
    found = letters.peek()
    # A run on another machine has sent a clone, and ended before it completed the original.
    clone = Message(body=b"sent", message_id=clone_id_of(found[0]))
    namespace.entity("once").send([clone]).raise_for_failures()
    plan = letters.resubmit(found)
    assert results(namespace.rehearse(plan)) == ["duplicate", "arrived"]
    assert results(namespace.rehearse(plan, lambda _: None)) == ["duplicate", "consumed"]
    assert plan.apply().settled == 2
    assert sorted(message.body for message in namespace.entity("once").peek()) == [b"new", b"sent"], "as rehearsed"


def test_rehearse_keeps_sessions_and_limits(namespace: Namespace, shared_emulator: RunningEmulator) -> None:
    shared_emulator.create_queue("in-order", QueueOptions(requires_session=True))
    seen: list[tuple[Any, ...]] = []
    sent = [Message(body=b"%d" % n, message_id=f"m{n}", session_id="ab"[n % 2]) for n in range(4)]
    namespace.entity("in-order").send(sent).raise_for_failures()
    for session in "ab":
        with namespace.entity("in-order").session(session) as batch:
            batch.receive(2)
            batch.dead_letter(reason="Bad")
    letters = namespace.entity("in-order/$dlq")
    plan = letters.resubmit(letters.peek(), max_resubmits=1)
    rehearsal = namespace.rehearse(plan, lambda message: seen.append((message.session_id, message.body)))
    assert results(rehearsal) == ["consumed"] * 4
    assert sorted(seen) == [("a", b"0"), ("a", b"2"), ("b", b"1"), ("b", b"3")]


def test_rehearse_runs_a_command_with_the_address_of_the_copy(namespace: Namespace, tmp_path: Path) -> None:
    letters = dead_letter_queue(namespace, "served", orders("good", "bad"))
    script = tmp_path / "consumer.py"
    script.write_text(
        dedent("""
            import os
            from azure.servicebus import ServiceBusClient

            with ServiceBusClient.from_connection_string(os.environ["SERVICEBUS_CONNECTION_STRING"]) as client:
                with client.get_queue_receiver("served") as receiver:
                    for message in receiver:
                        if message.subject == "bad":
                            receiver.dead_letter_message(message, reason="StillBad")
                        else:
                            receiver.complete_message(message)
        """)
    )
    rehearsal = namespace.rehearse(letters.resubmit(letters.peek()), [sys.executable, str(script)], timeout="50s")
    assert results(rehearsal) == ["consumed", "dead-lettered again"]
    assert rehearsal[1].reason == "StillBad"
    with pytest.raises(ConfigurationError, match="cannot be started"):
        namespace.rehearse(letters.resubmit(letters.peek()), "no-such-command-here --now")


def test_rehearse_refuses_plans_that_send_nothing(namespace: Namespace) -> None:
    letters = dead_letter_queue(namespace, "refused", orders("one"))
    plan = letters.resubmit(letters.peek())
    for wrong in (letters.purge(), letters.resubmit([])):
        with pytest.raises(DecisionError):
            namespace.rehearse(wrong)
    with pytest.raises(ConfigurationError, match="a function, or a command"):
        namespace.rehearse(plan, "")
    with pytest.raises(Exception, match="nowhere"):
        namespace.rehearse(letters.resubmit(letters.peek(), to="nowhere"))
    assert len(letters.peek()) == 1


def test_a_command_keeps_the_backslashes_of_its_paths(namespace: Namespace, tmp_path: Path) -> None:
    said = tmp_path / "said"
    consumer = (
        f"{sys.executable} -c 'import sys; open(sys.argv[1], \"w\").write(sys.argv[2])' {said} C:\\data\\new\\a.csv"
    )
    plan = plan_of_one(namespace)
    namespace.rehearse(plan, consumer)
    assert said.read_text() == "C:\\data\\new\\a.csv"
    for wrong in ("python 'a", "  "):
        with pytest.raises(ConfigurationError, match="consumer"):
            namespace.rehearse(plan, wrong)


def test_a_command_that_cannot_start_is_named_by_its_program(namespace: Namespace, tmp_path: Path) -> None:
    letters = dead_letter_queue(namespace, "unstarted", orders("one"))
    plan = letters.resubmit(letters.peek())
    words: list[Any] = [tmp_path / "no program", "--key", "secret"]
    for wrong in ("nosuch --key secret", "nosuch --key 'secret", words):
        with pytest.raises(ConfigurationError, match="cannot be started") as refused:
            namespace.rehearse(plan, wrong)
        assert "secret" not in str(refused.value)


def plan_of_one(namespace: Namespace) -> Plan:
    namespace.create_queue("of-one")
    queue = namespace.entity("of-one")
    queue.send("a").raise_for_failures()
    return queue.resubmit(queue.peek())
