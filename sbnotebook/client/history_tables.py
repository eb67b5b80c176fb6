"""The files of this machine as tables for SQL: the journal of resubmits, the archive, and the notes on causes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import pyarrow as pa

from sbnotebook.amqp.sections import APPLICATION_PROPERTIES, PROPERTIES, SECTIONS
from sbnotebook.analysis.frames import arrow_schema, to_arrow
from sbnotebook.analysis.groups import group_by_cause
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.model.message import time_text
from sbnotebook.settlement import Archive, Resources, peeked_from_payload

_AT_ONCE: Final = 1_000
"""Archived messages that are read at once: each may be large."""
_MOST_BYTES: Final = 512 << 20
"""Bytes of archived messages with their bodies that are held in memory."""
_MOST_RESUBMITS: Final = 1_000_000
_BODIES: Final = frozenset({"body", "body_text", "body_type"})
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
    """Return the columns of each table by its name."""
    columns = [field for field in cast("Iterable[Any]", arrow_schema()) if bodies or field.name not in _BODIES]
    archive = pa.schema([*cast("Iterable[Any]", _OF_ARCHIVE), *columns])
    return {"journal": _JOURNAL, "archive": archive, "notes": _NOTES}


def history_tables(namespace: Resources, names: Iterable[str], *, bodies: bool) -> dict[str, pa.Table]:
    """Return some of the tables by their names. Call it in a thread: the files may be busy."""
    wanted, found = schemas(bodies=bodies), dict[str, pa.Table]()
    makers: dict[str, Callable[[], pa.Table]] = {
        "archive": lambda: _archive(namespace, wanted["archive"], bodies=bodies),
        "journal": lambda: _journal(namespace, found.get("archive") or makers["archive"]()),
        "notes": lambda: _table([[*each] for each in namespace.notes.all().items()], _NOTES),
    }
    for name in sorted(names):  # the journal reads the archive
        found[name] = makers[name]()
    return found


def _table(rows: Sequence[Sequence[object]], schema: Any) -> pa.Table:
    columns: list[Any] = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]
    arrays: list[Any] = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _journal(namespace: Resources, archive: pa.Table) -> pa.Table:
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
        for entry in namespace.journal.resubmits(namespace.identity(), most=_MOST_RESUBMITS)
    ]
    return _table(rows, _JOURNAL)


def _archive(namespace: Resources, schema: Any, *, bodies: bool) -> pa.Table:
    archive = namespace.archive
    if archive is None or not archive.path.exists():
        return schema.empty_table()
    return pa.concat_tables([schema.empty_table(), *_parts(archive, namespace.identity(), schema, bodies=bodies)])


def _parts(archive: Archive, identity: str, schema: Any, *, bodies: bool) -> Iterator[pa.Table]:
    found = archive.find(identity, since=datetime.now(UTC) - archive.retention - timedelta(days=1))
    sections, size = SECTIONS if bodies else (PROPERTIES, APPLICATION_PROPERTIES), 0
    for start in range(0, len(found), _AT_ONCE):
        kept = found[start : start + _AT_ONCE]
        payloads = archive.payloads([each.row for each in kept])
        kept = [each for each in kept if each.row in payloads]  # others were pruned meanwhile
        size += sum(map(len, payloads.values())) if bodies else 0
        if size > _MOST_BYTES:
            raise ConfigurationError(f"The archive has more than {_MOST_BYTES >> 20} MB: query it without bodies.")
        table = to_arrow([_message(payloads[each.row], each.address, sections) for each in kept])
        own = [[datetime.fromtimestamp(each.archived, UTC), each.verb, str(each.state)] for each in kept]
        first = _table([[*row, cause] for row, cause in zip(own, _causes(table), strict=True)], _OF_ARCHIVE)
        columns: list[Any] = [*first.columns, *(table.column(name) for name in schema.names[len(first.columns) :])]
        yield pa.Table.from_arrays(columns, schema=schema)


def _message(payload: bytes, entity: Any, sections: Iterable[int]) -> PeekedMessage:
    return peeked_from_payload(payload, entity, frozenset(sections))


def _causes(table: pa.Table) -> list[str | None]:
    """Return the fingerprint of each message's cause, as notes and groups know it; None where nothing went wrong."""
    causes: list[str | None] = [None] * len(table)
    for group in group_by_cause(table, take=cast("Any", list)):
        for place in cast("Any", group.messages):
            causes[place] = group.fingerprint if group.reason or group.cause else None
    return causes
