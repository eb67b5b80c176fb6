"""What went wrong with the messages of a table, for the list of causes beside it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pyarrow as pa

from sbnotebook.client.groups import Group, group_by_cause
from sbnotebook.client.messages import Messages
from sbnotebook.widgets.pretty import visible

__all__ = ["MOST", "Causes", "causes_of"]

MOST: Final = 200
"""Causes that are told one by one; the messages of the others are counted together."""
_LONGEST: Final = 300


class Causes(NamedTuple):
    """The causes of messages.

    Attributes:
        fingerprints: that of each message, in their order.
        told: for the browser: fingerprint, reason, cause, frame, subject and source of each cause, the largest first.
    """

    fingerprints: list[str]
    told: list[dict[str, str]]


def causes_of(messages: Messages) -> Causes:
    """Group messages by what went wrong with them.

    Args:
        messages: of one entity or of several.

    Example:
        >>> from sbnotebook import PeekedMessage
        >>> bad = {"DeadLetterReason": "Bad"}
        >>> failed = [PeekedMessage(entity="o/$dlq", sequence_number=n, application_properties=bad) for n in (1, 2)]
        >>> causes = causes_of(Messages(failed))
        >>> len(causes.fingerprints), [cause["reason"] for cause in causes.told]
        (2, ['Bad'])
    """
    table: Any = messages.to_arrow()
    # By place: two entities may have messages with the same sequence number.
    places: Any = pa.array(range(len(table)), pa.int64())
    number = table.schema.get_field_index("sequence_number")
    groups = group_by_cause(table.set_column(number, "sequence_number", places))
    fingerprints = [""] * len(table)
    for group in groups:
        for place in group.sequence_numbers:
            fingerprints[place] = group.fingerprint
    return Causes(fingerprints, [_told(group) for group in groups[:MOST]])


def _told(group: Group) -> dict[str, str]:
    texts = {
        "reason": group.reason,
        "cause": group.cause,
        "frame": group.frame,
        "subject": group.subject,
        "source": group.source,
    }
    return {"fingerprint": group.fingerprint} | {name: visible((text or "")[:_LONGEST]) for name, text in texts.items()}
