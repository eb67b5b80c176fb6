"""Notes in the journal: a text for each cause, its resubmits, counts at the last look, and calls of assistants."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    from sbnotebook.settlement.memory.local_database import LocalDatabase


SCHEMA: Final = (
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
"""The statements that make the journal's tables."""
MAX_NOTE: Final = 2_000
"""Characters of a note."""
_MAX_FINGERPRINT: Final = 100
_KEPT: Final = timedelta(days=30)
"""For how long the counts of resubmits are kept after the last one, as the journal keeps the resubmits themselves."""
# Made at the first call: most journals have none.
_CALLS: Final = """
    CREATE TABLE IF NOT EXISTS assistant_calls (
        id INTEGER PRIMARY KEY, namespace TEXT NOT NULL, time TEXT NOT NULL, tool TEXT NOT NULL,
        arguments TEXT NOT NULL, result TEXT NOT NULL
    )
"""


class Resubmitted(NamedTuple):
    """When messages of a cause were last resubmitted, and how many in all."""

    time: datetime
    messages: int


class Look(NamedTuple):
    """The number of messages in a queue at the last look, and the time of that look."""

    messages: int
    time: datetime


class Notes:
    def __init__(self, database: LocalDatabase, namespace: Callable[[], str]) -> None:
        self._database = database
        self._namespace = namespace

    def write(self, fingerprint: str, text: str) -> None:
        """Keep a note on a cause, on disk before this returns; an empty one is removed."""
        key = (self._namespace().casefold(), _checked(fingerprint, "A fingerprint", _MAX_FINGERPRINT))
        note = _checked(text.strip(), "A note", MAX_NOTE)
        with self._database.transaction() as database:
            database.execute("DELETE FROM notes WHERE namespace = ? AND fingerprint = ?", key)
            if note:
                database.execute("INSERT INTO notes VALUES (?, ?, ?, ?)", (*key, note, datetime.now(UTC).isoformat()))

    def all(self) -> dict[str, str]:
        key = (self._namespace().casefold(),)
        query = "SELECT fingerprint, note FROM notes WHERE namespace = ? ORDER BY fingerprint"
        return dict(self._database.execute(query, key))

    def add_resubmits(self, entity: EntityAddress, counts: Mapping[str, int], now: datetime) -> None:
        """Count resubmitted messages, anew when the last resubmit is more than 30 days ago."""
        place, time = self._place(entity), now.astimezone(UTC)
        with self._database.transaction() as database:
            database.execute("DELETE FROM resubmitted_causes WHERE time < ?", ((time - _KEPT).isoformat(),))
            database.executemany(
                "INSERT INTO resubmitted_causes VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET messages = messages + excluded.messages, time = max(time, excluded.time)",
                [(*place, fingerprint, count, time.isoformat()) for fingerprint, count in counts.items()],
            )

    def resubmits(self, entity: EntityAddress) -> dict[str, Resubmitted]:
        query = "SELECT fingerprint, time, messages FROM resubmitted_causes WHERE namespace = ? AND entity = ?"
        rows = self._database.execute(query, self._place(entity))
        return {cause: Resubmitted(datetime.fromisoformat(time), count) for cause, time, count in rows}

    def replace_looks(self, counts: Mapping[EntityAddress, int], now: datetime) -> dict[EntityAddress, Look]:
        """Keep the counts of queues for the next look, and return those of the last one."""
        namespace = self._namespace().casefold()
        wanted = {address.path.casefold(): address for address in counts}
        rows = [(namespace, path, counts[each], now.astimezone(UTC).isoformat()) for path, each in wanted.items()]
        with self._database.transaction() as database:
            found = database.execute(
                "SELECT entity, messages, time FROM looks WHERE namespace = ?", (namespace,)
            ).fetchall()
            database.executemany("INSERT OR REPLACE INTO looks VALUES (?, ?, ?, ?)", rows)
        return {
            wanted[path]: Look(count, datetime.fromisoformat(time)) for path, count, time in found if path in wanted
        }

    def _place(self, entity: EntityAddress) -> tuple[str, str]:
        return self._namespace().casefold(), entity.path.casefold()


def _checked(text: str, what: str, longest: int) -> str:
    if len(text) > longest:
        raise ConfigurationError(f"{what} has {longest:,} characters at most, and this one has {len(text):,}.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{what} cannot be kept: a character in it is only half of one.") from None
    return text


class AssistantCall(NamedTuple):
    """One call of a tool, with its arguments as JSON, and its result: ``begun``, ``ok``, or an error."""

    time: datetime
    tool: str
    arguments: str
    result: str


class AssistantCalls:
    """The journal's table of calls in one namespace, which keeps them for 30 days."""

    def __init__(self, database: LocalDatabase, namespace: Callable[[], str]) -> None:
        self._database = database
        self._namespace = namespace

    def begin(self, tool: str, arguments: str) -> int:
        """Write a call, on disk before this returns; its number is for :meth:`end`."""
        now = datetime.now(UTC)
        row = (self._namespace().casefold(), now.isoformat(), tool, arguments)
        with self._database.transaction() as database:
            database.execute(_CALLS)
            database.execute("DELETE FROM assistant_calls WHERE time < ?", ((now - _KEPT).isoformat(),))
            return (
                database.execute("INSERT INTO assistant_calls VALUES (NULL, ?, ?, ?, ?, 'begun')", row).lastrowid or 0
            )

    def end(self, number: int, result: str) -> None:
        """Write the result of a call."""
        self._database.execute("UPDATE assistant_calls SET result = ? WHERE id = ?", (result, number))

    def last(self, most: int = 100) -> list[AssistantCall]:
        """Return the last calls, the last first."""
        query = "SELECT time, tool, arguments, result FROM assistant_calls WHERE namespace = ? ORDER BY id DESC LIMIT ?"
        with self._database.transaction() as database:
            database.execute(_CALLS)
            rows = database.execute(query, (self._namespace().casefold(), most)).fetchall()
        return [AssistantCall(datetime.fromisoformat(time), *others) for time, *others in rows]
