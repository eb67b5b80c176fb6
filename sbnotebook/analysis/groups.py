"""Messages grouped by what went wrong with them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, overload

import pyarrow as pa

from sbnotebook.analysis import tables
from sbnotebook.analysis.masks import masked, masked_reason
from sbnotebook.analysis.stack_traces import read_fault
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import ReceivedMessage

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

__all__ = ["TRAITS", "Cause", "Group", "Groups", "Trait", "cause_of", "group_by_cause"]

Trait = Literal["reason", "description", "frame", "subject", "source"]
"""What messages of a group have in common."""
TRAITS: Final[tuple[Trait, ...]] = ("reason", "description", "frame", "subject", "source")

_MAX_CAUSE: Final = 200
_MAX_SUBJECTS: Final = 5
_MAX_EXAMPLES: Final = 3
_FINGERPRINT: Final = 12
_KEPT: Final = 1_000
_COLUMNS: Final = (
    "sequence_number",
    "enqueued_time",
    "subject",
    "dead_letter_reason",
    "dead_letter_error_description",
    "dead_letter_source",
    "entity",
)


class Cause(NamedTuple):
    """What a description says of the cause.

    Attributes:
        text: it, with what differs from message to message masked, and without stack traces.
        frame: where in the application it happened, from a stack trace; None without one.
    """

    text: str
    frame: str | None


@dataclass(frozen=True, slots=True)
class Group:
    """Messages with the same cause. What they were not grouped by is None.

    Args:
        fingerprint: of what they have in common: the same in each run, on each machine.
        reason: the dead-letter reason, long numbers and ids masked.
        cause: their descriptions with what differs between them masked, without stack traces.
        frame: where in the application it happened, from a stack trace in the description.
        subject: their subject.
        source: the entity in which they were dead-lettered, or else that where they stand.
        count: how many they are.
        first_seen: when the first was enqueued.
        last_seen: when the last was enqueued.
        subjects: the most frequent subjects, with their counts.
        sequence_numbers: which messages they are.
        examples: a few of their descriptions, as they are.
    """

    fingerprint: str
    reason: str | None
    cause: str | None
    frame: str | None
    subject: str | None
    source: str | None
    count: int
    first_seen: datetime | None
    last_seen: datetime | None
    subjects: tuple[tuple[str | None, int], ...]
    sequence_numbers: tuple[int, ...]
    examples: tuple[str, ...]


class Groups(Sequence[Group]):
    """Groups of messages, the largest first. Shown as a table in a notebook and as text elsewhere.

    Args:
        groups: the groups.
    """

    def __init__(self, groups: Iterable[Group] = ()) -> None:
        self._groups = tuple(groups)

    def plot(self, *, top: int = 20) -> Figure:
        """A plotly figure: how many messages each cause has.

        Args:
            top: how many groups are drawn, the largest.
        """
        from sbnotebook.analysis.charts import groups_figure  # which knows groups

        return groups_figure(self._groups, top)

    def to_pandas(self) -> pd.DataFrame:
        """A row for each group, with the fields of :class:`Group` as columns."""
        import pandas as pd

        names = [field.name for field in fields(Group)]
        frame = pd.DataFrame([[getattr(group, name) for name in names] for group in self._groups], columns=names)
        for name in ("first_seen", "last_seen"):
            frame[name] = pd.to_datetime(frame[name], utc=True).astype("datetime64[us, UTC]")
        return frame.astype({"count": "int64"})

    def __len__(self) -> int:
        return len(self._groups)

    @overload
    def __getitem__(self, index: int) -> Group: ...
    @overload
    def __getitem__(self, index: slice) -> Groups: ...
    def __getitem__(self, index: int | slice) -> Group | Groups:
        return Groups(self._groups[index]) if isinstance(index, slice) else self._groups[index]

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups)

    def __repr__(self) -> str:
        return tables.groups_text(self._groups)

    def _repr_html_(self) -> str:
        return tables.groups_html(self._groups)


def cause_of(description: str | None) -> Cause:
    """A description without its stack trace and with ids, numbers, times, quoted values, paths and addresses masked.

    The same fault reads the same, in each run.

    Example:
        >>> cause_of("Flight 1545 of 2013-01-01 has no tail number")
        Cause(text='Flight <n> of <time> has no tail number', frame=None)
    """
    fault = read_fault(description or "")
    return Cause(masked(fault.text)[:_MAX_CAUSE], fault.frame)


def group_by_cause(messages: Iterable[ReceivedMessage] | pa.Table, by: Sequence[Trait] = TRAITS) -> Groups:
    """Group messages by what they have in common, the largest group first.

    Args:
        messages: of a dead-letter queue, or a table of them; others form groups without a reason.
        by: what the messages of a group share: ``reason``, ``description``, ``frame``, ``subject``, ``source``.

    Raises:
        ConfigurationError: ``by`` names something else.
    """
    if isinstance(by, str) or not by or not set(by) <= set(TRAITS):
        raise ConfigurationError(f"Messages are grouped by some of {', '.join(TRAITS)}, not by {str(by)[:80]!r}.")
    known = lru_cache(maxsize=_KEPT)(cause_of)  # the same description often comes again, word by word
    found: dict[tuple[str | None, ...], list[_Row]] = {}
    for row in _rows(messages):
        cause = known(row.description) if "description" in by or "frame" in by else Cause("", None)
        found.setdefault(_traits(row, cause, by), []).append(row)
    groups = [_group(traits, rows) for traits, rows in found.items()]
    return Groups(
        sorted(groups, key=lambda group: (-group.count, group.reason or "", group.cause or "", group.fingerprint))
    )


class _Row(NamedTuple):
    sequence_number: int
    enqueued_time: datetime | None
    subject: str | None
    reason: str | None
    description: str | None
    dead_letter_source: str | None
    entity: Any


def _rows(messages: Iterable[ReceivedMessage] | pa.Table) -> Iterable[_Row]:
    if isinstance(messages, pa.Table):
        columns: Any = [messages.column(name).to_pylist() for name in _COLUMNS]
        return map(_Row._make, zip(*columns, strict=True))
    return (_Row(*(getattr(message, name) for name in _COLUMNS)) for message in messages)


def _traits(row: _Row, cause: Cause, by: Sequence[Trait]) -> tuple[str | None, ...]:
    """The traits in their order, None for those that are not grouped by."""
    return (
        masked_reason(row.reason) if "reason" in by and row.reason is not None else None,
        cause.text if "description" in by else None,
        cause.frame if "frame" in by else None,
        row.subject if "subject" in by else None,
        (row.dead_letter_source or str(row.entity)) if "source" in by else None,
    )


def _group(traits: tuple[str | None, ...], rows: list[_Row]) -> Group:
    times = [row.enqueued_time for row in rows if row.enqueued_time is not None]
    descriptions = dict.fromkeys(row.description for row in rows if row.description)
    return Group(
        _fingerprint(traits),
        *traits,
        count=len(rows),
        first_seen=min(times, default=None),
        last_seen=max(times, default=None),
        subjects=tuple(Counter(row.subject for row in rows).most_common(_MAX_SUBJECTS)),
        sequence_numbers=tuple(row.sequence_number for row in rows),
        examples=tuple(descriptions)[:_MAX_EXAMPLES],
    )


def _fingerprint(traits: tuple[str | None, ...]) -> str:
    return hashlib.sha256(json.dumps(traits).encode()).hexdigest()[:_FINGERPRINT]
