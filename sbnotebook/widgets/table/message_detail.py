"""One message with all that it carries, for the pane beside the message table.

The data for the browser is cut to less than a megabyte. When the user copies or downloads the body, the browser fetches
all of it, piece by piece. All of it is shown as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from sbnotebook.amqp import AmqpValue, encode
from sbnotebook.analysis.descriptions import trace_lines
from sbnotebook.analysis.shapes import fault_of
from sbnotebook.errors import AmqpDecodeError
from sbnotebook.model import BodyType, ReceivedMessage
from sbnotebook.model.body import Marks, body_text, decode_body
from sbnotebook.model.property_text import property_type, to_text
from sbnotebook.widgets.pretty import Layout, cut, hex_lines, json_layout, json_places, visible, weight, xml_layout
from sbnotebook.widgets.table.row_packing import BODY, IN_COLUMNS, Decoded, path_name

PART: Final = 900_000
"""Bytes of a body that travel in one message."""
_MAX_LAYOUT: Final = 380_000
_MAX_TEXT: Final = 300_000
_MAX_HEX: Final = 16 * 1024
_MAX_VALUE: Final = 8_000
_LINES_WITH_VALUES: Final = 300
LONGEST_PATH: Final = 200
_MAX_PROPERTIES: Final = 130_000
"""Bytes of all properties together; the parts of a detail are less than a megabyte in all."""
_DEAD_LETTER: Final = ("dead_letter_source", "resubmit_count")
_MESSAGE: Final = (
    "message_id", "subject", "correlation_id", "session_id", "partition_key", "content_type", "content_encoding", "to",
    "reply_to", "reply_to_session_id", "time_to_live",
)  # fmt: skip
_DELIVERY: Final = (
    "entity", "sequence_number", "enqueued_sequence_number", "enqueued_time", "scheduled_enqueue_time", "expires_at",
    "locked_until", "delivery_count", "state",
)  # fmt: skip
_NOT_IN_FILE_NAMES: Final = re.compile(r"\W+", re.ASCII)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1f]")
_SAMPLE, _MOST_CONTROLS = 1_000, 10
"""A text of which every tenth character is a control character is more likely something else."""
_EXTENSIONS: Final = {"JSON": "json", "XML": "xml", "Text": "txt", "Hex": "bin"}


def detail_of(message: ReceivedMessage, decoded: Decoded | None = None) -> dict[str, Any]:
    """Return what the pane shows of a message: less than a megabyte of JSON, every character of it visible."""
    text, error = (message.body_text, None) if decoded is None else decoded
    views, notes = _views(message, text)
    notes += [visible(f"A decoder could not read the body: {_short(error)}.")] if error else []
    size = f"{len(message.body):,} byte{'' if len(message.body) == 1 else 's'}"
    kind = "" if message.body_type is BodyType.DATA else f"AMQP {message.body_type}"
    name = _NOT_IN_FILE_NAMES.sub("-", f"{message.entity}-{message.sequence_number}")
    return {
        "title": visible(f"Message {message.sequence_number} of {message.entity}"),
        "file_name": f"{name}.{_EXTENSIONS[views[0]['name']]}",
        "about": visible(", ".join(filter(None, (size, _short(message.content_type), kind)))),
        "size": len(message.body),
        "text_size": None if text is None else len(text.encode(errors="replace")),
        "notes": notes,
        "fault": _fault_of(message),
        "views": views,
        "sections": _sections(message),
    }


def body_part(message: ReceivedMessage, offset: int, *, as_text: bool = False, decoded: Decoded | None = None) -> bytes:
    """Return a piece of a body as it is, at most :data:`PART` bytes; fewer at its end."""
    text = message.body_text if decoded is None else decoded[0]
    whole = (text or "").encode(errors="replace") if as_text else message.body
    return whole[offset : offset + PART]


# ------------------------------------------------------------ the body


def _views(message: ReceivedMessage, text: str | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the body in the ways in which it can be read, the best first, and notes on it."""
    unreadable = f"Its bytes could not be read as a message: {_short(message.unreadable)}."
    notes = [visible(unreadable)] if message.unreadable else []
    in_hex = _view("Hex", hex_lines(message.body[:_MAX_HEX]), is_cut=len(message.body) > _MAX_HEX)
    if text is None:
        broken = message.body[:_MAX_TEXT].decode("utf-8", "backslashreplace")
        shown, is_cut = cut(visible(broken), _MAX_TEXT)
        if message.body_type is not BodyType.DATA:
            notes.append(f"Its AMQP {message.body_type} could not be read: {_fault(message)}")
        notes.append(r"The body is not text: under Text, bytes that are not characters appear as \x and their value.")
        return [in_hex, _view("Text", shown, is_cut=is_cut or len(message.body) > _MAX_TEXT)], notes
    if message.body_type is BodyType.DATA and text.encode(errors="replace") != message.body:
        notes.append("The body was unpacked or decoded to this text. Hex and Download have its bytes as they are.")
    shown, is_cut = cut(visible(text[:_MAX_TEXT]), _MAX_TEXT)
    views = [_view("Text", shown, is_cut=is_cut or len(text) > _MAX_TEXT), in_hex]
    kind, layout = _layout(text, (message.content_type or "").lower())
    if layout.text:
        views.insert(0, _view(kind, layout.text, is_cut=layout.is_cut))
        if kind == "JSON":
            views[0]["places"] = _places(text)
    elif layout.fault:
        notes.append(f"The body is not valid {kind}: {layout.fault}.")
    elif _CONTROLS.subn("", text[:_SAMPLE])[1] * _MOST_CONTROLS > len(text[:_SAMPLE]):
        views.reverse()
    return views, notes


def _fault(message: ReceivedMessage) -> str:
    try:
        decode_body(message.body, message.body_type)
    except AmqpDecodeError as error:
        return visible(_short(str(error)))
    return "it is empty."


def _layout(text: str, content_type: str) -> tuple[str, Layout]:
    begin = text[:1_000].lstrip("\ufeff \t\r\n")[:1]
    if begin and (begin in "{[" or "json" in content_type):
        return "JSON", json_layout(text.lstrip("\ufeff"), _MAX_LAYOUT)
    if begin == "<":
        return "XML", xml_layout(text.lstrip("\ufeff \t\r\n"), _MAX_LAYOUT)
    return "Text", Layout("")


def _places(text: str) -> list[list[object]]:
    """Return the lines of the layout with a value that a table can be filtered by, and the paths of these values."""
    found = json_places(text.lstrip("\ufeff"), _LINES_WITH_VALUES)
    named = ((line, path_name(path).removeprefix(BODY)) for line, path in found)
    return [[line, name] for line, name in named if len(name) <= LONGEST_PATH]


def _view(name: str, text: str, *, is_cut: bool) -> dict[str, Any]:
    note = "This is its beginning only. Download has the whole body." if is_cut else ""
    return {"name": name, "text": text, "note": note}


# ------------------------------------------------------------ the fault


def _fault_of(message: ReceivedMessage) -> dict[str, Any] | None:
    own = message.dead_letter_reason, message.dead_letter_error_description
    reason, description = (text or "" for text in fault_of(*own, message.application_properties))
    if not reason and not description:
        return None
    lines = trace_lines(_shown(description)) if description else []
    return {"reason": _shown(reason), "lines": [[line, is_library] for line, is_library in lines]}


# ------------------------------------------------------------ the properties


def _sections(message: ReceivedMessage) -> list[dict[str, Any]]:
    room = _MAX_PROPERTIES
    own = {name: value for name, value in message.application_properties.items() if name not in IN_COLUMNS}
    sections = (
        ("Dead letter", _fields(message, _DEAD_LETTER)),
        ("Application properties", _values(own)),
        ("Message", _fields(message, _MESSAGE)),
        ("Delivery", _fields(message, _DELIVERY)),
        ("Other sections", _values(message.extras)),
    )
    found: dict[str, list[list[str]]] = {}
    for title, row in ((title, row) for title, rows in sections for row in rows):
        room -= sum(map(weight, row))
        taken = found.setdefault(title, [])
        if room < 0:
            taken.append(["…", "There are more properties than can be shown.", ""])
            break
        taken.append(row)
    return [{"title": title, "rows": rows} for title, rows in found.items()]


def _fields(message: ReceivedMessage, names: Iterable[str]) -> Iterable[list[str]]:
    for name in names:
        value = getattr(message, name, None)
        if isinstance(value, datetime):
            value = value.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")
        if value is not None and value != "" and not (name == "resubmit_count" and not value):
            yield [name, _shown(str(value)), ""]


def _values(values: Mapping[str, AmqpValue]) -> Iterable[list[str]]:
    for name, value in values.items():
        kind = property_type(value)
        yield [_shown(str(name)), _shown(_value_text(value, kind)), _shown(kind)]


def _value_text(value: AmqpValue, kind: str) -> str:
    if kind in ("list", "map", "array", "described"):  # which have no text
        return body_text(encode(value), Marks(BodyType.VALUE)) or ""
    if type(value) is bytes:
        return value[:_MAX_VALUE].hex(" ")
    return to_text(value) or ""


def _shown(text: str) -> str:
    shown, is_cut = cut(visible(text[:_MAX_VALUE]), _MAX_VALUE)
    return f"{shown}… (cut, {len(text):,} characters)" if is_cut or len(text) > _MAX_VALUE else shown


def _short(text: str | None) -> str:
    return (text or "")[:200]
