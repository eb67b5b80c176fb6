"""The counts of dead-letter queues when they were last looked at, kept in the journal to tell the growth since."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from sbnotebook.model import EntityAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    from sbnotebook.settlement.memory.local_database import LocalDatabase

__all__ = ["VERSION", "Look", "Looks"]

VERSION: Final = (
    """
    CREATE TABLE IF NOT EXISTS looks (
        namespace TEXT NOT NULL,
        entity TEXT NOT NULL,
        messages INTEGER NOT NULL,
        time TEXT NOT NULL,
        PRIMARY KEY (namespace, entity)
    ) WITHOUT ROWID
    """,
)
"""The statement that makes the table, for the version of the journal that has it first."""


class Look(NamedTuple):
    """The count of a queue at one time."""

    messages: int
    time: datetime


class Looks:
    """The journal's table of looks; use it in a thread, the file may be busy.

    Args:
        database: the journal's.
        namespace: returns the identity of the namespace; called in the thread of each method.
    """

    def __init__(self, database: LocalDatabase, namespace: Callable[[], str]) -> None:
        self._database = database
        self._namespace = namespace

    def replace(self, counts: Mapping[EntityAddress, int], now: datetime) -> dict[EntityAddress, Look]:
        """Keep the counts of queues for the next look, and return those of the last one.

        Args:
            counts: by the address of the queue; other queues keep theirs.
            now: the time of this look, with a time zone.
        """
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
