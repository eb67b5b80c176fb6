"""Extras of a message: everything that it carries besides its named fields, so that nothing of it is lost.

``Message.extras`` holds these by name; the column ``extras`` holds the same as one AMQP map.

Source: AMQP 1.0 part 3, sections 3.2.1 to 3.2.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sbnotebook.errors import AmqpDecodeError, ConfigurationError
from sbnotebook.model.amqp import AmqpValue, decode_exactly, encode

__all__ = [
    "ANNOTATION_EXTRAS",
    "DATA_SECTIONS",
    "EXTRAS",
    "HEADER_EXTRAS",
    "PROPERTY_EXTRAS",
    "PROPERTY_NAMES",
    "UNREADABLE",
    "extras_from_bytes",
    "extras_to_bytes",
]

HEADER_EXTRAS: Final = ("durable", "priority", "first_acquirer")
"""Fields of the header section (3.2.1)."""
PROPERTY_EXTRAS: Final = ("user_id", "absolute_expiry_time", "creation_time", "group_sequence")
"""Fields of the properties section (3.2.4) that a message has no field for."""
ANNOTATION_EXTRAS: Final = ("delivery_annotations", "message_annotations", "footer")
"""Sections that are maps (3.2.2, 3.2.3, 3.2.8), without what the service puts there and what has a field."""
_TYPED: Final = (
    "message_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding", "session_id",
    "reply_to_session_id",
)  # fmt: skip
PROPERTY_NAMES: Final = "application_property_names"
"""Names of application properties that are not strings, by the text that stands for them."""
DATA_SECTIONS: Final = "data_sections"
"""The sizes of the sections of a body of bytes, where it is not exactly one."""
UNREADABLE: Final = "unreadable"
"""Why the bytes could not be read as a message."""
EXTRAS: Final = frozenset(
    {*HEADER_EXTRAS, *PROPERTY_EXTRAS, *ANNOTATION_EXTRAS, *_TYPED, PROPERTY_NAMES, DATA_SECTIONS, UNREADABLE}
)
"""All names. Under the name of a field of the message stands its value, where it is of another type than usual."""


def extras_to_bytes(extras: Mapping[str, AmqpValue]) -> bytes | None:
    """Encode the extras as one AMQP map; None when there are none.

    Example:
        >>> extras_from_bytes(extras_to_bytes({"durable": True}))
        {'durable': True}
    """
    return encode(dict(extras)) if extras else None


def extras_from_bytes(data: bytes | bytearray | None) -> dict[str, AmqpValue]:
    """Decode the extras that :func:`extras_to_bytes` encoded.

    Raises:
        ConfigurationError: the bytes are something else.
    """
    if not data:
        return {}
    try:
        extras: Any = decode_exactly(bytes(data))
    except AmqpDecodeError:
        extras = None
    if not isinstance(extras, dict) or not extras.keys() <= EXTRAS:  # pyright: ignore[reportUnknownMemberType]
        raise ConfigurationError("The column extras holds AMQP maps that peek has made, not these bytes.")
    return extras  # pyright: ignore[reportUnknownVariableType]
