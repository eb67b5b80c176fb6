"""Message bodies as text: plain, JSON, compressed, the formats of the older .NET clients, and those of others.

Bodies are hostile input. Nothing in them is ever evaluated, and packed bodies are unpacked up to a limit only.

Other packages decode Protobuf, Avro, or an application's own format. Such a package names its decoders as entry points
of the group ``sbnotebook.body_decoders``. Each is a function that takes the body's bytes and the content type, and
returns the text. It returns None for a body of another format. In ``pyproject.toml``::

    [project.entry-points."sbnotebook.body_decoders"]
    orders = "acme.messages:decode_order"

The first decoder that returns a text wins, in the order of their names. A decoder that fails is skipped, with one
warning for each decoder.
"""

from __future__ import annotations

import codecs
import gzip
import html
import json
import re
import warnings
import zlib
from collections.abc import Callable
from email.message import Message as MimeHeaders
from enum import StrEnum
from functools import cache, lru_cache
from importlib.metadata import entry_points
from typing import Any, Final

from sbnotebook.errors import AmqpDecodeError
from sbnotebook.model.amqp import AmqpValue, Described, decode_all
from sbnotebook.model.binary_xml import DATA_CONTRACT, read_binary_xml
from sbnotebook.model.budget import (
    PARSED_CHARACTERS,
    UNPACKED_BYTES,
    UNPACKED_BYTES_OF_TABLE,
    UNPACKED_TIMES,
    Allowance,
)

__all__ = [
    "UNUSUAL_STARTS",
    "BodyType",
    "body_of_text",
    "body_text",
    "decode_body",
    "is_usually_utf8",
    "json_letters",
]

_XML_STRING: Final = re.compile(
    rf'\s*(?:<\?xml[^>]*\?>\s*)?<string xmlns="{re.escape(DATA_CONTRACT)}">(.*)</string>\s*', re.DOTALL
)
_JSON_STARTS: Final = ("{", "[", '"')
_JSON_ESCAPE: Final = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u....|.)", re.DOTALL)
_LONGEST_HEADER: Final = 200
_MARK: Final = 2
_MARKED: Final = {codecs.BOM_UTF8[:_MARK]: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
"""The charsets of bodies that do not name one, by the byte order mark that they begin with."""
UNUSUAL_STARTS: Final = b"@< \n\r\t\xef\xff\xfe"
"""First bytes of bodies that may be more than text: wrappers of the older .NET clients, and byte order marks."""
# Not all that Python has under a name is a charset: some unpack, some evaluate escapes, some take quadratic time.
_CHARSETS: Final = re.compile(
    r"utf-(?:8|16|32)(?:-[bl]e)?|ascii|iso8859-\d+|cp\d+|koi8-[ru]|shift_jis|euc_(?:jp|kr)|gb(?:2312|k|18030)|big5"
)
_GROUP: Final = "sbnotebook.body_decoders"
_BodyDecoder = Callable[[bytes, str | None], str | None]
"""Takes the bytes of a body and its content type; gives its text, or None when the body is not its own."""

_SHOWN_OF_ERROR: Final = 200
_warned_of: Final = set[str]()


class BodyType(StrEnum):
    """The AMQP body sections that hold the body (AMQP 1.0 section 3.2)."""

    DATA = "data"
    VALUE = "value"
    SEQUENCE = "sequence"


def decode_body(body: bytes, body_type: BodyType) -> AmqpValue:
    """Decode the body to an AMQP value: bytes for data, the value, or the list of sequences.

    Args:
        body: for data the bytes themselves; otherwise the AMQP encoding of the value, or of the
            sequences one behind the other.
        body_type: how to read them.

    Raises:
        AmqpDecodeError: the bytes are not what the type says.
    """
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


def body_text(
    body: bytes,
    body_type: BodyType,
    content_type: str | None = None,
    content_encoding: str | None = None,
    unpacking: Allowance | None = None,
) -> str | None:
    r"""Return the body as text; None when it is not text.

    Args:
        body: as for :func:`decode_body`.
        body_type: which sections hold it.
        content_type: names the charset, UTF-8 where it does not.
        content_encoding: ``gzip`` or ``deflate`` for a body that is packed; of one that unpacks to more than a megabyte
            and 16 times its size, or to 64 megabytes, the text ends there and says so.
        unpacking: for a message of a table, the bytes that its packed bodies may still take together beyond 16 times
            their size; None for one message alone.

    Returns:
        JSON as it was written; the content of the string and byte wrappers of the older .NET clients, and their objects
        as XML; value and sequence bodies as text or JSON. For other bytes, the text of an installed decoder.

    Example:
        >>> body_text(b'{"carrier": "UA"}', BodyType.DATA)
        '{"carrier": "UA"}'
        >>> body_text("Grüße".encode("latin-1"), BodyType.DATA, "text/plain; charset=ISO-8859-1")
        'Grüße'
        >>> body_text(b"\xff\xfe", BodyType.DATA) is None
        True
    """
    if body_type is not BodyType.DATA:
        return _value_text(body, body_type)
    end = ""
    if content_encoding is not None:
        body, end = _unpacked(body, content_encoding[:_LONGEST_HEADER].strip().lower(), unpacking)
    text = _decoded(body, content_type)
    if text is None:
        text = _data_text(body, _charset(content_type), is_cut=bool(end))
    return None if text is None else text + end


def json_letters(text: str) -> str:
    r"""Return JSON with letters in place of their escapes, to be read; any other text as it is.

    Quotes, backslashes and characters that cannot be printed stay escaped, so the result is JSON with the same meaning.
    In a text of more than 2,000,000 characters, the escapes behind these stay.

    Example:
        >>> json_letters(r'{"name": "Jos\u00e9 \u202e \u0022"}')
        '{"name": "José \\u202e \\u0022"}'
    """
    if "\\u" not in text or text.lstrip("\ufeff \t\r\n")[:1] not in _JSON_STARTS:
        return text
    return _JSON_ESCAPE.sub(_unescaped, text[:PARSED_CHARACTERS]) + text[PARSED_CHARACTERS:]


def _unescaped(escape: re.Match[str]) -> str:
    if escape[0][1] != "u":
        return escape[0]
    try:
        letter = json.loads(f'"{escape[0]}"')
    except json.JSONDecodeError:
        return escape[0]
    return letter if letter.isprintable() and letter not in '"\\' else escape[0]


def is_usually_utf8(content_type: str | None) -> bool:
    """Return whether the text of bodies is their bytes as UTF-8, but for those that begin with ``UNUSUAL_STARTS``."""
    return not _has_decoders() and _charset(content_type) in (None, "utf-8")


def body_of_text(text: str, content_type: str | None = None, content_encoding: str | None = None) -> bytes:
    """Return the body of a text, in the charset and the content encoding that are named.

    Raises:
        UnicodeEncodeError: the charset has not all characters of the text.
    """
    body = text.encode(_charset(content_type) or "utf-8")
    encoding = (content_encoding or "").strip().lower()
    if encoding == "gzip":
        return gzip.compress(body, mtime=0)
    return zlib.compress(body) if encoding == "deflate" else body


def _data_text(body: bytes, charset: str | None, *, is_cut: bool = False) -> str | None:
    value = read_binary_xml(body) if body[:1] == b"@" else None
    if isinstance(value, str):
        return value
    if value is not None:
        body = value
    if charset is None:
        charset = _MARKED.get(body[:2], "utf-8") if len(body) > _MARK else "utf-8"
    try:
        # A cut text may end within a character.
        text = codecs.getincrementaldecoder(charset)().decode(body) if is_cut else body.decode(charset)
    except UnicodeDecodeError:
        return None
    if text[:1] not in ("<", " ", "\n", "\r", "\t"):
        return text
    match = _XML_STRING.fullmatch(text)
    return html.unescape(match[1]) if match else text


def _unpacked(body: bytes, encoding: str, unpacking: Allowance | None) -> tuple[bytes, str]:
    """Unpack a body, and return it with a note for a cut end; a body of another format stays as it is."""
    free = min(UNPACKED_TIMES * len(body), UNPACKED_BYTES_OF_TABLE)
    most = max(UNPACKED_BYTES, free)
    if unpacking is not None:
        most = min(most, free + unpacking.left)
    if encoding == "gzip":
        windows = (zlib.MAX_WBITS | 16,)
    elif encoding == "deflate":
        # With its envelope, as the standard says, or without, as some senders do.
        windows = (zlib.MAX_WBITS, -zlib.MAX_WBITS)
    else:
        return body, ""
    for window in windows:
        unpacker = zlib.decompressobj(window)
        try:
            found = unpacker.decompress(body, most)
        except zlib.error:
            continue
        if unpacking is not None:
            unpacking.take(max(0, len(found) - free))
        return found, "" if unpacker.eof else f"… (cut at {len(found):,} bytes)"
    return body, ""


@lru_cache(maxsize=256)
def _charset(content_type: str | None) -> str | None:
    """Return the charset that a content type names; None when it names none that is known."""
    if not content_type or len(content_type) > _LONGEST_HEADER or "charset" not in content_type.lower():
        return None
    headers = MimeHeaders()
    headers["content-type"] = " ".join(content_type.split())
    try:
        name = codecs.lookup(str(headers.get_param("charset"))).name
    except (LookupError, ValueError):
        return None
    return name if _CHARSETS.fullmatch(name) else None


def _value_text(body: bytes, body_type: BodyType) -> str | None:
    try:
        value = decode_body(body, body_type)
    except AmqpDecodeError:
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return body_text(value, BodyType.DATA)
    return json.dumps(_json_ready(value), ensure_ascii=False, default=str)


def _json_ready(value: Any) -> Any:
    items: Any = value
    if isinstance(value, bytes):
        return body_text(value, BodyType.DATA) or value.hex()
    if isinstance(value, Described):
        return _json_ready(value.value)
    if isinstance(value, list):
        return [_json_ready(item) for item in items]
    if isinstance(value, dict):
        return {str(key): _json_ready(item) for key, item in items.items()}
    return value


def _decoded(body: bytes, content_type: str | None) -> str | None:
    """Return the text that the first decoder to know the body returns; None when there is none."""
    for name, decoder in _decoders():
        try:
            text = decoder(body, content_type)
        except Exception as error:  # noqa: BLE001 (a broken decoder must not hide the message)
            _warn_once(name, f"{type(error).__name__}: {error}")
            continue
        if isinstance(text, str):
            return text
        if text is not None:
            _warn_once(name, f"it gave {type(text).__name__}, not str or None")
    return None


def _has_decoders() -> bool:
    """Return whether decoders are installed."""
    return bool(_decoders())


@cache
def _decoders() -> tuple[tuple[str, _BodyDecoder], ...]:
    """Return the installed decoders; found once, because that reads a file of each package."""
    found: list[tuple[str, _BodyDecoder]] = []
    for entry in sorted(entry_points(group=_GROUP), key=lambda entry: entry.name):
        try:
            found.append((entry.name, entry.load()))
        except Exception as error:  # noqa: BLE001 (any package's import)
            _warn_once(entry.name, f"{type(error).__name__}: {error}")
    return tuple(found)


def _warn_once(name: str, why: str) -> None:
    if name in _warned_of:
        return
    _warned_of.add(name)
    # An error may quote the message.
    shown = "".join(character if character.isprintable() else "·" for character in why[:_SHOWN_OF_ERROR])
    warnings.warn(f"The body decoder {name!r} failed and is passed over: {shown}", RuntimeWarning, stacklevel=2)
