"""A disk that fills up: SQLite itself refuses each write."""

import sqlite3
from contextlib import closing
from pathlib import Path


def fill_up(file: Path, table: str, event: str = "INSERT", *, rows: int = 0, when: str = "true") -> None:
    """Refuse each ``event`` in this table from now on, as soon as it has so many rows."""
    refusal = "SELECT RAISE(ABORT, 'database or disk is full');"
    condition = f"{when} AND (SELECT count(*) FROM {table}) >= {rows}"  # noqa: S608
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(f"CREATE TRIGGER full BEFORE {event} ON {table} WHEN {condition} BEGIN {refusal} END")
