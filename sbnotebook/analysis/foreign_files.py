"""Files of messages that other tools wrote: Service Bus Explorer's JSON, and plain JSON lines.

A message is an object whose names are those of Service Bus's SDKs, in any case and with or without underscores, such as
``messageId``, ``MessageId`` and ``message_id``. A body that is JSON becomes its text. Sources:
``MessageSerializationHelper`` and ``BrokeredMessageTemplate`` of Service Bus Explorer 2.x to 6.x, which writes a file
with one object or a list, properties as ``{"key", "type", "value"}``, and, in older versions, each type as ``String``.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast

from sbnotebook.amqp import Timestamp
from sbnotebook.analysis.json_columns import refuse_constant
from sbnotebook.analysis.tables import printable
from sbnotebook.errors import ConfigurationError, near_match
from sbnotebook.model import Message
from sbnotebook.model.property_text import from_text

_MICROSECONDS: Final = re.compile(r"(\.\d{6})\d+")
_TEXTS: Final = {
    "messageid": "message_id",
    "sessionid": "session_id",
    "correlationid": "correlation_id",
    "contenttype": "content_type",
    "label": "subject",
    "subject": "subject",
    "partitionkey": "partition_key",
    "to": "to",
    "replyto": "reply_to",
    "replytosessionid": "reply_to_session_id",
}
_PROPERTIES: Final = ("properties", "applicationproperties", "userproperties")
_BODIES: Final = ("body", "bodytext", "message")
_OF_THE_SERVICE: Final = frozenset(
    (
        "bodyobject", "bodysize", "deadlettererrordescription", "deadletterreason", "deadlettersource", "deliverycount",
        "enqueuedsequencenumber", "enqueuedtime", "enqueuedtimeutc", "expiresat", "expiresatutc", "forcepersistence",
        "isbodyconsumed", "locktoken", "lockeduntil", "lockeduntilutc", "publisher", "rawamqpmessage", "sequencenumber",
        "size", "state", "transactionpartitionkey", "viapartitionkey",
    )
)  # fmt: skip
"""Fields of received messages only, or of one old library."""
_TIME_SPAN: Final = re.compile(r"(?:(\d+)\.)?(\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,7}))?")
_LONGEST_LIFE: Final = timedelta(days=10_675_199)
_TYPES: Final = {
    "Boolean": "boolean", "Byte": "ubyte", "SByte": "byte", "Int16": "short", "UInt16": "ushort", "Int32": "int",
    "UInt32": "uint", "Int64": "long", "UInt64": "ulong", "Single": "float", "Double": "double", "Char": "char",
    "Guid": "uuid",
}  # fmt: skip
"""The types of properties as .NET names them, and as AMQP does."""
_MOST_BYTES, _FIRST_LINE = 1_000_000_000, 50_000_000
_FOREIGN: Final = frozenset({"message_id", "content_type", "application_properties", "body_text"})


def is_foreign(path: Path) -> bool:
    """Return whether a file is of another tool: JSON, or JSON lines whose first has no place of a message of ours."""
    if path.suffix.lower() == ".json":
        return True
    if path.suffix.lower() != ".jsonl":
        return False
    try:
        with path.open("rb") as file:
            row: Any = json.loads(file.readline(_FIRST_LINE).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return False
    names = {name.lower() for name in cast("dict[str, Any]", row)} if isinstance(row, dict) else set[str]()
    ours = ("entity", "sequence_number")
    return bool(names & (_FOREIGN | _FIELDS.keys())) and names.isdisjoint(ours)


def read_foreign(path: Path) -> list[Message]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigurationError(f"{path} is larger than {_MOST_BYTES:,} bytes: split it.")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not in UTF-8, from byte {error.start:,} on.") from None
    left_out: set[str] = set()
    found = [_message(row, where, left_out) for where, row in _rows(text)]
    if left_out:
        names = ", ".join(sorted(printable(name[:60]) for name in left_out)[:10])
        warnings.warn(f"{path.name}: no field of a message to send, and left out: {names}.", stacklevel=4)
    return found


def _rows(text: str) -> Iterator[tuple[str, Any]]:
    try:
        whole: Any = _parsed(text)
    except ValueError:
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                where = f"Line {number:,}"
                try:
                    yield where, _parsed(line)
                except (ValueError, RecursionError) as error:
                    raise _refused(where, str(error)) from None
        return
    except RecursionError:
        raise ConfigurationError("The file does not hold messages: it is nested too deeply.") from None
    if isinstance(whole, list):
        yield from ((f"Message {number:,}", row) for number, row in enumerate(cast("list[Any]", whole), start=1))
    else:
        yield "Line 1", whole


def _parsed(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique, parse_constant=refuse_constant)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has {twice[:60]!r} twice")
    return found


def _refused(where: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"{where} is not a message: {printable(why[:200]).rstrip('.')}.")


def _message(row: Any, where: str, left_out: set[str]) -> Message:
    try:
        if not isinstance(row, dict):
            raise ValueError("it is not an object")  # noqa: TRY004, TRY301 (as what JSON cannot read)
        return _made(cast("dict[str, Any]", row), left_out)
    except (ValueError, OverflowError, RecursionError, ConfigurationError) as error:
        raise _refused(where, str(error)) from None


def _made(row: dict[str, Any], left_out: set[str]) -> Message:
    fields: dict[str, Any] = {}
    for name, value in row.items():
        key = name.replace("_", "").replace("-", "").lower()
        if key not in _FIELDS:
            if key not in _OF_THE_SERVICE and value is not None:
                if near := near_match(key, _FIELDS):
                    raise ValueError(f"it has an unknown field {name[:60]!r}: did you mean {near}?")
                left_out.add(name)
            continue
        _set(fields, name, key, value)
    if "body" not in fields:
        raise ValueError('it has no "body"; for lines that are bodies themselves, send the lines as texts')
    return Message(**fields)


def _set(fields: dict[str, Any], name: str, key: str, value: Any) -> None:
    if value is None and key not in _BODIES:
        return
    into, read = _FIELDS[key]
    if into in fields:
        raise ValueError(f"it has two fields for {into}, the second one is {name[:60]!r}")
    try:
        fields[into] = read(value)
    except (ConfigurationError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name[:60]}: {error}") from None
    if fields[into] is None:
        del fields[into]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("it is not a text")  # noqa: TRY004
    value.encode()  # half a character
    return value


def _body(value: Any) -> bytes:
    if value is None:
        raise ValueError("it is null: the tool could not read this body")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def _life(value: Any) -> timedelta | None:
    found = _TIME_SPAN.fullmatch(_text(value))
    if found is None:
        raise ValueError(f"{value[:40]!r} is not a time span, such as 1.02:03:04")
    days, hours, minutes, seconds, fraction = (int(part or 0) for part in found.groups())
    if days >= _LONGEST_LIFE.days:
        return None
    micro = int((found[5] or "").ljust(7, "0")[:6]) if fraction else 0
    return timedelta(days, seconds, micro, minutes=minutes, hours=hours)


def _time(value: Any) -> datetime | None:
    # .NET writes seven digits of a second.
    text = _MICROSECONDS.sub(r"\1", _text(value))
    time = datetime.fromisoformat(text)
    if time.year <= 1:  # .NET's DateTime.MinValue
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)


def _properties(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {_text(name): _typed(None, each) for name, each in cast("dict[str, Any]", value).items()}
    if not isinstance(value, list):
        raise ValueError("it is neither an object nor a list of key, type and value")  # noqa: TRY004
    found: dict[str, Any] = {}
    for each in cast("list[Any]", value):
        part = cast("dict[str, Any]", each) if isinstance(each, dict) else {}
        lowered = {name.lower(): value for name, value in part.items()}
        if "key" not in lowered:
            raise ValueError('a property has no "key"')
        name = _text(lowered["key"])
        if name in found:
            raise ValueError(f"it has {name[:60]!r} twice")
        found[name] = _typed(lowered.get("type"), lowered.get("value"))
    return found


def _typed(kind: Any, value: Any) -> Any:
    """Return a property of the type that the tool has noted; without a type, of the type in JSON."""
    if isinstance(value, (dict, list)):
        raise ValueError("a property is a list or an object, which AMQP does not take")  # noqa: TRY004
    if not isinstance(value, str):
        return value
    name, text = str(kind).removeprefix("System."), _text(value)
    if name == "DateTime":
        return _moment(text)
    return from_text(text.lower() if name == "Boolean" else text, _TYPES.get(name))


def _moment(text: str) -> Any:
    try:
        time = _time(text)
    except ValueError:  # the tool writes it in the words of its user's country
        return text
    return text if time is None else Timestamp.from_datetime(time)


_FIELDS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    **{key: (into, _text) for key, into in _TEXTS.items()},
    **dict.fromkeys(_BODIES, ("body", _body)),
    **dict.fromkeys(_PROPERTIES, ("application_properties", _properties)),
    "timetolive": ("time_to_live", _life),
    **dict.fromkeys(("scheduledenqueuetimeutc", "scheduledenqueuetime"), ("scheduled_enqueue_time", _time)),
}
"""The field of a message, and what reads it, by the names of tools in lower case."""
