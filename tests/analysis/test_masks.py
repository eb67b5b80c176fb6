"""Masked messages: the value is gone everywhere, equal values stay equal, and the rest stays as it was."""

from __future__ import annotations

import gzip
import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.amqp import (
    Array,
    Byte,
    Char,
    Decimal64,
    Described,
    Float,
    Int,
    Long,
    Symbol,
    Timestamp,
    UByte,
    ULong,
    type_name,
)
from sbnotebook.amqp.decoding import LEVELS
from sbnotebook.analysis.frames import to_arrow
from sbnotebook.analysis.masks import MASKED_COLUMNS, Masks, change_at, parse_path
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import BodyType, EntityAddress, Message, PeekedMessage
from sbnotebook.model.budget import PARSED_CHARACTERS
from sbnotebook.settlement import peeked_from_payload
from sbnotebook.settlement.wire.encoding import payload_of
from sbnotebook.testing.hostile import hostile_bodies
from sbnotebook.testing.strategies import PRIMITIVES, peeked_messages

DLQ = EntityAddress.parse("orders/$dlq")
SECRET = "ada@example.com"


def peeked(**fields: Any) -> PeekedMessage:
    return PeekedMessage(entity=DLQ, sequence_number=1, **fields)


def body_of(masks: Masks, document: Any, **fields: Any) -> Any:
    text = document if isinstance(document, str) else json.dumps(document)
    return json.loads(masks.masked(peeked(body=text.encode(), **fields)).body_text or "")


def test_mask_replaces_values_at_paths_only() -> None:
    masks = Masks(["$.email", "$.items[*].owner"])
    document = {"email": SECRET, "id": 7, "items": [{"owner": "bob", "n": 1}, {"n": 2}]}
    masked = body_of(masks, document)
    assert masked["email"].startswith("masked-")
    assert masked["items"][0]["owner"].startswith("masked-")
    assert masked | {"email": SECRET} | {"items": document["items"]} == document
    assert masked["items"][1] == {"n": 2}
    assert masks.found == {"$.email": 1, "$.items[*].owner": 1}
    assert masks.missed == []


def test_equal_values_get_equal_masks_within_a_copy_only() -> None:
    masks, others = Masks(["$..email", "correlation_id", "application_properties.who"]), Masks("$.email")
    first = body_of(masks, {"email": SECRET, "reply": {"email": "bob"}})
    second = masks.masked(
        peeked(body=json.dumps({"email": "bob"}).encode(), correlation_id=SECRET, application_properties={"who": "bob"})
    )
    assert first["email"] != first["reply"]["email"]
    assert json.loads(second.body)["email"] == first["reply"]["email"] == second.application_properties["who"]
    assert second.correlation_id == first["email"]
    assert body_of(others, {"email": SECRET})["email"] != first["email"]


def test_masks_of_json_keep_kinds_and_the_text_of_other_numbers() -> None:
    masks = Masks("$.secret")
    secret: list[Any] = ["text", "", 5, -2_000_000_000, 12_345_678_901_234, 99.5, 1e3, True, False, None, {"a": 1}, []]
    text = f'{{"secret":{json.dumps(secret)},"price":1.10,"id":123456789012345678901234567890,"name":"Grüße"}}'
    message = masks.masked(peeked(body=text.encode()))
    masked = json.loads(message.body)["secret"]
    assert [type(each) for each in masked] == [type(each) for each in secret]
    assert masked[1] == ""
    assert masked[7:10] == [False, False, None]
    assert [*masked[10]] == ["a"]
    assert all(0 <= each < 2**31 for each in (masked[2], masked[3]))
    assert not {*map(str, masked[:7])} & {*map(str, [*secret[:1], *secret[2:7]])}
    assert message.body.endswith('"price":1.10,"id":123456789012345678901234567890,"name":"Grüße"}'.encode())


@given(st.fixed_dictionaries(dict(PRIMITIVES)))
def test_masks_of_properties_keep_their_amqp_types(properties: dict[str, Any]) -> None:
    masks = Masks([f"application_properties.{name}" for name in properties])
    masked = masks.masked(peeked(application_properties=properties))
    for name, value in properties.items():
        assert type_name(masked.application_properties[name]) == type_name(value)
    again = peeked_from_payload(payload_of(masked), DLQ)  # AMQP can carry all of them
    assert [*again.application_properties] == [*properties]


def test_masks_of_properties_hide_their_values() -> None:
    values: dict[str, Any] = {
        "text": SECRET, "symbol": Symbol("s"), "char": Char("é"), "binary": b"secret", "uuid": UUID(int=5),
        "int": Int(5), "long": Long(2**40), "ulong": ULong(2**63), "ubyte": UByte(200), "byte": Byte(-5), "double": 0.5,
        "float": Float(0.25), "time": Timestamp(1_700_000_000_000), "decimal": Decimal64(b"12345678"), "flag": True,
        "list": ["a", 1], "kept": "kept",
    }  # fmt: skip
    names = [name for name in values if name != "kept"]
    masked = Masks([f"application_properties.{name}" for name in names]).masked(peeked(application_properties=values))
    found = dict(masked.application_properties)
    assert found.pop("kept") == "kept"
    few = {"ubyte", "byte", "char"}  # one in 256 masks is the value
    assert not [name for name in names if name not in few and found[name] == values[name]]


def test_masks_reach_each_column_and_the_typed_value_beside_it() -> None:
    values = {name: f"{SECRET} {name}" for name in MASKED_COLUMNS if not name.startswith("dead_letter")}
    values |= {"session_id": "s", "partition_key": "s"}
    message = peeked(
        **values,
        extras={
            "correlation_id": Symbol(values["correlation_id"]),
            "durable": True,
            "message_annotations": {Symbol("x-opt-partition-key"): Symbol(SECRET), Symbol("x-own"): 1},
        },
        application_properties={"DeadLetterReason": f"{SECRET} 1", "DeadLetterErrorDescription": f"{SECRET} 2"},
    )
    masks = Masks(MASKED_COLUMNS)
    masked = masks.masked(message)
    assert SECRET not in repr(to_arrow([masked]).to_pylist())
    assert dict(masked.extras) == {"durable": True, "message_annotations": {Symbol("x-own"): 1}}
    assert masked.session_id == masked.partition_key != "s"
    assert all(count == 1 for count in masks.found.values())


def test_masked_session_keeps_its_partition_key_equal() -> None:
    masked = Masks("session_id").masked(peeked(session_id="s", partition_key="s"))
    assert masked.partition_key == masked.session_id != "s"
    assert Masks("session_id").masked(peeked(session_id="s", partition_key="p")).partition_key == "p"
    masked = Masks("partition_key").masked(peeked(session_id="s", partition_key="s"))
    assert masked.partition_key == masked.session_id != "s"


def test_masked_id_is_masked_where_a_resubmit_wrote_it_too() -> None:
    masks = Masks("message_id")
    first = masks.masked(peeked(message_id=SECRET))
    again = masks.masked(peeked(message_id="2", application_properties={"OriginalMessageId": SECRET, "n": 1}))
    assert again.application_properties == {"OriginalMessageId": first.message_id, "n": 1}
    assert masks.found == {"message_id": 2}


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"plain text with ada@example.com", {}),
        (b'{"email": "ada@example.com"', {}),
        (b'{"email": "\xff"}', {}),
        (json.dumps(json.dumps({"email": SECRET})).encode(), {}),
        (b'{"email": "ada@example.com", "a": ' + b"[" * (LEVELS + 1) + b"]" * (LEVELS + 1) + b"}", {}),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", {}),
        (b'{"email": "' + b"x" * PARSED_CHARACTERS + b'"}', {}),
        (b"<customer>ada@example.com</customer>", {"content_type": "application/json"}),
        (b"not gzip: ada@example.com", {"content_encoding": "gzip"}),
        (gzip.compress(b'{"email": "' + b"x" * 30_000_000 + b'"}'), {"content_encoding": "gzip"}),
        (b'{"a": {"email": "ada@example.com"}, "a": {}}', {}),
        (Message.of_value(5).body, {"body_type": BodyType.VALUE}),
        (Message.of_value(SECRET).body, {"body_type": BodyType.VALUE}),
        (b"\xa1\x05", {"body_type": BodyType.VALUE}),
    ],
)
def test_body_that_is_not_json_is_masked_as_a_whole(body: bytes, fields: dict[str, Any]) -> None:
    masks = Masks("$..email")
    masked = masks.masked(peeked(body=body, **fields))
    assert (masked.body_text or "").startswith("masked-")
    assert b"ada@" not in masked.body
    assert (masks.whole, masks.found, masks.missed) == (1, {"$..email": 0}, [])
    assert masked.body == masks.masked(peeked(body=body, **fields)).body
    assert payload_of(masked)


def test_bodies_in_other_forms_are_masked_in_their_form() -> None:
    document = {"email": SECRET, "n": 1}
    text = json.dumps(document)
    masks = Masks("$.email")
    packed = masks.masked(peeked(body=gzip.compress(text.encode()), content_encoding="gzip"))
    marked = masks.masked(
        peeked(body=gzip.compress(text.encode()), application_properties={"Content-Encoding": "gzip"})
    )
    head = b"@\x06string\x083http://schemas.microsoft.com/2003/10/Serialization/\x99"
    of_net = masks.masked(peeked(body=head + bytes([len(text)]) + text.encode()))
    wide = masks.masked(peeked(body=text.encode("utf-16"), content_type="application/json; charset=utf-16"))
    value = masks.masked(peeked(body=Message.of_value(text).body, body_type=BodyType.VALUE))
    mapped = masks.masked(peeked(body=Message.of_value({"email": SECRET, "n": Long(1)}).body, body_type=BodyType.VALUE))
    in_list = Masks("$[0][0].email").masked(
        peeked(body=Message.of_sequence([{"email": SECRET}], [1]).body, body_type=BodyType.SEQUENCE)
    )
    assert gzip.decompress(packed.body).startswith(b'{"email": "masked-')
    assert gzip.decompress(marked.body).startswith(b'{"email": "masked-')
    assert of_net.body.startswith(head)
    for each in (packed, marked, of_net, wide, value, mapped):
        found = json.loads(each.body_text or "")
        assert (found["n"], found["email"][:7]) == (1, "masked-")
    numbers: Any = mapped.body_value
    sequences: Any = in_list.body_value
    assert type(numbers["n"]) is Long
    assert sequences[1] == [1]
    assert SECRET.encode() not in in_list.body
    assert masks.whole == 0


def test_body_without_a_value_at_a_path_stays_byte_for_byte() -> None:
    masks = Masks("$.email")
    bodies = [b'{ "mail" : 1.10 }', b"[]", b"{}", b""]
    assert [masks.masked(peeked(body=body)).body for body in bodies] == bodies
    assert (masks.whole, masks.missed) == (0, ["$.email"])
    masks.masked(peeked(body=b"no JSON"))
    assert (masks.whole, masks.missed) == (1, ["$.email"])


@given(peeked_messages())
def test_masks_of_any_message_can_be_sent(message: PeekedMessage) -> None:
    masks = Masks(["$..*", *MASKED_COLUMNS])
    masked = masks.masked(message)
    if message.unreadable is None:
        peeked_from_payload(payload_of(masked), DLQ)
    assert Masks().masked(message) is message


@pytest.mark.parametrize("name", [*hostile_bodies()])
def test_hostile_bodies_are_masked(name: str) -> None:
    body = hostile_bodies()[name]
    masks = Masks("$..a")
    masked = masks.masked(peeked(body=body))
    assert masks.whole or masks.found["$..a"] or masked.body == body
    if masks.found["$..a"]:
        json.loads(masked.body, parse_int=str)


@pytest.mark.parametrize(
    "path",
    ["", "email", "$email", "$.a[", "application_properties.", "application_properties", "body", "sequence_number"],
)
def test_path_that_cannot_be_masked_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be masked: write \$\.email"):
        Masks([path])


@pytest.mark.parametrize("paths", [5, [5], [None]])
def test_mask_that_is_no_path_is_refused(paths: Any) -> None:
    with pytest.raises(ConfigurationError, match="cannot be masked"):
        Masks(paths)


def test_unreadable_message_stays_for_the_copy_to_leave_out() -> None:
    message = peeked(body=b"\x00", extras={"unreadable": "broken"})
    masks = Masks("$.email")
    assert masks.masked(message) is message
    assert masks.whole == 0


VALUE = {"a": {"b": 1, "c d": 2}, "list": [{"b": 3}, 4, [5]], "b": None}


def changed(value: Any, *paths: str) -> tuple[Any, set[str]]:
    found: set[str] = set()
    steps = [(path, parse_path(path) or ()) for path in paths]
    return change_at(value, steps, lambda _: "x", found), found


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.a.b", {**VALUE, "a": {"b": "x", "c d": 2}}),
        ('$.a["c d"]', {**VALUE, "a": {"b": 1, "c d": "x"}}),
        ("$['a']['b']", {**VALUE, "a": {"b": "x", "c d": 2}}),
        ("$.a", {**VALUE, "a": {"b": "x", "c d": "x"}}),
        ("$.list[0].b", {**VALUE, "list": [{"b": "x"}, 4, [5]]}),
        ("$.list[*]", {**VALUE, "list": [{"b": "x"}, "x", ["x"]]}),
        ("$.list[2][0]", {**VALUE, "list": [{"b": 3}, 4, ["x"]]}),
        ("$.*.b", {**VALUE, "a": {"b": "x", "c d": 2}}),
        ("$..b", {"a": {"b": "x", "c d": 2}, "list": [{"b": "x"}, 4, [5]], "b": "x"}),
        ("$.list..[0]", {**VALUE, "list": [{"b": "x"}, 4, ["x"]]}),
        ("$..*", {"a": {"b": "x", "c d": "x"}, "list": [{"b": "x"}, "x", ["x"]], "b": "x"}),
        ("$", {"a": {"b": "x", "c d": "x"}, "list": [{"b": "x"}, "x", ["x"]], "b": "x"}),
    ],
)
def test_change_at_changes_what_a_path_means_and_nothing_else(path: str, expected: Any) -> None:
    assert changed(VALUE, path) == (expected, {path})


@pytest.mark.parametrize("path", ["$.z", "$.a.b.c", "$.a[0]", "$.list.b", "$.list[9]", '$["0"]', "$.A", "$..z"])
def test_path_that_leads_nowhere_changes_nothing(path: str) -> None:
    assert changed(VALUE, path) == (VALUE, set())


def test_paths_within_each_other_change_a_value_once() -> None:
    found: set[str] = set()
    paths = [(path, parse_path(path) or ()) for path in ("$.a", "$.a.b", "$..b", "$.none")]
    assert change_at(VALUE, paths, lambda value: [value], found)["a"] == {"b": [1], "c d": [2]}
    assert found == {"$.a", "$.a.b", "$..b"}


def test_values_of_amqp_keep_their_kinds() -> None:
    value = {Symbol("a"): Described(Symbol("kind"), Array([Int(1), Int(2)]))}
    found, _ = changed(value, "$.a[1]")
    assert found == {Symbol("a"): Described(Symbol("kind"), Array([Int(1), "x"]))}
    assert isinstance(found["a"].value, Array)
    assert found["a"].value.element_type is Int


def test_deep_value_is_refused() -> None:
    value: Any = 1
    for _ in range(LEVELS + 1):
        value = [value]
    with pytest.raises(ValueError, match="too deep"):
        changed(value, "$..a")
