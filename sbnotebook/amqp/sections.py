"""The sections of an encoded AMQP message, found by skipping and not by decoding.

A broker stores a message as the bytes that it got and replaces only the header and the annotations; a client reads only
some sections. Both need the place of each section, which takes a few byte look-ups for a body of any size.

Source: AMQP 1.0 part 3, messaging, section 3.2.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple, cast

from sbnotebook.amqp import AmqpValue, ULong, decode, encode, list_of_encoded, skip
from sbnotebook.amqp.decoding import ITEMS
from sbnotebook.errors import AmqpDecodeError

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

SECTIONS: Final = frozenset(range(HEADER, FOOTER + 1))


def section_head(code: int) -> bytes:
    return bytes((0x00, 0x53, code))


def encode_section(code: int, value: AmqpValue) -> bytes:
    return section_head(code) + encode(value)


_TEXT_HEADS: Final = {0xA1: 2, 0xA3: 2, 0xB1: 5, 0xB3: 5}  # Bytes before those of a text: its constructor and size
# Constructors of values that hold no other values (section 1.2)
_SIMPLE: Final = frozenset({*range(0x40, 0xC0)} - {0x45})
LISTS: Final = {0x45: 1, 0xC0: 3, 0xD0: 9}
"""Bytes before the first element of a list, by its constructor: that, its size and count (section 1.6.22)."""
MAPS: Final = {0xC1: 3, 0xD1: 9}
"""The same of a map (section 1.6.23)."""
_BINARY_HEADS: Final = {0xA0: 2, 0xB0: 5}  # Bytes before those of a binary: its constructor and size (section 1.6.19)
_NULL: Final = b"\x40"
_MAP_HEAD: Final = Struct(">BII")  # The constructor of a large map, its size and count
_REPEATABLE: Final = frozenset((DATA, SEQUENCE))
_BODIES: Final = frozenset((DATA, SEQUENCE, VALUE))
# Everybody writes the descriptor as a small ulong; the eight-byte form is legal, too
_SMALL_DESCRIPTORS: Final = {section_head(code): code for code in range(HEADER, FOOTER + 1)}


class Section(NamedTuple):
    code: int  # which section it is, one of the constants of this module
    start: int  # offset of the section's first byte, its descriptor
    value_start: int  # offset of the section's value, after the descriptor
    end: int  # offset of the first byte after the section


# To call the class itself takes twice as long
_make_section: Final = cast("Callable[[type[Section], tuple[int, int, int, int]], Section]", tuple.__new__)


def split(payload: bytes, *, in_order: bool = True, up_to: int = FOOTER + 1) -> list[Section]:
    """Find the sections of an encoded message.

    The values are skipped, so the inside of a section may still turn out to be damaged.
    """
    sections: list[Section] = []
    start, size, previous, check = 0, len(payload), 0, _in_order if in_order else _once
    while start < size:
        code, value_start = _SMALL_DESCRIPTORS.get(payload[start : start + 3], 0), start + 3
        if not code:
            code, value_start = _descriptor(payload, start)
        # The usual order, and the many messages of a batch, need no call.
        if previous < code != DELIVERY_ANNOTATIONS or code == previous == DATA:
            previous = code
        else:
            previous = check(code, previous, start, sections)
        end = skip(payload, value_start)
        sections.append(_make_section(Section, (code, start, value_start, end)))
        if code >= up_to:
            break
        start = end
    return sections


def readable_start(payload: bytes) -> Iterator[Section]:
    """Yield the sections of a damaged message, up to the first that cannot be skipped."""
    start = 0
    with contextlib.suppress(AmqpDecodeError):
        while start < len(payload):
            code, value_start = _descriptor(payload, start)
            end = skip(payload, value_start)
            yield Section(code, start, value_start, end)
            start = end


def map_start(payload: bytes, section: Section) -> int:
    """Return the offset of the first item of a section that is a map; the section's end if it is none."""
    head = MAPS.get(payload[section.value_start])
    return section.value_start + head if head else section.end


def readable_items(payload: bytes, section: Section) -> dict[str, AmqpValue]:
    """Return the items of a section that is a map: texts with simple values, without those that cannot be decoded."""
    found: dict[str, AmqpValue] = {}
    at = map_start(payload, section)
    with contextlib.suppress(AmqpDecodeError):
        while at < section.end:
            value_start = skip(payload, at)
            end = skip(payload, value_start)
            if payload[at] in _TEXT_HEADS and payload[value_start] in _SIMPLE:
                with contextlib.suppress(AmqpDecodeError):
                    found[cast("str", decode(payload, at)[0])] = decode(payload, value_start)[0]
            at = end
    return found


def find_section(payload: bytes, code: int) -> Section | None:
    return next((section for section in split(payload, up_to=code) if section.code == code), None)


def with_section(payload: bytes, code: int, value: bytes) -> bytes:
    """Return the message with another encoded value in a section, which it need not have had."""
    sections = split(payload)
    found = next((section for section in sections if section.code == code), None)
    if found is not None:
        start, end = found.start, found.end
    else:
        start = end = next((section.start for section in sections if section.code > code), len(payload))
    return payload[:start] + section_head(code) + value + payload[end:]


def with_list_item(payload: bytes, code: int, index: int, value: bytes | None) -> bytes:
    """Return the message with another encoded field in a section that is a list; all others stay byte for byte."""
    section = find_section(payload, code)
    fields = [] if section is None else elements(payload, section.value_start, LISTS)
    fields += [_NULL] * (index + 1 - len(fields))
    fields[index] = value or _NULL
    return with_section(payload, code, list_of_encoded(fields))


def with_map_items(payload: bytes, code: int, items: Mapping[str, bytes | None]) -> bytes:
    """Return the message with other encoded values under keys of a section that is a map; None removes one.

    All other items stay byte for byte. Of a key that comes more than once, the last item counts.
    """
    section = find_section(payload, code)
    found = [] if section is None else elements(payload, section.value_start, MAPS)
    kept: list[bytes] = []
    new = {name.encode(): encode(name) for name in items}
    left = dict(zip(new, items.values(), strict=True))
    for key, value in zip(found[-2::-2], found[::-2], strict=True):
        name = key_text(key)
        if name is None or name not in new:
            kept.append(key + value)
        elif (changed := left.pop(name, None)) is not None:
            kept.append(key + changed)
    added = [new[name] + value for name, value in left.items() if value is not None]
    return with_section(payload, code, map_of([*reversed(kept), *added]))


def key_text(key: bytes) -> bytes | None:
    """Return the bytes of an encoded text, which need not be readable; None for another value."""
    head = _TEXT_HEADS.get(key[0])
    return None if head is None else key[head:]


def elements(payload: bytes, start: int, heads: Mapping[int, int]) -> list[bytes]:
    """Cut an encoded list (``LISTS``), or a map (``MAPS``) of keys and values in turn, into its encoded elements."""
    end, head, kind = skip(payload, start), heads.get(payload[start]), "map" if heads is MAPS else "list"
    if head is None:
        raise AmqpDecodeError(f"The value at byte {start} of the message must be a {kind}.")
    found: list[bytes] = []
    offset = start + head
    while offset < end:
        after = skip(payload, offset)
        found.append(payload[offset:after])
        offset = after
    count = int.from_bytes(payload[start + head // 2 + 1 : start + head])
    if offset != end or count != len(found) or (count % 2 and heads is MAPS):
        raise AmqpDecodeError(f"A {kind} of the message does not have the size that it claims.")
    return found


def map_of(pairs: Sequence[bytes]) -> bytes:
    content = b"".join(pairs)
    return _MAP_HEAD.pack(0xD1, len(content) + 4, 2 * len(pairs)) + content


def section_value(payload: bytes, section: Section, *, items: int = ITEMS) -> AmqpValue:
    """Decode the value of one section that :func:`split` found in this payload."""
    head = _BINARY_HEADS.get(payload[section.value_start])
    if head is not None:
        return payload[section.value_start + head : section.end]
    value, end = decode(payload, section.value_start, items=items)
    if end != section.end:
        raise AmqpDecodeError(f"The message section at byte {section.start} does not end where its size says.")
    return value


def section_values(
    payload: bytes, start: int = 0, wanted: Container[int] = SECTIONS
) -> tuple[dict[int, AmqpValue], list[Section]]:
    """Decode a message in one pass, but for its body."""
    values: dict[int, AmqpValue] = {}
    bodies: list[Section] = []
    size, previous = len(payload), MESSAGE_ANNOTATIONS if start else 0
    while start < size:
        code, value_start = _SMALL_DESCRIPTORS.get(payload[start : start + 3], 0), start + 3
        if not code:
            code, value_start = _descriptor(payload, start)
        previous = code if previous < code != DELIVERY_ANNOTATIONS else _in_order(code, previous, start, bodies)
        # Note the place of the body, decode the requested sections, skip the others.
        if code in _BODIES:
            end = skip(payload, value_start)
            bodies.append(_make_section(Section, (code, start, value_start, end)))
        elif code in wanted:
            values[code], end = decode(payload, value_start)
        else:
            end = skip(payload, value_start)
        start = end
    return values, bodies


def _in_order(code: int, previous: int, start: int, _before: list[Section]) -> int:
    # Delivery annotations: azure-servicebus for Python writes them last, and Service Bus takes that.
    if code == DELIVERY_ANNOTATIONS:
        return previous
    if code <= previous and (code < previous or code not in _REPEATABLE):
        raise AmqpDecodeError(f"The message section 0x{code:02x} at byte {start} is out of order.")
    return code


def _once(code: int, previous: int, start: int, before: list[Section]) -> int:
    if code not in _REPEATABLE and any(section.code == code for section in before):
        raise AmqpDecodeError(f"The message section 0x{code:02x} at byte {start} comes twice.")
    return max(code, previous)


def _descriptor(payload: bytes, start: int) -> tuple[int, int]:
    if payload[start] != 0x00:
        raise AmqpDecodeError(f"No message section starts at byte {start}.")
    descriptor, value_start = decode(payload, start + 1)
    code = int(descriptor) if isinstance(descriptor, ULong) else 0
    if not HEADER <= code <= FOOTER:
        raise AmqpDecodeError(f"No message section starts at byte {start}.")
    return code, value_start
