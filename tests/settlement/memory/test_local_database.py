from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sbnotebook.errors import JournalError
from sbnotebook.settlement.memory import local_database
from sbnotebook.settlement.memory.local_database import LocalDatabase

SCHEMA = ("CREATE TABLE photos (id INTEGER PRIMARY KEY, title TEXT)", "INSERT INTO photos VALUES (1, 'one')")


class Album(LocalDatabase):
    _what, _table, _schema = "an album", "photos", SCHEMA

    def _unusable(self, error: Exception) -> JournalError:
        return JournalError(str(error))


class Torn(Album):
    _schema = (*SCHEMA, "NO SQL")


def test_a_file_that_could_not_be_made_is_made_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "album.sqlite"
    broken = Torn(path)
    with closing(broken), pytest.raises(sqlite3.OperationalError), broken.transaction():
        pass
    with closing(Album(path)) as album, album.transaction() as open_album:
        assert open_album.execute("SELECT * FROM photos").fetchall() == [(1, "one")]


def test_database_failed_commit_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_database, "_WAIT", 0.1)
    path = tmp_path / "album.sqlite"
    with closing(Album(path)) as album, closing(sqlite3.connect(path)) as reader:
        with album.transaction() as open_album:
            open_album.executemany("INSERT INTO photos VALUES (?, '')", [(2,), (3,)])
        reading = reader.execute("SELECT * FROM photos")
        assert reading.fetchone() == (1, "one")  # and not to the end, so that no other process can write
        with pytest.raises(sqlite3.OperationalError, match="locked"), album.transaction() as open_album:
            open_album.execute("INSERT INTO photos VALUES (4, '')")
        reading.close()
        with album.transaction() as open_album:
            open_album.execute("INSERT INTO photos VALUES (5, '')")
            assert open_album.execute("SELECT id FROM photos").fetchall() == [(1,), (2,), (3,), (5,)]


def test_database_reports_a_full_disk_and_recovers(tmp_path: Path) -> None:
    with closing(Album(tmp_path / "album.sqlite")) as album:
        with album.transaction() as open_album:
            ((pages,),) = open_album.execute("PRAGMA page_count").fetchall()
            open_album.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(sqlite3.OperationalError, match="full"), album.transaction() as open_album:
            open_album.execute("INSERT INTO photos VALUES (2, ?)", ("x" * 100_000,))
        with album.transaction() as open_album:
            open_album.execute("INSERT INTO photos VALUES (3, '')")
