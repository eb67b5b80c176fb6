from __future__ import annotations

from uuid import UUID

import pytest
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.amqp import AmqpValue, Array, Described, Long, Symbol, UInt, ULong, encode, sections
from sbnotebook.amqp.sections import elements, section_value, split
from sbnotebook.errors import AmqpDecodeError

_VALUES: dict[int, AmqpValue] = {
    sections.HEADER: [True, None, UInt(5000)],
    sections.DELIVERY_ANNOTATIONS: {Symbol("x-opt-lock-token"): "t"},
    sections.MESSAGE_ANNOTATIONS: {Symbol("x-opt-sequence-number"): Long(7)},
    sections.PROPERTIES: ["id", None, None, "subject"],
    sections.APPLICATION_PROPERTIES: {"a": 1},
    sections.DATA: b"\x00\x53\x75" * 200,
    sections.SEQUENCE: [1, [2, 3]],
    sections.VALUE: {"key": [None]},
    sections.FOOTER: {Symbol("crc"): 1},
}


def _section(code: int) -> bytes:
    return encode(Described(ULong(code), _VALUES[code]))


@given(st.sets(st.sampled_from(sorted(_VALUES))))
def test_every_section_is_found(codes: set[int]) -> None:
    parts = [(code, _section(code)) for code in sorted(codes)]
    payload = b"".join(part for _, part in parts)
    found = split(payload)
    assert [(section.code, payload[section.start : section.end]) for section in found] == parts
    assert [section_value(payload, section) for section in found] == [_VALUES[code] for code, _ in parts]


def test_the_codes_are_those_of_the_standard() -> None:
    assert [*_VALUES] == [0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78]


def test_data_may_stand_several_times() -> None:
    payload = b"".join(encode(Described(ULong(sections.DATA), body)) for body in (b"a", b"", b"c" * 300))
    assert [section_value(payload, section) for section in split(payload)] == [b"a", b"", b"c" * 300]


@pytest.mark.parametrize("code", [sections.HEADER, sections.VALUE, sections.FOOTER])
def test_a_descriptor_may_be_written_in_eight_bytes(code: int) -> None:
    payload = b"\x00\x80" + code.to_bytes(8, "big") + b"\x41"
    (section,) = split(payload)
    assert section == (code, 0, 10, 11)
    assert section_value(payload, section) is True


def test_an_empty_payload_has_no_sections() -> None:
    assert split(b"") == []


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (_section(sections.DATA) + _section(sections.HEADER), "out of order"),
        (_section(sections.PROPERTIES) * 2, "out of order"),
        (_section(sections.FOOTER) + _section(sections.DATA), "out of order"),
        (_section(sections.VALUE)[:-1], "cut short"),
        (b"\x00\x53\x79\x40", "No message section"),
        (b"\x00\x53", "byte"),
        (b"\x00", "byte"),
        (b"\x40", "No message section"),
        (b"\x00\xa3\x01a\x40", "No message section"),
        (b"garbage", "No message section"),
    ],
)
def test_bytes_that_are_no_message_are_refused(payload: bytes, why: str) -> None:
    with pytest.raises(AmqpDecodeError, match=why):
        split(payload)


def test_a_section_with_damage_inside_is_refused_when_it_is_read() -> None:
    payload = bytes.fromhex("005370c00401545401")
    (section,) = split(payload)
    with pytest.raises(AmqpDecodeError):
        section_value(payload, section)


_CODES = [code for code in sorted(_VALUES) if code not in (sections.SEQUENCE, sections.VALUE)]
_MESSAGE_OF_DATA = b"".join(map(_section, _CODES))
_MESSAGE = b"".join(map(_section, sorted(_VALUES)))


@given(st.lists(st.tuples(st.integers(0, len(_MESSAGE) - 1), st.integers(0, 255)), min_size=1, max_size=5))
def test_a_mutated_message_is_split_or_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(_MESSAGE)
    for at, byte in changes:
        data[at] = byte
    payload = bytes(data)
    try:
        found = split(payload)
    except AmqpDecodeError:
        return
    # Whole: no gap, no overlap, nothing beyond the end.
    assert [section.start for section in found] + [len(payload)] == [0] + [section.end for section in found]
    for section in found:
        try:
            section_value(payload, section)
        except AmqpDecodeError:
            continue


def test_delivery_annotations_may_stand_last() -> None:
    message = AmqpAnnotatedMessage(data_body=b"x", delivery_annotations={"a": 1}, header={"priority": 1})
    payload = bytes(encode_payload(bytearray(), PyamqpTransport.to_outgoing_amqp_message(message)))
    assert [section.code for section in sections.split(payload)] == [
        sections.HEADER,
        sections.DATA,
        sections.DELIVERY_ANNOTATIONS,
    ]


def test_delivery_annotations_may_stand_first() -> None:
    payload = _section(sections.DELIVERY_ANNOTATIONS) + _section(sections.HEADER)
    assert [section.code for section in split(payload)] == [sections.DELIVERY_ANNOTATIONS, sections.HEADER]
    assert sections.section_values(payload)[0].keys() == {sections.DELIVERY_ANNOTATIONS, sections.HEADER}


def test_sections_in_any_order_are_found_if_asked_for() -> None:
    codes = [sections.PROPERTIES, sections.HEADER, sections.FOOTER, sections.DATA, sections.DATA]
    assert [section.code for section in split(b"".join(map(_section, codes)), in_order=False)] == codes
    for code in (sections.HEADER, sections.PROPERTIES, sections.FOOTER, sections.DELIVERY_ANNOTATIONS):
        with pytest.raises(AmqpDecodeError, match=f"0x{code:02x} at byte .* comes twice"):
            split(b"".join(map(_section, [*codes, code, code])), in_order=False)


def test_sections_are_found_up_to_one_or_a_later_one() -> None:
    assert [section.code for section in split(_MESSAGE, up_to=sections.PROPERTIES)][-1] == sections.PROPERTIES
    later = _section(sections.HEADER) + _section(sections.DATA) * 2
    assert [section.code for section in split(later, up_to=sections.PROPERTIES)] == [sections.HEADER, sections.DATA]


def test_section_values_are_decoded_in_one_pass() -> None:
    values, bodies = sections.section_values(_MESSAGE_OF_DATA)
    assert values == {code: _VALUES[code] for code in _CODES if code != sections.DATA}
    assert [(body.code, section_value(_MESSAGE_OF_DATA, body)) for body in bodies] == [
        (sections.DATA, _VALUES[sections.DATA])
    ]
    wanted, _ = sections.section_values(_MESSAGE_OF_DATA, wanted={sections.PROPERTIES})
    assert wanted == {sections.PROPERTIES: _VALUES[sections.PROPERTIES]}


def test_section_values_may_begin_behind_the_annotations() -> None:
    start = next(each.end for each in split(_MESSAGE_OF_DATA) if each.code == sections.MESSAGE_ANNOTATIONS)
    values, _ = sections.section_values(_MESSAGE_OF_DATA, start)
    assert values.keys() == {sections.PROPERTIES, sections.APPLICATION_PROPERTIES, sections.FOOTER}
    with pytest.raises(AmqpDecodeError, match=f"0x70 at byte {len(_section(sections.FOOTER))} is out of order"):
        sections.section_values(_section(sections.FOOTER) + _section(sections.HEADER))
    with pytest.raises(AmqpDecodeError, match="0x72 at byte 31 is out of order"):
        sections.section_values(_section(sections.MESSAGE_ANNOTATIONS) * 2, len(_section(sections.MESSAGE_ANNOTATIONS)))


def test_section_values_read_long_descriptors_and_many_bodies() -> None:
    payload = b"\x00\x80" + (0x70).to_bytes(8, "big") + b"\x45" + _section(sections.DATA) * 2
    payload += _section(sections.DELIVERY_ANNOTATIONS)
    values, bodies = sections.section_values(payload)
    assert values == {sections.HEADER: [], sections.DELIVERY_ANNOTATIONS: _VALUES[sections.DELIVERY_ANNOTATIONS]}
    assert [body.code for body in bodies] == [sections.DATA] * 2
    with pytest.raises(AmqpDecodeError):
        sections.section_values(_section(sections.PROPERTIES)[:-1])


def test_readable_sections_end_where_nothing_can_be_skipped() -> None:
    whole = _section(sections.PROPERTIES)
    out_of_order = whole + _section(sections.HEADER)
    assert [each.code for each in sections.readable_start(out_of_order)] == [sections.PROPERTIES, sections.HEADER]
    assert [*sections.readable_start(whole + b"\x00\x53")] == split(whole)
    assert not [*sections.readable_start(b"garbage")]


def test_readable_items_leave_out_what_cannot_be_decoded() -> None:
    good, bad, number = encode("a") + encode(1), encode("b") + b"\xa1\x01\xff", encode(5) + encode(6)
    for content, found in ((good + bad + number, {"a": 1}), (bad + good, {"a": 1}), (good + b"\xa1\x09", {"a": 1})):
        for head in (bytes((0xC1, len(content) + 1, 6)), b"\xd1" + (len(content) + 4).to_bytes(4) + (6).to_bytes(4)):
            payload = sections.section_head(sections.APPLICATION_PROPERTIES) + head + content
            section = sections.Section(sections.APPLICATION_PROPERTIES, 0, 3, len(payload))
            assert sections.map_start(payload, section) == 3 + len(head)
            assert sections.readable_items(payload, section) == found


def test_readable_items_are_texts_with_simple_values() -> None:
    simple: dict[AmqpValue, AmqpValue] = {
        "null": None, Symbol("zero"): ULong(0), "k" * 256: "v" * 256, Symbol("s" * 256): b"b", "id": UUID(int=1)
    }  # fmt: skip
    other: dict[AmqpValue, AmqpValue] = {
        b"b": 1, b"b" * 256: 1, "empty": [], "list": [1], "map": {}, "array": Array([1]), "tag": Described(ULong(1), 1)
    }  # fmt: skip
    payload = sections.encode_section(sections.APPLICATION_PROPERTIES, {**other, **simple})
    (section,) = split(payload)
    assert sections.readable_items(payload, section) == simple


def test_readable_items_end_with_their_section() -> None:
    content = encode("a") + b"\xa1\x02"  # a text of two bytes, which are those of the next section
    head = sections.section_head(sections.APPLICATION_PROPERTIES) + bytes((0xC1, len(content) + 1, 2))
    payload = head + content + b"xy" + encode("b") + encode(1)
    section = sections.Section(sections.APPLICATION_PROPERTIES, 0, 3, len(head + content))
    assert sections.readable_items(payload, section) == {"a": "xy"}


def test_a_section_that_is_no_map_has_no_items() -> None:
    payload = sections.encode_section(sections.HEADER, [True])
    assert payload == _section(sections.HEADER)[:3] + encode([True])
    (section,) = split(payload)
    assert sections.map_start(payload, section) == section.end
    assert sections.readable_items(payload, section) == {}


def test_an_error_names_the_byte_of_its_section() -> None:
    first = _section(sections.PROPERTIES)
    for tail in (b"\x40", b"\x00\x53\x6f\x40", b"\x00\x53\x79\x40"):
        with pytest.raises(AmqpDecodeError, match=f"No message section starts at byte {len(first)}"):
            split(first + tail)
    damaged = first + bytes.fromhex("005374c1020040")
    with pytest.raises(AmqpDecodeError):
        section_value(damaged, split(damaged)[1])


@pytest.mark.parametrize("count", [0, 1, 40, 300])
def test_a_map_is_cut_into_its_items(count: int) -> None:
    value: AmqpValue = {f"key {number}": number for number in range(count)}
    encoded = b"\x40" + encode(value)
    assert elements(encoded, 1, sections.MAPS) == [
        part for number in range(count) for part in (encode(f"key {number}"), encode(number))
    ]


@pytest.mark.parametrize(
    "encoded_map",
    ["c1020040", "c103014040", "c104034040", "d10000000500000001a1", "c0030240", "45", "c1040240a101", "c103044040"],
)
def test_a_damaged_map_is_refused(encoded_map: str) -> None:
    with pytest.raises(AmqpDecodeError):
        elements(bytes.fromhex(encoded_map), 0, sections.MAPS)


def test_a_map_whose_last_item_ends_behind_it_is_refused() -> None:
    with pytest.raises(AmqpDecodeError, match="A map of the message does not have the size that it claims"):
        elements(bytes.fromhex("c1030240a10568656c6c6f"), 0, sections.MAPS)
