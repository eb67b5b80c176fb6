from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbnotebook.amqp import AmqpValue, Described, Symbol, Timestamp, UInt, ULong, encode
from sbnotebook.errors import AmqpDecodeError
from sbnotebook.model import BodyType
from sbnotebook.model.body import Marks, body_text, decode_body, json_letters
from sbnotebook.testing.strategies import amqp_values
from tests.comparison import same_value

NAMESPACE = b"http://schemas.microsoft.com/2003/10/Serialization/"
HEAD = b"@\x06string\x08" + bytes([len(NAMESPACE)]) + NAMESPACE

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def wrapped(text: str, record: int, width: int, encoding: str = "utf-8") -> bytes:
    """A string as DataContractSerializer writes it in binary XML: [MC-NBFX] section 2.2.3, text records."""
    raw = text.encode(encoding)
    return HEAD + bytes([record]) + len(raw).to_bytes(width, "little") + raw


@given(TEXTS.filter(lambda text: not text.startswith(("\ufeff", "@\x06string", "<"))))
@example("")
@example("\x00")
@example("é" * 128 * 1024)
def test_utf_8_is_text(text: str) -> None:
    assert body_text(text.encode()) == text


@given(TEXTS)
def test_a_byte_order_mark_is_taken_off(text: str) -> None:
    assert body_text(b"\xef\xbb\xbf" + text.encode()) in (text, text.removeprefix("\ufeff"))


def test_json_stays_as_it_was_written() -> None:
    body = b'{ "a": 1.0,\n "a": "\\u00e9" }'
    assert body_text(body) == body.decode()


@pytest.mark.parametrize(
    "body", [b"\xff\xfe", b"\x80", "é".encode("latin-1"), b"\xc3", b"PK\x03\x04\xf5\xff", b"\xed\xa0\x80"]
)
def test_a_binary_body_has_no_text(body: bytes) -> None:
    assert body_text(body) is None


# The odd records say that the element ends with the text.
@pytest.mark.parametrize(
    ("record", "width"), [(0x98, 1), (0x99, 1), (0x9A, 2), (0x9B, 2), (0x9C, 4), (0x9D, 4)], ids=hex
)
@pytest.mark.parametrize("end", [b"", b"\x01"], ids=["open", "ended"])
def test_the_binary_wrapper_of_older_net_clients_is_taken_off(record: int, width: int, end: bytes) -> None:
    for text in ("", "Grüße", '{"n": 1}', "x" * (200 if width == 1 else 60_000)):
        assert body_text(wrapped(text, record, width) + end) == text


@pytest.mark.parametrize(
    ("record", "width"), [(0xB6, 1), (0xB7, 1), (0xB8, 2), (0xB9, 2), (0xBA, 4), (0xBB, 4)], ids=hex
)
def test_the_binary_wrapper_may_hold_two_bytes_a_character(record: int, width: int) -> None:
    assert body_text(wrapped("配達 🚚", record, width, "utf-16-le")) == "配達 🚚"


@pytest.mark.parametrize(("record", "text"), [(0x80, "0"), (0x83, "1"), (0xA8, ""), (0xA9, "")])
def test_the_binary_wrapper_may_hold_a_constant(record: int, text: str) -> None:
    assert body_text(HEAD + bytes([record])) == text


@pytest.mark.parametrize(
    "body",
    [
        wrapped("a text", 0x99, 1)[:-1],
        wrapped("a text", 0x99, 1) + b"more",
        HEAD,
        HEAD + b"\x99",
        HEAD + b"\x9b\x05",
        HEAD + b"\x9d\xff\xff\xff\x7fa",
        HEAD + b"\x20abc",
        HEAD + b"\xa9more",
        wrapped("\xff", 0x99, 1, "latin-1"),
        HEAD + b"\xb7\x02\x00\xd8",
    ],
    ids=[
        "cut",
        "longer",
        "no record",
        "no length",
        "half a length",
        "huge length",
        "other record",
        "more",
        "not utf-8",
        "half a pair",
    ],
)
def test_a_damaged_wrapper_stays_as_it_is(body: bytes) -> None:
    try:
        expected = body.decode()
    except UnicodeDecodeError:
        expected = None
    assert body_text(body) == expected


@given(st.binary(max_size=12))
def test_anything_behind_the_wrappers_head_is_read_or_left(tail: bytes) -> None:
    text = body_text(HEAD + tail)
    assert text is None or isinstance(text, str)


def xml(content: str, head: str = "") -> bytes:
    return f'{head}<string xmlns="{NAMESPACE.decode()}">{content}</string>'.encode()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (xml("plain"), "plain"),
        (xml(""), ""),
        (xml("a &lt;b&gt; &amp;amp; &#233;"), "a <b> &amp; é"),
        (xml("two\nlines", '<?xml version="1.0" encoding="utf-8"?>\n'), "two\nlines"),
        (b"\xef\xbb\xbf" + xml("marked"), "marked"),
        (b"<string>other</string>", "<string>other</string>"),
        (xml("cut")[:-1], xml("cut")[:-1].decode()),
        (xml("more") + b"x", xml("more").decode() + "x"),
    ],
    ids=["plain", "empty", "entities", "declaration", "byte order mark", "other element", "cut", "longer"],
)
def test_the_xml_wrapper_of_older_net_clients_is_taken_off(body: bytes, text: str) -> None:
    assert body_text(body) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a text", "a text"),
        (Symbol("name"), "name"),
        (b'{"n": 1}', '{"n": 1}'),
        (b"\xff", None),
        (5, "5"),
        (True, "true"),
        (None, "null"),
        (1.5, "1.5"),
        (Timestamp(1000), '"1970-01-01T00:00:01.000+00:00"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        ({"ä": [1, b"\xff", b"b", None]}, '{"ä": [1, "ff", "b", null]}'),
        ({UInt(1): Described(ULong(7), "x")}, '{"1": "x"}'),
    ],
    ids=str,
)
def test_a_value_is_shown_as_text_or_json(value: AmqpValue, text: str | None) -> None:
    assert body_text(encode(value), Marks(BodyType.VALUE)) == text


def test_sequences_are_shown_as_json() -> None:
    assert body_text(encode([1, "a"]) + encode([]), Marks(BodyType.SEQUENCE)) == '[[1, "a"], []]'


@given(amqp_values())
def test_every_value_is_shown(value: AmqpValue) -> None:
    text = body_text(encode(value), Marks(BodyType.VALUE))
    if isinstance(value, (list, dict)):
        json.loads(text or "")
    else:
        assert text is not None or isinstance(value, bytes)


@given(amqp_values())
def test_a_value_is_given_back(value: AmqpValue) -> None:
    assert same_value(decode_body(encode(value), BodyType.VALUE), value)


@given(st.lists(st.lists(amqp_values(), max_size=3), max_size=3))
def test_sequences_are_given_back(sequences: list[Any]) -> None:
    assert same_value(decode_body(b"".join(map(encode, sequences)), BodyType.SEQUENCE), sequences)


@given(st.binary())
def test_data_is_the_bytes_themselves(body: bytes) -> None:
    assert decode_body(body, BodyType.DATA) is body


@pytest.mark.parametrize(
    ("body", "body_type"),
    [
        (b"", BodyType.VALUE),
        (encode(1) * 2, BodyType.VALUE),
        (encode("abc")[:-1], BodyType.VALUE),
        (b"\xff", BodyType.VALUE),
        (encode([1])[:-1], BodyType.SEQUENCE),
        (encode("no list"), BodyType.SEQUENCE),
    ],
    ids=["nothing", "two values", "cut", "no type", "cut sequence", "no sequence"],
)
def test_a_damaged_body_has_no_text_and_no_value(body: bytes, body_type: BodyType) -> None:
    assert body_text(body, Marks(body_type)) is None
    with pytest.raises(AmqpDecodeError):
        decode_body(body, body_type)


@given(st.binary(max_size=30), st.sampled_from([BodyType.VALUE, BodyType.SEQUENCE]))
def test_hostile_bytes_have_a_text_or_none(body: bytes, body_type: BodyType) -> None:
    text = body_text(body, Marks(body_type))
    assert text is None or isinstance(text, str)


@given(st.recursive(TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)))
@example({"Jos\u00e9": ["\u202e", '\\u0041"', "\U0001f600", "\x00"]})
def test_letters_replace_escapes_without_another_meaning(value: Any) -> None:
    assert json.loads(json_letters(json.dumps(value))) == value


def test_letters_stay_as_sent_in_what_is_not_json() -> None:
    assert json_letters(r"C:\users\u00e9") == r"C:\users\u00e9"
    assert json_letters(r' ["\u00e9", "\\u00e9"]') == r' ["é", "\\u00e9"]'


@pytest.mark.parametrize("escape", [r"\/", r"\n", r"\x", r"\uzzzz", r"\ud800"])
def test_other_escapes_stay_as_they_were_sent(escape: str) -> None:
    assert json_letters(rf'["{escape}", "\u00e9"]') == f'["{escape}", "é"]'
