from __future__ import annotations

from typing import Any

import pytest

from sbnotebook.analysis import query
from sbnotebook.analysis.frames import to_arrow
from sbnotebook.analysis.query import result_of
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, PeekedMessage

BODIES = (b'{"sum": 5, "carrier": "UA"}', b'{"sum": 7, "carrier": "AA"}', b"no json", b'{"sum": null}')
MESSAGES = to_arrow(
    PeekedMessage(entity=EntityAddress("orders"), sequence_number=n, subject="ab"[n % 2], body=body)
    for n, body in enumerate(BODIES)
)


def rows(text: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in result_of(MESSAGES, text).to_pylist()]


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
    result = result_of(MESSAGES.slice(0, 0), "select subject, sequence_number as n from messages")
    assert (result.column_names, len(result)) == (["subject", "n"], 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "The query is empty"),
        ("drop table messages", "it must be one SELECT"),
        ("select 1; select 2", "it must be one SELECT"),
        ("copy messages to 'x'", "it must be one SELECT"),
        ("select * from '/etc/passwd'", "there is no table '/etc/passwd': the only one is messages"),
        ("select * from information_schema.tables", "there is no table 'tables'"),
        ("select * from main.messages", "there is no table 'messages'"),
        ("select * from read_text('/etc/passwd')", "the table function read_text is not about messages"),
        ("select * from duckdb_settings()", "duckdb_settings is not about messages"),
        ("select getenv('HOME') from messages", "the function getenv at character 8 is not about messages"),
        ("select (select getenv('HOME'))", "the function getenv"),
        ("select subjet from messages", "there is no column 'subjet' at character 8; did you mean subject"),
        ("select from messages", "SELECT clause without selection list"),
        ("select 1" + " " * 20_001 + "+ 1", "longer than 20,000"),
    ],
)
def test_wrong_queries_are_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match="query") as error:
        result_of(MESSAGES, text)
    assert why in str(error.value)
    assert rows("select 1") == [(1,)]


def test_a_query_that_takes_too_much_ends_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"more than 1 GB of memory|more than 60 seconds"):
        result_of(MESSAGES, "select * from messages, range(100000) a, range(100000) b")
    monkeypatch.setattr(query, "_MOST_SECONDS", 2.0)
    with pytest.raises(ConfigurationError, match="it takes more than 2 seconds"):
        result_of(MESSAGES, "select count(*) from range(1000000) a, range(1000000) b where hash(a, b) = 7")
    assert rows("select 1") == [(1,)]
