"""Files of versions that knew a namespace by the address it was reached by."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sbnotebook.emulator import running
from sbnotebook.emulator.store import FILE_NAME
from sbnotebook.model import EntityAddress
from sbnotebook.settlement import AsyncNamespace, Connection, Journal
from sbnotebook.settlement.memory.archive import Archive, ArchivedMessage
from sbnotebook.settlement.memory.deferral_ledger import DeferralLedger
from sbnotebook.settlement.memory.journal import ResubmitEntry
from sbnotebook.settlement.memory.notes import Notes
from tests.other_emulators import stranger

ORDERS = EntityAddress("orders")
SHOP = "shop.servicebus.windows.net"


def written_before(folder: Path, *namespaces: str) -> Journal:
    """Write a journal and an archive of the version before identities, with something in each of these namespaces."""
    journal, archive = Journal(folder / "journal.sqlite"), Archive(folder / "archive.sqlite")
    for number, namespace in enumerate(namespaces, start=1):
        journal.intend([ResubmitEntry(namespace, "orders", number, None, "orders", "clone")])
        Notes(journal.database, lambda name=namespace: name).write(f"cause {number}", "note")
        archive.keep([ArchivedMessage(namespace, "orders", number, None, "", "purge", b"")])
    journal.close()
    archive.close()
    newer = "ALTER TABLE resubmits DROP COLUMN destination_namespace;"
    kept = "DROP INDEX archived_by_end; ALTER TABLE archived DROP COLUMN keep_until;"
    for name, version, undone in (("journal", 4, newer), ("archive", 1, kept)):
        with closing(sqlite3.connect(folder / f"{name}.sqlite")) as database:
            database.executescript(f"DROP TABLE adopted; {undone} PRAGMA user_version = {version};")
    return journal


def numbers(journal: Journal, namespace: str) -> tuple[list[int], list[str], list[int]]:
    """The records of a namespace, in the journal, the notes and the archive."""
    with closing(Archive(journal.path.parent / "archive.sqlite")) as archive:
        return (
            [each.sequence_number for each in journal.unfinished(namespace)],
            list(Notes(journal.database, lambda: namespace).all()),
            [each.sequence_number for each in archive.find(namespace)],
        )


def everything(*wanted: int) -> tuple[list[int], list[str], list[int]]:
    return [*wanted], [f"cause {number}" for number in wanted], [*wanted]


def test_spellings_of_a_host_become_one(tmp_path: Path) -> None:
    journal = written_before(tmp_path, SHOP, f"{SHOP}.", f"{SHOP}:5671", "other.servicebus.windows.net")
    with closing(journal):
        assert numbers(journal, SHOP) == everything(1, 2, 3)


def test_what_stands_under_both_spellings_is_not_lost(tmp_path: Path) -> None:
    journal = written_before(tmp_path, SHOP, f"{SHOP}.")
    with closing(sqlite3.connect(journal.path)) as database:
        database.execute("UPDATE notes SET fingerprint = 'the same'")
        database.commit()
    with closing(journal):
        Notes(journal.database, lambda: SHOP).all()
    with closing(sqlite3.connect(journal.path)) as database:
        assert database.execute("SELECT count(*) FROM notes").fetchone() == (2,)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The data directory of an emulator of the version before identities."""
    directory = tmp_path / "sbnotebook" / "emulator"
    with running(queues=["orders"], data_dir=directory):
        pass
    with closing(sqlite3.connect(directory / FILE_NAME)) as database:
        database.execute("DROP TABLE identity")
    return directory


@pytest.fixture
def users_own(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(data_dir.parent.parent))


@pytest.mark.anyio
@pytest.mark.usefixtures("users_own")
async def test_the_users_own_emulator_adopts_each_port_once(tmp_path: Path, data_dir: Path) -> None:
    journal = written_before(tmp_path, "127.0.0.1:40001", "127.0.0.1:40002", SHOP, "10.0.0.1:5672")
    for _ in range(2):
        with running(data_dir=data_dir) as emulator:
            async with AsyncNamespace(Connection(emulator.connection_string), journal=journal) as namespace:
                assert numbers(journal, namespace.identity()) == everything(1, 2)
                journal.intend([ResubmitEntry("localhost:40003", "orders", 9, None, "orders", "another's")])


@pytest.mark.anyio
async def test_another_emulator_adopts_its_present_port(tmp_path: Path, data_dir: Path, free_tcp_port: int) -> None:
    here, elsewhere = f"127.0.0.1:{free_tcp_port}", "127.0.0.1:1"
    journal = written_before(tmp_path, here, elsewhere)
    with running(data_dir=data_dir, port=free_tcp_port) as emulator:
        async with AsyncNamespace(Connection(emulator.connection_string), journal=journal) as namespace:
            assert numbers(journal, namespace.identity()) == everything(1)


@pytest.mark.anyio
async def test_an_emulator_in_memory_adopts_nothing(tmp_path: Path, free_tcp_port: int) -> None:
    journal = written_before(tmp_path, f"127.0.0.1:{free_tcp_port}")
    with running(port=free_tcp_port) as emulator:
        async with AsyncNamespace(Connection(emulator.connection_string), journal=journal) as namespace:
            assert numbers(journal, namespace.identity()) == everything()


@pytest.mark.anyio
@pytest.mark.usefixtures("users_own")
async def test_an_emulator_without_identity_keeps_what_is_its_own(tmp_path: Path, data_dir: Path) -> None:
    with stranger(b"AMQP\x00\x01\x00\x00") as connection:
        port = (connection.host or "").rpartition(":")[2]
        journal = written_before(tmp_path, f"127.0.0.1:{port}")
        async with AsyncNamespace(connection, journal=journal) as namespace:
            name = namespace.identity()
            assert numbers(journal, name) == everything(1), "it has what an earlier version wrote"
            journal.intend([ResubmitEntry(name, "orders", 2, None, "orders", "clone")])
            with running(data_dir=data_dir) as emulator:
                async with AsyncNamespace(Connection(emulator.connection_string), journal=journal) as users_own:
                    assert numbers(journal, users_own.identity()) == everything()
            assert [each.sequence_number for each in journal.unfinished(name)] == [1, 2]


def test_deferrals_are_found_by_the_present_spelling(tmp_path: Path) -> None:
    journal = written_before(tmp_path, SHOP)
    with closing(sqlite3.connect(journal.path)) as database:
        values = (f"{SHOP}.", "orders", 7, None, "", 1, "anna@pc", "2026-11-01T00:00:00+00:00")
        database.execute("INSERT INTO deferrals VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        database.commit()
    with closing(journal):
        assert list(DeferralLedger(journal.database, lambda: SHOP).entries(ORDERS)) == [7]
