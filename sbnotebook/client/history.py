"""The history of a namespace in the files of this machine: all that they remember, and the fates of its resubmits.

The clone of a resubmit is consumed, waiting, or back in a dead-letter queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import anyio.to_thread
import pyarrow as pa

from sbnotebook.amqp.sections import APPLICATION_PROPERTIES, PROPERTIES, SECTIONS
from sbnotebook.analysis.frames import arrow_schema, to_arrow
from sbnotebook.analysis.groups import group_by_cause
from sbnotebook.analysis.tables import Shown, ShownRows, Table, without_empty
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, Fate, FateStatus, Resubmit
from sbnotebook.model.clones import lineage_of
from sbnotebook.model.message import time_text
from sbnotebook.settlement import (
    Archive,
    ArchivedCount,
    ArchiveState,
    AsyncNamespace,
    ResubmitEntry,
    in_parallel,
    peeked_from_payload,
)

MOST_RESUBMITS: Final = 1_000
"""Resubmits that are looked up by default, the last ones."""
_COLUMNS: Final = (
    "resubmitted",
    "original",
    "message_id",
    "to",
    "round",
    "fate",
    "times_back",
    "reason",
    "description",
)
_STATES: Final = {
    ArchiveState.REMOVED: ": removed",
    ArchiveState.REMOVING: ": perhaps removed",
    ArchiveState.RETURNING: ": perhaps undone",
    ArchiveState.RETURNED: ": undone",
}


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One resubmit, and the fate of its clone.

    Args:
        resubmitted: when its state changed last.
        entity: where the original was.
        sequence_number: the original's.
        message_id: of the first original, where its id tells it.
        to: where the clone was sent to.
        clone_id: the clone's message id.
        round: how often the message has been resubmitted with this clone.
        fate: ``waiting``, ``came back``, ``consumed``, ``unknown`` or ``not sent``.
        times_back: how often clones of this message came back, as far as this journal knows.
        place: where the clone is now; None where it is not to be found.
        reason: why it was dead-lettered again.
        description: the description of that reason; for an unknown fate, why it is unknown.
        to_namespace: the identity of the namespace that ``to`` is in; empty for that of the original.
    """

    resubmitted: datetime | None
    entity: EntityAddress
    sequence_number: int
    message_id: str | None
    to: EntityAddress
    clone_id: str
    round: int
    fate: str
    times_back: int = 0
    place: EntityAddress | None = None
    reason: str | None = None
    description: str | None = None
    to_namespace: str = ""


class History(ShownRows[HistoryEntry]):
    """Resubmits with the fates of their clones, the last first. Shown as a table in a notebook and as text elsewhere.

    Args:
        entries: the resubmits.
        has_more: whether the journal has older ones.
    """

    _fields = tuple(each.name for each in fields(HistoryEntry))

    def __init__(self, entries: Iterable[HistoryEntry], *, has_more: bool = False) -> None:
        super().__init__(entries)
        self.has_more = has_more

    @property
    def came_back(self) -> list[HistoryEntry]:
        """Return the resubmits whose clones came back to a dead-letter queue."""
        return [entry for entry in self if entry.fate == FateStatus.CAME_BACK]

    @property
    def summary(self) -> str:
        """Return how many clones have which fate, in a sentence."""
        if not self:
            return "The journal of this machine has no resubmits from there in the last 30 days."
        counts = Counter(entry.fate for entry in self)
        said = ", ".join(f"{count:,} {fate}" for fate, count in counts.most_common())
        often = len({(entry.entity, entry.message_id) for entry in self if entry.times_back > 1})
        again = f" {often:,} came back again and again." if often else ""
        last = f" These are the last {len(self):,}; older ones are not looked up." if self.has_more else ""
        return f"{len(self):,} resubmit{'s' if len(self) != 1 else ''}: {said}.{again}{last}"

    def _table(self, most: int) -> Table:
        rows = [
            [
                entry.resubmitted,
                f"{entry.entity} #{entry.sequence_number}",
                entry.message_id,
                f"{entry.to} in {entry.to_namespace}" if entry.to_namespace else str(entry.to),
                entry.round,
                f"{entry.fate} in {entry.place}" if entry.place else entry.fate,
                entry.times_back or None,
                entry.reason,
                entry.description,
            ]
            for entry in self[:most]
        ]
        return *without_empty(_COLUMNS, rows), self.summary


async def history_of(
    namespace: AsyncNamespace,
    source: EntityAddress | None,
    most: int = MOST_RESUBMITS,
    *,
    others: Iterable[AsyncNamespace] = (),
) -> History:
    identity = await anyio.to_thread.run_sync(namespace.identity)
    path = None if source is None else source.path
    found = await anyio.to_thread.run_sync(namespace.journal.resubmits, identity, path, most + 1)
    entries = found[:most]
    there = {await anyio.to_thread.run_sync(other.identity): other for other in others} | {"": namespace}
    sent = [(entry.place, entry.clone) for entry in entries]
    by_place = {
        place: [clone for each, clone in sent if each == place and clone is not None]
        for place in dict.fromkeys(place for place, clone in sent if clone is not None)
    }

    async def look(place: tuple[str, EntityAddress]) -> dict[str, Fate]:
        name, address = place
        if name not in there:
            where = "connect to that namespace, and look it up with others=[…] or --other"
            lost = Fate(FateStatus.UNKNOWN, "", description=f"it was sent to {address} in {name}: {where}")
            return {each.message_id: replace(lost, clone_id=each.message_id) for each in by_place[place]}
        return await there[name].clone_search(address).fates(by_place[place], datetime.now(UTC))

    fates: dict[str, Fate] = {}
    for each in await in_parallel(look, list(by_place), at_once=4):
        fates |= each
    # A clone that is the original of a later resubmit had come back: only dead letters are originals of clones.
    again = {entry.message_id: entry for entry in reversed(entries) if entry.message_id in fates}
    told = [_told(entry, fates.get(entry.clone_id), again.get(entry.clone_id)) for entry in entries]
    back = Counter((entry.entity, entry.message_id) for entry in told if entry.fate == FateStatus.CAME_BACK)
    return History(
        [replace(entry, times_back=back[entry.entity, entry.message_id]) for entry in told], has_more=len(found) > most
    )


def _told(entry: ResubmitEntry, fate: Fate | None, again: ResubmitEntry | None) -> HistoryEntry:
    original, times = lineage_of(entry.clone_id)
    status = "not sent" if fate is None else fate.status.value
    place, reason = (None, None) if fate is None else (fate.entity, fate.reason)
    description = None if fate is None else fate.description
    if again is not None and status in (FateStatus.CONSUMED, FateStatus.UNKNOWN):
        status, place, reason = FateStatus.CAME_BACK.value, EntityAddress.parse(again.source), None
        description = "and was resubmitted"
    return HistoryEntry(
        resubmitted=entry.changed,
        entity=EntityAddress.parse(entry.source),
        sequence_number=entry.sequence_number,
        message_id=original,
        to=EntityAddress.parse(entry.destination),
        clone_id=entry.clone_id,
        round=times,
        fate=status,
        place=place,
        reason=reason,
        description=description,
        to_namespace=entry.destination_namespace,
    )


@dataclass(frozen=True, slots=True, repr=False)
class Remembered(Shown):
    """The records of this machine for a namespace. Shown as a table, with the magic that continues each of them.

    Args:
        unfinished: resubmits that have not ended.
        deferred: entities with the number of their deferred messages, and the time of the last.
        removed: the number of archived messages by entity and by action.
        notes: the notes on causes of dead letters, by fingerprint.
        retention: for how long the archive keeps removed messages; None where there is no archive.
    """

    _one_line = False

    unfinished: Sequence[ResubmitEntry]
    deferred: Sequence[tuple[EntityAddress, int, datetime]]
    removed: Sequence[ArchivedCount]
    notes: Mapping[str, str]
    retention: timedelta | None

    def __len__(self) -> int:
        return len(self._rows())

    def _table(self, most: int) -> Table:  # noqa: ARG002 (all rows)
        return ("record", "entity", "messages", "last", "next step"), self._rows(), self._caption

    @property
    def _caption(self) -> str:
        kept = "there is no archive" if self.retention is None else f"removed messages for {self.retention.days:,} days"
        return f"{'Remembered' if self._rows() else 'Nothing is remembered'} on this machine ({kept})."

    def _rows(self) -> list[list[Any]]:
        days = self.retention.days if self.retention is not None else 1
        ways = {(_short(each.source), _short(each.destination)): each.changed for each in self.unfinished}
        counts = Counter((_short(each.source), _short(each.destination)) for each in self.unfinished)
        return [
            *(
                ["resubmit not ended", f"{source} to {to}", counts[source, to], last, f"%sb_resume {source}"]
                for (source, to), last in ways.items()
            ),
            *(["deferred", str(each), count, last, f"%sb_deferred {each}"] for each, count, last in self.deferred),
            *(_removed_row(row, days) for row in self.removed),
            *(["note", f"{cause}: {note}", None, None, None] for cause, note in self.notes.items()),
        ]


def _removed_row(row: ArchivedCount, days: int) -> list[Any]:
    unknown = " --include-unknown" if row.state in (ArchiveState.REMOVING, ArchiveState.RETURNING) else ""
    # Sending resubmitted messages back would double them.
    is_over = row.state is ArchiveState.RETURNED or row.verb == Resubmit.verb
    back = None if is_over else f"%sb_undo {row.entity} --since {days}d{unknown}"
    return [row.verb + _STATES.get(row.state, ""), str(row.entity), row.count, row.last, back]


def _short(path: str) -> str:
    return str(EntityAddress.parse(path))


# ---------------------------------------------------------------- tables for SQL

_ARCHIVED_AT_ONCE: Final = 1_000
"""Archived messages that are read at once: each may be large."""
_MOST_BYTES: Final = 512 << 20
"""Bytes of archived messages with their bodies that are held in memory."""
_TEXT, _NUMBER, _TIME = pa.string(), pa.int64(), pa.timestamp("us", "UTC")
_JOURNAL: Final = pa.schema(
    {
        "resubmitted": _TIME,
        "entity": _TEXT,
        "sequence_number": _NUMBER,
        "message_id": _TEXT,
        "enqueued_time": _TIME,
        "to": _TEXT,
        "to_namespace": _TEXT,
        "clone_id": _TEXT,
        "edited": pa.bool_(),
        "scheduled": _TIME,
        "state": _TEXT,
        "dead_letter_reason": _TEXT,
        "cause": _TEXT,
    }
)
_NOTES: Final = pa.schema({"cause": _TEXT, "note": _TEXT})
_OF_ARCHIVE: Final = pa.schema({"archived": _TIME, "verb": _TEXT, "archive_state": _TEXT, "cause": _TEXT})


def schemas(*, bodies: bool) -> dict[str, pa.Schema]:
    left_out = () if bodies else ("body", "body_text", "body_type")
    columns = [field for field in cast("Iterable[Any]", arrow_schema()) if field.name not in left_out]
    archive = pa.schema([*cast("Iterable[Any]", _OF_ARCHIVE), *columns])
    return {"journal": _JOURNAL, "archive": archive, "notes": _NOTES}


def history_tables(namespace: AsyncNamespace, names: Iterable[str], *, bodies: bool) -> dict[str, pa.Table]:
    """Return some of the tables by their names. Call it in a thread: the files may be busy."""
    wanted, found = schemas(bodies=bodies), dict[str, pa.Table]()
    makers: dict[str, Callable[[], pa.Table]] = {
        "archive": lambda: _archive(namespace, wanted["archive"], bodies=bodies),
        "journal": lambda: _journal(namespace, found.get("archive") or makers["archive"]()),
        "notes": lambda: _table([[*each] for each in namespace.tables.notes().items()], _NOTES),
    }
    for name in sorted(names):  # the journal reads the archive
        found[name] = makers[name]()
    return found


def _table(rows: Sequence[Sequence[object]], schema: Any) -> pa.Table:
    columns: list[Any] = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]
    arrays: list[Any] = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _journal(namespace: AsyncNamespace, archive: pa.Table) -> pa.Table:
    names = "entity", "sequence_number", "enqueued_time", "dead_letter_reason", "cause"
    originals = zip(*(archive.column(name).to_pylist() for name in names), strict=True)
    known = {(entity, number, time_text(time)): (reason, cause) for entity, number, time, reason, cause in originals}
    rows = [
        [
            entry.changed,
            entity := str(EntityAddress.parse(entry.source)),
            entry.sequence_number,
            entry.message_id,
            datetime.fromisoformat(entry.enqueued_time) if entry.enqueued_time else None,
            str(entry.place[1]),
            entry.destination_namespace or None,
            entry.clone_id,
            entry.edited,
            entry.scheduled,
            str(entry.state),
            *known.get((entity, entry.sequence_number, entry.enqueued_time), (None, None)),
        ]
        for entry in namespace.journal.resubmits(namespace.identity(), most=1_000_000)
    ]
    return _table(rows, _JOURNAL)


def _archive(namespace: AsyncNamespace, schema: Any, *, bodies: bool) -> pa.Table:
    archive = namespace.archive
    if archive is None or not archive.path.exists():
        return schema.empty_table()
    return pa.concat_tables([schema.empty_table(), *_parts(archive, namespace.identity(), schema, bodies=bodies)])


def _parts(archive: Archive, identity: str, schema: Any, *, bodies: bool) -> Iterator[pa.Table]:
    found = archive.find(identity, since=datetime.now(UTC) - archive.retention - timedelta(days=1))
    sections, size = frozenset(SECTIONS if bodies else (PROPERTIES, APPLICATION_PROPERTIES)), 0
    for start in range(0, len(found), _ARCHIVED_AT_ONCE):
        kept = found[start : start + _ARCHIVED_AT_ONCE]
        payloads = archive.payloads([each.row for each in kept])
        kept = [each for each in kept if each.row in payloads]  # others were pruned meanwhile
        size += sum(map(len, payloads.values())) if bodies else 0
        if size > _MOST_BYTES:
            raise ConfigurationError(f"The archive has more than {_MOST_BYTES >> 20} MB: query it without bodies.")
        table = to_arrow([peeked_from_payload(payloads[each.row], each.address, sections) for each in kept])
        own = [[datetime.fromtimestamp(each.archived, UTC), each.verb, str(each.state)] for each in kept]
        first = _table([[*row, cause] for row, cause in zip(own, _causes(table), strict=True)], _OF_ARCHIVE)
        columns: list[Any] = [*first.columns, *(table.column(name) for name in schema.names[len(first.columns) :])]
        yield pa.Table.from_arrays(columns, schema=schema)


def _causes(table: pa.Table) -> list[str | None]:
    """Return the fingerprint of each message's cause, as notes and groups know it; None where nothing went wrong."""
    causes: list[str | None] = [None] * len(table)
    for group in group_by_cause(table, take=cast("Any", list)):
        for place in cast("Any", group.messages):
            causes[place] = group.fingerprint if group.reason or group.cause else None
    return causes
