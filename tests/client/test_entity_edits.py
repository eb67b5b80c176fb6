"""Repairs and properties of other clients, through the whole: sent, peeked, edited, and sent again."""

from __future__ import annotations

import gzip
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from sbnotebook.amqp import (
    Array,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Int,
    Long,
    Symbol,
    Timestamp,
    encode,
)
from sbnotebook.client import Namespace
from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import BodyType, Message, OutcomeStatus
from sbnotebook.model.decimals import decimal_bytes
from sbnotebook.settlement import edit_json
from sbnotebook.testing.comparison import same_value

HEAD = b"@\x06string\x083http://schemas.microsoft.com/2003/10/Serialization/\x99"
TEXT = '{"carrier": "DHL", "fare": 1.10, "id": 12345678901234567890}'
FIXED = '{"carrier": "HERMES", "fare": 1.10, "id": 12345678901234567890}'


def of_net(text: str) -> bytes:
    return HEAD + bytes([len(text)]) + text.encode()


def test_a_repair_keeps_the_form_of_each_body(shared_emulator: RunningEmulator, namespace: Namespace) -> None:
    shared_emulator.create_queue("repairs")
    shared_emulator.create_queue("repaired-forms")
    utf16 = "application/json; charset=utf-16le"
    forms: dict[str, dict[str, Any]] = {
        "gzip": {"body": gzip.compress(TEXT.encode()), "content_encoding": "gzip"},
        "property": {"body": gzip.compress(TEXT.encode()), "application_properties": {"Content-Encoding": "gzip"}},
        "of .NET": {"body": of_net(TEXT)},
        "utf-16": {"body": TEXT.encode("utf-16-le"), "content_type": utf16},
        "marked": {"body": TEXT.encode("utf-8-sig")},
        "JMS": {"body": encode(TEXT), "body_type": BodyType.VALUE},
        "broken": {"body": b"no JSON"},
    }
    queue = namespace.entity("repairs")
    queue.send([Message(message_id=name, **fields) for name, fields in forms.items()])
    with queue.lock(10) as batch:
        batch.dead_letter(reason="CarrierAway")

    @edit_json
    def repair(order: dict[str, Any]) -> None:
        order["carrier"] = "HERMES"

    letters = namespace.entity("repairs/$dlq")
    plan = letters.resubmit(letters.peek(), to="repaired-forms", edit=repair)
    said = str(plan.preview(3))
    assert "is refused for 1 of 7, which stays where it is: The edit failed for message #7: The body cannot be" in said
    assert "body.carrier: 'DHL' -> 'HERMES'" in said
    assert "form of the body" not in said
    report = plan.apply()

    assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED] * 6 + [OutcomeStatus.FAILED]
    assert "message #7" in str(report[6].description)
    assert [letter.message_id for letter in letters.peek()] == ["broken"]
    clones = {
        str(clone.application_properties["OriginalMessageId"]): clone
        for clone in namespace.entity("repaired-forms").peek()
    }
    assert {name: clone.body_text for name, clone in clones.items()} == dict.fromkeys([*forms][:6], FIXED)
    assert gzip.decompress(clones["gzip"].body) == gzip.decompress(clones["property"].body) == FIXED.encode()
    assert clones["of .NET"].body == of_net(FIXED)
    assert clones["utf-16"].body == FIXED.encode("utf-16-le")
    assert clones["marked"].body == FIXED.encode("utf-8-sig")
    assert clones["JMS"].body_value == FIXED


def test_bytes_that_would_corrupt_a_body_are_not_sent(shared_emulator: RunningEmulator, namespace: Namespace) -> None:
    shared_emulator.create_queue("stale-length")
    queue = namespace.entity("stale-length")
    queue.send([Message(body=of_net(TEXT))])
    plan = queue.resubmit(
        queue.peek(), edit=lambda message: message.with_changes(body=message.body.replace(b"DHL", b"HERMES"))
    )
    assert "The edit of message #1 is refused: The body was text in a wrapper of .NET" in str(plan.preview())
    assert [outcome.status for outcome in plan.apply()] == [OutcomeStatus.FAILED]
    assert [message.body for message in queue.peek()] == [of_net(TEXT)]


def _net(name: str, value: Any) -> Described:
    return Described(Symbol(f"com.microsoft:{name}"), value)


PROPERTIES: dict[str, Any] = {
    "price": Decimal128(decimal_bytes(Decimal("33802.4489"), 16)),
    "net price": Decimal128(decimal_bytes(Decimal("-0.50"), 16, is_of_net=True)),
    "small": Decimal32(decimal_bytes(Decimal("1.10"), 4)),
    "medium": Decimal64(decimal_bytes(Decimal("1E+3"), 8)),
    "at": _net("datetime-offset", Long(638_000_000_001_234_567)),
    "took": _net("timespan", Long(-901_234_567)),
    "where": _net("uri", "https://contoso.com/orders?id=7"),
    "own": Described(Symbol("acme:money"), Decimal128(decimal_bytes(Decimal("9.99"), 16))),
    "id": UUID(int=7),
    "sent": Timestamp(1_704_067_200_123),
    "grade": Char("ß"),
    "kind": Symbol("express"),
    "legs": Array([Int(1), Int(2)]),
    "nested": [Int(1), {"a": Long(2), "b": _net("uri", "urn:x")}],
    "raw": b"\x00\xff",
}


def test_properties_of_other_clients_are_readable_and_sent_again(
    shared_emulator: RunningEmulator, namespace: Namespace
) -> None:
    shared_emulator.create_queue("typed-properties")
    shared_emulator.create_queue("typed-again")
    queue = namespace.entity("typed-properties")
    queue.send([Message(message_id="typed", application_properties=PROPERTIES), Message(message_id="other")])

    frame: Any = queue.peek().to_pandas()
    texts = dict(frame["application_properties"][0])
    assert {name: texts[name] for name in ("price", "net price", "at", "took", "where", "own", "nested")} == {
        "price": "33802.4489",
        "net price": "-0.50",
        "at": "2022-09-28T22:13:20.1234567+00:00",
        "took": "-00:01:30.1234567",
        "where": "https://contoso.com/orders?id=7",
        "own": "9.99",
        "nested": '[1, {"a": 2, "b": "urn:x"}]',
    }
    for condition in (
        "try_cast(application_properties['price'] as decimal(18, 4)) > 33802.4",
        "application_properties['price']::double = 33802.4489",
        "try_cast(application_properties['at'] as timestamptz) < timestamptz '2022-09-29T00:00:00Z'",
        "application_properties['at'] < '2022-09-29'",
        "application_properties['where'] like 'https://contoso.com/%'",
        "application_property_types['at'] = 'com.microsoft:datetime-offset'",
        "json_extract(application_properties['nested'], '$[1].a')::int = 2",
    ):
        assert [message.message_id for message in queue.peek(where=condition)] == ["typed"], condition

    namespace.entity("typed-again").send(frame)
    again = namespace.entity("typed-again").peek()[0]
    assert same_value(dict(again.application_properties), PROPERTIES)
    assert same_value(dict(queue.peek()[0].application_properties), PROPERTIES)


@pytest.mark.parametrize("value", [PROPERTIES["price"], PROPERTIES["at"], {"fare": PROPERTIES["small"]}], ids=str)
def test_bodies_of_such_a_type_are_readable(value: Any) -> None:
    text = Message.of_value(value).body_text or ""
    assert text in ("33802.4489", '"2022-09-28T22:13:20.1234567+00:00"', '{"fare": 1.10}')
