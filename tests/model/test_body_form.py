"""Edited bodies in the form of the original: the layers that reading takes off are put on again."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.amqp import (
    Array,
    Described,
    Int,
    Long,
    Symbol,
    Timestamp,
    UByte,
    encode,
)
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import BodyType, Message
from sbnotebook.model.binary_xml import read_binary_xml
from sbnotebook.model.body import Marks, body_of_text, fault_of_bytes, read_form

NAMESPACE = b"http://schemas.microsoft.com/2003/10/Serialization/"


def net(name: bytes, record: int, content: bytes) -> bytes:
    """A wrapper of .NET: [MC-NBFX] section 2.2.3."""
    head = b"@" + bytes([len(name)]) + name + b"\x08" + bytes([len(NAMESPACE)]) + NAMESPACE
    return head + bytes([record]) + len(content).to_bytes(4, "little") + content


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, tuple[Callable[[bytes], bytes], dict[str, Any], Callable[[bytes], bytes]]] = {
    "plain": (lambda data: data, {}, lambda data: data),
    "gzip": (gzip.compress, {"content_encoding": "gzip"}, gzip.decompress),
    "gzip by property": (gzip.compress, {"application_properties": {"Content-Encoding": "gzip"}}, gzip.decompress),
    "gzip without a mark": (gzip.compress, {}, gzip.decompress),
    "deflate": (zlib.compress, {"content_encoding": "deflate"}, zlib.decompress),
    "raw deflate": (raw_deflate, {"content_encoding": "deflate"}, partial(zlib.decompress, wbits=-15)),
}
WRITERS: dict[str, tuple[Callable[[str], bytes], dict[str, Any]]] = {
    "utf-8": (lambda text: text.encode(), {}),
    "utf-8 with a mark": (lambda text: text.encode("utf-8-sig"), {}),
    "utf-16 with a mark": (lambda text: b"\xff\xfe" + text.encode("utf-16-le"), {}),
    "big utf-16 with a mark": (lambda text: b"\xfe\xff" + text.encode("utf-16-be"), {}),
    "utf-16le": (lambda text: text.encode("utf-16-le"), {"content_type": "text/plain; charset=utf-16le"}),
    "latin-1": (lambda text: text.encode("latin-1"), {"content_type": "text/plain; charset=ISO-8859-1"}),
    "a text of .NET": (lambda text: net(b"string", 0x9D, text.encode()), {}),
    "an open text of .NET": (lambda text: net(b"string", 0x9C, text.encode()) + b"\x01", {}),
    "utf-16 of .NET": (lambda text: net(b"string", 0xBB, text.encode("utf-16-le")), {}),
    "bytes of .NET": (lambda text: net(b"base64Binary", 0xA3, text.encode()), {}),
    "XML of .NET": (
        lambda text: b'<string xmlns="%b">%b</string>' % (NAMESPACE, text.replace("&", "&amp;").encode()),
        {},
    ),
}
TEXTS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="@<>x"), max_size=60)


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("writer", WRITERS)
@given(before=TEXTS, after=TEXTS)
def test_an_edited_text_has_the_layers_of_the_original(writer: str, packer: str, before: str, after: str) -> None:
    (write, said), (pack, marks, unpack) = WRITERS[writer], PACKERS[packer]
    before, after = f"a{before}a", f"a{after}a"
    message = Message(body=pack(write(before)), **said, **marks)
    assert message.body_text == before
    edited = message.with_changes(body=after)
    assert edited.body_text == after
    assert str(read_form(edited.body, edited.marks)[1]) == str(read_form(message.body, message.marks)[1])
    if ".NET" not in writer:
        assert unpack(edited.body) == write(after)
    value = Message(body=encode(message.body), body_type=BodyType.VALUE, **said, **marks)
    assert value.with_changes(body=after).body_value == edited.body


def test_gzip_within_a_wrapper_of_net_stays_there() -> None:
    message = Message(body=net(b"base64Binary", 0xA3, gzip.compress(b'{"carrier": "DHL"}')))
    edited = message.with_changes(json={"carrier": "UPS"})
    inner = read_binary_xml(edited.body)
    assert isinstance(inner, bytes)
    assert gzip.decompress(inner) == b'{"carrier": "UPS"}'


@pytest.mark.parametrize("kind", [str, Symbol], ids=["string", "symbol"])
def test_the_text_of_an_amqp_value_keeps_its_type(kind: type[str]) -> None:
    edited = Message.of_value(kind("DHL")).with_changes(body="UPS")
    assert edited.body == encode(kind("UPS"))


def test_values_of_an_amqp_map_keep_their_types() -> None:
    at = Described(Symbol("com.microsoft:datetime-offset"), Long(638_000_000_001_234_567))
    value: dict[Any, Any] = {
        "carrier": Symbol("DHL"), "count": UByte(3), "id": UUID(int=1), "sent": Timestamp(0), "at": at,
        "raw": b"\xff", "legs": Array([Int(1), Int(2)]), "empty": None,
    }  # fmt: skip
    message = Message.of_value(value)
    order = message.json
    assert order["at"] == "2022-09-28T22:13:20.1234567+00:00"
    order |= {"carrier": "UPS", "count": 4, "sent": "1970-01-01T00:00:01+00:00", "new": 1}
    order["legs"].append(7)
    edited: Any = message.with_changes(json=order).body_value
    assert edited == value | {
        "carrier": "UPS", "count": 4, "sent": Timestamp(1000), "legs": [1, 2, 7], "new": 1
    }  # fmt: skip
    assert [type(edited[name]) for name in ("carrier", "count", "sent", "at", "legs")] == [
        Symbol, UByte, Timestamp, Described, Array,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"), [({"count": 256}, "'256' is not a property value"), ({"legs": [1, "a"]}, "holds an array")]
)
def test_what_an_amqp_type_cannot_hold_is_refused(change: dict[str, Any], said: str) -> None:
    message = Message.of_value({"count": UByte(3), "legs": Array([Int(1), Int(2)])})
    with pytest.raises(DecisionError, match=said):
        message.with_changes(json=message.json | change)


def test_an_empty_array_takes_elements_of_its_type_only() -> None:
    message = Message.of_value({"fares": Array([], float), "places": Array([], Int)})
    edited: Any = message.with_changes(body='{"fares": [1.5, 2.25], "places": []}').body_value
    assert (edited["fares"], edited["fares"].element_type, edited["places"].element_type) == ([1.5, 2.25], float, Int)
    with pytest.raises(DecisionError, match="elements are of the type int"):
        message.with_changes(body='{"fares": [], "places": ["x"]}')
    new: Any = message.with_changes(body='{"new": [{"fare": 1.10}, 2], "more": 3.5}').body_value
    assert new == {"new": [{"fare": 1.1}, 2], "more": 3.5}


def test_sequences_stay_sequences() -> None:
    message = Message.of_sequence([Int(1), "a"], [Long(2)])
    assert message.with_changes(json=[[1, "b"], [3]]).body == encode([Int(1), "b"]) + encode([Long(3)])
    with pytest.raises(DecisionError, match="stays a list of lists"):
        message.with_changes(json={"a": 1})


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (Message(body=b"a", content_type="text/plain; charset=latin-1"), "has no '€'"),
        (Message(body=b"a", content_type="text/plain; charset=nosuch"), "does not know the charset 'nosuch'"),
        (Message(body=b"a", content_encoding="br"), "encoding 'br', which sbnotebook cannot write"),
        (Message(body=b"a", application_properties={"compression-method": "Brotli"}), "encoding 'brotli'"),
        (Message(body=b"a", content_encoding="gzip"), "says that its body is gzip, and the body is not"),
        (Message(body=gzip.compress(b"a" * 999)[:-3]), "The body is gzip, and damaged"),
        (Message(body=gzip.compress(b"a") + b"more"), "The body is gzip, and damaged"),
        (Message(body=b"\xff\xfe\xfd"), "The body is not text"),
        (
            Message(body=gzip.compress(zlib.compress(b"a")), content_encoding="deflate, gzip"),
            "packed more than once",
        ),
        (Message(body=b"\x80", content_type="text/plain; charset=ascii"), "not in the charset 'ascii'"),
        (Message(body=b"\xff", body_type=BodyType.VALUE), "The AMQP body is damaged"),
        (Message(body=b'<string xmlns="%b">a<b/></string>' % NAMESPACE), "holds more than a text"),
        (Message(body=net(b"string", 0x9D, b"a")[:-1] + b"\xff"), "not text"),
    ],
    ids=range(13),
)
def test_what_cannot_be_packed_again_is_refused(message: Message, said: str) -> None:
    with pytest.raises(DecisionError, match=said):
        message.with_changes(body="5 €")


def test_a_text_that_would_be_read_as_another_one_is_refused() -> None:
    with pytest.raises(DecisionError, match="it would be read as another one"):
        Message(body=b"a").with_changes(body="\ufeffa")


def test_the_compression_and_charset_that_an_edit_names_are_used() -> None:
    packed = Message(body=gzip.compress("Größe".encode()), content_encoding="gzip")
    assert packed.with_changes(body="Maß", content_encoding=None).body == "Maß".encode()
    latin = packed.with_changes(body="Maß", content_type="text/plain; charset=latin-1")
    assert gzip.decompress(latin.body) == "Maß".encode("latin-1")
    plain = Message(body=b"a").with_changes(body="b", content_encoding="gzip")
    assert gzip.decompress(plain.body) == b"b"


@pytest.mark.parametrize("charset", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("packer", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
def test_another_compression_leaves_the_byte_order_mark(charset: str, packer: Any) -> None:
    old, new = '{"to": "Köln"}'.encode(charset), '{"to": "Rom"}'.encode(charset)
    packed = Message(body=old).with_changes(body='{"to": "Rom"}', content_encoding="gzip")
    assert gzip.decompress(packed.body) == new
    plain = Message(body=packer(old), content_encoding="gzip" if packer is gzip.compress else "deflate")
    assert plain.with_changes(json={"to": "Rom"}, content_encoding=None).body == new
    assert zlib.decompress(plain.with_changes(json={"to": "Rom"}, content_encoding="zlib").body) == new
    named = plain.with_changes(body="Rom", content_encoding=None, content_type="text/plain; charset=utf-8")
    assert named.body == b"Rom"


@pytest.mark.parametrize("charset", ["utf-16", "utf-32"])
def test_a_charset_of_two_orders_is_written_with_its_mark(charset: str) -> None:
    kind = f"text/plain; charset={charset}"
    whole = body_of_text("Köln", Marks(content_type=kind))
    assert whole in (("\ufeffKöln").encode(f"{charset}-le"), ("\ufeffKöln").encode(f"{charset}-be"))
    assert Message(body=b"a").with_changes(body="Köln", content_type=kind).body == whole
    packed = Message(body=b"a").with_changes(body="Köln", content_type=kind, content_encoding="gzip")
    assert gzip.decompress(packed.body) == whole


def test_a_compression_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(DecisionError, match="cannot write a body in the encoding 'br': give its bytes"):
        Message(body=b"a").with_changes(body="b", content_encoding="br")


def test_another_charset_leaves_the_compression() -> None:
    latin = "text/plain; charset=latin-1"
    for packer, encoding, unpack in (
        (gzip.compress, None, gzip.decompress),
        (zlib.compress, None, zlib.decompress),
        (raw_deflate, "deflate", partial(zlib.decompress, wbits=-15)),
    ):
        before = Message(body=packer("Größe".encode()), content_type="text/plain", content_encoding=encoding)
        assert unpack(before.with_changes(body="Maß", content_type=latin).body) == "Maß".encode("latin-1")
    plain = Message(body=b"a", content_encoding="gzip")
    with pytest.raises(DecisionError, match="says that its body is gzip, and the body is not"):
        plain.with_changes(body="b", content_type=latin)


OBJECT = (
    b"@\x05Order\x08\x10http://acme.test"
    b"@\x07Carrier\x99\x03DHL"  # Chars8TextWithEndElement
    b"@\x05Count\x8d\x03\x00\x00\x00"  # Int32TextWithEndElement
    b"@\x04Sent\x97\x00\x00\x00\x00\x00\x00\x00\x00"  # DateTimeTextWithEndElement
    b"\x01"
)


def test_texts_in_an_object_of_net_are_edited_and_its_records_stay() -> None:
    message = Message(body=OBJECT)
    text = message.body_text or ""
    assert "<Carrier>DHL</Carrier><Count>3</Count>" in text
    edited = message.with_changes(body=text.replace("DHL", "A &amp; B"))
    assert edited.body == OBJECT.replace(b"\x03DHL", b"\x05A & B")
    assert "<Count>4</Count>" in str(message.with_changes(body=text.replace(">3<", ">4<")).body_text)
    for other in (text.replace("Carrier", "Shipper"), text.replace(">3<", ">many<"), text.replace("0001", "0002")):
        with pytest.raises(DecisionError):
            message.with_changes(body=other)


@pytest.mark.parametrize(
    ("message", "new", "said"),
    [
        (Message(body=gzip.compress(b"{}"), content_encoding="gzip"), b"{}", "The body was gzip"),
        (Message(body=gzip.compress(b"{}")), b"{}", "The body was gzip"),
        (Message(body=net(b"string", 0x9D, b"DHL")), net(b"string", 0x9D, b"DHL").replace(b"DHL", b"HERMES"), "was"),
        (Message(body=net(b"string", 0x9D, b"DHL")), b"HERMES", "The body was text in a wrapper of .NET"),
        (Message(body="{}".encode("utf-16-le"), content_type="a/b; charset=utf-16le"), b'{"a":12}', "are UTF-8"),
        (Message(body="ß".encode("latin-1"), content_type="a/b; charset=latin-1"), "ß".encode(), "are UTF-8"),
        (Message.of_value("DHL"), b"HERMES", "The body was AMQP value"),
        (Message(body=b"{}", content_type="a/b; charset=utf-8"), b"\xff\xff", "not text"),
    ],
    ids=range(8),
)
def test_bytes_that_damage_the_form_are_recognised(message: Message, new: bytes, said: str) -> None:
    edited = message.with_changes(body=new)
    assert said in str(fault_of_bytes(message.body, message.marks, edited.body, edited.marks))


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (Message(body=b"{}"), {"body": b"[]"}),
        (Message(body=b"{}"), {"body": b"\xff\xff"}),
        (Message(body=gzip.compress(b"{}"), content_encoding="gzip"), {"body": b"{}", "content_encoding": None}),
        (Message(body=b"{}", content_encoding="gzip"), {"body": b"[]"}),
        (Message(body=b"\xff"), {"body": b"\xfe"}),
        (Message.of_value("a"), {"body": b"a", "body_type": BodyType.DATA}),
        (Message(body="ß".encode("latin-1"), content_type="a/b; charset=latin-1"), {"body": b"\xdf\xdf"}),
        (Message(body=gzip.compress(b"{}")), {"subject": "new"}),
    ],
    ids=range(8),
)
def test_other_bytes_are_the_users_own(message: Message, changes: dict[str, Any]) -> None:
    edited = message.with_changes(**changes)
    assert fault_of_bytes(message.body, message.marks, edited.body, edited.marks) is None


@given(
    st.binary(max_size=80),
    st.sampled_from(BodyType),
    st.sampled_from([None, "gzip", "deflate", "br", "utf-8"]),
    st.sampled_from([None, "text/plain; charset=utf-16", "application/gzip", "a/b; charset=big5"]),
    st.text(max_size=10),
)
def test_any_body_takes_a_text_or_refuses_it(
    body: bytes, body_type: BodyType, encoding: str | None, content_type: str | None, text: str
) -> None:
    message = Message(body=body, body_type=body_type, content_encoding=encoding, content_type=content_type)
    try:
        edited = message.with_changes(body=text)
    except DecisionError:
        pass
    else:
        assert edited.body_text == text or body_type is not BodyType.DATA
        assert read_form(edited.body, edited.marks)[0] == text


def test_a_bomb_is_not_unpacked_for_an_edit() -> None:
    bomb = gzip.compress(b"x" * 80_000_000)
    with pytest.raises(DecisionError, match="damaged or too large"):
        Message(body=bomb).with_changes(body="x")


def test_a_cut_text_is_not_written() -> None:
    message = Message(body=gzip.compress(b"x" * 2_000_000))
    text = message.body_text or ""
    assert text.endswith("bytes)")
    with pytest.raises(DecisionError, match="is cut"):
        message.with_changes(body=text.replace("xx", "y", 1))
    assert Marks() == Message().marks._replace(properties=None)


@given(
    st.sampled_from(["{}", '{"a": 1}', "text", "ß"]),
    st.sampled_from([None, "gzip", "br", "utf-8", "deflate"]),
    st.sampled_from([None, "a/b; charset=latin-1", "a/b; charset=", "application/gzip"]),
    st.dictionaries(st.sampled_from(["Content-Encoding", "other"]), st.sampled_from(["gzip", "zstd", "x"])),
)
def test_a_new_message_of_a_text_reads_as_that_text(
    text: str, encoding: str | None, content_type: str | None, properties: dict[str, Any]
) -> None:
    fields: dict[str, Any] = {"content_encoding": encoding, "content_type": content_type}
    try:
        message = Message(body=text, application_properties=properties, **fields)  # pyright: ignore[reportArgumentType]
    except ConfigurationError:
        assert "br" in (encoding, properties.get("Content-Encoding")) or "zstd" in properties.values()
    else:
        assert message.body_text == text
