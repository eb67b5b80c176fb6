"""Encoded messages that cost as much as a sender can make them cost, by what they try.

Each is built byte by byte: the encoder refuses most of them. A message has at most ``SIZE`` bytes, which is what a
standard namespace takes.
"""

from __future__ import annotations

import gzip
import json
import random
import struct
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from sbnotebook.amqp import Symbol, encode
from sbnotebook.amqp.decoding import LEVELS
from sbnotebook.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    encode_section,
    section_head,
)

__all__ = ["SIZE", "constructed", "harmless", "hostile_value", "random_payload"]

SIZE: Final = 256 * 1024
_ROOM: Final = SIZE - 1024
_PROPERTIES_ROOM: Final = 60_000
"""Bytes of all properties: Service Bus refuses a message with more than 64 KB of them."""
_MERSENNE: Final = 2**61 - 1
"""Python's hash of a whole number is its rest by this."""


def harmless() -> bytes:
    """Return a message of the same size whose body is plain JSON."""
    rows = [{"flight": n, "carrier": "UA", "from": "EWR", "to": "IAH", "late": n % 60} for n in range(4_000)]
    return _data(json.dumps(rows).encode()[:_ROOM])


@cache
def constructed() -> Mapping[str, bytes]:
    """Return the messages by their names; each is different."""
    made: dict[str, bytes] = {}
    for part in (_values, _in_sections, _bodies, _packed, _dead_letters, _fields, _broken):
        made |= part()
    assert all(len(payload) <= SIZE for payload in made.values())
    return made


def random_payload(seed: int) -> bytes:
    """Return a message that is built of random parts, or a constructed one with random bytes in it."""
    chance = random.Random(seed)  # noqa: S311 (no secret)
    if seed % 2:
        payload = bytearray(chance.choice([each for each in constructed().values() if each]))
        for _ in range(chance.choice((1, 3, 30))):
            payload[chance.randrange(len(payload))] = chance.randrange(256)
        return bytes(payload)
    size = chance.choice((100, 2_000, 60_000, _ROOM))
    parts = chance.choices([*_ATOMS, bytes((chance.randrange(256),))], k=max(1, size // 8))
    content = b"".join(parts)[:size]
    code = chance.choice((APPLICATION_PROPERTIES, DATA, SEQUENCE, VALUE, MESSAGE_ANNOTATIONS, FOOTER))
    if code == DATA:
        return _data(content)
    compound = chance.choice((_list_of, _map_of, _array_of_lists))
    return section_head(code) + compound(content, len(parts) & ~1)


# ------------------------------------------------------------ bytes


def _wide(code: int, count: int, content: bytes) -> bytes:
    return bytes((code,)) + struct.pack(">II", len(content) + 4, count) + content


def _list_of(content: bytes, count: int) -> bytes:
    return _wide(0xD0, count, content)


def _map_of(content: bytes, count: int) -> bytes:
    return _wide(0xD1, count, content)


def _array(code: int, count: int, content: bytes = b"") -> bytes:
    return _wide(0xF0, count, bytes((code,)) + content)


def _array_of_lists(content: bytes, count: int) -> bytes:
    return _array(0xC0, count, content)


def _filled(item: bytes, room: int = _ROOM) -> tuple[bytes, int]:
    count = room // len(item)
    return item * count, count


def _small_array(code: int, count: int) -> bytes:
    return bytes((0xE0, 2, count, code))


_ATOMS: Final = (
    b"\x40", b"\x41", b"\x43", b"\x44", b"\x45", b"\xc0\x01\x00", b"\xc1\x01\x00", b"\xe0\x01\x00", b"\xa1\x01k",
    b"\xa3\x01s", b"\xa0\x02\xff\x00", b"\x00\x53\x23\x45", b"\x98" + bytes(16), b"\x83" + b"\x7f" * 8,
    b"\x94" + b"\x77" * 16, b"\x72\x7f\xc0\x00\x00", b"\x82" + struct.pack(">d", 1e308), b"\x73\x00\x01\xf6\x00",
    _small_array(0x45, 64), _small_array(0x40, 255), _array(0x45, 65_536), b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff",
)  # fmt: skip


def _nested(levels: int, inner: bytes = b"\x45") -> bytes:
    for _ in range(levels):
        inner = _list_of(inner, 1)
    return inner


def _described(levels: int, inner: bytes = b"\x45") -> bytes:
    return b"\x00\x44" * levels + inner


def _data(body: bytes, *, content_type: str | None = None, content_encoding: str | None = None) -> bytes:
    head = b""
    if content_type or content_encoding:
        named = b"".join(encode(text and Symbol(text)) for text in (content_type, content_encoding))
        head = section_head(PROPERTIES) + _list_of(b"\x40" * 6 + named, 8)
    return head + section_head(DATA) + b"\xb0" + struct.pack(">I", len(body)) + body


def _property_section(*items: tuple[bytes, bytes]) -> bytes:
    """Return a section with as many of the properties as Service Bus takes."""
    content, count = b"", 0
    for key, value in items:
        if len(content) + len(key) + len(value) > _PROPERTIES_ROOM:
            break
        content, count = content + key + value, count + 1
    return section_head(APPLICATION_PROPERTIES) + _map_of(content, 2 * count)


# ------------------------------------------------------------ values


def _colliding(code: int, layout: str, numbers: Iterator[int], width: int, room: int) -> bytes:
    """Return a map whose keys have one hash, or hashes that meet in the same places."""
    count = room // (width + 2)
    content = b"".join(bytes((code,)) + struct.pack(layout, next(numbers)) + b"\x40" for _ in range(count))
    return _map_of(content, 2 * count)


def _uuids_of_one_hash(room: int) -> bytes:
    count = room // 18
    keys = (b"\x98" + (7 + n * _MERSENNE).to_bytes(16) + b"\x40" for n in range(count))
    return _map_of(b"".join(keys), 2 * count)


def _places(step: int) -> Iterator[int]:
    return iter(range(step, 2**63, step))


def hostile_value(name: str) -> bytes:
    """Return an encoded value of :func:`constructed` by its name."""
    return _hostile_values()[name]


@cache
def _hostile_values(room: int = _ROOM) -> dict[str, bytes]:
    empty_lists, lists = _filled(b"\x45", room)
    claims, arrays = _filled(_array(0x45, 65_536), room)
    small, smalls = _filled(_small_array(0x45, 64), room)
    found = {
        "arrays that claim empty lists": _list_of(claims, arrays),
        "arrays of 64 empty lists": _list_of(small, smalls),
        "one array that claims 4 billion nulls": _array(0x40, 2**32 - 1),
        "one array of 4 billion maps": _array(0xC1, 2**32 - 1),
        "empty lists": _list_of(empty_lists, lists),
        "an array of empty lists": _array(0x45, 65_536),
        "64 levels of lists": _nested(LEVELS),
        "65 levels of lists": _nested(LEVELS + 1),
        "thousands of levels of lists": _nested(room // 10),
        "described 63 times": _described(LEVELS - 1),
        "described thousands of times": _described(room // 3),
        "descriptors of descriptors": b"\x00" * (room // 3) + b"\x44" * (room // 3 + 1),
        "ids of one hash": _uuids_of_one_hash(room),
        "numbers that meet in a hash table": _colliding(0x80, ">Q", _places(2**40), 9, room),
        "numbers by 65,536": _colliding(0x70, ">I", iter(range(0, 2**32, 65_536 // 16)), 5, room),
        "a map of a map of a map": _nested_maps(LEVELS),
        "a list as the key of a map": _map_of(b"\x45\x45", 2),
        "half of a surrogate pair": b"\x73\x00\x00\xd8\x00",
        "a list that claims 4 billion items": b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff",
        "a list longer than its bytes": _wide(0xD0, 5, b"\x40"),
        "a list shorter than its bytes": _wide(0xD0, 1, b"\x40" * 1_000),
        "a text of no UTF-8": b"\xb1" + struct.pack(">I", 1_000) + b"\xff" * 1_000,
        "a long text": b"\xb1" + struct.pack(">I", room) + b"x" * room,
        "a long symbol": b"\xb3" + struct.pack(">I", room) + b"x" * room,
        "a long text of emoji": b"\xb1" + struct.pack(">I", room) + "\U0001f600".encode() * (room // 4),
        "infinite": b"\x82" + struct.pack(">d", float("inf")),
        "not a number": b"\x82" + struct.pack(">d", float("nan")),
    }
    repeated = {
        "nulls": b"\x40", "truths": b"\x41", "zeros": b"\x43", "bytes": b"\x50\x07", "ints": b"\x54\x07",
        "longs": b"\x81" + b"\x7f" * 8, "doubles": b"\x82\x7f" + bytes(7), "floats": b"\x72\x7f\x7f\xff\xff",
        "times": b"\x83" + b"\x7f" * 8, "early times": b"\x83\x80" + bytes(7), "characters": b"\x73\x00\x01\xf6\x00",
        "decimals": b"\x94" + b"\x77" * 16, "decimals of 32 bits": b"\x74" + b"\x77" * 4, "ids": b"\x98" + b"\x07" * 16,
        "symbols": b"\xa3\x02ab", "texts": b"\xa1\x01\x1b", "binary": b"\xa0\x01\xff", "maps": b"\xc1\x01\x00",
        "arrays": b"\xe0\x01\x00", "lists of a list": b"\xc0\x02\x01\x45", "described": b"\x00\x44\x40",
        "described errors": b"\x00\x53\x24\xc0\x02\x01\x45", "unknown types": b"\x3f", "markup": b"\xa1\x03<b>",
    }  # fmt: skip
    for name, item in repeated.items():
        content, count = _filled(item, room)
        found[f"a list of {name}"] = _list_of(content, count)
    for name, code, width in (
        ("bytes", 0x50, 1), ("ints", 0x71, 4), ("longs", 0x81, 8), ("texts", 0xA1, 1), ("symbols", 0xA3, 1),
        ("ids", 0x98, 16), ("nulls", 0x40, 0), ("truths", 0x41, 0), ("zeros", 0x43, 0), ("long zeros", 0x44, 0),
    ):  # fmt: skip
        count = room // width if width else 255
        found[f"an array of {name}"] = _array(code, count, bytes(width * count))
    return found


def _nested_maps(levels: int) -> bytes:
    inner = b"\x40"
    for _ in range(levels):
        inner = _map_of(b"\xa1\x01k" + inner, 2)
    return inner


def _values() -> dict[str, bytes]:
    return {f"{name} as the body": section_head(VALUE) + value for name, value in _hostile_values().items()}


def _in_sections() -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    worst = (
        "arrays that claim empty lists", "arrays of 64 empty lists", "ids of one hash", "empty lists",
        "thousands of levels of lists", "described thousands of times", "numbers that meet in a hash table",
    )  # fmt: skip
    values, small = _hostile_values(), _hostile_values(_PROPERTIES_ROOM // 2)
    for name in worst:
        value, property_value = values[name], small[name]
        found[f"{name} as a property"] = _property_section((b"\xa1\x01k", property_value)) + _data(b"{}")
        found[f"{name} as a sequence"] = section_head(SEQUENCE) + value
        found[f"{name} as an annotation"] = (
            section_head(MESSAGE_ANNOTATIONS) + _map_of(b"\xa3\x06x-mine" + property_value, 2) + _data(b"{}")
        )
        found[f"{name} in the properties"] = section_head(PROPERTIES) + _list_of(property_value, 1) + _data(b"{}")
    for name in ("ids of one hash", "numbers that meet in a hash table"):
        for code in (APPLICATION_PROPERTIES, MESSAGE_ANNOTATIONS, DELIVERY_ANNOTATIONS, FOOTER):
            found[f"{name} in section {code:x}"] = section_head(code) + small[name]
    claim = b"\xa3\x01k" + _list_of(_small_array(0x45, 64) * 1_000, 1_000)
    content, count = _filled(claim)
    found["many annotations of many empty lists"] = section_head(MESSAGE_ANNOTATIONS) + _map_of(content, 2 * count)
    content, count = _filled(section_head(SEQUENCE) + _list_of(_small_array(0x45, 64) * 1_000, 1_000))
    found["many sequences of many empty lists"] = content
    found["50,000 data sections"] = _filled(section_head(DATA) + b"\xa0\x00")[0]
    found["60,000 sequences"] = _filled(section_head(SEQUENCE) + b"\x45")[0]
    found["a header with 60,000 fields"] = section_head(HEADER) + _list_of(*_filled(b"\x40")) + _data(b"{}")
    return found


# ------------------------------------------------------------ bodies


def _texts() -> dict[str, bytes]:
    half = _ROOM // 2
    return {
        "deep JSON": b"[" * half + b"]" * half,
        "deep JSON that does not end": b"[" * _ROOM,
        "deep JSON of objects": b'{"a":' * (_ROOM // 6),
        "JSON of empty lists": b"[" + b"[]," * (_ROOM // 3 - 2) + b"0]",
        "JSON of empty objects": b"[" + b"{}," * (_ROOM // 3 - 2) + b"0]",
        "JSON with many keys": b"{" + b",".join(b'"%x":0' % n for n in range(25_000)) + b"}",
        "JSON with one key often": b"{" + b'"a":0,' * (_ROOM // 6 - 2) + b'"a":0}',
        "JSON with a number of 250,000 digits": b"[" + b"9" * (_ROOM - 2) + b"]",
        "JSON with a fraction of 250,000 digits": b"[0." + b"9" * (_ROOM - 4) + b"]",
        "JSON with huge exponents": b"[" + b"1e999999," * (_ROOM // 9 - 1) + b"0]",
        "JSON with escapes": b'["' + b"\\ud83d" * (_ROOM // 6 - 1) + b'"]',
        "JSON text that does not end": b'"' + b"\\" * (_ROOM - 2),
        "JSON with commas": b"[" + b"," * (_ROOM - 2) + b"]",
        "JSON with colons": b"{" + b":" * (_ROOM - 2) + b"}",
        "deep XML": b"<a>" * (_ROOM // 7) + b"</a>" * (_ROOM // 7),
        "XML that does not end": b"<a>" * (_ROOM // 3),
        "XML with many attributes": b"<a " + b"b='c' " * (_ROOM // 6 - 2) + b"/>",
        "XML comments that do not end": b"<!--" * (_ROOM // 4),
        "XML data that does not end": b"<![CDATA[" * (_ROOM // 9),
        "XML instructions that do not end": b"<?" * (_ROOM // 2),
        "XML quotes that do not end": b'<a b="' * (_ROOM // 6),
        "XML declarations": b"<!A" * (_ROOM // 3),
        "XML of a wrapper that does not end": b'<string xmlns="http://schemas.microsoft.com/2003/10/Serialization/">'
        + b"</string>" * (_ROOM // 9 - 10),
        "blanks": b" " * _ROOM,
        "lines": b"\n" * _ROOM,
        "carriage returns": b"\r" * _ROOM,
        "controls": b"\x1b" * _ROOM,
        "zeros": b"\0" * _ROOM,
        "quotes": b'"' * _ROOM,
        "ampersands": b"&" * _ROOM,
        "entities": b" &amp;" * (_ROOM // 6),
        "emoji": "\U0001f600".encode() * (_ROOM // 4),
        "one emoji in Latin": "\U0001f600".encode() + b"x" * (_ROOM - 4),
        "changing direction": "\u05d0\u05d1 ab ".encode() * (_ROOM // 9),
        "combining marks": b"a" + "\u0301".encode() * (half - 1),
        "no UTF-8": b"\xff" * _ROOM,
        "UTF-16": b"\xff\xfe" + "[".encode("utf-16-le") * (half - 2),
        "UTF-16 surrogates": b"\xff\xfe" + b"\x00\xd8" * (half - 2),
        "dashes": b"-" * _ROOM,
        "tokens": b"-eyJ" * (_ROOM // 4),
        "formulas": b"=1+1;" * (_ROOM // 5),
        "formulas in blanks": b";" + b" " * (_ROOM - 2) + b"=",
        "SQL quotes": b"'" * _ROOM,
        "hex": b"0123456789abcdef" * (_ROOM // 16),
    }


def _binary_xml() -> dict[str, bytes]:
    head = b"@\x06string\x083http://schemas.microsoft.com/2003/10/Serialization/"
    return {
        "a binary text of 4 billion bytes": head + b"\x9d\xff\xff\xff\x7f",
        "binary texts": head + b"\x98\x01x" * (_ROOM // 3 - 50),
        "binary elements": head + b"@\x01a" * (_ROOM // 3 - 50),
        "binary attributes": b"@\x01a" + b"\x04\x01b\x98\x01c" * (_ROOM // 6 - 1) + b"\x01",
        "binary elements side by side": b"@\x01a\x08\x01b" + b"@\x01b\x01" * (_ROOM // 4 - 3) + b"\x01",
        "binary decimals": b"@\x01a\x08\x01b" + (b"\x94" + b"\xff" * 16) * (_ROOM // 17 - 3) + b"\x01",
        "binary decimals of scale 255": b"@\x01a\x08\x01b" + (b"\x94\0\0\xff\0" + b"\xff" * 12) * 10_000 + b"\x01",
        "binary times": b"@\x01a\x08\x01b" + (b"\x96" + b"\x3f" * 8) * (_ROOM // 9 - 3) + b"\x01",
        "binary lengths": b"@" + b"\xff" * (_ROOM - 1),
    }


def _bodies() -> dict[str, bytes]:
    bodies = _texts() | _binary_xml()
    found = {name: _data(body) for name, body in bodies.items()}
    for name in ("deep JSON", "JSON of empty lists", "JSON with a number of 250,000 digits", "blanks", "dashes"):
        found[f"{name}, called JSON"] = _data(bodies[name], content_type="application/json")
        found[f"{name} as an AMQP text"] = section_head(VALUE) + encode(bodies[name].decode())
    for charset in ("utf-16", "utf-32", "cp1252", "gb18030", "shift_jis", "utf-7", "punycode", "zip", "idna"):
        found[f"charset {charset}"] = _data(b"x" * _ROOM, content_type=f"text/plain; charset={charset}")
    found["a content type of 20,000 characters"] = _data(b"x", content_type="a/b; charset=" + "é" * 20_000)
    found["a content type of 10,000 parameters"] = _data(b"x", content_type="a/b;" + "a=b;" * 10_000)
    return found


def _bomb(unpacked: bytes, wbits: int) -> bytes:
    """Return a packed body of the largest size: the same block again and again."""
    packer = zlib.compressobj(9, wbits=wbits)
    begin = packer.compress(unpacked) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(unpacked) + packer.flush(zlib.Z_FULL_FLUSH)
    return (begin + block * (_ROOM // len(block)))[:_ROOM]


def _packed() -> dict[str, bytes]:
    blocks = {
        "zeros": bytes(3_000_000),
        "JSON of empty lists": b"[" + b"[]," * 1_000_000,
        "deep JSON": b"[" * 3_000_000,
        "emoji": "\U0001f600".encode() * 750_000,
        "lines": b"\n" * 3_000_000,
    }
    found: dict[str, bytes] = {}
    for name, block in blocks.items():
        found[f"packed {name}"] = _data(_bomb(block, zlib.MAX_WBITS | 16), content_encoding="gzip")
    zeros = gzip.compress(blocks["zeros"])
    return found | {
        "zeros packed twice": _data(gzip.compress(zeros), content_encoding="gzip"),
        "zeros packed, encoded twice": _data(gzip.compress(zeros), content_encoding="gzip, gzip"),
        "a small body that is packed": _data(zeros, content_encoding="gzip"),
        "parts packed one behind the other": _data(zeros * (_ROOM // len(zeros)), content_encoding="gzip"),
        "deflated zeros": _data(_bomb(blocks["zeros"], zlib.MAX_WBITS), content_encoding="deflate"),
        "deflated zeros without an envelope": _data(
            _bomb(blocks["zeros"], -zlib.MAX_WBITS), content_encoding="deflate"
        ),
        "brotli": _data(b"\xff" * _ROOM, content_encoding="br"),
        "zstd": _data(b"\x28\xb5\x2f\xfd" * (_ROOM // 4), content_encoding="zstd"),
        "a packed text": section_head(VALUE) + encode(zeros),
        "a content encoding of 60,000 characters": _data(b"x", content_encoding="gzip" + " " * 60_000),
    }


# ------------------------------------------------------------ fields


def _dead_letters() -> dict[str, bytes]:
    long = {
        "dashes": "-" * 500 + "x", "many dashes": ("-" * 490 + "x\n") * 500, "blanks": " " * 60_000 + "x",
        "quotes": "'" * 60_000, "open quotes": '"' + "\\" * 60_000, "digits": "1" * 60_000, "hex": "a1" * 30_000,
        "dotted": "1.1." * 15_000, "paths": "/a" * 30_000, "addresses": "a@" * 30_000, "urls": "a://" * 15_000,
        "times": "1:11:11" * 8_000, "dates": "1111-11-11" * 6_000, "tokens": "-eyJ" * 15_000,
        "frames": "   at A.B.C()\n" * 4_000, "frames on a line": "   at A.B()" * 5_000, "at": "at " * 20_000,
        "files": 'File "' * 10_000, "lines": "\n" * 60_000, "carets": "^~ " * 20_000, "causes": "Caused by: " * 5_000,
        "generics": "at A<" + "<" * 490 + ">b__0.C()", "brackets": "at A" + "[" * 490 + ".B()",
        "emoji": "\U0001f600" * 15_000,
        "controls": "\x1b[31m" * 12_000, "markup": "<b>" * 20_000, "formulas": "=1+1;" * 12_000,
        "keys": "SharedAccessKey=" * 4_000,
    }  # fmt: skip
    found: dict[str, bytes] = {}
    for name, text in long.items():
        for field in ("DeadLetterReason", "DeadLetterErrorDescription"):
            found[f"{name} in {field}"] = _property_section(
                (encode(field), encode(text.encode()[:32_000].decode(errors="ignore")))
            ) + _data(b"{}")
    return found


def _fields() -> dict[str, bytes]:
    many = [(encode(f"k{n}"), b"\x40") for n in range(25_000)]
    kinds = {"null": b"\x40", "time": b"\x83" + b"\x7f" * 8, "decimal": b"\x94" + b"\x77" * 16, "list": b"\x45",
             "nan": b"\x82\x7f\xf8" + bytes(6), "number": b"\x80" + b"\xff" * 8,
             "array": _small_array(0x45, 9)}  # fmt: skip
    found = {
        f"thousands of properties, each a {kind}": _property_section(*((key, value) for key, _ in many[:9_000]))
        for kind, value in kinds.items()
    }
    found |= {
        "thousands of properties": _property_section(*many),
        "thousands of properties of one name": _property_section(*[(b"\xa1\x01k", b"\x40")] * 40_000),
        "properties with numbers as names": _property_section(
            *((b"\x52" + bytes((n % 256,)), b"\x40") for n in range(50_000))
        ),
        "a name of 50,000 characters": _property_section((encode("k" * 50_000), b"\x40")),
        "a list as the reason": _property_section((encode("DeadLetterReason"), _list_of(b"\x45" * 32_000, 32_000))),
        "a number as the reason": _property_section((encode("DeadLetterReason"), b"\x80" + b"\xff" * 8)),
        "a huge resubmit count": _property_section((encode("ResubmitCount"), b"\x80" + b"\xff" * 8)),
        "a resubmit count that is no number": _property_section((encode("ResubmitCount"), encode(float("nan")))),
        "a creation time out of the calendar": section_head(PROPERTIES)
        + _list_of(b"\x40" * 8 + b"\x83" + b"\x7f" * 8, 9)
        + _data(b"x"),
        "a long life": section_head(HEADER) + encode([None, None, 2**31 - 1]) + _data(b"x"),
    }  # fmt: skip
    names = ("message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type")
    for place, name in enumerate(names):
        before = b"\x40" * place
        found[f"a {name} of 25,000 characters"] = section_head(PROPERTIES) + _list_of(
            before + encode("é" * 25_000), place + 1
        )
        found[f"a {name} that is a list"] = section_head(PROPERTIES) + _list_of(
            before + _list_of(b"\x45" * 20_000, 20_000), place + 1
        )
    return found


def _broken() -> dict[str, bytes]:
    return {
        "no message": b"\xff" * SIZE,
        "an empty message": b"",
        "a body that is cut short": section_head(DATA) + b"\xb0\xff\xff\xff\xff",
        "sections out of order": _data(b"x") + encode_section(HEADER, []),
        "two values": encode_section(VALUE, 1) * 2,
        "data and a value": _data(b"x") + encode_section(VALUE, 1),
        "a descriptor of eight bytes": b"\x00\x80" + (DATA).to_bytes(8) + b"\xa0\x01x",
        "an unknown section": b"\x00\x53\x7f\x45",
        "a descriptor that is a list": b"\x00" + _nested(60) + b"\x45",
    }
