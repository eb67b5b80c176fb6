"""The journal of a namespace on disk: resubmits, to recover from a crash; deferrals, finished work, notes and calls."""

from __future__ import annotations

import getpass
import json
import platform
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import platformdirs

from sbnotebook.errors import ConfigurationError, JournalError
from sbnotebook.model import EntityAddress, LockedMessage, ReceivedMessage
from sbnotebook.model.message import time_text
from sbnotebook.settlement.memory.local_database import LocalDatabase, insert_rows
from sbnotebook.settlement.requests import alike

MAX_NOTE: Final = 2_000
"""Characters of a note."""
_KEPT: Final = timedelta(days=30)
"""For how long the counts of resubmits are kept after the last one, as the journal keeps the resubmits themselves."""
_Place = tuple[EntityAddress, int]
"""The place of a message: an entity and a sequence number."""
# One statement for all messages of an entity, for the reason that insert_rows gives.
_THESE: Final = "namespace = ? AND entity = ? AND sequence_number IN (SELECT value FROM json_each(?))"
# Made at the first call: most journals have none.
_CALLS: Final = """
    CREATE TABLE IF NOT EXISTS assistant_calls (
        id INTEGER PRIMARY KEY, namespace TEXT NOT NULL, time TEXT NOT NULL, tool TEXT NOT NULL,
        arguments TEXT NOT NULL, result TEXT NOT NULL
    )
"""


@dataclass(frozen=True, slots=True)
class DeferralEntry:
    """A deferral as the journal has it.

    Args:
        sequence_number: the message's.
        message_id: the message's.
        enqueued_time: the message's, in ISO format; it tells the message from one with the same number in a queue that
            was made anew.
        confirmed: False when no answer came: the message may be deferred or not.
        deferred_by: the user and the machine.
        deferred_at: when.
    """

    sequence_number: int
    message_id: str | None
    enqueued_time: str
    confirmed: bool
    deferred_by: str
    deferred_at: datetime


class Resubmitted(NamedTuple):
    """When messages of a cause were last resubmitted, and how many in all."""

    time: datetime
    messages: int


class AssistantCall(NamedTuple):
    """One call of a tool, with its arguments as JSON, and its result: ``begun``, ``ok``, or an error."""

    time: datetime
    tool: str
    arguments: str
    result: str


class NamespaceTables:
    """The rows of one namespace in the journal's tables. Use it in threads, because the file may be busy."""

    def __init__(self, journal: Journal, namespace: Callable[[], str]) -> None:
        self._journal = journal
        self._namespace = namespace

    # ---------------------------------------------------------------- deferred messages

    def intend(self, messages: Iterable[LockedMessage]) -> None:
        """Record the messages to defer, on disk before this returns."""
        who, now = f"{_user()}@{platform.node()}", datetime.now(UTC).isoformat()
        rows = [
            (*self._place(m.entity), m.sequence_number, m.message_id, time_text(m.enqueued_time), False, who, now)
            for m in messages
        ]
        with self._journal.transaction() as database:
            insert_rows(database, "INSERT OR REPLACE INTO deferrals", rows)

    def confirm(self, places: Iterable[_Place]) -> None:
        """Record that messages are deferred."""
        self._change(f"UPDATE deferrals SET confirmed = 1 WHERE {_THESE}", places)  # noqa: S608

    def forget(self, places: Iterable[_Place]) -> None:
        """Forget messages that are not deferred any more."""
        self._change(f"DELETE FROM deferrals WHERE {_THESE}", places)  # noqa: S608

    def deferrals(self, entity: EntityAddress) -> dict[int, DeferralEntry]:
        rows = self._journal.execute(
            "SELECT sequence_number, message_id, enqueued_time, confirmed, deferred_by, deferred_at FROM deferrals"
            " WHERE namespace = ? AND entity = ? ORDER BY sequence_number",
            self._place(entity),
        )
        return {
            number: DeferralEntry(number, message_id, enqueued, bool(confirmed), who, datetime.fromisoformat(when))
            for number, message_id, enqueued, confirmed, who, when in rows
        }

    def deferral_counts(self) -> list[tuple[EntityAddress, int, datetime]]:
        """Return how many messages of each entity are deferred, and when the last was."""
        rows = self._journal.execute(
            "SELECT entity, count(*), max(deferred_at) FROM deferrals WHERE namespace = ? GROUP BY entity",
            (self._namespace().casefold(),),
        )
        return [(EntityAddress.parse(path), count, datetime.fromisoformat(last)) for path, count, last in rows]

    def _change(self, statement: str, places: Iterable[_Place]) -> None:
        with self._journal.transaction() as database:
            for those in alike(places, itemgetter(0)):
                numbers = json.dumps([number for _, number in those])
                database.execute(statement, (*self._place(those[0][0]), numbers))

    # ---------------------------------------------------------------- messages whose work is done

    def done_at(self, messages: Collection[ReceivedMessage], within: timedelta) -> dict[str, datetime]:
        """Return when messages of one entity were done, by :func:`key_of`, without those done longer ago.

        A message is known by its entity and its message id, as by the service's duplicate detection: two messages with
        the same id count as one, and the second is completed without being done. One without an id is known by its
        sequence number and the time at which it was enqueued.
        """
        places = [self._place_of(message) for message in messages]
        if not places:
            return {}
        keys = json.dumps([key for _, _, key in places])
        rows = self._journal.execute(
            "SELECT key, done FROM seen WHERE namespace = ? AND entity = ? AND done > ?"
            " AND key IN (SELECT value FROM json_each(?))",
            (*places[0][:2], _ago(within), keys),
        )
        return {key: datetime.fromisoformat(done) for key, done in rows}

    def remember_done(self, messages: Iterable[ReceivedMessage]) -> None:
        """Record that the work for these messages is done, on disk before this returns."""
        now = datetime.now(UTC).isoformat()
        rows = [(*self._place_of(message), now) for message in messages]
        with self._journal.transaction() as database:
            database.executemany(
                "INSERT INTO seen (namespace, entity, key, done) VALUES (?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET done = excluded.done",
                rows,
            )

    def forget_done(self, longer_ago: timedelta) -> None:
        values = (self._namespace(), _ago(longer_ago))
        self._journal.execute("DELETE FROM seen WHERE namespace = ? AND done <= ?", values)

    # ---------------------------------------------------------------- notes on causes, and counts

    def write_note(self, fingerprint: str, text: str) -> None:
        """Keep a note on a cause, on disk before this returns; an empty one is removed."""
        key = (self._namespace().casefold(), _checked(fingerprint, "A fingerprint", 100))
        note = _checked(text.strip(), "A note", MAX_NOTE)
        with self._journal.transaction() as database:
            database.execute("DELETE FROM notes WHERE namespace = ? AND fingerprint = ?", key)
            if note:
                database.execute("INSERT INTO notes VALUES (?, ?, ?, ?)", (*key, note, datetime.now(UTC).isoformat()))

    def notes(self) -> dict[str, str]:
        """Return the notes by the fingerprints of their causes."""
        key = (self._namespace().casefold(),)
        query = "SELECT fingerprint, note FROM notes WHERE namespace = ? ORDER BY fingerprint"
        return dict(self._journal.execute(query, key))

    def add_resubmits(self, entity: EntityAddress, counts: Mapping[str, int], now: datetime) -> None:
        """Count resubmitted messages, anew when the last resubmit is more than 30 days ago."""
        place, time = self._place(entity), now.astimezone(UTC)
        with self._journal.transaction() as database:
            database.execute("DELETE FROM resubmitted_causes WHERE time < ?", ((time - _KEPT).isoformat(),))
            database.executemany(
                "INSERT INTO resubmitted_causes VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET messages = messages + excluded.messages, time = max(time, excluded.time)",
                [(*place, fingerprint, count, time.isoformat()) for fingerprint, count in counts.items()],
            )

    def resubmits(self, entity: EntityAddress) -> dict[str, Resubmitted]:
        query = "SELECT fingerprint, time, messages FROM resubmitted_causes WHERE namespace = ? AND entity = ?"
        rows = self._journal.execute(query, self._place(entity))
        return {cause: Resubmitted(datetime.fromisoformat(time), count) for cause, time, count in rows}

    def replace_looks(
        self, counts: Mapping[EntityAddress, int], now: datetime
    ) -> dict[EntityAddress, tuple[int, datetime]]:
        """Keep the counts of queues for the next look. Return those of the last one, with its time."""
        namespace = self._namespace().casefold()
        wanted = {address.path.casefold(): address for address in counts}
        rows = [(namespace, path, counts[each], now.astimezone(UTC).isoformat()) for path, each in wanted.items()]
        with self._journal.transaction() as database:
            found = database.execute(
                "SELECT entity, messages, time FROM looks WHERE namespace = ?", (namespace,)
            ).fetchall()
            database.executemany("INSERT OR REPLACE INTO looks VALUES (?, ?, ?, ?)", rows)
        return {wanted[path]: (count, datetime.fromisoformat(time)) for path, count, time in found if path in wanted}

    def _place(self, entity: EntityAddress) -> tuple[str, str]:
        return self._namespace().casefold(), entity.path.casefold()

    def _place_of(self, message: ReceivedMessage) -> tuple[str, str, str]:
        return (self._namespace(), message.entity.path.casefold(), key_of(message))


class AssistantCalls:
    """The journal's table of calls in one namespace, which keeps them for 30 days."""

    def __init__(self, journal: Journal, namespace: Callable[[], str]) -> None:
        self._journal = journal
        self._namespace = namespace

    def begin(self, tool: str, arguments: str) -> int:
        """Write a call, on disk before this returns; its number is for :meth:`end`."""
        now = datetime.now(UTC)
        row = (self._namespace().casefold(), now.isoformat(), tool, arguments)
        with self._journal.transaction() as database:
            database.execute(_CALLS)
            database.execute("DELETE FROM assistant_calls WHERE time < ?", ((now - _KEPT).isoformat(),))
            insert = "INSERT INTO assistant_calls VALUES (NULL, ?, ?, ?, ?, 'begun')"
            return database.execute(insert, row).lastrowid or 0

    def end(self, number: int, result: str) -> None:
        """Write the result of a call."""
        self._journal.execute("UPDATE assistant_calls SET result = ? WHERE id = ?", (result, number))

    def last(self, most: int = 100) -> list[AssistantCall]:
        """Return the last calls, the last first."""
        query = "SELECT time, tool, arguments, result FROM assistant_calls WHERE namespace = ? ORDER BY id DESC LIMIT ?"
        with self._journal.transaction() as database:
            database.execute(_CALLS)
            rows = database.execute(query, (self._namespace().casefold(), most)).fetchall()
        return [AssistantCall(datetime.fromisoformat(time), *others) for time, *others in rows]


def key_of(message: ReceivedMessage) -> str:
    """Return by what a message whose work is done is known in its entity."""
    if message.message_id:
        # A text of a broken sender may hold half a character, which a file cannot, and a null ends a text in SQL.
        return "id:" + message.message_id.encode(errors="backslashreplace").decode().replace("\0", "\\0")
    return f"#{message.sequence_number}@{time_text(message.enqueued_time)}"


def _ago(duration: timedelta) -> str:
    return (datetime.now(UTC) - duration).isoformat()


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return "unknown"


def _checked(text: str, what: str, longest: int) -> str:
    if len(text) > longest:
        raise ConfigurationError(f"{what} has {longest:,} characters at most, and this one has {len(text):,}.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{what} cannot be kept: a character in it is only half of one.") from None
    return text


OriginalKey: TypeAlias = tuple[str, int, str]
"""The entity of an original, its number, and the time that it was enqueued at."""

_SCHEMA: Final = (
    """
    CREATE TABLE resubmits (
        id INTEGER PRIMARY KEY,
        namespace TEXT NOT NULL,
        source TEXT NOT NULL,
        sequence_number INTEGER NOT NULL,
        message_id TEXT,
        destination TEXT NOT NULL,
        clone_id TEXT NOT NULL,
        enqueued_time TEXT NOT NULL,
        destination_namespace TEXT NOT NULL,
        edited INTEGER NOT NULL,
        scheduled TEXT,
        state TEXT NOT NULL,
        changed TEXT NOT NULL
    )
    """,
    """
    CREATE INDEX unfinished_resubmits ON resubmits (namespace, sequence_number)
    WHERE state IN ('intended', 'sent')
    """,
    "CREATE INDEX resubmits_by_number ON resubmits (namespace, sequence_number)",
    """
    CREATE TABLE deferrals (
        namespace TEXT NOT NULL,
        entity TEXT NOT NULL,
        sequence_number INTEGER NOT NULL,
        message_id TEXT,
        enqueued_time TEXT NOT NULL,
        confirmed INTEGER NOT NULL,
        deferred_by TEXT NOT NULL,
        deferred_at TEXT NOT NULL,
        PRIMARY KEY (namespace, entity, sequence_number)
    )
    """,
    """
    CREATE TABLE seen (
        namespace TEXT NOT NULL,
        entity TEXT NOT NULL,
        key TEXT NOT NULL,
        done TEXT NOT NULL,
        PRIMARY KEY (namespace, entity, key)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX seen_by_time ON seen (done)",
    """
    CREATE TABLE notes (
        namespace TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        note TEXT NOT NULL,
        changed TEXT NOT NULL,
        PRIMARY KEY (namespace, fingerprint)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE resubmitted_causes (
        namespace TEXT NOT NULL,
        entity TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        messages INTEGER NOT NULL,
        time TEXT NOT NULL,
        PRIMARY KEY (namespace, entity, fingerprint)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE looks (
        namespace TEXT NOT NULL,
        entity TEXT NOT NULL,
        messages INTEGER NOT NULL,
        time TEXT NOT NULL,
        PRIMARY KEY (namespace, entity)
    ) WITHOUT ROWID
    """,
)
_COLUMNS: Final = (
    "namespace, source, sequence_number, message_id, destination, clone_id, enqueued_time, destination_namespace, "
    "edited, scheduled, state"
)
_FROM: Final = f"SELECT {_COLUMNS}, id, changed FROM resubmits"  # noqa: S608 (these are ours)
_MARK: Final = """
    UPDATE resubmits SET state = ?, changed = ?
    WHERE id IN (SELECT value FROM json_each(?)) AND state IN ('intended', 'sent')
"""


class ResubmitState(StrEnum):
    """How far one resubmit came."""

    INTENDED = "intended"
    """The clone may have been sent or not."""
    SENT = "sent"
    """The clone is confirmed, the original is not completed yet."""
    DONE = "done"
    """The clone is confirmed and the original is completed."""
    NOT_SENT = "not sent"
    """The service refused the clone, or it was not attempted; the original is where it was."""
    GONE = "gone"
    """The original is gone, and the clone's outcome is unknown; or another resubmit replaced it."""


class SentClone(NamedTuple):
    message_id: str
    sent: datetime | None = None
    """None where it is not known."""
    time_to_live: timedelta | None = None
    """Its own; None for that of the entity."""
    is_scheduled: bool = False


@dataclass(frozen=True, slots=True)
class ResubmitEntry:
    """One message's resubmit.

    Args:
        namespace: the identity of the namespace that the original is in.
        source: the entity of the original.
        sequence_number: the original's.
        message_id: the original's.
        destination: where the clone goes.
        clone_id: the clone's message id, derived from the original's.
        enqueued_time: the original's, which tells it from one with the same number in a queue that was made anew.
        destination_namespace: the identity of the namespace that the destination is in; empty for that of the original.
        edited: whether the clone was edited: then only the same edit can make it again.
        scheduled: when the clone becomes active, None for at once.
        state: how far it came.
        id: names it in the journal, 0 before it is written.
        changed: when it came as far as it is.
    """

    namespace: str
    source: str
    sequence_number: int
    message_id: str | None
    destination: str
    clone_id: str
    enqueued_time: str = ""
    destination_namespace: str = ""
    edited: bool = False
    scheduled: datetime | None = None
    state: ResubmitState = ResubmitState.INTENDED
    id: int = field(default=0, compare=False)
    changed: datetime | None = field(default=None, compare=False)

    @property
    def key(self) -> OriginalKey:
        """Return the key of the original."""
        return (self.source.casefold(), self.sequence_number, self.enqueued_time)

    @property
    def place(self) -> tuple[str, EntityAddress]:
        """Return the namespace of the destination, empty for that of the original, and its address."""
        return self.destination_namespace, EntityAddress.parse(self.destination)

    @property
    def clone(self) -> SentClone | None:
        """Return the clone; None where none was sent."""
        if self.state is ResubmitState.NOT_SENT:
            return None
        return SentClone(self.clone_id, self.changed, is_scheduled=self.scheduled is not None)

    def is_of(self, message: ReceivedMessage) -> bool:
        """Tell whether it is the resubmit of this message, and not of another that had its number before."""
        return (message.sequence_number, time_text(message.enqueued_time)) == (self.sequence_number, self.enqueued_time)


def original_key(message: ReceivedMessage) -> OriginalKey:
    """Return what tells an original from all others of its namespace."""
    return message.entity.path.casefold(), message.sequence_number, time_text(message.enqueued_time)


class Journal(LocalDatabase):
    """The journal of one user on one machine, an SQLite file that only the owner can read.

    Finished resubmits are deleted after 30 days.

    Args:
        path: the file; None for the one in the user's data directory.

    Raises:
        ConfigurationError: the file is not a journal, or is one of another version; it is left as it is.
        JournalError: by each method, where the file cannot be used.
    """

    _what, _table, _schema = "a journal", "resubmits", _SCHEMA

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(path or platformdirs.user_data_path("sbnotebook") / "journal.sqlite")
        self._is_pruned = False

    def intend(self, entries: Sequence[ResubmitEntry]) -> list[int]:
        """Write intentions, on disk before this returns; the ids are for :meth:`mark`."""
        now = datetime.now(UTC)
        with self.transaction() as database:
            if not self._is_pruned:
                ended = "DELETE FROM resubmits WHERE state NOT IN ('intended', 'sent') AND changed < ?"
                database.execute(ended, ((now - _KEPT).isoformat(),))
            ids = insert_rows(
                database,
                f"INSERT INTO resubmits ({_COLUMNS}, changed)",
                [(*_values(entry), now.isoformat()) for entry in entries],
            )
        self._is_pruned = True
        return ids

    def mark(self, ids: Iterable[int], state: ResubmitState) -> None:
        """Write the progress of resubmits, on disk before this returns; ended ones stay as they are."""
        self.execute(_MARK, (state, datetime.now(UTC).isoformat(), json.dumps(list(ids))))

    def mark_edited(self, ids: Iterable[int]) -> None:
        """Write that the clones of resubmits are edited now, on disk before this returns."""
        edit = "UPDATE resubmits SET edited = 1 WHERE id IN (SELECT value FROM json_each(?))"
        self.execute(edit, (json.dumps(list(ids)),))

    def unfinished(self, namespace: str, source: str | None = None) -> list[ResubmitEntry]:
        """Resubmits of a namespace that were begun and not ended, oldest first."""
        # With the very words of the index, or SQLite does not use it.
        query = f"{_FROM} WHERE state IN ('intended', 'sent') AND namespace = ? ORDER BY id"
        entries = [_entry(row) for row in self.execute(query, (namespace,))]
        return [entry for entry in entries if source is None or entry.source.casefold() == source.casefold()]

    def resubmits(self, namespace: str, source: str | None = None, most: int = 1_000) -> list[ResubmitEntry]:
        """Return the last resubmits of a namespace in any state, the last first."""
        query = f"{_FROM} WHERE namespace = ? AND (? IS NULL OR lower(source) = ?) ORDER BY id DESC LIMIT ?"
        path = None if source is None else source.lower()
        return [_entry(row) for row in self.execute(query, (namespace, path, path, most))]

    def find_begun(self, namespace: str, keys: Collection[OriginalKey]) -> dict[OriginalKey, ResubmitEntry]:
        """Return the last resubmit of each of some originals whose clone was or may have been sent, by key.

        If an original exists although its resubmit has ended, it counted as gone too early: a peek had missed it.
        """
        wanted, numbers = set(keys), json.dumps([number for _, number, _ in keys])
        these = "namespace = ? AND sequence_number IN (SELECT value FROM json_each(?))"
        query = f"{_FROM} WHERE {these} AND state != 'not sent' ORDER BY id"
        begun = map(_entry, self.execute(query, (namespace, numbers)))
        return {entry.key: entry for entry in begun if entry.key in wanted}

    def _unusable(self, error: Exception) -> JournalError:
        return JournalError(
            f"The journal {self.path} cannot be used ({error}), and nothing is done that it has to hold first: make "
            "room on its disk, or let this user read and write it."
        )


def _values(e: ResubmitEntry) -> tuple[object, ...]:
    scheduled = e.scheduled.isoformat() if e.scheduled else None
    return (
        e.namespace, e.source, e.sequence_number, e.message_id, e.destination, e.clone_id, e.enqueued_time,
        e.destination_namespace, e.edited, scheduled, e.state,
    )  # fmt: skip


def _entry(row: Sequence[Any]) -> ResubmitEntry:
    *texts, edited, scheduled, state, number, changed = row
    return ResubmitEntry(
        *texts,
        edited=bool(edited),
        scheduled=datetime.fromisoformat(scheduled) if scheduled else None,
        state=ResubmitState(state),
        id=number,
        changed=datetime.fromisoformat(changed),
    )
