"""Message bodies as text, and texts as bodies of the same form: compressed, in a charset, wrapped by older clients.

The form of a body is a list of layers, from the outside to the inside: the AMQP section, the compression, the wrapper
of an older .NET client, the charset with its byte order mark. sbnotebook takes the layers off to read a body, and puts
the same layers around an edited text. It refuses a text that the layers cannot hold: no consumer shall get a body that
it cannot read.

Bodies are hostile input. Nothing in them is ever evaluated, and packed bodies are unpacked up to a limit only.

Marks of a message say that its body is compressed. The AMQP field content-encoding is the standard's mark. The message
class of .NET does not have that field, so its users mark a message by a property or by the content type, or not at all.

Sources: AMQP 1.0 part 3, section 3.2.4; RFC 1950 to 1952; ServiceBusExplorer pull request 622 (property
``Content-Encoding``); the compression plug-in of azure-service-bus-dotnet-plugins (property ``compression-method``).
"""

from __future__ import annotations

import codecs
import contextlib
import html
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, cast

from sbnotebook.amqp import AmqpValue, decode_all, encode, type_name
from sbnotebook.errors import AmqpDecodeError, DecisionError
from sbnotebook.model.binary_xml import DATA_CONTRACT, read_binary_xml, rewrite_binary_xml
from sbnotebook.model.budget import (
    PARSED_CHARACTERS,
    UNPACKED_BYTES,
    UNPACKED_BYTES_OF_TABLE,
    UNPACKED_TIMES,
    Allowance,
)
from sbnotebook.model.property_text import json_of, value_of

GZIP, DEFLATE, RAW_DEFLATE = "gzip", "deflate", "deflate without its envelope"
_WINDOWS: Final = {GZIP: zlib.MAX_WBITS | 16, DEFLATE: zlib.MAX_WBITS, RAW_DEFLATE: -zlib.MAX_WBITS}
_MAGIC: Final = b"\x1f\x8b\x08"
_ZLIB_STARTS: Final = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_NAMES: Final = {
    **dict.fromkeys(("gzip", "x-gzip", "gz"), GZIP),
    **dict.fromkeys(("deflate", "zlib", "x-deflate"), DEFLATE),
}
_NOTHING: Final = frozenset({"", "identity", "none", "binary", "7bit", "8bit", "false", "no"})
UNKNOWN: Final = frozenset(
    {"br", "brotli", "zstd", "compress", "x-compress", "lz4", "snappy", "bzip2", "bz2", "x-bzip2", "lzma", "xz", "zip"}
)
"""Compressions that sbnotebook cannot undo."""
PACKING_PROPERTIES: Final = frozenset(
    {"content-encoding", "content_encoding", "contentencoding", "compression-method", "compression_method",
     "compressionmethod", "compression", "compression-type", "x-content-encoding"}
)  # fmt: skip
"""Names of application properties that say how a body is packed, in lower case."""
_TYPES: Final = {
    **dict.fromkeys(("application/gzip", "application/x-gzip", "application/x-gunzip", "application/gzipped"), GZIP),
    "application/zlib": DEFLATE,
}
_LONGEST: Final = 200


class Unpacked(NamedTuple):
    data: bytes
    packing: str  # its name, for :func:`pack`
    note: str  # what the text says at its end where it is cut; "" for a whole one
    is_damaged: bool  # whether bytes are missing, or others follow


def mark_names(properties: Mapping[str, Any] | None) -> list[str]:
    return [name for name in properties if name.lower() in PACKING_PROPERTIES] if properties else []


def _split(text: str) -> list[str]:
    return [name.strip().lower() for name in text[:_LONGEST].split(",")]


def unpacked(
    body: bytes, names: list[str], unpacking: Allowance | None, *, is_for_edit: bool = False
) -> Unpacked | None:
    """Unpack a body; None for one that is not packed in a way that is known."""
    free = min(UNPACKED_TIMES * len(body), UNPACKED_BYTES_OF_TABLE)
    most = UNPACKED_BYTES_OF_TABLE if is_for_edit else max(UNPACKED_BYTES, free)
    if unpacking is not None:
        most = min(most, free + unpacking.left)
    for packing, must_be_whole in _candidates(body, names):
        found = _inflated(body, packing, most)
        if found is None or (must_be_whole and found.is_damaged and len(found.data) < most):
            continue
        if unpacking is not None:
            unpacking.take(max(0, len(found.data) - free))
        return found
    return None


def _candidates(body: bytes, names: list[str]) -> Iterator[tuple[str, bool]]:
    """Yield the packings to try, and whether only a whole body counts: any text may begin like such bytes."""
    if body[:3] == _MAGIC:
        yield GZIP, False
    if DEFLATE in names:
        # With its envelope, as the standard says, or without, as some senders do.
        yield DEFLATE, False
        yield RAW_DEFLATE, True
    elif body[:2] in _ZLIB_STARTS and not names:
        yield DEFLATE, True


def _inflated(body: bytes, packing: str, most: int) -> Unpacked | None:
    parts, rest, size, is_whole = list[bytes](), body, 0, False
    while rest and size < most:
        unpacker = zlib.decompressobj(_WINDOWS[packing])
        try:
            part = unpacker.decompress(rest, most - size)
        except zlib.error:
            if not parts:
                return None
            break
        parts.append(part)
        size, is_whole, rest = size + len(part), unpacker.eof, unpacker.unused_data
        # A gzip file may have several members, one behind the other.
        if not is_whole or rest[:3] != _MAGIC or packing != GZIP:
            break
    is_cut = not is_whole or rest[:3] == _MAGIC
    return Unpacked(
        b"".join(parts), packing, f"… (cut at {size:,} bytes)" if is_cut else "", is_damaged=is_cut or bool(rest)
    )


def pack(data: bytes, packing: str) -> bytes:
    """Pack bytes as a body was packed; the same bytes at any time."""
    return zlib.compress(data, zlib.Z_BEST_COMPRESSION, _WINDOWS[packing])


_XML_STRING: Final = re.compile(
    rf'(\s*(?:<\?xml[^>]*\?>\s*)?<string xmlns="{re.escape(DATA_CONTRACT)}">)(.*)(</string>\s*)', re.DOTALL
)
_XML_REFERENCE: Final = re.compile(r"&(?:#x([0-9a-fA-F]{1,6})|#([0-9]{1,7})|(lt|gt|amp|quot|apos));")
_NOT_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_JSON_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB]H{2}\\u[dD][c-fC-F]H{2}|uH{4}|.)".replace("H", "[0-9a-fA-F]"), re.DOTALL
)
_ORDERED: Final = {
    "utf-16": (("utf-16-le", codecs.BOM_UTF16_LE), ("utf-16-be", codecs.BOM_UTF16_BE)),
    "utf-32": (("utf-32-le", codecs.BOM_UTF32_LE), ("utf-32-be", codecs.BOM_UTF32_BE)),
}
"""Charsets of two orders of bytes: a byte order mark says which; without one it is the first."""
_MARKED: Final = (_ORDERED["utf-32"][0], *_ORDERED["utf-16"])
"""Charsets that a body which names none has if it begins with their byte order mark."""
_BYTE_ORDER_MARK: Final = "\ufeff"
_FIRST_SHOWN: Final = 40
_MOST_WRAPPERS: Final = 2
UNUSUAL_STARTS: Final = b"@< \n\r\t\xef\xff\xfe\x1f"
"""First bytes of bodies that may be more than text: wrappers of the older .NET clients, byte order marks, and gzip."""
_UNUSUAL: Final = frozenset(UNUSUAL_STARTS[at : at + 1] for at in range(len(UNUSUAL_STARTS)))
# Not within the quotes of another parameter.
_CHARSET: Final = re.compile(
    r"""(?:(?:[^"]|"[^"]*")*?;)?\s*charset\s*=\s*(?:"([^"]*)"|([^\s;"]+))""", re.IGNORECASE | re.DOTALL
)
# Not all that Python has under a name is a charset: some unpack, some evaluate escapes, some take quadratic time.
_CHARSETS: Final = re.compile(
    r"utf-(?:8|16|32)(?:-[bl]e)?|ascii|iso8859-\d+|cp\d+|koi8-[ru]|shift_jis|euc_(?:jp|kr)|gb(?:2312|k|18030)|big5"
)


class BodyType(StrEnum):
    """The AMQP body sections that hold the body (AMQP 1.0 section 3.2)."""

    DATA = "data"
    VALUE = "value"
    SEQUENCE = "sequence"


def decode_body(body: bytes, body_type: BodyType) -> AmqpValue:
    """Decode the body to an AMQP value: bytes for data, the value, or the list of sequences."""
    if body_type is BodyType.DATA:
        return body
    values = decode_all(body)
    if body_type is BodyType.SEQUENCE:
        if any(type(value) is not list for value in values):
            raise AmqpDecodeError("A sequence body holds AMQP lists only.")
        return values
    if len(values) != 1:
        raise AmqpDecodeError(f"A value body holds one AMQP value, this one holds {len(values)}.")
    return values[0]


class Marks(NamedTuple):
    body_type: BodyType = BodyType.DATA  # which AMQP sections hold it
    content_type: str | None = None  # may name the charset, or a compression
    content_encoding: str | None = None  # may name the compression
    properties: Mapping[str, Any] | None = None  # the application properties, which may name the compression

    @property
    def packings(self) -> list[str]:
        """Return how the body is packed as its message says: gzip, deflate, or a name that sbnotebook does not know."""
        names = _split(self.content_encoding or "")
        for name in mark_names(self.properties):
            # Others use the same names for something else, so only compressions count.
            value: Any = (self.properties or {})[name]
            text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
            names += [each for each in _split(text) if each in _NAMES or each in UNKNOWN]
        kind = (self.content_type or "")[:_LONGEST].partition(";")[0].strip().lower()
        names.append(_TYPES.get(kind, GZIP if kind.endswith("+gzip") else ""))
        known = [_NAMES.get(name, name) for name in names if name not in _NOTHING]
        return [name for name in dict.fromkeys(known) if _codec(name) is None]

    @property
    def charset(self) -> str | None:
        """Return the charset that is named; None for none, or for one that is not known."""
        # Some clients, such as Celery, name the charset in the content encoding.
        return _charset(self.content_type) or _codec((self.content_encoding or "")[:_LONGEST].strip().lower())

    @property
    def is_usual(self) -> bool:
        """Return whether the message says nothing, so that its body is UTF-8 unless its first bytes are unusual."""
        return self.content_encoding is None and _is_usual_type(self.content_type) and not mark_names(self.properties)

    @property
    def unknown_charset(self) -> str | None:
        return None if _charset(self.content_type) else _charset_name(self.content_type)


_NO_MARKS: Final = Marks()


class Layer(NamedTuple):
    kind: str  # packing, wrapper or charset; amqp for a text or bytes as an AMQP value, and value for other AMQP values
    name: str  # as users read it
    pack: Callable[[Any], bytes]  # puts the layer around the bytes inside; around the text for the innermost layer


@dataclass(frozen=True, slots=True)
class Form:
    layers: tuple[Layer, ...] = ()  # from the outside to the inside
    fault: str = ""  # why another text cannot be packed like this; "" where it can
    note: str = ""  # at the end of the text where it is cut

    def encode(self, text: str) -> bytes:
        if self.fault:
            raise DecisionError(self.fault)
        packed: Any = text
        for layer in reversed(self.layers):
            packed = layer.pack(packed)
        return packed

    def names(self, *kinds: str) -> list[str]:
        return [layer.name for layer in self.layers if layer.kind in kinds]

    def __str__(self) -> str:
        return ", ".join(layer.name for layer in self.layers) or "bytes"


def body_text(body: bytes, marks: Marks = _NO_MARKS, unpacking: Allowance | None = None) -> str | None:
    text, form = read_form(body, marks, unpacking)
    return None if text is None else text + form.note


def read_form(
    body: bytes, marks: Marks, unpacking: Allowance | None = None, *, is_for_edit: bool = False
) -> tuple[str | None, Form]:
    """Return the text of a body, None where it is not text, and its form."""
    if marks.body_type is BodyType.DATA:
        if body[:1] not in _UNUSUAL and marks.is_usual:
            # The body of most messages is their text as it is.
            with contextlib.suppress(UnicodeDecodeError):
                return body.decode(), _PLAIN
        return _read_data(body, marks, unpacking, is_for_edit=is_for_edit)
    try:
        value = decode_body(body, marks.body_type)
    except AmqpDecodeError as error:
        return None, Form(fault=f"The AMQP body is damaged: {error}")
    if marks.body_type is BodyType.SEQUENCE:
        return json_of(value), Form((Layer("value", "AMQP sequence", partial(_pack_sequence, value)),))
    name = f"AMQP value ({type_name(value)})"
    if isinstance(value, str):
        return str(value), Form((Layer("amqp", name, partial(_pack_string, value)),))
    if type(value) is bytes:
        text, form = _read_data(value, marks, unpacking, is_for_edit=is_for_edit)
        return text, replace(form, layers=(Layer("amqp", name, encode), *form.layers))
    return json_of(value), Form((Layer("value", name, partial(_pack_value, value)),))


# ------------------------------------------------------------ AMQP sections


def _pack_string(value: str, text: str) -> bytes:
    try:
        return encode(type(value)(text))
    except (TypeError, ValueError, OverflowError):
        raise DecisionError(f"The text does not fit into the AMQP type {type_name(value)} of the body.") from None


def _pack_value(value: AmqpValue, text: str) -> bytes:
    return encode(value_of(text, value))


def _pack_sequence(value: AmqpValue, text: str) -> bytes:
    sequences: Any = value_of(text, value)
    items = cast("list[Any]", sequences) if isinstance(sequences, list) else [None]
    if not all(type(each) is list for each in items):
        raise DecisionError("The body is AMQP sequences: it stays a list of lists.")
    return b"".join(map(encode, items or [[]]))


# ------------------------------------------------------------ bytes


def _read_data(
    body: bytes, marks: Marks, unpacking: Allowance | None, *, is_for_edit: bool = False
) -> tuple[str | None, Form]:
    said = marks.packings
    layers, data, value, note, fault = _unwrapped(body, said, unpacking, is_for_edit=is_for_edit)
    fault = fault or _packing_fault(said, layers)
    if isinstance(value, str):
        wrapper = Layer("wrapper", "text in a wrapper of .NET", partial(rewrite_binary_xml, data))
        return value, Form((*layers, wrapper), fault, note)
    text, inner = _read_charset(data, marks, is_cut=bool(note))
    return text, Form((*layers, *inner.layers), fault or inner.fault, note)


def inner_bytes(body: bytes, marks: Marks, unpacking: Allowance | None = None) -> tuple[bytes | None, str]:
    """Return the bytes of a body without its packing and its wrapper, and a note where they are cut.

    None for a body that is a text or a value of AMQP or .NET.
    """
    try:
        held = decode_body(body, marks.body_type)
    except AmqpDecodeError:
        return None, ""
    if type(held) is not bytes:
        return None, ""
    _, data, value, note, _ = _unwrapped(held, marks.packings, unpacking, is_for_edit=False)
    return (None, note) if isinstance(value, str) else (data, note)


def _unwrapped(
    body: bytes, said: list[str], unpacking: Allowance | None, *, is_for_edit: bool
) -> tuple[list[Layer], bytes, object, str, str]:
    """Take the packing and the wrappers of bytes off a body.

    Return the layers, the bytes inside, the text where these are the wrapper of one, the note and the fault.
    """
    layers, data, note, fault = list[Layer](), body, "", ""
    while True:
        is_unpacked = any(layer.kind == "packing" for layer in layers)
        if not is_unpacked and (found := unpacked(data, said, unpacking, is_for_edit=is_for_edit)):
            layers.append(_packing_layer(found.packing))
            data, note = found.data, found.note
            fault = f"The body is {found.packing}, and damaged or too large." if found.is_damaged else ""
        value = read_binary_xml(data) if data[:1] == b"@" else None
        if not isinstance(value, bytes) or len(layers) > _MOST_WRAPPERS:
            return layers, data, value, note, fault
        layers.append(Layer("wrapper", "bytes in a wrapper of .NET", partial(rewrite_binary_xml, data)))
        data = value


def _packing_fault(said: list[str], layers: list[Layer]) -> str:
    done = [layer.name.partition(" ")[0] for layer in layers if layer.kind == "packing"]
    missing = [name for name in said if name not in done]
    if not missing:
        return ""
    if not done and missing[0] in (GZIP, DEFLATE):
        return f"The message says that its body is {missing[0]}, and the body is not."
    many, other = ", ".join(said)[:_FIRST_SHOWN], missing[0][:_FIRST_SHOWN]
    how = f"packed more than once ({many})" if done else f"in the encoding {other!r}"
    return f"The body is {how}, which sbnotebook cannot write."


def _read_charset(data: bytes, marks: Marks, *, is_cut: bool) -> tuple[str | None, Form]:
    charset, mark = _charset_of(data, marks.charset), ""
    try:
        # A cut text may end within a character.
        text = codecs.getincrementaldecoder(charset)().decode(data) if is_cut else data.decode(charset)
    except UnicodeDecodeError:
        named = marks.unknown_charset or marks.charset
        why = f", at least not in the charset {named[:_FIRST_SHOWN]!r}" if named else ""
        return None, Form(fault=f"The body is not text{why}.")
    if charset.startswith("utf") and text[:1] == _BYTE_ORDER_MARK:
        text, mark = text[1:], _BYTE_ORDER_MARK
    layer, fault = _charset_layer(charset, mark), ""
    if marks.unknown_charset is not None:
        fault = f"sbnotebook does not know the charset {marks.unknown_charset[:_FIRST_SHOWN]!r} of the body."
    elif not charset.startswith(("utf", "ascii", "iso8859")) and not is_cut and layer.pack(text) != data:
        fault = f"The body has characters that {charset} writes in several ways."
    if text[:1] in ("<", " ", "\n", "\r", "\t") and (match := _XML_STRING.fullmatch(text)):
        wrapper = Layer("wrapper", "text in an XML wrapper of .NET", partial(_pack_xml, match[1], match[3], layer.pack))
        content = _XML_REFERENCE.sub(_xml_character, match[2])
        is_text = "<" not in match[2] and "&" not in _XML_REFERENCE.sub("", match[2])
        why = "" if is_text else "The XML wrapper of the body holds more than a text."
        return content, Form((wrapper,), fault or why)
    return text, Form((layer,), fault)


def _charset_of(data: bytes, named: str | None) -> str:
    # A body that is no more than two bytes is hardly a mark, and UTF-16 may begin with a zero.
    orders = _ORDERED.get(named, ()) if named else _MARKED[len(data) % 4 > 0 :] if data[2:] else ()
    usual = orders[0][0] if named and orders else named or "utf-8"
    return next((name for name, mark in orders if data.startswith(mark)), usual)


def _packing_layer(packing: str) -> Layer:
    return Layer("packing", packing, partial(pack, packing=packing))


def _charset_layer(charset: str, mark: str = "") -> Layer:
    name = f"{charset} with a byte order mark" if mark else charset
    return Layer("charset", name, partial(_pack_charset, charset, mark))


def _pack_charset(charset: str, mark: str, text: str) -> bytes:
    try:
        return (mark + text).encode(charset)
    except UnicodeEncodeError as error:
        raise DecisionError(f"The charset {charset} of the body has no {text[error.start - len(mark)]!r}.") from None


_PLAIN: Final = Form((_charset_layer("utf-8"),))


def _pack_xml(head: str, tail: str, inner: Callable[[str], bytes], text: str) -> bytes:
    bad = _NOT_XML.search(text)
    if bad is not None:
        raise DecisionError(f"The XML wrapper of the body cannot hold {bad[0]!r}.")
    return inner(head + html.escape(text, quote=False).replace("\r", "&#xD;") + tail)


def _xml_character(reference: re.Match[str]) -> str:
    in_hex, in_decimal, name = reference.groups()
    if name:
        return html.unescape(reference[0])
    point = int(in_hex, 16) if in_hex else int(in_decimal)
    return chr(point) if point < 0xD800 or 0xDFFF < point <= 0x10FFFF else reference[0]  # noqa: PLR2004 (surrogates)


@lru_cache(maxsize=256)
def _is_usual_type(content_type: str | None) -> bool:
    marks = Marks(content_type=content_type)
    return marks.charset in (None, "utf-8") and marks.unknown_charset is None and not marks.packings


@lru_cache(maxsize=256)
def _charset_name(content_type: str | None) -> str | None:
    """Return the charset that a content type names, known or not."""
    found = _CHARSET.match(content_type) if content_type and len(content_type) <= _LONGEST else None
    return (found[1] or found[2]) if found else None


def _charset(content_type: str | None) -> str | None:
    return _codec(_charset_name(content_type) or "")


@lru_cache(maxsize=256)
def _codec(name: str) -> str | None:
    """Return Python's name of a charset; None for one that is not known."""
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        return None
    return found if _CHARSETS.fullmatch(found) else None


# ------------------------------------------------------------ edits


def body_of_text(text: str, marks: Marks = _NO_MARKS) -> bytes:
    """Return the body of a text, in the charset and the compression that are named."""
    if marks.body_type is BodyType.VALUE:
        return encode(text)
    if marks.body_type is BodyType.SEQUENCE:
        raise DecisionError("A body of AMQP sequences is not a text: use Message.of_sequence([…]).")
    if marks.is_usual:
        return _pack_charset("utf-8", "", text)
    return Form((*_named_packings(marks), _named_charset(marks))).encode(text)


def _named_charset(marks: Marks) -> Layer:
    # Java reads UTF-16 without a mark in the other order.
    return _charset_layer(_charset_of(b"", marks.charset), _BYTE_ORDER_MARK if marks.charset in _ORDERED else "")


def _named_packings(marks: Marks) -> list[Layer]:
    said = marks.packings
    if not UNKNOWN.isdisjoint(said):
        raise DecisionError(f"sbnotebook cannot write a body in the encoding {said[0]!r}: give its bytes.")
    return [_packing_layer(name) for name in said if name in (GZIP, DEFLATE)][:1]


def edited_body(body: bytes, before: Marks, after: Marks, text: str) -> bytes:
    if before.body_type is not after.body_type:
        return body_of_text(text, after)
    old, form = read_form(body, before, is_for_edit=True)
    if old is None and body:
        raise DecisionError(form.fault or "The body is not text: give bytes.")
    note = form.note or (read_form(body, before)[1].note if text.endswith(" bytes)") else "")
    if form.note or (note and text.endswith(note)):
        raise DecisionError(form.fault or "The text of the body is cut, because it is packed and large.")
    if {layer.kind for layer in form.layers} - {"packing"} == {"charset"}:
        form = _named_anew(form, before, after)
    packed = form.encode(text)
    found, now = read_form(packed, after, is_for_edit=True)
    if now.fault or str(now) != str(form) or (found != text and not now.names("value")):
        why = f"The text cannot be packed as the body was ({form}): it would be read as another one."
        raise DecisionError(now.fault or why)
    return packed


def _named_anew(form: Form, before: Marks, after: Marks) -> Form:
    """Return a plain text's form with the compression and the charset that an edit names."""
    packings, charset, fault = form.layers[:-1], form.layers[-1:], form.fault
    if before.packings != after.packings:
        packings, fault = (*_named_packings(after),), ""
    if _says(before)[1:] != _says(after)[1:]:
        charset, fault = (_named_charset(after),), "" if before.unknown_charset else fault
    return Form((*packings, *charset), fault)


def _says(marks: Marks) -> tuple[Any, ...]:
    return marks.packings, marks.charset, marks.unknown_charset


def fault_of_bytes(body: bytes, before: Marks, new: bytes, after: Marks) -> str | None:
    """Return why bytes cannot take the place of a body, such as plain bytes for compressed ones; None if they can."""
    if new == body and before == after:
        return None
    old, form = read_form(body, before, is_for_edit=True)
    if old is None or (new == body and _says(before) == _says(after)):
        return None
    text, now = read_form(new, after, is_for_edit=True)
    if before.body_type is not after.body_type:
        return None if text is not None else now.fault
    layers, others = (each.names("packing", "wrapper", "amqp", "value") for each in (form, now))
    if before.packings == after.packings and layers != others:
        return f"The body was {form}, and the new bytes are not ({now})."
    if text is None:
        # Plain text without a charset may become anything.
        return now.fault if layers or after.charset is not None else None
    return now.fault if now.fault and not form.fault else _charset_fault(new, now)


def _charset_fault(new: bytes, now: Form) -> str | None:
    """Return why plain bytes are not in the charset of the message: they are UTF-8."""
    (name,) = now.names("charset") if len(now.layers) == 1 and now.names("charset") else ("utf-8",)
    if name.startswith(("utf-8", "ascii")) or (new.isascii() and not name.startswith("utf")):
        return None
    try:
        is_utf8 = "\0" not in new.decode()
    except UnicodeDecodeError:
        return None
    return f"The new bytes are UTF-8, and the charset of the body is {name}." if is_utf8 and new else None


def json_letters(text: str) -> str:
    r"""Return JSON with letters in place of their escapes, to be read; any other text as it is.

    Quotes, backslashes and characters that cannot be printed stay escaped, so the result is JSON with the same meaning.
    In a text of more than 2,000,000 characters, the escapes behind these stay.
    """
    if "\\u" not in text or text.lstrip("\ufeff \t\r\n")[:1] not in ("{", "[", '"'):
        return text
    return _JSON_ESCAPE.sub(_unescaped, text[:PARSED_CHARACTERS]) + text[PARSED_CHARACTERS:]


def is_usually_utf8(content_type: str | None) -> bool:
    """Return whether the text of bodies is their bytes as UTF-8, but for those that begin with ``UNUSUAL_STARTS``."""
    return _charset(content_type) in (None, "utf-8")


def _unescaped(escape: re.Match[str]) -> str:
    letter = json.loads(f'"{escape[0]}"') if escape[0][2:] else ""
    return letter if letter.isprintable() and letter not in '"\\' else escape[0]
