from __future__ import annotations

import json
import time
from typing import Any

from hypothesis import given

from sbnotebook.amqp import UByte
from sbnotebook.client.difference import MOST_DIFFERENCES, Difference, differences_of
from sbnotebook.model import EntityAddress, Message, PeekedMessage
from sbnotebook.testing.strategies import peeked_messages


def of_bodies(one: Any, other: Any) -> list[tuple[str, str | None, str | None]]:
    bodies = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in (one, other)]
    return [
        (each.field, each.one, each.other) for each in differences_of(Message(body=bodies[0]), Message(body=bodies[1]))
    ]


def test_json_bodies_are_compared_by_value() -> None:
    assert of_bodies({"a": 1, "b": {"c": [1, 2]}}, {"b": {"c": [1, 3, 4]}, "a": 1}) == [
        ("body_json.b.c[1]", "2", "3"),
        ("body_json.b.c[2]", None, "4"),
    ]
    assert of_bodies({"a": None}, {}) == [("body_json.a", "null", None)]
    assert of_bodies({"a": {"x": 1}}, {"a": [1]}) == [("body_json.a", '{"x": 1}', "[1]")]
    assert of_bodies(b'{"a": 1}', b'{ "a" : 1 }') == []


def test_fields_and_properties_are_compared_and_places_are_not() -> None:
    one = PeekedMessage(
        entity=EntityAddress("q"), sequence_number=1, subject="a", application_properties={"n": 1, "same": True}
    )
    other = PeekedMessage(
        entity=EntityAddress("q"), sequence_number=2, subject="b", application_properties={"same": True, "new": "x"}
    )
    assert differences_of(one, other) == [
        Difference("subject", "a", "b"),
        Difference("application_properties.n", "1", None),
        Difference("application_properties.new", None, "x"),
    ]


def test_values_of_other_types_differ() -> None:
    one = Message(body=b"", application_properties={"n": 5, "t": True, "none": None}, extras={"priority": UByte(7)})
    other = Message(body=b"", application_properties={"n": "5", "t": "True"}, extras={"priority": UByte(1)})
    assert differences_of(one, other) == [
        Difference("application_properties.n", "5 (int)", "5 (string)"),
        Difference("application_properties.t", "True (boolean)", "True (string)"),
        Difference("application_properties.none", "null", None),
        Difference("extras.priority", "7", "1"),
    ]


def test_texts_are_compared_by_line_and_bytes_as_a_whole() -> None:
    assert of_bodies(b"one\ntwo\nthree", b"one\n2\nthree\nfour") == [
        ("body_text line 2", "two", "2"),
        ("body_text line 4", None, "four"),
    ]
    ((field, one, other),) = of_bodies(b"\xff\x00", b"\xfe")
    assert of_bodies(b'\xef\xbb\xbf{"a": 1}', b'{"a": 1}') == [
        ("body", "11 bytes, from ef bb bf 7b 22 61 22 3a 20 31 7d", "8 bytes, from 7b 22 61 22 3a 20 31 7d")
    ]
    assert of_bodies(b"a\r\nb", b"a\nb") == [("body", "4 bytes, at 1: 0d 0a 62", "3 bytes, at 1: 0a 62")]
    assert of_bodies(b"a\n", b"a") == [("body", "2 bytes, at 1: 0a", "1 bytes, at 1: the end")]
    assert of_bodies(b'{"a": 1, "a": 2}', b'{"a": 2}') == [("body_text line 1", '{"a": 1, "a": 2}', '{"a": 2}')]
    assert (field, one, other) == ("body", "2 bytes, from ff 00", "1 bytes, from fe")


def test_hostile_bodies_are_compared_in_bounded_time() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    began = time.process_time()
    assert of_bodies(deep, deep + b" ")
    many = of_bodies({str(n): n for n in range(5_000)}, {})
    assert len(many) == MOST_DIFFERENCES + 1
    assert many[-1] == ("(more)", None, None)
    lines = b"\n".join(b"a" if n % 2 else b"%d" % n for n in range(100_000))
    assert of_bodies(lines, lines[::-1])[-1] == ("(more)", None, None)
    assert time.process_time() - began < 10


@given(one=peeked_messages(), other=peeked_messages())
def test_any_two_messages_can_be_compared(one: PeekedMessage, other: PeekedMessage) -> None:
    assert differences_of(one, one) == []
    found = differences_of(one, other)
    back = differences_of(other, one)
    assert {(each.field, each.one, each.other) for each in found if "body_text" not in each.field} == {
        (each.field, each.other, each.one) for each in back if "body_text" not in each.field
    }
