"""The namespaces in local files: each by its identity, also where a version before identities wrote its address."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbnotebook.settlement.memory.local_database import LocalDatabase

__all__ = ["adopt", "canonical_version"]


def canonical_version(*tables: str) -> tuple[str, ...]:
    """Return the statements of a version of a file that knows each namespace by one spelling.

    A row that exists under both spellings keeps its own: nothing is lost.

    Args:
        tables: those with a column ``namespace``.
    """
    return (
        "CREATE TABLE adopted (namespace TEXT PRIMARY KEY) WITHOUT ROWID",
        *(
            f"UPDATE OR IGNORE {table} SET namespace = canonical_host(namespace)"  # noqa: S608
            " WHERE namespace != canonical_host(namespace)"
            for table in tables
        ),
    )


def adopt(database: LocalDatabase, tables: Iterable[str], *, name: str, earlier: Iterable[str]) -> None:
    """Give a namespace what earlier versions wrote under its addresses; once, as later rows there are another's.

    Args:
        database: the journal's, or the archive's.
        tables: those with a column ``namespace``.
        name: the namespace's identity.
        earlier: its addresses, as patterns of GLOB.
    """
    if not database.path.exists():
        return
    with database.transaction() as transaction:
        met = transaction.execute("INSERT OR IGNORE INTO adopted VALUES (?)", (name,)).rowcount
        if met:
            for table, pattern in product(tables, earlier):
                transaction.execute(
                    f"UPDATE OR IGNORE {table} SET namespace = ? WHERE namespace GLOB ?",  # noqa: S608
                    (name, pattern),
                )
