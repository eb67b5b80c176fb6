from __future__ import annotations

import pytest
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.errors import AmqpDecodeError
from sbnotebook.model import sections
from sbnotebook.model.amqp import AmqpValue, Described, Long, Symbol, UInt, ULong, encode
from sbnotebook.model.sections import section_value, split

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


def test_data_may_stand_several_times() -> None:
    payload = b"".join(encode(Described(ULong(sections.DATA), body)) for body in (b"a", b"", b"c" * 300))
    assert [section_value(payload, section) for section in split(payload)] == [b"a", b"", b"c" * 300]


def test_a_descriptor_may_be_written_in_eight_bytes() -> None:
    payload = b"\x00\x80" + (0x77).to_bytes(8, "big") + b"\x41"
    (section,) = split(payload)
    assert section == (sections.VALUE, 0, 10, 11)
    assert section_value(payload, section) is True


def test_an_empty_payload_has_no_sections() -> None:
    assert split(b"") == []


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (_section(sections.DATA) + _section(sections.HEADER), "out of order"),
        (_section(sections.PROPERTIES) * 2, "out of order"),
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
