"""The layout of a message in AMQP, and conversions of its values.

Sources: AMQP 1.0 part 3, section 3.2 (message format); Service Bus documentation, "AMQP 1.0 in Azure Service Bus
protocol guide" (message annotations).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from types import NoneType
from typing import Any, Final

from sbnotebook.amqp import Symbol, Timestamp, type_name
from sbnotebook.amqp.sections import DELIVERY_ANNOTATIONS, FOOTER, MESSAGE_ANNOTATIONS
from sbnotebook.errors import AmqpDecodeError

SEQUENCE_NUMBER: Final = Symbol("x-opt-sequence-number")
ENQUEUED_SEQUENCE_NUMBER: Final = Symbol("x-opt-enqueue-sequence-number")
ENQUEUED_TIME: Final = Symbol("x-opt-enqueued-time")
LOCKED_UNTIL: Final = Symbol("x-opt-locked-until")
LOCK_TOKEN: Final = Symbol("x-opt-lock-token")
SCHEDULED_TIME: Final = Symbol("x-opt-scheduled-enqueue-time")
PARTITION_KEY: Final = Symbol("x-opt-partition-key")
STATE: Final = Symbol("x-opt-message-state")
DEAD_LETTER_SOURCE: Final = Symbol("x-opt-deadletter-source")
SERVICES_OWN: Final = frozenset({
    SEQUENCE_NUMBER, ENQUEUED_SEQUENCE_NUMBER, ENQUEUED_TIME, LOCKED_UNTIL, STATE, DEAD_LETTER_SOURCE, LOCK_TOKEN,
    "x-opt-partition-id",
})  # fmt: skip
"""Annotations that only the service sets. The service ignores a sender's."""
MAPS: Final = {
    "delivery_annotations": DELIVERY_ANNOTATIONS,
    "message_annotations": MESSAGE_ANNOTATIONS,
    "footer": FOOTER,
}
"""Sections of a message's extras (3.2.2, 3.2.3, 3.2.8), without the service's entries and those that have a field."""

HEADER_FIELDS: Final = ("durable", "priority", "time_to_live", "first_acquirer", "delivery_count")
"""The list of the header section, in our names (section 3.2.1)."""
TTL, DELIVERY_COUNT = 2, 4
PROPERTY_FIELDS: Final = (
    "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding",
    "absolute_expiry_time", "creation_time", "session_id", "group_sequence", "reply_to_session_id",
)  # fmt: skip
"""The list of the properties section, in our names (section 3.2.4)."""

MILLISECOND: Final = timedelta(milliseconds=1)
MAX_TTL: Final = 2**32 - 1
"""Milliseconds that the header can hold."""
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
FIRST_MOMENT, LAST_MOMENT = Timestamp.from_datetime(_FIRST), Timestamp.from_datetime(_LAST)


def usual(name: str, text: str) -> str:
    """Return the text of a property in the AMQP type that the property usually has."""
    # The specification has a symbol here; a text that is not ASCII can only be carried as a string.
    return Symbol(text) if name in ("content_type", "content_encoding") and text.isascii() else text


# A value of an unexpected type counts as missing: one odd message must not hide the others from a peek.


def as_text(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value) if not isinstance(value, str) else "".join(value)


def as_time(stamp: Any) -> datetime | None:
    """Return a timestamp as a datetime, at most the calendar's first or last; None for any other value."""
    if not isinstance(stamp, Timestamp):
        return None
    try:
        return stamp.to_datetime()
    except OverflowError:
        return _LAST if stamp > 0 else _FIRST


# A section of the wrong type is an error; a null one counts as missing.


def _as(kind: Any, section: Any) -> Any:
    if section is None:
        return kind()
    if not isinstance(section, kind):
        raise AmqpDecodeError(f"A message section holds a {type_name(section)} where it cannot.")
    return section


as_list, as_map, as_bytes = (partial(_as, kind) for kind in (list, dict, bytes))


def senders_own(annotations: dict[Any, Any]) -> dict[Any, Any]:
    """Return annotations without those of the service and those that a field of the message holds."""
    own = {key: annotations[key] for key in annotations if key not in SERVICES_OWN}
    if type(own.get(PARTITION_KEY)) in (str, NoneType):
        own.pop(PARTITION_KEY, None)
    when = own.get(SCHEDULED_TIME)
    if when is None or (isinstance(when, Timestamp) and FIRST_MOMENT <= when <= LAST_MOMENT):
        own.pop(SCHEDULED_TIME, None)
    return own
