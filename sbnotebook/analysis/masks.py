"""Masks in place of values of messages, so that a copy of the messages can be given away.

The same value gets the same mask everywhere in a copy, so that groups, joins and sessions still work. A mask is made of
the value and of a random key, which is kept nowhere: a dictionary of likely values does not lead back to the value.

Paths name the values: a part of JSONPath (RFC 9535), as DuckDB writes it in expressions.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar, cast
from uuid import UUID

from sbnotebook.amqp import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Int,
    Short,
    Timestamp,
    UByte,
    UInt,
    UShort,
    encode,
)
from sbnotebook.amqp.decoding import LEVELS
from sbnotebook.errors import AmqpDecodeError, ConfigurationError, DecisionError
from sbnotebook.model import BodyType, ReceivedMessage
from sbnotebook.model.amqp_layout import PARTITION_KEY
from sbnotebook.model.body import body_of_text, edited_body
from sbnotebook.model.budget import PARSED_CHARACTERS
from sbnotebook.model.json_text import JsonNumber, read_json, rewrite_json
from sbnotebook.model.message import (
    DATA_SECTIONS,
    DEAD_LETTER_ERROR_DESCRIPTION,
    DEAD_LETTER_REASON,
    ORIGINAL_MESSAGE_ID,
)

M = TypeVar("M", bound=ReceivedMessage)

_PROPERTIES: Final = "application_properties"
_PROPERTY: Final = f"{_PROPERTIES}."
_PROPERTY_COLUMNS: Final = {
    "dead_letter_reason": DEAD_LETTER_REASON,
    "dead_letter_error_description": DEAD_LETTER_ERROR_DESCRIPTION,
}
_COLUMNS: Final = (
    *("message_id", "session_id", "partition_key", "correlation_id", "subject"),
    *("to", "reply_to", "reply_to_session_id"),
)
MASKED_COLUMNS: Final = (*_COLUMNS, *_PROPERTY_COLUMNS)
"""The message columns that can be masked."""
_ANNOTATIONS: Final = "message_annotations"
_SHOWN: Final = 60
_DIGITS: Final = 16
"""Hexadecimal digits of a mask."""
_BITS: Final[Mapping[type, int]] = {UByte: 8, Byte: 7, UShort: 16, Short: 15, Int: 31, UInt: 31, Timestamp: 41}
"""Bits of the masks of AMQP's numbers; 41 are milliseconds until 2039."""
_SMALL, _LARGE = 31, 53
"""Bits of the masks of other whole numbers: those that fit into 32 bits, and larger ones."""
_LENGTHS: Final[Mapping[type, int]] = {Decimal32: 4, Decimal64: 8, Decimal128: 16}
_MISFITS: Final = (AmqpDecodeError, DecisionError, ValueError, RecursionError, TypeError, OverflowError)
"""The errors of a body that is not JSON, or that cannot be written again."""
_STEP: Final = re.compile(
    r"""(?P<dots>\.{0,2})(?:(?P<name>[^\W\d][\w-]*+|\*)|\[(?:(?P<place>[0-9]{1,9}|\*)|(?P<quoted>"[^"\\]*+"|'[^'\\]*+'))\])"""
)
_ALL: Final = "*"


class Masks:
    """The masks of one copy.

    Args:
        paths: what to mask. ``$.customer.email`` is a value in JSON bodies, ``$.items[*].email`` one in each element of
            a list, ``$..email`` one on any level, and ``$`` the whole body. ``application_properties.customer`` is a
            property, and ``correlation_id`` a column.

    Attributes:
        found: by path, in how many messages it had a value.
        whole: how many bodies were masked as a whole, because they are not JSON.

    Raises:
        ConfigurationError: a path is wrong.

    Example:
        >>> Masks(["$.email", "application_properties.customer", "correlation_id"]).found
        {'$.email': 0, 'application_properties.customer': 0, 'correlation_id': 0}
    """

    def __init__(self, paths: str | Iterable[str] = ()) -> None:
        given: Any = paths
        names: Any = [given] if isinstance(paths, str) or not hasattr(given, "__iter__") else given
        self.found: dict[str, int] = dict.fromkeys(map(str, names), 0)
        self.whole = 0
        self._documents = 0
        self._key = secrets.token_bytes(32)
        self._fields: list[tuple[str, Path]] = []
        self._bodies: dict[str, Path] = {}
        for path in self.found:
            self._add(path)

    @property
    def missed(self) -> list[str]:
        """Return the paths that had a value in no message; those into bodies only if a body is JSON or empty."""
        is_known = not self.whole or self._documents
        return [path for path, count in self.found.items() if not count and (is_known or path not in self._bodies)]

    def masked(self, message: M) -> M:
        """Return a message with masks in place of the values at all paths; unchanged if it could not be read."""
        if not self.found or message.unreadable is not None:
            return message
        found: set[str] = set()
        changes = self._masked_fields(message, found)
        if self._bodies and message.body:
            changes["body"] = self._masked_body(message, found)
        for path in found:
            self.found[path] += 1
        changes["extras"] = _extras_without(message, {*changes})
        return message.with_changes(**changes)

    def _add(self, path: str) -> None:
        steps, is_property = parse_path(path), path.startswith(_PROPERTY) and path != _PROPERTY
        if steps is not None:
            self._bodies[path] = steps
        elif path in _COLUMNS:
            self._fields.append((path, (Step(path),)))
        elif path in _PROPERTY_COLUMNS or is_property:
            name = _PROPERTY_COLUMNS.get(path, path.removeprefix(_PROPERTY))
            self._fields.append((path, (Step(_PROPERTIES), Step(name))))
        else:
            raise ConfigurationError(
                f"{path[:_SHOWN]!r} cannot be masked: write $.email for a value in JSON bodies, "
                "application_properties.NAME for a property, or a column such as correlation_id."
            )
        if path == "message_id":  # a resubmit has written the id there
            self._fields.append((path, (Step(_PROPERTIES), Step(ORIGINAL_MESSAGE_ID))))

    def _masked_fields(self, message: ReceivedMessage, found: set[str]) -> dict[str, Any]:
        held: dict[str, Any] = {name: value for name in _COLUMNS if (value := getattr(message, name)) is not None}
        properties = message.application_properties
        held[_PROPERTIES] = {name: value for name, value in properties.items() if value is not None}
        paths = self._fields
        if message.partition_key == message.session_id:  # Service Bus wants them to be equal
            pairs = {"session_id": "partition_key", "partition_key": "session_id"}
            paths = [*paths, *((path, (Step(pairs[path]),)) for path, _ in paths if path in pairs)]
        masked = change_at(held, paths, self._mask, found)
        changes = {name: masked[name] for name, value in held.items() if masked[name] != value}
        return changes | ({_PROPERTIES: {**properties, **changes[_PROPERTIES]}} if _PROPERTIES in changes else {})

    # ------------------------------------------------------------------ bodies

    def _masked_body(self, message: ReceivedMessage, found: set[str]) -> bytes:
        inside: set[str] = set()
        try:
            body = self._masked_json(message, inside)
        except _MISFITS:
            self.whole += 1
            return _whole(self._mask(message.body.hex()), message)
        self._documents += 1
        found |= inside
        return body

    def _masked_json(self, message: ReceivedMessage, found: set[str]) -> bytes:
        """Return the body with masks; raise one of ``_MISFITS`` if it has no values at paths."""
        value: Any = message.body_text if message.body_type is BodyType.DATA else message.body_value
        text = value.decode() if isinstance(value, bytes) else value if isinstance(value, str) else None
        if text is not None and len(text) > PARSED_CHARACTERS:
            raise ValueError("The body is too long to be parsed.")
        document: Any = value if text is None else read_json(text)
        if not isinstance(document, dict | list | Described):
            raise TypeError("a text, which may be JSON itself")
        masked = change_at(document, self._bodies.items(), self._mask, found)
        if not found:
            return message.body
        if text is not None:
            masked = rewrite_json(text, masked)
        return _written(masked.encode() if isinstance(value, bytes) else masked, message)

    # ------------------------------------------------------------------ values

    def _mask(self, value: Any) -> Any:
        """Return the mask of a value, which has the same type. Nothing stays of a truth value."""
        if value is None or value in ("", b""):
            return value
        if isinstance(value, bool):
            return False
        if isinstance(value, int | float):
            return self._masked_number(value)
        if isinstance(value, bytes):
            return type(value)(self._digest("bytes", value.hex())[: _LENGTHS.get(type(value), _DIGITS)])
        digest = self._digest("text", str(value))
        if isinstance(value, UUID):
            return UUID(bytes=digest[:16])
        if isinstance(value, Char):
            return Char(chr(ord("a") + digest[0] % 26))
        mask = f"masked-{digest.hex()[:_DIGITS]}"
        return type(value)(mask) if isinstance(value, str) else mask

    def _masked_number(self, value: float) -> Any:
        is_whole = isinstance(value, int)
        number = int.from_bytes(self._digest("number", str(int(value)) if is_whole else repr(float(value)))[:8])
        if not is_whole:
            cents = number % 2**_SMALL / 100
            return JsonNumber(f"{cents:.2f}") if isinstance(value, JsonNumber) else type(value)(cents)
        return type(value)(number % 2 ** _BITS.get(type(value), _SMALL if abs(value) < 2**_SMALL else _LARGE))

    def _digest(self, kind: str, text: str) -> bytes:
        return hmac.digest(self._key, f"{kind}:{text}".encode(errors="surrogatepass"), "sha256")


def _extras_without(message: ReceivedMessage, changed: set[str]) -> dict[str, Any]:
    """Return the extras without the values of some fields, which they have once more if their AMQP type is unusual."""
    gone = changed | {DATA_SECTIONS} if "body" in changed else changed
    extras: dict[str, Any] = {name: value for name, value in message.extras.items() if name not in gone}
    if "partition_key" in changed and _ANNOTATIONS in extras:
        extras[_ANNOTATIONS] = {key: value for key, value in extras[_ANNOTATIONS].items() if key != PARTITION_KEY}
    return extras


def _whole(mask: str, message: ReceivedMessage) -> bytes:
    try:
        return body_of_text(mask, message.marks) if message.body_type is BodyType.DATA else _written(mask, message)
    except ValueError:  # in an encoding that is not known
        return mask.encode()


def _written(value: Any, message: ReceivedMessage) -> bytes:
    if message.body_type is BodyType.DATA:
        return edited_body(message.body, message.marks, message.marks, value)
    if message.body_type is BodyType.SEQUENCE:
        return b"".join(map(encode, value if isinstance(value, list) else [[value]]))  # pyright: ignore[reportUnknownArgumentType]
    return encode(value)


@dataclass(frozen=True, slots=True)
class Step:
    key: str | int | None
    is_deep: bool = False


Path: TypeAlias = tuple[Step, ...]


def parse_path(text: str) -> Path | None:
    """Return the steps of a path such as ``$.items[*]["the name"]`` or ``$..email``; None for another text."""
    if not text.startswith("$"):
        return None
    steps: list[Step] = []
    at = 1
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None or (match["name"] and not match["dots"]) or (not match["name"] and match["dots"] == "."):
            return None
        at = match.end()
        steps.append(Step(_key(match), match["dots"] == ".."))
    return tuple(steps)


def _key(match: re.Match[str]) -> str | int | None:
    if match["quoted"]:
        return match["quoted"][1:-1]
    if match["place"]:
        return None if match["place"] == _ALL else int(match["place"])
    return None if match["name"] == _ALL else match["name"]


def change_at(value: Any, paths: Iterable[tuple[str, Path]], change: Callable[[Any], Any], found: set[str]) -> Any:
    """Return a value with changes at some paths. A path to an object or a list means all values within it."""

    def changed(value: Any, paths: Sequence[tuple[str, Path]], is_meant: bool, level: int) -> Any:
        if level > LEVELS:
            raise ValueError("The value is nested too deep.")
        ended = [name for name, steps in paths if not steps]
        found.update(ended)
        is_meant = is_meant or bool(ended)
        if not is_meant and not paths:
            return value
        if isinstance(value, Described):
            return Described(value.descriptor, changed(value.value, paths, is_meant, level + 1))
        if isinstance(value, dict):
            members = cast("dict[Any, Any]", value).items()
            return {name: changed(each, _inside(paths, str(name)), is_meant, level + 1) for name, each in members}
        if isinstance(value, list):
            elements = cast("list[Any]", value)
            items = [changed(each, _inside(paths, n), is_meant, level + 1) for n, each in enumerate(elements)]
            return Array(items, value.element_type) if isinstance(value, Array) else items
        return change(value) if is_meant else value

    return changed(value, list(paths), False, 0)


def _inside(paths: Sequence[tuple[str, Path]], key: str | int) -> list[tuple[str, Path]]:
    further: dict[tuple[str, Path], None] = {}
    for name, steps in paths:
        if steps and steps[0].key in (None, key):
            further[name, steps[1:]] = None
        if steps and steps[0].is_deep:
            further[name, steps] = None
    return list(further)
