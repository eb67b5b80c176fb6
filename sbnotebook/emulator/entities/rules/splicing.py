"""One value of an encoded message replaced, every other byte left as the sender wrote it.

Decoding a section and encoding it again would keep the values, but not the bytes: AMQP has several
forms of the same value, and a sender may sign what it wrote.

Source: AMQP 1.0 part 1, types, sections 1.6.22 list and 1.6.23 map; part 3, section 3.2.
"""

from __future__ import annotations

from typing import Final

from sbnotebook.errors import AmqpDecodeError
from sbnotebook.model.amqp import decode, encode, skip
from sbnotebook.model.sections import Section, split

__all__ = ["spliced_list", "spliced_map"]

_EMPTY_LIST: Final = 0x45
_SMALL: Final = frozenset((0xC0, 0xC1))
_WIDE: Final = frozenset((0xD0, 0xD1))
_WIDE_LIST, _WIDE_MAP = b"\xd0", b"\xd1"
_NULL: Final = b"\x40"


def spliced_list(payload: bytes, code: int, index: int, value: bytes | None) -> bytes:
    """The message with another field in a section that is a list.

    Args:
        payload: one encoded message.
        code: the section, which is added if the message has none.
        index: the place of the field.
        value: the encoded value; None for null.

    Raises:
        AmqpDecodeError: the section is not a list.

    Example:
        >>> spliced_list(b"", 0x70, 1, encode(True)).hex()
        '005370d000000006000000024041'
    """
    section = _section(payload, code)
    fields = _elements(payload, section)
    fields += [_NULL] * (index + 1 - len(fields))
    fields[index] = value or _NULL
    return _with_section(payload, section, _compound(_WIDE_LIST, fields))


def spliced_map(payload: bytes, code: int, key: str, value: bytes | None) -> bytes:
    """The message with another value under a key in a section that is a map.

    Args:
        payload: one encoded message.
        code: the section, which is added if the message has none.
        key: a string or symbol; a new one stands last.
        value: the encoded value; None takes the key away.

    Raises:
        AmqpDecodeError: the section is not a map.
    """
    section = _section(payload, code)
    elements = _elements(payload, section)
    items = list(zip(elements[0::2], elements[1::2], strict=True))
    places = [place for place, (name, _) in enumerate(items) if decode(name)[0] == key]
    if value is not None:
        at = places[-1] if places else len(items)
        items[at : at + 1] = [(items[at][0] if places else encode(key), value)]
        places = places[:-1]
    kept = [part for place, item in enumerate(items) if place not in places for part in item]
    return _with_section(payload, section, _compound(_WIDE_MAP, kept))


def _section(payload: bytes, code: int) -> Section:
    """Where the section stands, or would stand: then it has no bytes."""
    sections = split(payload)
    for section in sections:
        if section.code == code:
            return section
    later = (section.start for section in sections if section.code > code)
    start = next(later, len(payload))
    return Section(code, start, start, start)


def _with_section(payload: bytes, section: Section, value: bytes) -> bytes:
    return payload[: section.start] + b"\x00\x53" + bytes((section.code,)) + value + payload[section.end :]


def _elements(payload: bytes, section: Section) -> list[bytes]:
    offset, end = section.value_start, section.end
    if offset == end or payload[offset] == _EMPTY_LIST:
        return []
    if payload[offset] not in _SMALL | _WIDE:
        raise AmqpDecodeError(f"The message section 0x{section.code:02x} is neither a list nor a map.")
    offset += 3 if payload[offset] in _SMALL else 9
    elements: list[bytes] = []
    while offset < end:
        after = skip(payload, offset)
        elements.append(payload[offset:after])
        offset = after
    return elements


def _compound(constructor: bytes, elements: list[bytes]) -> bytes:
    content = b"".join(elements)
    return constructor + (len(content) + 4).to_bytes(4) + len(elements).to_bytes(4) + content
