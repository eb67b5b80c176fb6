from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sbnotebook.amqp import Long
from sbnotebook.analysis import query
from sbnotebook.analysis.frames import to_arrow
from sbnotebook.analysis.query import matching, result_of, where
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, Message, MessageState, PeekedMessage
from sbnotebook.testing.strategies import peeked_messages
from tests.chances import rounds

ORDERS = EntityAddress("orders")


def peeked(number: int, body: bytes = b"", **fields: Any) -> PeekedMessage:
    return PeekedMessage(entity=ORDERS, sequence_number=number, body=body, **fields)


MESSAGES = (
    peeked(10, b'{"carrier": "UA", "late": 5, "stops": [{"at": "EWR"}]}', subject="a", delivery_count=3),
    peeked(20, b'{"carrier": "AA", "late": null}', subject="b", application_properties={"n": Long(7), "reason": "x"}),
    peeked(30, b"no json", enqueued_time=datetime(2024, 1, 2, tzinfo=UTC)),
    peeked(40, b"\xff\xfe", subject="", state=MessageState.DEFERRED),
    peeked(50, b'"UA"', application_properties={"DeadLetterReason": "Invalid"}),
)


def numbers(expression: str) -> list[int]:
    return [message.sequence_number for message in where(MESSAGES, expression)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("true", [10, 20, 30, 40, 50]),
        ("false", []),
        ("not subject = 'a'", [20, 40]),
        ("subject = 'a' or null", [10]),
        ("application_properties['missing'] = 'x'", []),
        ("SUBJECT = 'a' OR subject = 'b'", [10, 20]),
        ("subject in ('b', 'c')", [20]),
        ("sequence_number between 20 and 40", [20, 30, 40]),
        ("delivery_count > 2 and body_type = 'data'", [10]),
        ("state = 'deferred'", [40]),
        ("dead_letter_reason = 'Invalid'", [50]),
        ("enqueued_time >= '2024-01-01' and enqueued_time < timestamptz '2024-01-03 00:00:00+00'", [30]),
        ("body_text like '%json%'", [30]),
        ("octet_length(body) = 2", [40]),
        ("application_properties['n'] = '7'", [20]),
        ("application_property_types['n'] = 'long'", [20]),
        ("\"to\" is null and entity = 'orders' and subject = 'a'", [10]),
    ],
)
def test_expressions_over_the_columns(expression: str, expected: list[int]) -> None:
    assert numbers(expression) == expected


def test_messages_are_given_back_themselves_in_their_order() -> None:
    shuffled = [MESSAGES[3], MESSAGES[0], MESSAGES[4], MESSAGES[0]]
    found = where(shuffled, "sequence_number < 50")
    assert [id(message) for message in found] == [id(shuffled[index]) for index in (0, 1, 3)]
    assert where(MESSAGES, None) == list(MESSAGES)
    assert where((), "subject = 'a'") == []
    assert where([Message(subject="x")], "subject = 'x' and sequence_number is null") == [Message(subject="x")]


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("subject = 'Größe' and subjet = ''", "no column 'subjet' at character 23"),
        ("subject = 'Größe' und true", "at character 23"),
        ("body_jsn->>'$.a' = '1'", "no column 'body_jsn' at character 1; did you mean body_json\\?"),
        ("zzz.subject = 1", "no column 'zzz' at character 1"),
        ("label = 'a'", "no column 'label' at character 1; did you mean subject\\?"),
        ("user_properties['n'] = 1", "did you mean application_properties\\?"),
        (
            "state == Active",
            "no column 'Active' .*; a text takes single quotes: 'Active'. A field of .* is body_json.Active",
        ),
        ("body.total > 100", "; a field of a JSON body is body_json.total, body holds its bytes, body_text its text"),
        ("body like '%late%'", "; a field of a JSON body is body_json.NAME, body holds its bytes, body_text its text"),
        ("body->>'$.total' > 100", "; a field of a JSON body is body_json.NAME"),
        ("body_text.total > 100", "; a field of a JSON body is body_json.total"),
        ("subject == 'a' und true", "syntax error .*true.* at character 20"),
        ("delivery_count", "it gives a INTEGER, and not true or false"),
        ("body_json->'$.late'", "it gives a BIGINT, and not true or false"),
        ("*", "STAR|one expression|not true or false"),
        ("?", "prepared|parameter"),
        ("a" * 20_000, "no column 'aaa"),
        ("a" * 20_001, "longer than 20,000 characters"),
        ("(" * 9_000 + "true" + ")" * 9_000, "cannot be used"),
        ("not " * 4_000 + "true", "cannot be used"),
        ("\ud800", "surrogate"),
    ],
    ids=range(21),
)
def test_wrong_expression_is_refused_with_the_place(expression: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as refused:
        numbers(expression)
    assert str(refused.value).startswith("The expression ")
    assert len(str(refused.value)) < 1_500


def test_an_expression_over_bodies_is_checked_without_messages() -> None:
    with pytest.raises(ConfigurationError, match=r"no column 'subjet' at character 21; did you mean subject\?"):
        where([], "body_json.a = 1 and subjet = ''")


def test_lambda_has_its_own_names() -> None:
    assert numbers("len(list_filter(map_values(application_properties), lambda x: x = '7')) = 1") == [20]


def test_expressions_that_need_all_columns_get_them() -> None:
    assert numbers("#2 = 20") == [20]
    assert numbers("COLUMNS('^entity|^sequence_number') is not null") == [10, 20, 30, 40, 50]


def test_large_tables_are_sent_while_they_are_evaluated() -> None:
    table = to_arrow(Message(message_id=str(number), body=b'{"a": "%s"}' % (b"x" * 2_000)) for number in range(3_000))
    assert matching(table, "message_id::int % 3 = 0 and body_json is not null") == list(range(0, 3_000, 3))
    # A fault in the first batch leaves nothing of the others behind.
    with pytest.raises(ConfigurationError, match="Could not convert string 'x"):
        matching(table, "(body_json->>'a')::int = 1")
    assert matching(table, "message_id = '2999'") == [2_999]
    # A message that is larger than a batch is a batch.
    assert where([Message(body=b"x" * 600_000), Message(body=b"y")], "body_text like 'x%'")


def test_errors_quote_messages_without_control_characters() -> None:
    with pytest.raises(ConfigurationError, match=r"Could not convert string '·\[31m·") as refused:
        where([Message(subject="\x1b[31m\x07" + "x" * 100_000)], "subject::int = 1")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1_000


@given(st.text(max_size=40) | st.text(alphabet="()'\"=*;-/ subject1\x00", max_size=20))
@example("\x00")
@example("'\\'")
def test_any_expression_selects_or_is_refused(expression: str) -> None:
    try:
        found = where(MESSAGES, expression)
    except ConfigurationError:
        return
    assert all(message in MESSAGES for message in found)


@settings(max_examples=rounds(5, 60))
@given(st.lists(peeked_messages(), max_size=4))
def test_any_message_can_be_asked(messages: list[PeekedMessage]) -> None:
    expression = "body_json is null or body_json->>'$.a' is null or body_text is not null"
    assert where(messages, expression) == messages


JSON_BODIES = [
    b'{"total": 5, "carrier": "UA", "none": null, "text": "7", "at": {"gate": 4}, "id": 9007199254740993,"paid":true}',
    b'{"total": 2.5, "carrier": "AA", "none": 1, "id": 9007199254740992, "paid": false, "far": 1e30, "near": -1e-9}',
    b'{"total": "many", "carrier": null, "paid": 1}',
    b"not json",
]


@pytest.mark.parametrize(
    ("expression", "places"),
    [
        ("3 < body_json->>'total'", [0]),
        ("body_json->>'$.total' between 2 and 3", [1]),
        ("body_json.total > resubmit_count + 3", [0]),
        ("body_json['at'].gate > 3", [0]),
        ("body_json->>'$.id' in (9007199254740993)", [0]),
        ("json_extract_string(body_json, '$.total') > 3", [0]),
        ("body_json.id between 9007199254740993 and 9007199254740994", [0]),
        ("body_json.id = sequence_number", [0]),
        ("body_json.far > 9007199254740993 and body_json.near < 0 and body_json.far > sequence_number", [1]),
        ("body_json->>'$.paid' in (true, false)", [0, 1]),
        ("body_json.paid is true", [0]),
        ("body_json.paid is distinct from true", [1, 2, 3]),
        ("'UA' <> body_json.carrier", [1]),
        ("body_json.carrier is distinct from 'UA'", [1, 2, 3]),
        ("body_json.carrier = 'UA' /* é */ and body_json.total > 3", [0]),
        ("body_json->>'$.none' is null", [0, 2, 3]),
        ("json_type(body_json, '$.none') = 'NULL' and json_exists(body_json, '$.none')", [0]),
        ("body_json.carrier is distinct from null", [0, 1]),
    ],
)
def test_values_in_json_are_compared_as_meant(expression: str, places: list[int]) -> None:
    messages = [peeked(2**53 + 1, body, subject="AA") for body in JSON_BODIES]
    assert [messages.index(message) for message in where(messages, expression)] == places


def test_numbers_stay_exact_from_one_search_to_the_next() -> None:
    near, large = [[Message(body=b'{"n": %d}' % number) for number in of] for of in ((2**53 + 1, 2**53), (2**62,))]
    expression = "body_json.n + body_json.n > 0 and body_json.n = 9007199254740993"
    assert [where(messages, expression) for messages in (near, large, near)] == [near[:1], [], near[:1]]


IN_A_ZONE = """\
import os
import subprocess
import sys
from datetime import UTC, datetime
from sbnotebook.analysis.query import where
from sbnotebook.model import EntityAddress, PeekedMessage
early = PeekedMessage(entity=EntityAddress("q"), sequence_number=1, enqueued_time=datetime(2026, 11, 22, 2, tzinfo=UTC))
for text in ("enqueued_time::date = '2026-11-22'", "hour(enqueued_time) = 2", "enqueued_time < '2026-11-22 02:30'"):
    assert where([early], text), text
"""


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_times_are_in_utc_on_each_machine(zone: str) -> None:
    subprocess.run([sys.executable, "-c", IN_A_ZONE], env=os.environ | {"TZ": zone}, check=True)


BODIES = (b'{"sum": 5, "carrier": "UA"}', b'{"sum": 7, "carrier": "AA"}', b"no json", b'{"sum": null}')
MESSAGES_RESULT = to_arrow(
    PeekedMessage(entity=EntityAddress("orders"), sequence_number=n, subject="ab"[n % 2], body=body)
    for n, body in enumerate(BODIES)
)


def rows(text: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in result_of(MESSAGES_RESULT, text).to_pylist()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select count(*) from messages", [(4,)]),
        ("select subject, count(*) from messages group by all order by 1;", [("a", 2), ("b", 2)]),
        ("select sum(body_json.sum), avg(body_json.sum) from messages", [(12.0, 6.0)]),
        ("SELECT sequence_number FROM Messages WHERE body_json.carrier = 'AA'", [(1,)]),
        ("with own as (select subject from messages) select count(distinct subject) from own", [(2,)]),
        ("select a.subject from messages a join messages b using (sequence_number) limit 1", [("a",)]),
        ("select (select max(sequence_number) from messages) as last", [(3,)]),
        ("select count(*) from messages where subject = 'none'", [(0,)]),
    ],
)
def test_queries_over_the_messages(text: str, expected: list[tuple[Any, ...]]) -> None:
    assert rows(text) == expected


def test_no_messages_have_a_result_with_its_columns() -> None:
    result = result_of(MESSAGES_RESULT.slice(0, 0), "select subject, sequence_number as n from messages")
    assert (result.column_names, len(result)) == (["subject", "n"], 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "The query is empty"),
        ("drop table messages", "it must be one SELECT"),
        ("select 1; select 2", "it must be one SELECT"),
        ("copy messages to 'x'", "it must be one SELECT"),
        ("select * from '/etc/passwd'", "there is no table '/etc/passwd': the only one is messages"),
        ("select * from main.messages", "there is no table 'messages'"),
        ("select * from read_text('/etc/passwd')", "the table function read_text is not about messages"),
        ("select getenv('HOME') from messages", "the function getenv at character 8 is not about messages"),
        ("select subjet from messages", "there is no column 'subjet' at character 8; did you mean subject"),
        ("select from messages", "SELECT clause without selection list"),
        ("select 1" + " " * 20_001 + "+ 1", "longer than 20,000"),
    ],
)
def test_wrong_queries_are_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match="query") as error:
        result_of(MESSAGES_RESULT, text)
    assert why in str(error.value)
    assert rows("select 1") == [(1,)]


def test_a_query_that_takes_too_much_ends_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"more than 1 GB of memory|more than 60 seconds"):
        result_of(MESSAGES_RESULT, "select * from messages, range(100000) a, range(100000) b")
    monkeypatch.setattr(query, "_MOST_SECONDS", 2.0)
    with pytest.raises(ConfigurationError, match="it takes more than 2 seconds"):
        result_of(MESSAGES_RESULT, "select count(*) from range(1000000) a, range(1000000) b where hash(a, b) = 7")
    assert rows("select 1") == [(1,)]
