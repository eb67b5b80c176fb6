"""The rows of a frame as AMQP bytes for a sender, encoded column by column.

Spark writes a large frame as fast as its rows become bytes, and making a :class:`sbnotebook.model.Message` of each row
takes most of that time. Only rows that need more than the columns here, such as those with a session, become messages
first. For the others, the bytes here are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple, Self

from sbnotebook.amqp import encode, list_of_encoded
from sbnotebook.amqp.sections import APPLICATION_PROPERTIES, DATA, PROPERTIES, section_head
from sbnotebook.model import BodyType
from sbnotebook.model.amqp_layout import PROPERTY_FIELDS, usual
from sbnotebook.model.body import Marks, body_of_text
from sbnotebook.model.packing import mark_names

_NULL: Final = encode(None)
_PROPERTIES, _NAMED, _DATA = map(section_head, (PROPERTIES, APPLICATION_PROPERTIES, DATA))
_TEXTS: Final = frozenset(PROPERTY_FIELDS) - {"session_id"}
_SAY_HOW: Final = ("content_type", "content_encoding")
"""Columns that say how a text becomes bytes."""
_KINDS: Final = ({bytes}, {str})
_BYTES: Final = frozenset({None, BodyType.DATA.value})
"""Kinds of a body that is bytes."""


class EncodedRows(NamedTuple):
    """Messages without a session and a partition key, as they travel."""

    payloads: list[bytes]
    message_ids: Sequence[str | None]

    @classmethod
    def of(cls, columns: Mapping[str, Sequence[Any]], count: int) -> Self | None:
        """Encode many rows at once, as :func:`sbnotebook.settlement.wire.encoding.payload_of` encodes each message.

        Args:
            columns: the values of each message column.
            count: of the rows.

        Returns:
            The encoded rows; None where a row needs to become a message first.

        Example:
            >>> EncodedRows.of({"message_id": ["a", "b"], "body": [b"{}", b"[]"]}, 2).message_ids
            ['a', 'b']
            >>> EncodedRows.of({"session_id": ["a", "b"], "body": [b"{}", b"[]"]}, 2) is None
            True
        """
        told = {name: values for name, values in columns.items() if _tells(name, values)}
        text = told.pop("body_text", ())
        given, named = told.pop("body", text), told.pop("application_properties", None)
        if told.keys() - _TEXTS or not all(map(_are_texts, told.values())) or set(map(type, given)) not in _KINDS:
            return None
        if type(given[0]) is str and any(mark_names(dict(pairs or ())) for pairs in named or ()):
            return None
        try:
            bodies = _bodies(given, told)
            sections = zip(
                _properties(told, count), _application_properties(named, count), map(encode, bodies), strict=True
            )
            payloads = [b"".join((properties, own, _DATA, body)) for properties, own, body in sections]
        except (TypeError, ValueError, OverflowError):
            return None
        return cls(payloads, told.get("message_id", [None] * count))


def _tells(name: str, values: Sequence[Any]) -> bool:
    if name == "body_type":
        return not _BYTES.issuperset(values)
    if name == "application_property_types":
        return any(values)
    return values.count(None) < len(values)


def _are_texts(values: Sequence[Any]) -> bool:
    return set(map(type, values)) <= {str, type(None)}


def _bodies(given: Sequence[Any], texts: Mapping[str, Sequence[str | None]]) -> Iterable[bytes]:
    if type(given[0]) is bytes:
        return given
    said = (texts.get(name, repeat(None)) for name in _SAY_HOW)
    return map(body_of_text, given, map(Marks, repeat(BodyType.DATA), *said))


def _properties(texts: Mapping[str, Sequence[str | None]], count: int) -> Iterable[bytes]:
    if not texts:
        return repeat(b"", count)
    last = max(map(PROPERTY_FIELDS.index, texts))
    columns = [_encoded(name, texts[name]) if name in texts else repeat(_NULL) for name in PROPERTY_FIELDS[: last + 1]]
    return map(_properties_section, zip(*columns, strict=False))


def _encoded(name: str, values: Sequence[str | None]) -> Iterator[bytes]:
    # Most columns repeat few values, and those that do not are hardly slower for it.
    known = {value: _NULL if value is None else encode(usual(name, value)) for value in set(values)}
    return map(known.__getitem__, values)


def _properties_section(fields: tuple[bytes, ...]) -> bytes:
    while fields and fields[-1] is _NULL:
        fields = fields[:-1]
    return _PROPERTIES + list_of_encoded(fields) if fields else b""


def _application_properties(named: Sequence[list[tuple[str, Any]] | None] | None, count: int) -> Iterable[bytes]:
    if named is None:
        return repeat(b"", count)
    return (_NAMED + encode(dict(pairs)) if pairs else b"" for pairs in named)
