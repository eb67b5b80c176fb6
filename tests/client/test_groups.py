from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbnotebook.client.groups import cause_of, group_by_cause
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.testing.strategies import peeked_messages

DEAD = EntityAddress("orders").dead_letter
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def dead(number: int, reason: str | None = None, description: str | None = None, **fields: Any) -> PeekedMessage:
    properties = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
    present: dict[str, Any] = {name: value for name, value in properties.items() if value is not None}
    return PeekedMessage(entity=DEAD, sequence_number=number, application_properties=present, **fields)


@pytest.mark.parametrize(
    ("description", "cause"),
    [
        ("Flight 1545 of 2013-01-01 has no tail number", "Flight <n> of <time> has no tail number"),
        ("at 2024-01-01T12:30:05.123Z", "at <time>"),
        ("at 2024-01-01 12:30:05+01:00.", "at <time>."),
        ("order 7f2c1a9e-0c55-4f3e-9d3a-0a1b2c3d4e5f is lost", "order <id> is lost"),
        ("lock 0x7ffE12 of deadbeefdeadbeef01", "lock <id> of <id>"),
        ("tail N14228 and part A-17-B", "tail <id> and part A-<n>-B"),
        ("-5 of 1,000.5 (12:30)", "<n> of <n> (<n>)"),
        ("field 'a b' is \"x y\"", "field <value> is <value>"),
        ("The customer's order isn't valid", "The customer's order isn't valid"),
        ("can't read 'O'Brien' of the customer's", "can't read <value> of the customer's"),
        ("an 'open quote", "an 'open quote"),
        ("two\n\tlines  and   spaces ", "two lines and spaces"),
        ("no number here", "no number here"),
        ("", ""),
        (None, ""),
    ],
)
def test_what_differs_between_two_messages_is_masked(description: str | None, cause: str) -> None:
    assert cause_of(description) == cause


@given(st.integers(0, 10**12), st.uuids(), st.datetimes(), st.text(alphabet="abcxyz ", max_size=10))
def test_the_same_fault_reads_the_same(number: int, key: Any, moment: datetime, quoted: str) -> None:
    def description(number: Any, key: Any, moment: Any, quoted: str) -> str:
        return f"Order {number} ({key}) of {moment:%Y-%m-%dT%H:%M:%SZ}: '{quoted}' is not a carrier"

    expected = "Order <n> (<id>) of <time>: <value> is not a carrier"
    if moment.year >= 1000:  # strftime does not pad years
        assert cause_of(description(number, key, moment, quoted)) == expected


@given(st.text())
@example("'" * 100_000)
@example("a1" * 100_000)
@example("0" * 100_000)
def test_a_cause_is_short_whatever_the_description(text: str) -> None:
    started = time.process_time()
    cause = cause_of(text)
    assert len(cause) <= 200
    assert cause == " ".join(cause.split()) or cause.endswith(" ")
    assert time.process_time() - started < 1.0


def test_messages_are_grouped_by_reason_and_cause() -> None:
    messages = [
        dead(1, "Invalid", "Order 1 has no carrier", subject="UA", enqueued_time=NOON),
        dead(2, "Expired", "Order 2 has no carrier"),
        dead(3, "Invalid", "Order 3 has no carrier", subject="AA", enqueued_time=NOON - timedelta(hours=1)),
        dead(4, "Invalid", "Order 4 has no carrier", subject="UA", enqueued_time=NOON + timedelta(hours=1)),
        dead(5, "Invalid", "Order 5 has no price"),
    ]
    groups = group_by_cause(messages)
    assert [(group.reason, group.cause, group.count, group.sequence_numbers) for group in groups] == [
        ("Invalid", "Order <n> has no carrier", 3, (1, 3, 4)),
        ("Expired", "Order <n> has no carrier", 1, (2,)),
        ("Invalid", "Order <n> has no price", 1, (5,)),
    ]
    first = groups[0]
    assert (first.first_seen, first.last_seen) == (NOON - timedelta(hours=1), NOON + timedelta(hours=1))
    assert first.subjects == (("UA", 2), ("AA", 1))
    assert first.example == "Order 1 has no carrier"
    assert (groups[1].first_seen, groups[1].last_seen, groups[1].subjects) == (None, None, ((None, 1),))


def test_messages_without_a_reason_are_a_group_of_their_own() -> None:
    groups = group_by_cause([dead(1), dead(2, "A", "x"), dead(3)])
    assert [(group.reason, group.cause, group.count, group.example) for group in groups] == [
        (None, "", 2, None),
        ("A", "x", 1, "x"),
    ]
    assert group_by_cause([]) == []


def test_at_most_five_subjects_are_named() -> None:
    messages = [dead(number, subject=str(number % 9)) for number in range(100)]
    (group,) = group_by_cause(messages)
    assert len(group.subjects) == 5
    assert group.count == 100


@given(st.lists(peeked_messages(), max_size=6))
def test_every_message_is_in_one_group(messages: list[PeekedMessage]) -> None:
    groups = group_by_cause(messages)
    found = sorted(number for group in groups for number in group.sequence_numbers)
    assert found == sorted(message.sequence_number for message in messages)
    assert [group.count for group in groups] == [len(group.sequence_numbers) for group in groups]
    assert [group.count for group in groups] == sorted((group.count for group in groups), reverse=True)
