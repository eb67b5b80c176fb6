"""What the journal has of one namespace beside resubmits: deferrals, finished work, notes, counts, and calls."""

from __future__ import annotations

import getpass
import json
import platform
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, LockedMessage, ReceivedMessage
from sbnotebook.model.message import time_text
from sbnotebook.settlement.memory.local_database import insert_rows
from sbnotebook.settlement.parallel import alike

if TYPE_CHECKING:
    from sbnotebook.settlement.memory.journal import Journal

MAX_NOTE: Final = 2_000
"""Characters of a note."""
_MAX_FINGERPRINT: Final = 100
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


class Look(NamedTuple):
    """The number of messages in a queue at the last look, and the time of that look."""

    messages: int
    time: datetime


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
        key = (self._namespace().casefold(), _checked(fingerprint, "A fingerprint", _MAX_FINGERPRINT))
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

    def replace_looks(self, counts: Mapping[EntityAddress, int], now: datetime) -> dict[EntityAddress, Look]:
        """Keep the counts of queues for the next look, and return those of the last one."""
        namespace = self._namespace().casefold()
        wanted = {address.path.casefold(): address for address in counts}
        rows = [(namespace, path, counts[each], now.astimezone(UTC).isoformat()) for path, each in wanted.items()]
        with self._journal.transaction() as database:
            found = database.execute(
                "SELECT entity, messages, time FROM looks WHERE namespace = ?", (namespace,)
            ).fetchall()
            database.executemany("INSERT OR REPLACE INTO looks VALUES (?, ?, ?, ?)", rows)
        return {
            wanted[path]: Look(count, datetime.fromisoformat(time)) for path, count, time in found if path in wanted
        }

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
            return (
                database.execute("INSERT INTO assistant_calls VALUES (NULL, ?, ?, ?, ?, 'begun')", row).lastrowid or 0
            )

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
