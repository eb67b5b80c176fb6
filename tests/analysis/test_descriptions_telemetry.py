from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError

from sbnotebook.analysis.descriptions import traces_of
from sbnotebook.analysis.frames import to_arrow
from sbnotebook.analysis.groups import Groups, group_by_cause
from sbnotebook.analysis.query import matching, result_of
from sbnotebook.errors import ConfigurationError, DecisionError, MissingExtraError
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.testing.hostile import hostile_texts
from tests.log_workspace import WORKSPACE, Account, LogWorkspace, log_workspace

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
TRACE, OTHER, SPAN = "0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319d", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
# https://www.w3.org/TR/trace-context/#traceparent-header
VALID = [
    {"traceparent": PARENT},
    {"Diagnostic-Id": PARENT},
    {"traceparent": PARENT, "Diagnostic-Id": f"00-{OTHER}-{SPAN}-01"},
    {"traceparent": "not one", "Diagnostic-Id": PARENT},
    {"traceparent": f"cc-{TRACE}-{SPAN}-01-what-the-future-has"},
]
INVALID: list[dict[str, Any]] = [
    {},
    {"traceparent": PARENT.upper()},
    {"traceparent": f"ff-{TRACE}-{SPAN}-01"},
    {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
    {"traceparent": f"00-{TRACE}-{'0' * 16}-01"},
    {"traceparent": f"{PARENT}-more"},
    {"traceparent": f"{PARENT}\n"},
    {"traceparent": f" {PARENT}"},
    {"traceparent": f'00-{TRACE[:-2]}")-{SPAN}-01'},
    {"traceparent": 7, "Diagnostic-Id": b"bytes"},
    {"Diagnostic-Id": f"|{TRACE}.{SPAN}."},
    {"Traceparent": PARENT},
    *({"traceparent": text, "Diagnostic-Id": text} for text in hostile_texts().values()),
]


def letter(number: int, properties: dict[str, Any], reason: str = "Invalid") -> PeekedMessage:
    return PeekedMessage(
        entity=EntityAddress.parse("orders/$dlq"),
        sequence_number=number,
        enqueued_time=NOON + timedelta(minutes=number),
        application_properties=properties | {"DeadLetterReason": reason},
    )


def groups_of(*properties: dict[str, Any]) -> Groups:
    return group_by_cause(to_arrow([letter(number, each) for number, each in enumerate(properties)]))


def test_a_trace_is_read_in_its_published_form_only() -> None:
    messages = [letter(number, each) for number, each in enumerate([*VALID, *INVALID])]
    assert traces_of(to_arrow(messages)) == [TRACE] * len(VALID) + [None] * len(INVALID)


def test_traces_are_columns_of_expressions_and_queries() -> None:
    table = to_arrow([letter(1, VALID[0]), letter(2, {"traceparent": f"00-{OTHER}-{SPAN}-01"}), letter(3, INVALID[8])])
    assert matching(table, f"trace_id = '{OTHER}' and span_id = '{SPAN}'") == [1]
    assert matching(table, "trace_id is null") == [2]
    assert result_of(table, "SELECT trace_id FROM messages").column("trace_id").to_pylist() == [TRACE, OTHER, None]


def test_a_group_shows_its_traces() -> None:
    (group,) = groups_of(VALID[0], VALID[1], {"traceparent": f"00-{OTHER}-{SPAN}-01"}, {})
    assert group.traces == (TRACE, OTHER)
    assert f"{TRACE} and 1 more" in str(Groups((group,)))


def test_the_query_has_operations_and_times_and_no_other_text() -> None:
    groups = groups_of(*VALID, *INVALID, {"traceparent": f"00-{OTHER}-{SPAN}-01"})
    kql = groups.kql(until=NOON + timedelta(hours=2))
    assert re.findall(r'"([^"]*)"', kql.partition("union")[0]) == [TRACE, OTHER]
    assert "let since = datetime(2026-11-28T11:00:00Z);" in kql
    assert "let until = datetime(2026-11-28T14:00:00Z);" in kql
    harmless = groups_of(VALID[0], {"traceparent": f"00-{OTHER}-{SPAN}-01"}).kql(until=NOON + timedelta(hours=2))
    assert kql == harmless, "no hostile value has changed a letter of it"


def test_the_query_names_a_thousand_operations_and_says_so() -> None:
    groups = groups_of(*({"traceparent": f"00-{n:032x}-{SPAN}-01"} for n in range(1, 1_500)))
    assert "the first 1,000 of 1,499 operations" in groups.kql()
    assert len(re.findall(r'"[0-9a-f]{32}"', groups.kql())) == 1_000


def test_without_a_trace_there_is_no_query() -> None:
    with pytest.raises(DecisionError, match="traceparent nor Diagnostic-Id"):
        groups_of({}).kql()


# ---------------------------------------------------------------- asked of a workspace


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogWorkspace]:
    with log_workspace(tmp_path) as found:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(found.certificate))
        yield found


def two_causes() -> Groups:
    messages = [letter(n, VALID[0]) for n in range(3)]
    messages += [letter(9, {"traceparent": f"00-{OTHER}-{SPAN}-01"}, "TooLate")]
    return group_by_cause(to_arrow(messages))


def test_telemetry_joins_failures_to_causes(workspace: LogWorkspace) -> None:
    later, key = "2026-11-28T12:30:00Z", "Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=c2VjcmV0"
    workspace.rows += [
        [later, TRACE, "exception", "System.TimeoutException", "Acme.Run", "", f"Late {key}", "orders", 5],
        ["2026-11-28T12:31:00Z", TRACE, "exception", "System.TimeoutException", "Acme.Run", "", "Later", "orders", 1],
        [later, OTHER, "dependency", "GET /price", "prices.example.com", "503", "", "orders", 1],
        [later, "f" * 32, "exception", "Not.Ours", "", "", "", "", 1],
        ["2026-11-01T00:00:00Z", TRACE, "exception", "Before.That", "", "", "", "", 1],
    ]
    account, causes = Account(), two_causes()
    found = causes.telemetry(WORKSPACE, credential=account, endpoint=workspace.endpoint, until=NOON + timedelta(days=1))
    assert found[["cause", "reason", "kind", "name", "count"]].to_numpy().tolist() == [
        [causes[0].fingerprint, "Invalid", "exception", "System.TimeoutException", 6],
        [causes[1].fingerprint, "TooLate", "dependency", "GET /price", 1],
    ]
    assert found["operations"][0] == 1
    assert found["last"][0] - found["first"][0] == timedelta(minutes=1)
    assert found["result"].tolist() == ["", "503"]
    assert "c2VjcmV0" not in str(found.to_dict())
    (query,) = workspace.queries
    assert query["query"] == causes.kql(until=NOON + timedelta(days=1))
    assert query["timespan"] == "2026-11-28T11:00:00.000Z/2026-11-29T12:00:00.000Z"
    assert workspace.tokens == ["Bearer eyJ0ZXN0.token"]
    assert account.scopes == [f"{workspace.endpoint}/.default"]


def test_a_partial_answer_says_so(workspace: LogWorkspace) -> None:
    workspace.is_partial = True
    with pytest.warns(UserWarning, match="errors when processing your query") as said:
        found = two_causes().telemetry(WORKSPACE, credential=Account(), endpoint=workspace.endpoint)
    assert found.empty
    assert said[0].filename == __file__


def test_a_refusal_is_the_sdks_own_error(workspace: LogWorkspace) -> None:
    workspace.refuses = True
    with pytest.raises(HttpResponseError, match="insufficient access"):
        two_causes().telemetry(WORKSPACE, credential=Account(), endpoint=workspace.endpoint)


def test_a_workspace_is_a_guid() -> None:
    with pytest.raises(ConfigurationError, match="Workspace ID"):
        two_causes().telemetry("../../subscriptions", credential=Account())


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "azure.monitor.query", None)
    with pytest.raises(MissingExtraError, match=r"\[telemetry\]"):
        two_causes().telemetry(WORKSPACE, credential=Account())
