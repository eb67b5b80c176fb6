"""Two messages side by side: only what differs."""

from __future__ import annotations

from typing import Any

from sbnotebook.analysis import tables
from sbnotebook.analysis.differences import Difference, differences_of
from sbnotebook.analysis.shown import ShownRows, Table
from sbnotebook.client.async_entity import AsyncEntity
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import PeekedMessage


class MessageDifference(ShownRows[Difference]):
    """The differences of two messages. Shown as a table in a notebook and as text elsewhere.

    Args:
        one: a message.
        other: another one.
    """

    _one_line = False
    _fields = Difference._fields

    def __init__(self, one: PeekedMessage, other: PeekedMessage) -> None:
        self.one = one
        self.other = other
        super().__init__(differences_of(one, other))

    @property
    def summary(self) -> str:
        """Return which messages are compared, and how many differences they have, in a sentence."""
        count = f"{len(self):,} difference{'s' if len(self) != 1 else ''}" if self else "no difference"
        return f"{_name(self.one)} and {_name(self.other)} have {count} besides their places, ids and times."

    @property
    def headers(self) -> list[str]:
        """Return the headers of a table of the differences."""
        return ["field", _name(self.one), _name(self.other)]

    def rows(self, most: int) -> list[list[Any]]:
        """Return a row for each of the first differences, cut to what differs; None where a value is missing.

        Args:
            most: the number of rows.
        """
        rows: list[list[Any]] = []
        for each in self[:most]:
            one, other = each.one, each.other
            if one is not None and other is not None:
                one, other = tables.around_difference(one, other)
            rows.append([each.field, one, other])
        return rows

    def _table(self, most: int) -> Table:
        return self.headers, self.rows(most), self.summary


async def compare(
    entity: AsyncEntity, one: int, other: int | None, other_entity: AsyncEntity | None, whole: AsyncEntity
) -> MessageDifference:
    """Compare two messages: see :meth:`sbnotebook.client.Namespace.diff`."""
    first = await message_of(entity, one)
    if other is None and other_entity is not None:
        raise ConfigurationError("Give the sequence number in the other entity, too.")
    if other is None:
        return MessageDifference(first, await last_good(entity, whole, first))
    return MessageDifference(first, await message_of(other_entity or entity, other))


async def message_of(entity: AsyncEntity, number: int) -> PeekedMessage:
    """Return the message with a sequence number."""
    found = await entity.peek(1, from_sequence_number=number, to_sequence_number=number, show_progress=False)
    if not found:
        raise ConfigurationError(
            f"There is no message {number} in {entity.address}: it was removed, or has another number. "
            f"%sb_peek {entity.address} lists the numbers."
        )
    return found[0]


async def last_good(entity: AsyncEntity, place: AsyncEntity, letter: PeekedMessage) -> PeekedMessage:
    """Return the last message with the subject of a dead letter that was neither dead-lettered nor resubmitted."""
    if entity.address.sub_queue is None:
        raise ConfigurationError(f"{entity.address} is not a dead-letter queue: give the numbers of two messages.")
    quoted = (letter.subject or "").replace("'", "''")
    same = "subject is null" if letter.subject is None else f"subject = '{quoted}'"
    found = await place.peek(where=f"{same} and resubmit_count = 0 and dead_letter_reason is null", show_progress=False)
    if not found:
        what = "without a subject" if letter.subject is None else f"with the subject {letter.subject[:60]!r}"
        raise ConfigurationError(
            f"There is no message {what} in {place.address} to compare with: give the numbers of two messages."
        )
    return found[-1]


def _name(message: PeekedMessage) -> str:
    return f"{message.entity} #{message.sequence_number}"
