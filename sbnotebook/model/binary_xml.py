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
from itertools import zip_longest
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
    return (_YEAR_1 + timedelta(microseconds=ticks // _TICKS)).isoformat()


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
    """A record: its XML and its place, and the code and the value of a text; a tag has none."""

    xml: str
    start: int
    end: int
    code: int = 0
    value: str | bytes | None = None


def read_binary_xml(data: bytes) -> str | bytes | None:
    if data[:1] != b"@":
        return None
    try:
        return _Reader(data).document()
    except (ValueError, IndexError, ArithmeticError):
        return None


def rewrite_binary_xml(data: bytes, value: str | bytes) -> bytes:
    """Return a document with other texts; its elements stay, and so does each record whose text is the same."""
    reader = _Reader(data)
    before = reader.document()
    if "nil=" in reader.pieces[0].xml:
        raise DecisionError("The body is a wrapper of .NET that says that it holds nothing.")
    if isinstance(value, bytes) or reader.is_string:
        texts: Sequence[str | bytes] = [value]
    else:
        old, new = _TAG.split(str(before)), _TAG.split(value)
        if old[1::2] != new[1::2] or new[0] or new[-1]:
            raise DecisionError("The body is an object of .NET in binary XML, in which only texts can be edited.")
        texts = [html.unescape(text) for text in new[2:-1:2]]
    # Each tag with the texts that follow it.
    slots = list[list[_Piece]]()
    for piece in reader.pieces:
        if piece.value is None:
            slots.append([])
        slots[-1].append(piece)
    parts = list[bytes]()
    for (tag, *held), text in zip_longest(slots, texts):
        parts.append(data[tag.start : tag.end])
        if text is not None:
            parts.append(_record(data, held, text))
    return b"".join([*parts, data[reader.at :]])


def _record(data: bytes, held: Sequence[_Piece], value: str | bytes) -> bytes:
    """Return the records of a text: the same where it is the same."""
    if isinstance(value, bytes):
        raw, codes_by_width = value, {1: 0x9E, 2: 0xA0, 4: 0xA2}
    else:
        if "".join(piece.xml for piece in held) == html.escape(value, quote=False):
            return b"".join(data[piece.start : piece.end] for piece in held)
        codes = {piece.code & 0xFE for piece in held}
        if not codes <= {*_CHARS, *_NUMBERS, 0xA8}:
            raise DecisionError("A time, an id or bytes in binary XML of .NET cannot be edited.")
        if codes & _NUMBERS and not _NUMBER.fullmatch(value):
            raise DecisionError(f"A number in binary XML of .NET cannot become {value[:40]!r}.")
        raw, codes_by_width = value.encode(errors="replace"), {1: 0x98, 2: 0x9A, 4: 0x9C}
    width = next(width for width in codes_by_width if len(raw) < 1 << (8 * width))
    ends = held[-1].code & 1 if held else 0
    return bytes((codes_by_width[width] | ends,)) + len(raw).to_bytes(width, "little") + raw


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        self._open: list[str] = []
        self.pieces: list[_Piece] = []
        self.is_string = False

    def document(self) -> str | bytes:
        root, namespace = self._element(self._byte())
        if namespace is None:  # a text that begins with an @
            raise ValueError
        while self._open and self.at < len(self._data):
            self._record(self._byte())
        values = [piece.value for piece in self.pieces if piece.value is not None]
        # An incomplete document, or one with more bytes behind it, is refused; its last end may be missing or repeated.
        if (self._open and not values) or self._data[self.at :] not in (b"", bytes((_END_ELEMENT,))):
            raise ValueError
        while self._open:
            self._end(self.at)
        if namespace == DATA_CONTRACT and len(self.pieces) == len(values) + 2:  # the tags of one element
            self.is_string = root == "string"
            if self.is_string:
                return "".join(map(str, values))
            if root == "base64Binary" and all(isinstance(value, bytes) for value in values):
                return b"".join(value for value in values if isinstance(value, bytes))
        return "".join(piece.xml for piece in self.pieces)

    def _record(self, code: int) -> None:
        start = self.at - 1
        if code == _END_ELEMENT:
            self._end(start)
        elif code == _COMMENT:
            self._string()
        elif code < _FIRST_TEXT:
            self._element(code)
        else:
            value = self._text(code & 0xFE)
            self.pieces.append(_Piece(html.escape(_shown(value), quote=False), start, self.at, code, value))
            if code & 1:
                self._end(self.at)

    def _element(self, code: int) -> tuple[str, str | None]:
        """Read the start of an element with its attributes. Return its name and its default namespace."""
        start = self.at - 1
        prefix = self._prefix(code, _ELEMENT, _PREFIX_ELEMENTS)
        local = self._string()
        if (prefix is None and code != _SHORT_ELEMENT) or not local or len(self._open) >= _MOST_DEPTH:
            raise ValueError
        self._open.append(f"{prefix}:{local}" if prefix else local)
        xml, namespace = [html.escape(self._open[-1])], None
        while self.at < len(self._data) and self._data[self.at] in _ATTRIBUTES:
            name, value = self._attribute(self._byte())
            xml.append(f'{html.escape(name)}="{html.escape(value)}"')
            namespace = value if name == "xmlns" else namespace
        self.pieces.append(_Piece(f"<{' '.join(xml)}>", start, self.at))
        return local, namespace

    def _attribute(self, code: int) -> tuple[str, str]:
        if code == _SHORT_XMLNS:
            return "xmlns", self._string()
        prefix = "xmlns" if code == _XMLNS else self._prefix(code, _ATTRIBUTE, _PREFIX_ATTRIBUTES)
        name = self._string()
        value = self._string() if code == _XMLNS else _shown(self._text(self._byte()))
        return f"{prefix}:{name}" if prefix else name, value

    def _prefix(self, code: int, long: int, letters: range) -> str | None:
        if code == long:
            return self._string()
        return chr(ord("a") + code - letters.start) if code in letters else None

    def _end(self, start: int) -> None:
        self.pieces.append(_Piece(f"</{html.escape(self._open.pop())}>", start, self.at))

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
        size = 0
        for shift in range(0, 35, 7):
            byte = self._byte()
            size |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004
                return self._take(size).decode()
        raise ValueError

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, size: int) -> bytes:
        start, self.at = self.at, self.at + size
        if self.at > len(self._data):
            raise ValueError
        return self._data[start : self.at]


def _shown(value: str | bytes) -> str:
    return value if isinstance(value, str) else base64.b64encode(value).decode()
