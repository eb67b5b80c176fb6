"""Files of messages that other tools wrote."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sbnotebook import read_messages
from sbnotebook.amqp import Int, Timestamp
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Message

EXPLORER = {  # as Service Bus Explorer writes a received message: all properties of its class, in camel case
    "body": {"order": 7, "text": "Käse"},
    "contentType": "application/json",
    "correlationId": None,
    "deadLetterSource": None,
    "deliveryCount": 1,
    "enqueuedSequenceNumber": 0,
    "enqueuedTimeUtc": "2024-01-02T03:04:05.678Z",
    "expiresAtUtc": "9999-12-31T23:59:59.9999999",
    "forcePersistence": False,
    "isBodyConsumed": True,
    "label": "order",
    "lockToken": "0b3a0e5a-0000-0000-0000-000000000000",
    "messageId": "m1",
    "partitionKey": None,
    "properties": [
        {"key": "attempt", "type": "Int32", "value": "3"},
        {"key": "good", "type": "Boolean", "value": "True"},
        {"key": "price", "type": "Double", "value": "2.5"},
        {"key": "id", "type": "Guid", "value": "12345678-1234-5678-1234-567812345678"},
        {"key": "at", "type": "DateTime", "value": "2024-01-02T03:04:05.1234567Z"},
        {"key": "local", "type": "DateTime", "value": "02.01.2024 03:04:05"},
        {"key": "name", "type": "String", "value": "x"},
    ],
    "replyTo": None,
    "scheduledEnqueueTimeUtc": "0001-01-01T00:00:00",
    "sequenceNumber": 12,
    "sessionId": "s1",
    "size": 200,
    "state": 0,
    "timeToLive": "10675199.02:48:05.4775807",
    "to": None,
    "viaPartitionKey": None,
}


def written(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2), encoding="utf-8-sig")
    return path


@pytest.mark.parametrize("is_list", [True, False])
def test_service_bus_explorers_json_becomes_messages_to_send(tmp_path: Path, *, is_list: bool) -> None:
    (message,) = read_messages(written(tmp_path / "saved.json", [EXPLORER] if is_list else EXPLORER))
    assert message == Message(
        body='{"order":7,"text":"Käse"}'.encode(),
        content_type="application/json",
        subject="order",
        message_id="m1",
        session_id="s1",
        application_properties={
            "attempt": Int(3),
            "good": True,
            "price": 2.5,
            "id": UUID("12345678-1234-5678-1234-567812345678"),
            "at": Timestamp.from_datetime(datetime(2024, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)),
            "local": "02.01.2024 03:04:05",
            "name": "x",
        },
    )
    assert type(message.application_properties["attempt"]) is Int


def test_older_versions_note_each_type_as_text(tmp_path: Path) -> None:
    old = {"body": "plain", "properties": [{"Key": "n", "Type": "String", "Value": 5}], "timeToLive": "1.02:03:04.5"}
    (message,) = read_messages(written(tmp_path / "old.json", [old]))
    assert message.application_properties == {"n": 5}
    assert message.time_to_live == timedelta(days=1, hours=2, minutes=3, seconds=4.5)


def test_plain_json_lines_become_messages_to_send(tmp_path: Path) -> None:
    lines = [
        '{"body": "a", "subject": "x", "application_properties": {"n": 1}, "message_id": "m1"}',
        "",
        '{"Body": [1, {"b": null}], "ScheduledEnqueueTime": "2050-01-02T03:04:05Z", "colour": "red"}',
    ]
    with pytest.warns(UserWarning, match=r"lines.jsonl: .* left out: colour"):
        one, two = read_messages(written(tmp_path / "lines.jsonl", "\n".join(lines)))
    assert one == Message(body=b"a", subject="x", message_id="m1", application_properties={"n": 1})
    assert two.body == b'[1,{"b":null}]'
    assert two.scheduled_enqueue_time == datetime(2050, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"subject": "x"}', 'Line 2 is not a message: it has no "body"'),
        ('{"body": null}', "body: it is null"),
        ('{"body": "x", "mesageId": "m"}', "unknown field 'mesageId': did you mean messageid?"),
        ('{"body": "x", "messageId": 5}', "messageId: it is not a text"),
        ('{"body": "x", "label": "a", "subject": "b"}', "two fields for subject"),
        ('{"body": "x", "body": "y"}', "'body' twice"),
        ('{"body": NaN}', "NaN is not JSON"),
        ('{"body": "\\ud800"}', "surrogates not allowed"),
        ('{"body": "x", "timeToLive": "soon"}', "not a time span"),
        ('{"body": "x", "properties": [{"type": "Int32"}]}', 'a property has no "key"'),
        ('{"body": "x", "properties": [{"key": "a", "type": "Int32", "value": "9999999999"}]}', "properties"),
        ('{"body": "x", "properties": {"a": [1]}}', "AMQP does not take"),
        ("[1]", "it is not an object"),
        ("{", "Line 2"),
        ("[" * 100_000, "Line 2"),
    ],
)
def test_a_line_that_is_no_message_is_named(tmp_path: Path, line: str, why: str) -> None:
    path = written(tmp_path / "bad.jsonl", f'{{"body": "x"}}\n{line}\n')
    with pytest.raises(ConfigurationError) as refused:
        read_messages(path)
    assert why in str(refused.value)
    assert "Line 2" in str(refused.value)


def test_a_message_of_a_list_is_named_and_so_is_another_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match='Message 2 is not a message: it has no "body"'):
        read_messages(written(tmp_path / "saved.json", [EXPLORER, {"label": "x"}]))
    (tmp_path / "latin.json").write_bytes(b'{"body": "\xe4"}')
    with pytest.raises(ConfigurationError, match="not in UTF-8"):
        read_messages(tmp_path / "latin.json")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_messages(tmp_path / "none.json")
