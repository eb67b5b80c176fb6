"""The binary XML in which older .NET clients wrote what they sent: ``BrokeredMessage`` with an object as its body.

They serialised it with ``DataContractSerializer`` and a binary ``XmlDictionaryWriter`` without a dictionary. A string
and an array of bytes have a wrapper of one element; an object becomes elements in elements.

Source: [MC-NBFX], .NET Binary Format: XML Data Structure, section 2.2.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from struct import error as struct_error
from struct import unpack_from
from typing import Final, NamedTuple
from uuid import UUID

from sbnotebook.errors import DecisionError

DATA_CONTRACT: Final = "http://schemas.microsoft.com/2003/10/Serialization/"
"""The namespace of the wrappers around simple values."""

_MOST_DEPTH: Final = 100
_END_ELEMENT, _COMMENT = 0x01, 0x02
_SHORT_ELEMENT, _ELEMENT = 0x40, 0x41
_SHORT_ATTRIBUTE, _ATTRIBUTE, _SHORT_XMLNS, _XMLNS = 0x04, 0x05, 0x08, 0x09
# Element and attribute records with a prefix of one letter, a to z.
_PREFIX_ELEMENTS, _PREFIX_ATTRIBUTES = range(0x5E, 0x78), range(0x26, 0x40)
_ATTRIBUTES: Final = frozenset({_SHORT_ATTRIBUTE, _ATTRIBUTE, _SHORT_XMLNS, _XMLNS, *_PREFIX_ATTRIBUTES})
_FIRST_TEXT: Final = 0x80
_YEAR_1: Final = datetime(1, 1, 1)  # noqa: DTZ001 (the format's times have no zone of their own)
_TICKS: Final = 10  # In a microsecond


def _number(layout: str) -> Callable[[bytes], str]:
    return lambda raw: repr(unpack_from(layout, raw)[0])


def _moment(raw: bytes) -> str:
    ticks = int.from_bytes(raw, "little") & ((1 << 62) - 1)
    try:
        return (_YEAR_1 + timedelta(microseconds=ticks // _TICKS)).isoformat()
    except OverflowError:
        raise ValueError from None


def _decimal(raw: bytes) -> str:
    # The structure DECIMAL of OLE automation: two bytes, scale, sign, the high 4 bytes, the low 8.
    _, scale, sign, high, low = unpack_from("<HBBIQ", raw)
    return str(Decimal((high << 64) + low).scaleb(-scale) * (-1 if sign else 1))


_TEXTS: Final[dict[int, tuple[int, Callable[[bytes], str]]]] = {
    0x80: (0, lambda _: "0"),
    0x82: (0, lambda _: "1"),
    0x84: (0, lambda _: "false"),
    0x86: (0, lambda _: "true"),
    0x88: (1, _number("<b")),
    0x8A: (2, _number("<h")),
    0x8C: (4, _number("<i")),
    0x8E: (8, _number("<q")),
    0x90: (4, _number("<f")),
    0x92: (8, _number("<d")),
    0x94: (16, _decimal),
    0x96: (8, _moment),
    0xA8: (0, lambda _: ""),
    0xAC: (16, lambda raw: f"urn:uuid:{UUID(bytes_le=raw)}"),
    0xAE: (8, lambda raw: str(timedelta(microseconds=unpack_from("<q", raw)[0] // _TICKS))),
    0xB0: (16, lambda raw: str(UUID(bytes_le=raw))),
    0xB2: (8, _number("<Q")),
    0xB4: (1, lambda raw: "true" if raw[0] else "false"),
}
"""Records of a fixed size, and what their bytes say; the odd record that follows says that the element ends, too."""
# How many bytes the length has, and the encoding: .NET takes UTF-16 where it is shorter.
_CHARS: Final = {
    0x98: (1, "utf-8"), 0x9A: (2, "utf-8"), 0x9C: (4, "utf-8"),
    0xB6: (1, "utf-16-le"), 0xB8: (2, "utf-16-le"), 0xBA: (4, "utf-16-le"),
}  # fmt: skip
_BYTES: Final = {0x9E: 1, 0xA0: 2, 0xA2: 4}
# Records of numbers and truth values: .NET reads a text in their place
_NUMBERS: Final = frozenset({0x80, 0x82, 0x84, 0x86, *range(0x88, 0x96, 2), 0xB2, 0xB4})
_NUMBER: Final = re.compile(r"true|false|[+-]?\d{1,40}(?:\.\d{1,40})?(?:[eE][+-]?\d{1,3})?")
_TAG: Final = re.compile("(<[^<>]*>)")


class _Piece(NamedTuple):
    """A record: its XML, its place, and its code without the bit for an end; -1 for a tag."""

    xml: str
    start: int
    end: int
    code: int = -1
    ends: bool = False


def read_binary_xml(data: bytes) -> str | bytes | None:
    if data[:1] != b"@":
        return None
    try:
        return _Reader(data).document()
    except (ValueError, IndexError, OverflowError, ArithmeticError, struct_error):
        return None


def rewrite_binary_xml(data: bytes, value: str | bytes) -> bytes:
    """Return a document with other texts; its elements stay, and so does each record whose text is the same."""
    reader = _Reader(data)
    before = reader.document()
    if "nil=" in reader.pieces[0].xml:
        raise DecisionError("The body is a wrapper of .NET that says that it holds nothing.")
    slots = _slots(reader.pieces)
    is_of_bytes = isinstance(value, bytes)
    if is_of_bytes or reader.is_string:
        texts: Sequence[str | bytes] = [value]
    else:
        old, new = _TAG.split(str(before)), _TAG.split(str(value))
        if old[1::2] != new[1::2] or new[0] or new[-1]:
            raise DecisionError("The body is an object of .NET in binary XML, in which only texts can be edited.")
        texts = [html.unescape(text) for text in new[2:-1:2]]
    parts = list[bytes]()
    for number, slot in enumerate(slots):
        tag, *held = slot
        parts.append(data[tag.start : tag.end])
        if number < len(texts):
            parts.append(_record(data, held, texts[number]))
    parts.append(data[reader.end :])
    return b"".join(parts)


def _slots(pieces: Sequence[_Piece]) -> list[list[_Piece]]:
    """Return each tag with the texts that follow it."""
    slots = list[list[_Piece]]()
    for piece in pieces:
        if piece.code < 0:
            slots.append([piece])
        else:
            slots[-1].append(piece)
    return slots


def _record(data: bytes, held: Sequence[_Piece], value: str | bytes) -> bytes:
    """Return the records of a text: the same where it is the same."""
    written = value if isinstance(value, bytes) else html.escape(value, quote=False)
    if isinstance(written, str) and "".join(piece.xml for piece in held) == written:
        return b"".join(data[piece.start : piece.end] for piece in held)
    codes = {piece.code for piece in held}
    if isinstance(value, str) and not codes <= {*_CHARS, *_NUMBERS, 0xA8}:
        raise DecisionError("A time, an id or bytes in binary XML of .NET cannot be edited.")
    if isinstance(value, str) and codes & _NUMBERS and not _NUMBER.fullmatch(value):
        raise DecisionError(f"A number in binary XML of .NET cannot become {value[:40]!r}.")
    raw = value if isinstance(value, bytes) else value.encode(errors="replace")
    widths = {1: 0x9E, 2: 0xA0, 4: 0xA2} if isinstance(value, bytes) else {1: 0x98, 2: 0x9A, 4: 0x9C}
    width = next(width for width in widths if len(raw) < 1 << (8 * width))
    code = widths[width] | bool(held and held[-1].ends)
    return bytes((code,)) + len(raw).to_bytes(width, "little") + raw


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._xml: list[str] = []
        self._values: list[str | bytes] = []
        self._open: list[str] = []
        self._root = ""
        self._namespace: str | None = None
        self._elements = 0
        self.pieces: list[_Piece] = []
        self.end = 0
        self.is_string = False

    def document(self) -> str | bytes:
        self._element(self._byte())
        if self._namespace is None:  # a text that begins with an @
            raise ValueError
        while self._open and self._at < len(self._data):
            self._record(self._byte())
        # An incomplete document, or one with more bytes behind it, is refused; its last end may be missing or repeated.
        if (self._open and not self._values) or self._data[self._at :] not in (b"", bytes((_END_ELEMENT,))):
            raise ValueError
        self.end = self._at
        while self._open:
            self._end(self._at)
        if self._namespace == DATA_CONTRACT and self._elements == 1:
            if self._root == "string":
                self.is_string = True
                return "".join(map(str, self._values))
            if self._root == "base64Binary" and all(isinstance(value, bytes) for value in self._values):
                return b"".join(value for value in self._values if isinstance(value, bytes))
        return "".join(self._xml)

    def _record(self, code: int) -> None:
        start = self._at - 1
        if code == _END_ELEMENT:
            self._end(start)
        elif code == _COMMENT:
            self._string()
        elif code < _FIRST_TEXT:
            self._element(code)
        else:
            value = self._text(code & 0xFE)
            self._values.append(value)
            self._xml.append(html.escape(_shown(value), quote=False))
            self.pieces.append(_Piece(self._xml[-1], start, self._at, code & 0xFE, bool(code & 1)))
            if code & 1:
                self._end(self._at)

    def _element(self, code: int) -> None:
        start, first = self._at - 1, len(self._xml)
        prefix = self._prefix(code, _ELEMENT, _PREFIX_ELEMENTS)
        if prefix is None and code != _SHORT_ELEMENT:
            raise ValueError
        local = self._string()
        name = f"{prefix}:{local}" if prefix else local
        if not local or len(self._open) >= _MOST_DEPTH:
            raise ValueError
        # Open the element, and read its attributes.
        if not self._open:
            self._root = local
        self._open.append(name)
        self._elements += 1
        self._xml.append(f"<{html.escape(name)}")
        while self._at < len(self._data) and self._data[self._at] in _ATTRIBUTES:
            self._attribute(self._byte())
        self._xml.append(">")
        self.pieces.append(_Piece("".join(self._xml[first:]), start, self._at))

    def _attribute(self, code: int) -> None:
        if code in (_SHORT_XMLNS, _XMLNS):
            name = f"xmlns:{self._string()}" if code == _XMLNS else "xmlns"
            value: str | bytes = self._string()
            if name == "xmlns" and self._elements == 1:
                self._namespace = _shown(value)
        else:
            prefix = self._prefix(code, _ATTRIBUTE, _PREFIX_ATTRIBUTES)
            name = self._string()
            name = f"{prefix}:{name}" if prefix else name
            value = self._text(self._byte())
        self._xml.append(f' {html.escape(name)}="{html.escape(_shown(value))}"')

    def _prefix(self, code: int, long: int, letters: range) -> str | None:
        if code == long:
            return self._string()
        return chr(ord("a") + code - letters.start) if code in letters else None

    def _end(self, start: int) -> None:
        self._xml.append(f"</{html.escape(self._open.pop())}>")
        self.pieces.append(_Piece(self._xml[-1], start, self._at))

    def _text(self, code: int) -> str | bytes:
        if code in _TEXTS:
            size, read = _TEXTS[code]
            return read(self._take(size))
        if code in _CHARS:
            width, encoding = _CHARS[code]
            return self._take(int.from_bytes(self._take(width), "little")).decode(encoding)
        if code in _BYTES:
            return self._take(int.from_bytes(self._take(_BYTES[code]), "little"))
        raise ValueError

    def _string(self) -> str:
        # MultiByteInt31 (section 2.1.2): seven bits a byte, the least first.
        size = shift = 0
        while True:
            byte = self._byte()
            size |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004
                return self._take(size).decode()
            shift += 7
            if shift > 28:  # noqa: PLR2004
                raise ValueError

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _take(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise ValueError
        return self._data[start : self._at]


def _shown(value: str | bytes) -> str:
    return value if isinstance(value, str) else base64.b64encode(value).decode()
