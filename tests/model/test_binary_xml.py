from __future__ import annotations

from datetime import UTC, datetime, timedelta
from struct import pack
from uuid import UUID
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.model.binary_xml import DATA_CONTRACT, read_binary_xml
from sbnotebook.model.body import body_text
from tests.costs import steps

END = b"\x01"
TICKS = (datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC) - datetime(1, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 10


def string(text: str) -> bytes:
    raw, size = text.encode(), b""
    left = len(raw)
    while left > 0x7F:
        size += bytes((left & 0x7F | 0x80,))
        left >>= 7
    return size + bytes((left,)) + raw


def element(name: str, *content: bytes, namespace: str | None = None) -> bytes:
    head = b"@" + string(name) + (b"\x08" + string(namespace) if namespace is not None else b"")
    return head + b"".join(content) + END


def chars(text: str) -> bytes:
    return b"\x98" + bytes((len(text.encode()),)) + text.encode()


def root(*content: bytes) -> bytes:
    return element("Order", *content, namespace="http://acme.example/orders")


def test_an_object_becomes_xml() -> None:
    # As DataContractSerializer writes it: elements by name, i: for the schema instance's nil.
    body = b"@" + string("Order") + b"\x08" + string("http://acme.example/orders")
    body += b"\x09" + string("i") + string("http://www.w3.org/2001/XMLSchema-instance")
    body += element("Carrier", chars("Müller & Söhne <UA>"))
    body += element("Lines", element("Line", b"\x8a" + pack("<h", 300)), element("Line", b"\x82"))
    body += b"@" + string("Note") + b"\x2e" + string("nil") + b"\x86" + END + END
    text = read_binary_xml(body)
    assert isinstance(text, str)
    tree = ET.fromstring(text)  # noqa: S314 (the test's own)
    space = "{http://acme.example/orders}"
    assert tree.tag == f"{space}Order"
    assert tree.findtext(f"{space}Carrier") == "Müller & Söhne <UA>"
    assert [line.text for line in tree.iter(f"{space}Line")] == ["300", "1"]
    note = tree.find(f"{space}Note")
    assert note is not None
    assert note.get("{http://www.w3.org/2001/XMLSchema-instance}nil") == "true"
    assert body_text(body) == text


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (b"\x84", "false"),
        (b"\x88\xff", "-1"),
        (b"\x8c" + pack("<i", -70_000), "-70000"),
        (b"\x8e" + pack("<q", 2**40), str(2**40)),
        (b"\x90" + pack("<f", 0.5), "0.5"),
        (b"\x92" + pack("<d", 1e300), "1e+300"),
        (b"\x94" + pack("<HBBIQ", 0, 2, 0x80, 0, 12_345), "-123.45"),
        (
            b"\x96" + pack("<Q", TICKS | 1 << 62),  # of UTC
            "2024-01-02T03:04:05",
        ),
        (b"\x9e\x02\x00\xff", "AP8="),
        (b"\xac" + UUID(int=5).bytes_le, f"urn:uuid:{UUID(int=5)}"),
        (b"\xae" + pack("<q", 600_000_000), "0:01:00"),
        (b"\xb0" + UUID(int=5).bytes_le, str(UUID(int=5))),
        (b"\xb2" + pack("<Q", 2**64 - 1), str(2**64 - 1)),
        (b"\xb4\x01", "true"),
        (b"\x02" + string("a comment") + b"\xa8", ""),
        (chars("\"quoted\" & 'single'"), "\"quoted\" &amp; 'single'"),
        (b"\x80", "0"),
        (b"\x82", "1"),
        (b"\x86", "true"),
        (b"\x88\x7f", "127"),
        (b"\x8a" + pack("<h", -2), "-2"),
        (b"\x94" + pack("<HBBIQ", 0, 0, 0, 1, 5), str(2**64 + 5)),
        (b"\x96" + pack("<Q", TICKS + 19), "2024-01-02T03:04:05.000001"),
        (b"\x9a\x02\x00hi", "hi"),
        (b"\x9c\x02\x00\x00\x00hi", "hi"),
        (b"\xa0\x01\x00\xff", "/w=="),
        (b"\xa2\x01\x00\x00\x00\xff", "/w=="),
        (b"\xae" + pack("<q", 19), "0:00:00.000001"),
        (b"\xb4\x00", "false"),
        (b"\xb6\x02h\x00", "h"),
        (b"\xb8\x02\x00h\x00", "h"),
        (b"\xba\x02\x00\x00\x00h\x00", "h"),
    ],
    ids=lambda value: value.hex()[:2] if isinstance(value, bytes) else value,
)
def test_values_are_written_as_people_write_them(record: bytes, text: str) -> None:
    assert read_binary_xml(root(record)) == f'<Order xmlns="http://acme.example/orders">{text}</Order>'
    assert str(read_binary_xml(root(record, b"\x82"))).endswith(f">{text}1</Order>")
    # The odd record ends the element.
    if record[0] != 0x02:
        ended = root()[:-1] + bytes((record[0] | 1,)) + record[1:]
        assert read_binary_xml(ended) == read_binary_xml(root(record))


def test_the_code_of_a_value_may_end_its_element() -> None:
    body = root(b"@" + string("Carrier") + b"\x99" + chars("UA")[1:], element("Flight", chars("77")))
    assert "<Carrier>UA</Carrier><Flight>77</Flight>" in str(read_binary_xml(body))


def test_the_wrapper_of_bytes_gives_them() -> None:
    raw = b"\x00\xff" * 300
    body = element("base64Binary", b"\xa0" + len(raw).to_bytes(2, "little") + raw, namespace=DATA_CONTRACT)
    assert read_binary_xml(body) == raw
    assert body_text(body) is None
    in_parts = element("base64Binary", b"\x9e\x02{}", b"\x9e\x01 ", namespace=DATA_CONTRACT)
    assert body_text(in_parts) == "{} "


def test_prefixes_are_kept() -> None:
    body = b"@" + string("a") + b"\x08" + string("n") + b"\x5e" + string("b") + chars("x") + END
    body += b"\x41" + string("p") + string("c") + b"\x04" + string("k") + chars('"')
    body += b"\x05" + string("q") + string("l") + b"\x82" + END + END
    assert read_binary_xml(body) == '<a xmlns="n"><a:b>x</a:b><p:c k="&quot;" q:l="1"></p:c></a>'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"@",
        b"@alice, have a look at this: \xe2\x80\xa6",
        element("a", chars("no namespace")),
        root(chars("text"))[:-3],
        root(chars("text")) + b"more",
        root(b"\x44\x02"),
        root(b"\xaa\x02"),
        root(b"\x03@\x01a\x01\x8b\x01\x00"),
        root(b"\x98\x02\xff\xff"),
        root(b"\x96" + b"\xff" * 8),
        root(b"@\x00"),
        b"@\xff\xff\xff\xff\xff\xff",
        root(b"@\x01a" * 200),
        root(b"@\x00", END),
        root(b"@\x01a\x00"),
        root(b"\x00\x01a", END),
        root(b"\x0a\x01a", END, END),
        b"\x5e" + root()[1:],
        b"\x41\x01p" + root()[1:],
    ],
    ids=range(20),
)
def test_bytes_that_are_no_binary_xml_are_left_alone(body: bytes) -> None:
    assert read_binary_xml(body) is None


@given(st.binary(max_size=60), st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), max_size=4))
def test_hostile_bytes_are_read_or_left(tail: bytes, changes: list[tuple[int, int]]) -> None:
    body = bytearray(root(element("Line", chars("a"), b"\x8c\x00\x00\x00\x00"), tail))
    for at, byte in changes:
        body[at % len(body)] = byte
    text = read_binary_xml(bytes(body))
    assert text is None or isinstance(text, (str, bytes))


def test_time_and_size_grow_with_the_body_only() -> None:
    short, long = (root(element("a", b"\xa8") * count) for count in (2_000, 20_000))
    text = read_binary_xml(long)
    assert text is not None
    assert len(text) < 4 * len(long)
    assert steps(lambda: read_binary_xml(long)) < 11 * steps(lambda: read_binary_xml(short))


@pytest.mark.parametrize(("code", "letter"), [(0x5E, "a"), (0x5F, "b"), (0x77, "z")])
def test_a_prefix_of_one_letter_is_in_the_record(code: int, letter: str) -> None:
    attribute = bytes((code - 0x5E + 0x26,)) + string("k") + b"\x82"
    body = root(bytes((code,)) + string("b") + attribute + END)
    assert f'<{letter}:b {letter}:k="1"></{letter}:b>' in str(read_binary_xml(body))


@pytest.mark.parametrize("code", [0x5D, 0x78, 0x79, 0x7A, 0x7F])
def test_a_record_beside_the_prefixes_is_no_element(code: int) -> None:
    assert read_binary_xml(root(bytes((code,)) + string("b") + END)) is None


def test_elements_are_nested_up_to_100_deep() -> None:
    assert read_binary_xml(root(b"@\x01a" * 99, END * 99)) is not None
    assert read_binary_xml(root(b"@\x01a" * 100, END * 100)) is None


def test_a_name_may_have_a_size_of_several_bytes() -> None:
    for size in (127, 128, 20_000):
        name = "n" * size
        assert f"<{name}>" in str(read_binary_xml(root(element(name))))
    padded = b"@\xff\x80\x80\x80\x00" + b"n" * 127
    assert f"<{'n' * 127}>" in str(read_binary_xml(root(padded, END)))
    assert read_binary_xml(root(b"@\xff\x80\x80\x80\x80\x00" + b"n" * 127, END)) is None


def test_only_the_wrapper_of_one_value_is_taken_off() -> None:
    two = element("string", chars("a"), element("b"), namespace=DATA_CONTRACT)
    assert read_binary_xml(two) == f'<string xmlns="{DATA_CONTRACT}">a<b></b></string>'
    other = element("string", chars("a"), namespace="other")
    assert read_binary_xml(other) == '<string xmlns="other">a</string>'
    before = element("string", chars("a"), namespace="a")
    assert read_binary_xml(before) == '<string xmlns="a">a</string>'
    mixed = element("base64Binary", b"\x9e\x01a", chars("b"), namespace=DATA_CONTRACT)
    assert read_binary_xml(mixed) == f'<base64Binary xmlns="{DATA_CONTRACT}">YQ==b</base64Binary>'
    inner = element("a", b"@\x06string\x08" + string(DATA_CONTRACT) + chars("b") + END, namespace="outer")
    assert read_binary_xml(inner) == f'<a xmlns="outer"><string xmlns="{DATA_CONTRACT}">b</string></a>'
    prefixed = element("string", b"\x09\x01i" + string("http://acme.example/i"), chars("a"), namespace=DATA_CONTRACT)
    assert read_binary_xml(prefixed) == "a"


@pytest.mark.parametrize("name", ["anyType", "guid", "unsignedInt"])
def test_the_wrapper_of_another_type_is_shown_as_xml(name: str) -> None:
    body = element(name, b"\x9e\x01a", namespace=DATA_CONTRACT)
    assert read_binary_xml(body) == f'<{name} xmlns="{DATA_CONTRACT}">YQ==</{name}>'
