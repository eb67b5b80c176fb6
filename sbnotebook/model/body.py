"""Message bodies as text: plain, JSON, and the wrappers of the older .NET clients."""

from __future__ import annotations

import html
import json
import re
from enum import StrEnum
from typing import Any, Final

from sbnotebook.errors import AmqpDecodeError
from sbnotebook.model.amqp import AmqpValue, Described, decode

__all__ = ["BodyType", "body_text", "decode_body"]

_DATA_CONTRACT: Final = b"http://schemas.microsoft.com/2003/10/Serialization/"
# A binary XML document with the one element <string>: element record 0x40 with the name, attribute record
# 0x08 with the default namespace, then one text record ([MC-NBFX] 2.2.3).
_BINARY_STRING: Final = b"@\x06string\x08" + bytes((len(_DATA_CONTRACT),)) + _DATA_CONTRACT
# Chars8 to Chars32, and UnicodeChars8 to UnicodeChars32, which .NET takes where they are shorter: how many bytes
# the length has, and the encoding.
_TEXT_RECORDS: Final = {
    0x98: (1, "utf-8"), 0x9A: (2, "utf-8"), 0x9C: (4, "utf-8"),
    0xB6: (1, "utf-16-le"), 0xB8: (2, "utf-16-le"), 0xBA: (4, "utf-16-le"),
}  # fmt: skip
_CONSTANT_RECORDS: Final = {0x80: "0", 0x82: "1", 0xA8: ""}
# What may follow the text: nothing, or the end of the element.
_ENDS: Final = (b"", b"\x01")
_XML_STRING: Final = re.compile(
    r"\s*(?:<\?xml[^>]*\?>\s*)?<string xmlns=\"http://schemas\.microsoft\.com/2003/10/Serialization/\">(.*)</string>\s*",
    re.DOTALL,
)


class BodyType(StrEnum):
    """Which AMQP body sections hold the body (AMQP 1.0 section 3.2)."""

    DATA = "data"
    VALUE = "value"
    SEQUENCE = "sequence"


def decode_body(body: bytes, body_type: BodyType) -> AmqpValue:
    """The body as an AMQP value: bytes for data, the value, or the list of sequences.

    Args:
        body: for data the bytes themselves; otherwise the AMQP encoding of the value, or of the
            sequences one behind the other.
        body_type: how to read them.

    Raises:
        AmqpDecodeError: the bytes are not what the type says.
    """
    if body_type is BodyType.DATA:
        return body
    values: list[AmqpValue] = []
    offset = 0
    while offset < len(body):
        value, offset = decode(body, offset)
        values.append(value)
    if body_type is BodyType.SEQUENCE:
        if any(type(value) is not list for value in values):
            raise AmqpDecodeError("A sequence body holds AMQP lists only.")
        return values
    if len(values) != 1:
        raise AmqpDecodeError(f"A value body holds one AMQP value, this one holds {len(values)}.")
    return values[0]


def body_text(body: bytes, body_type: BodyType) -> str | None:
    r"""The body as text, None when it is not text.

    JSON stays as it was written; the string and XML wrappers of the older .NET clients are taken off; value
    and sequence bodies are given as text or JSON.

    Example:
        >>> body_text(b'{"carrier": "UA"}', BodyType.DATA)
        '{"carrier": "UA"}'
        >>> body_text(b"\xff\xfe", BodyType.DATA) is None
        True
    """
    if body_type is not BodyType.DATA:
        return _value_text(body, body_type)
    if body.startswith(_BINARY_STRING) and (text := _binary_string(body[len(_BINARY_STRING) :])) is not None:
        return text
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    match = _XML_STRING.fullmatch(text)
    return html.unescape(match[1]) if match else text


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


def _binary_string(record: bytes) -> str | None:
    """The text of the record behind a wrapper's head; None when it is not one whole record."""
    code = record[0] & 0xFE if record else 0  # the odd records end the element as well
    if code in _CONSTANT_RECORDS:
        return _CONSTANT_RECORDS[code] if record[1:] in _ENDS else None
    if code not in _TEXT_RECORDS:
        return None
    width, encoding = _TEXT_RECORDS[code]
    first = 1 + width
    end = first + int.from_bytes(record[1:first], "little")
    if len(record) < end or record[end:] not in _ENDS:
        return None
    try:
        return record[first:end].decode(encoding)
    except UnicodeDecodeError:
        return None
