from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbnotebook.analysis.descriptions import cause_of
from sbnotebook.analysis.frames import to_arrow
from sbnotebook.analysis.groups import TRAITS, CauseReader, group_by_cause
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.testing.strategies import peeked_messages

DEAD = EntityAddress("orders").dead_letter
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def dead(number: int, reason: str | None = None, description: str | None = None, **fields: Any) -> PeekedMessage:
    properties = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
    present: dict[str, Any] = {name: value for name, value in properties.items() if value is not None}
    return PeekedMessage(entity=DEAD, sequence_number=number, application_properties=present, **fields)


CAUSES = Path(__file__).with_name("causes")
FAULTS: list[dict[str, str]] = [
    {"platform": file.stem, **fault}
    for file in sorted(CAUSES.glob("*.toml"))
    for fault in tomllib.loads(file.read_text("utf-8"))["fault"]
]
NAMES = [f"{fault['platform']}: {fault['name']}" for fault in FAULTS]


@pytest.mark.parametrize("fault", FAULTS, ids=NAMES)
def test_the_same_fault_has_the_same_cause(fault: dict[str, str]) -> None:
    cause = cause_of(fault["description"])
    assert cause == cause_of(fault["again"])
    assert cause.frame == fault.get("frame")
    assert cause.text


def test_other_faults_have_other_causes() -> None:
    assert len(FAULTS) >= 40
    assert len({cause_of(fault["description"]) for fault in FAULTS}) == len(FAULTS)


def test_the_corpus_makes_a_group_of_each_fault() -> None:
    messages = [dead(1, "Failed", fault[key]) for fault in FAULTS for key in ("description", "again")]
    assert [group.count for group in group_by_cause(messages)] == [2] * len(FAULTS)


@given(st.text())
@example("'" * 100_000)
@example("a1" * 100_000)
@example("0" * 100_000)
@example("   at a.b(" * 100_000)
@example("at " * 500_000)
@example('File "' * 200_000)
@example("\\r\\n" * 200_000)
@example("   at A.<" + "x>g__" * 100_000 + "(")
@example("Caused by: " * 100_000)
def test_cause_of_any_description_is_short_and_quick(text: str) -> None:
    started = time.process_time()
    cause = cause_of(text)
    assert len(cause.text) <= 200
    assert len(cause.frame or "") <= 200
    assert time.process_time() - started < 10


def test_fingerprints_are_the_same_in_each_run() -> None:
    code = """
from sbnotebook.analysis.groups import CauseReader, group_by_cause
from sbnotebook.model import EntityAddress, PeekedMessage

properties = {"DeadLetterReason": "Invalid", "DeadLetterErrorDescription": "Order 5 has no price"}
message = PeekedMessage(
    entity=EntityAddress("orders"), sequence_number=1, subject="UA", application_properties=properties
)
print(group_by_cause([message])[0].fingerprint)
"""
    for seed in ("1", "2"):
        found = subprocess.run(  # a process of its own has other hashes
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        )
        assert found.stdout.decode().strip() == "0c3ce6f0f556"


def test_messages_are_grouped_by_what_is_asked_for() -> None:
    trace = "Boom\n   at Acme.Orders.Validator.Check()"
    messages = [
        dead(1, "A", "Order 1 is bad", subject="x"),
        dead(2, "A", "Order 2 is bad", subject="y"),
        dead(3, "B", trace, subject="y", dead_letter_source="events/Subscriptions/audit"),
    ]
    assert [group.count for group in group_by_cause(messages)] == [2, 1]
    assert [group.count for group in group_by_cause(messages, TRAITS)] == [1, 1, 1]
    assert list(group_by_cause(messages, "reason")) == list(group_by_cause(messages, ["reason"]))
    by_reason = group_by_cause(messages, ["reason"])
    assert [
        (group.reason, group.cause, group.frame, group.subject, group.source, group.count) for group in by_reason
    ] == [
        ("A", None, None, None, None, 2),
        ("B", None, None, None, None, 1),
    ]
    assert [group.frame for group in group_by_cause(messages, ["frame"])] == [None, "Acme.Orders.Validator.Check"]
    assert [group.subject for group in group_by_cause(messages, ["subject"])] == ["y", "x"]
    assert [group.source for group in group_by_cause(messages, ["source"])] == [
        "orders/$dlq",
        "events/Subscriptions/audit",
    ]
    for wrong in ([], ["colour"], "reasons"):
        with pytest.raises(ConfigurationError, match="grouped by some of reason, description"):
            group_by_cause(messages, wrong)  # pyright: ignore[reportArgumentType]


def test_table_gives_the_same_groups() -> None:
    messages = [
        dead(number, "Invalid", f"Order {number} has no price", subject=str(number % 3), enqueued_time=NOON)
        for number in range(20)
    ]
    assert list(group_by_cause(to_arrow(messages))) == list(group_by_cause(messages))


def test_groups_are_shown_as_a_frame_and_as_tables() -> None:
    messages = [dead(1, "<b>Bad</b>", "\x1b[31m 5 <script>", enqueued_time=NOON), dead(2)]
    groups = group_by_cause(messages)
    frame = groups.to_pandas()
    assert [*frame.columns[:3]] == ["fingerprint", "reason", "cause"]
    assert [*frame["count"]] == [1, 1]
    assert str(frame["first_seen"].dtype) == "datetime64[us, UTC]"
    assert group_by_cause([]).to_pandas().empty
    page = groups._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert "<script>" not in page
    assert "&lt;b&gt;Bad" in page
    assert "2 groups" in repr(groups)
    assert "\x1b" not in repr(groups) + page
    assert [*groups[:1]] == [groups[0]]
    assert groups[0].to_pandas().equals(groups[:1].to_pandas())
    bad = next(group for group in groups if group.reason)
    one = repr(bad) + bad._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert f"<Group {bad.fingerprint} of 1 message: reason '<b>Bad</b>', cause " in one
    assert "sequence_numbers" not in one
    assert "<script>" not in one.partition("<table")[2]
    assert "\x1b" not in one


def test_messages_are_grouped_by_reason_and_cause() -> None:
    messages = [
        dead(1, "Invalid", "Order 1 has no carrier", subject="UA", enqueued_time=NOON),
        dead(2, "Expired", "Order 2 has no carrier"),
        dead(3, "Invalid", "Order 3 has no carrier", subject="AA", enqueued_time=NOON - timedelta(hours=1)),
        dead(4, "Invalid", "Order 4 has no carrier", subject="UA", enqueued_time=NOON + timedelta(hours=1)),
        dead(5, "Invalid", "Order 5 has no price"),
    ]
    groups = group_by_cause(messages, ["reason", "description"])
    assert [(group.reason, group.cause, group.count, group.sequence_numbers) for group in groups] == [
        ("Invalid", "Order <n> has no carrier", 3, (1, 3, 4)),
        ("Expired", "Order <n> has no carrier", 1, (2,)),
        ("Invalid", "Order <n> has no price", 1, (5,)),
    ]
    first = groups[0]
    assert (first.first_seen, first.last_seen) == (NOON - timedelta(hours=1), NOON + timedelta(hours=1))
    assert first.subjects == (("UA", 2), ("AA", 1))
    assert first.examples == ("Order 1 has no carrier", "Order 3 has no carrier", "Order 4 has no carrier")
    assert (groups[1].first_seen, groups[1].last_seen, groups[1].subjects) == (None, None, ((None, 1),))


def test_messages_without_a_reason_are_a_group_of_their_own() -> None:
    groups = group_by_cause([dead(1), dead(2, "A", "x"), dead(3)])
    assert [(group.reason, group.cause, group.count, group.examples) for group in groups] == [
        (None, "", 2, ()),
        ("A", "x", 1, ("x",)),
    ]
    assert not group_by_cause([])


def test_at_most_five_subjects_are_named() -> None:
    messages = [dead(number, subject=str(number % 9)) for number in range(100)]
    (group,) = group_by_cause(messages, ["reason", "description"])
    assert len(group.subjects) == 5
    assert group.count == 100


@given(st.lists(peeked_messages(), max_size=6))
def test_groups_have_every_message_once(messages: list[PeekedMessage]) -> None:
    groups = group_by_cause(messages)
    found = sorted(number for group in groups for number in group.sequence_numbers)
    assert found == sorted(message.sequence_number for message in messages)
    assert [group.count for group in groups] == [len(group.sequence_numbers) for group in groups]
    assert [group.count for group in groups] == sorted((group.count for group in groups), reverse=True)


def test_causes_are_read_until_their_time_is_spent() -> None:
    ticks = iter(range(100))
    read = CauseReader(seconds=3, clock=lambda: float(next(ticks)))
    messages = [dead(number, "Bad", f"Order {number} of {'abcdefgh'[number]} failed") for number in range(8)]
    first, second = (group_by_cause(part, ("reason", "description"), read) for part in (messages[:5], messages[5:]))
    unread = "(not read: the time for causes is spent)"
    assert (first[0].cause, first[0].count) == (unread, 2)
    assert sum(group.count for group in first) == 5, "no message is left out"
    assert [(group.cause, group.count) for group in second] == [(unread, 3)], "parts of one table share the time"
    (alone,) = group_by_cause(messages[7:], ("description",))
    assert alone.cause == "Order <n> of h failed"


def test_a_group_returns_its_messages() -> None:
    messages = [dead(1, "A"), dead(2, "B"), dead(3, "A")]
    assert [list(group.messages) for group in group_by_cause(messages, "reason")] == [messages[::2], messages[1:2]]
    assert [list(group.messages) for group in group_by_cause(iter(messages), "reason")] == [
        messages[::2],
        messages[1:2],
    ]
    assert "take" not in group_by_cause(messages).to_pandas().columns
