from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sbnotebook.analysis.descriptions import cause_of
from sbnotebook.analysis.frames import to_arrow
from sbnotebook.analysis.groups import TRAITS, CauseReader, group_by_cause, label
from sbnotebook.client import Messages
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.testing.strategies import peeked_messages
from tests.chances import rounds

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


START = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
HOSTILE = "<b onclick=alert(1)>late</b> & $\\href{javascript:alert(1)}{x}$"


def dead_charts(number: int, reason: str, minutes: float = 0.0, entity: str = "orders/$dlq") -> PeekedMessage:
    return PeekedMessage(
        entity=EntityAddress.parse(entity),
        sequence_number=number,
        enqueued_time=START + timedelta(minutes=minutes),
        application_properties={"DeadLetterReason": reason},
    )


def traces(figure: Any) -> list[dict[str, Any]]:
    return figure.to_dict()["data"]


def test_messages_are_drawn_over_time_by_reason() -> None:
    messages = Messages([*(dead_charts(n, "Late", n) for n in range(60)), dead_charts(60, "Invalid", 30)])
    late, invalid = traces(messages.plot())
    assert (late["name"], sum(late["y"]), len(late["y"])) == ("Late", 60, 60)
    assert (invalid["name"], list(invalid["y"])) == ("Invalid", [1])
    assert late["x"][0] == START + timedelta(seconds=30), "the middle of the first minute"
    assert late["width"] == 60_000


def test_chart_tells_equal_numbers_of_two_entities_apart() -> None:
    messages = Messages([dead_charts(1, "Late"), dead_charts(1, "Invalid", entity="events/$dlq")])
    assert {trace["name"]: sum(trace["y"]) for trace in traces(messages.plot())} == {"Late": 1, "Invalid": 1}


def test_the_less_frequent_are_others() -> None:
    messages = Messages(dead_charts(n, f"Reason {'x' * (n % 12)}") for n in range(120))
    drawn = traces(messages.plot(top=3))
    assert [trace["name"] for trace in drawn][-1] == "others"
    assert [sum(trace["y"]) for trace in drawn] == [10, 10, 10, 90]


def test_each_reason_is_counted_once() -> None:
    """A reason may be called as the rest is, or read like another one when it is cut."""
    reasons = ["others", "others", "others", "a", "a", "b", "x" * 80 + "1", "x" * 80 + "y"]
    messages = Messages(dead_charts(n, reason) for n, reason in enumerate(reasons))
    drawn = [(trace["name"], sum(trace["y"])) for trace in traces(messages.plot(top=2))]
    assert drawn == [("others", 3), ("a", 2), ("others", 3)]
    assert [sum(trace["y"]) for trace in traces(messages.plot())] == [3, 2, 1, 1, 1]


@pytest.mark.parametrize("times", [[FIRST, START], [START, LAST], [FIRST, LAST], [LAST]], ids=range(4))
def test_any_time_is_drawn(times: list[datetime]) -> None:
    messages = Messages(replace(dead_charts(n, "Late"), enqueued_time=time) for n, time in enumerate(times))
    (late,) = traces(messages.plot())
    assert sum(late["y"]) == len(times)


def test_chart_of_no_messages_is_empty() -> None:
    assert traces(Messages().plot()) == []
    assert list(traces(Messages().groups().plot())[0]["x"]) == []


def test_causes_are_drawn_by_count() -> None:
    groups = Messages([dead_charts(1, "Late"), dead_charts(2, "Late"), dead_charts(3, "Invalid")]).groups()
    figure: Any = groups.plot()
    (bars,) = traces(figure)
    assert list(bars["x"]) == [2, 1]
    assert list(figure.to_dict()["layout"]["yaxis"]["ticktext"]) == ["Late", "Invalid"]


def test_label_escapes_what_plotly_reads() -> None:
    messages = Messages([dead_charts(1, HOSTILE)])
    figures: list[Any] = [messages.plot(), messages.groups().plot()]
    drawn = str([figure.to_dict() for figure in figures])
    assert label(HOSTILE)[:20] in drawn
    assert "<b onclick" not in drawn
    assert "$" not in drawn
    assert "<b onclick" in str(figures[0].update_layout(title=HOSTILE).to_dict()), "a control: it would be seen"


# ----------------------------------------------------------------


WORDS: Final = (
    "Flight", "error", "Error code", "exit code", "HTTP", "status", "404", "503 Server Error", "404 Client Error",
    "0x8", "0xff", "0x80131500", "ORA-", "utf8", "Int32", "sha256", "S3", "x64", "1545",
    "20130101", "2013-01-01", "05:15:00", "+1", "5%", "3ms", "12,5", "10.0.0.7:80", "N14228", "deadbeef0123",
    "May 2024", "Market 1234", "'a1'",
    '"b 2"', "/srv/data1/x2", "C:\\\\a1", "https://x.example/1?q=2", "a1@b2.example",
    "12345678-1234-1234-1234-123456789abc", "٣",
    "1b2c6ec2", "@5f2050f6", "1234567d", "12345678b", "abcdef01", "0af7651916cd43dd8448eb211c80319c", "Client Error",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "05:15:00.123abc45678", "A1B2C3D4",
    "\n   at Acme.V2.Run(Int32 a)", "\n   at Acme.Run`1(x) in a.cs:line 4",
    '\n  File "/lib64/python3/a.py", line 4, in f',
    '\n  File "/usr/lib32/python3/a.py", line 4, in f', "\n    at f1 (/app/a1.js:10:5)", "\n--- 1 ---",
    "\nCaused by: x1",
)  # fmt: skip
VALUES: Final = f"'{'v' * 290}'\n" * 13
"""A long text of which the cause is short."""
GLUE: Final = st.sampled_from(("", " ", ": ", "=", "-", "(", "#", "."))


@st.composite
def descriptions(draw: st.DrawFn) -> list[str | None]:
    """Generate descriptions, and others that differ from them in digits and ids."""
    parts = st.tuples(st.sampled_from(WORDS) | st.text(max_size=5), GLUE)
    kinds = draw(st.lists(st.lists(parts, min_size=1, max_size=6), min_size=1, max_size=4))
    digits = draw(st.lists(st.text("0123456789", min_size=1, max_size=30), min_size=8, max_size=8))
    letters = draw(st.lists(st.text("abcdef", min_size=1, max_size=30), min_size=8, max_size=8))
    made: list[str | None] = [None]
    for kind in kinds:
        text = "".join(word + glue for word, glue in kind)
        made.append(text)
        for values, words in zip(digits, letters, strict=True):
            following, word = cycle(values), cycle(words)
            other = "".join(next(following) if "0" <= each <= "9" else each for each in text)
            made += [other, "".join(next(word) if "a" <= each <= "f" else each for each in other)]
            made.append(f"{made[-1]} {uuid.uuid5(uuid.NAMESPACE_OID, values)}")
    return made * 2


@settings(max_examples=rounds(25, 300))
@given(descriptions())
@example(["error 0xff", "error 1xff", "error 5xff"] * 10)
@example(["404 Client Error", "604 Client Error"] * 10)
@example(["at 05:15:00.123abc45678", "at 05:15:00.1a2abc45678"] * 10)
@example(["took 12345678d", "took 1234567ad", "took 1234567dd"] * 10)
@example(["at 12345678a://b", "at a1234567a://b"] * 10)
@example(["for utf8 it is late", "for utf7 it is late"] * 10)
@example([f"Late\n   at {each}(A.java:7)" for each in ("a12345cd", "12345acd", "2a345acf")] * 10)
@example([f"late\n at app@{each}/x.Y.z(Y.java)" for each in ("1a2b3c4d", "2a2b3c4d")] * 10)
@example(["x" * cut + each for cut in range(488, 502) for each in (" 1a2b3c4d", " abcd3c4d", " 2bcd3c4d")])
@example(
    [f"{VALUES}'{'v' * cut}'{each}" for cut in range(274, 286) for each in (" 1a2b3c4d", " abcd3c4d", " 2bcd3c4d")]
)
def test_causes_by_form_are_those_of_each_description(said: list[str | None]) -> None:
    assert CauseReader().all(said) == [cause_of(each) for each in said]


def test_forms_stay_within_the_budget_of_time() -> None:
    ticks = iter(range(10_000))
    read = CauseReader(seconds=3, clock=lambda: next(ticks))
    causes = read.all([f"{'late ' * row}{row}" for row in range(100)])
    assert {each.text for each in causes[50:]} == {"(not read: the time for causes is spent)"}
