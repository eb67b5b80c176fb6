"""The calls of assistants, in the journal."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from sbnotebook.settlement.memory.local_database import LocalDatabase

# Not made with the journal: a journal from before has no such table.
_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS assistant_calls (
        id INTEGER PRIMARY KEY, namespace TEXT NOT NULL, time TEXT NOT NULL, tool TEXT NOT NULL,
        arguments TEXT NOT NULL, result TEXT NOT NULL
    )
"""
_KEPT: Final = timedelta(days=30)


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
            database.execute(_SCHEMA)
            database.execute("DELETE FROM assistant_calls WHERE time < ?", ((now - _KEPT).isoformat(),))
            return (
                database.execute("INSERT INTO assistant_calls VALUES (NULL, ?, ?, ?, ?, 'begun')", row).lastrowid or 0
            )

    def end(self, number: int, result: str) -> None:
        """Write the result of a call."""
        with self._database.transaction() as database:
            database.execute("UPDATE assistant_calls SET result = ? WHERE id = ?", (result, number))

    def last(self, most: int = 100) -> list[AssistantCall]:
        """Return the last calls, the last first."""
        query = "SELECT time, tool, arguments, result FROM assistant_calls WHERE namespace = ? ORDER BY id DESC LIMIT ?"
        with self._database.transaction() as database:
            database.execute(_SCHEMA)
            rows = database.execute(query, (self._namespace().casefold(), most)).fetchall()
        return [AssistantCall(datetime.fromisoformat(time), *others) for time, *others in rows]
