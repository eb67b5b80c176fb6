"""The records of this machine for a namespace: its journal and its archive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sbnotebook.analysis import tables
from sbnotebook.model import EntityAddress
from sbnotebook.settlement.memory.archive import ArchivedCount, ArchiveState
from sbnotebook.settlement.memory.journal import ResubmitEntry

__all__ = ["Remembered"]

_HEADERS: Final = ("what", "where", "messages", "last", "go on with")
_STATES: Final = {
    ArchiveState.REMOVED: "{}: removed",
    ArchiveState.REMOVING: "{}: perhaps removed",
    ArchiveState.RETURNING: "{}: perhaps undone",
    ArchiveState.RETURNED: "{}: undone",
}
_UNKNOWN: Final = (ArchiveState.REMOVING, ArchiveState.RETURNING)


@dataclass(frozen=True, slots=True)
class Remembered:
    """The records of this machine for a namespace. Shown as a table, with the magic that continues each of them.

    Args:
        unfinished: resubmits that have not ended.
        deferred: entities with the number of their deferred messages, and the time of the last.
        removed: the number of archived messages by entity and by action.
        notes: the notes on causes of dead letters, by fingerprint.
        retention: for how long the archive keeps removed messages; None where there is no archive.
    """

    unfinished: Sequence[ResubmitEntry]
    deferred: Sequence[tuple[EntityAddress, int, datetime]]
    removed: Sequence[ArchivedCount]
    notes: Mapping[str, str]
    retention: timedelta | None

    def __len__(self) -> int:
        return len(self._rows())

    def __repr__(self) -> str:
        rows = self._rows()
        return tables.text_table(_HEADERS, rows, self._caption) if rows else self._caption

    def _repr_html_(self) -> str:
        rows = self._rows()
        return tables.html_table(_HEADERS, rows, self._caption) if rows else f"<p>{self._caption}</p>"

    @property
    def _caption(self) -> str:
        kept = "there is no archive" if self.retention is None else f"removed messages for {self.retention.days:,} days"
        return f"{'Remembered' if self._rows() else 'Nothing is remembered'} on this machine ({kept})."

    def _rows(self) -> list[list[Any]]:
        days = self.retention.days if self.retention is not None else 1
        return [
            *_unfinished(self.unfinished),
            *map(_deferred, self.deferred),
            *(_removed(row, days) for row in self.removed),
            *(["note", f"{cause}: {note}", None, None, None] for cause, note in self.notes.items()),
        ]


def _unfinished(entries: Iterable[ResubmitEntry]) -> list[list[Any]]:
    ways = Counter((entry.source, entry.destination) for entry in entries)
    last: dict[tuple[str, str], datetime | None] = {(e.source, e.destination): e.changed for e in entries}
    return [
        [
            "resubmit not ended",
            f"{_short(source)} to {_short(to)}",
            count,
            last[source, to],
            f"%sb_resume {_short(source)}",
        ]
        for (source, to), count in ways.items()
    ]


def _deferred(row: tuple[EntityAddress, int, datetime]) -> list[Any]:
    entity, count, last = row
    return ["deferred", str(entity), count, last, f"%sb_deferred {entity}"]


def _removed(row: ArchivedCount, days: int) -> list[Any]:
    how = _STATES.get(row.state, "{}").format(row.verb)
    unknown = " --include-unknown" if row.state in _UNKNOWN else ""
    back = None if row.state is ArchiveState.RETURNED else f"%sb_undo {row.entity} --since {days}d{unknown}"
    return [how, str(row.entity), row.count, row.last, back]


def _short(path: str) -> str:
    return str(EntityAddress.parse(path))
