from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import platformdirs
import pytest

from sbnotebook.errors import ConfigurationError, JournalError
from sbnotebook.model import EntityAddress
from sbnotebook.settlement.memory.journal import Journal, ResubmitEntry, ResubmitState

HOST = "shop.servicebus.windows.net"


def entry(number: int = 1, namespace: str = HOST) -> ResubmitEntry:
    return ResubmitEntry(namespace, "orders/$DeadLetterQueue", number, f"m{number}", "orders", f"m{number}~1")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "journal.sqlite"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    with closing(Journal(path)) as journal:
        yield journal


def test_what_was_intended_is_unfinished_in_its_order(journal: Journal) -> None:
    entries = [entry(3), entry(1), replace(entry(2), message_id=None)]
    assert [each.id for each in entries] == [0, 0, 0], "they are not written yet"
    ids = journal.intend(entries)
    assert len(set(ids)) == 3
    assert [each.id for each in journal.unfinished(HOST)] == ids
    assert journal.unfinished(HOST) == entries


@pytest.mark.parametrize("state", ResubmitState)
def test_a_resubmit_is_finished_when_it_is_done_or_was_not_sent(journal: Journal, state: ResubmitState) -> None:
    first, second, third = (entry(number) for number in (1, 2, 3))
    ids = journal.intend([first, second, third])
    journal.mark([ids[1]], state)
    begun = state in (ResubmitState.INTENDED, ResubmitState.SENT)
    assert journal.unfinished(HOST) == [first, *([replace(second, state=state)] if begun else []), third]


def test_resubmits_are_those_of_a_namespace_or_of_one_entity(journal: Journal) -> None:
    journal.intend([entry(1), replace(entry(2), source="Other/$dlq"), entry(3, "elsewhere")])
    assert [each.sequence_number for each in journal.resubmits(HOST)] == [2, 1]
    assert [each.sequence_number for each in journal.resubmits(HOST, "other/$DLQ")] == [2]
    assert [each.sequence_number for each in journal.resubmits(HOST, most=1)] == [2]


def test_the_place_of_a_clone_is_in_its_own_namespace() -> None:
    assert entry().place == ("", EntityAddress("orders"))
    elsewhere = replace(entry(), destination="Parts/$dlq", destination_namespace="elsewhere")
    assert elsewhere.place == ("elsewhere", EntityAddress("parts").dead_letter)


def test_namespaces_are_apart(journal: Journal) -> None:
    here, there = entry(1), entry(1, "other.servicebus.windows.net")
    journal.intend([here, there])
    assert journal.unfinished(HOST) == [here]
    assert journal.unfinished(there.namespace) == [there]
    assert journal.unfinished("x' OR '1'='1") == []


def test_the_last_thousand_resubmits_are_returned(journal: Journal) -> None:
    journal.intend([entry(number) for number in range(1_001)])
    assert [each.sequence_number for each in journal.resubmits(HOST)] == list(range(1_000, 0, -1))


def test_what_is_finished_is_forgotten_after_a_month(journal: Journal) -> None:
    done, fresh, open_still, _ = journal.intend([entry(number) for number in range(4)])
    journal.mark([done, fresh], ResubmitState.DONE)
    old = (datetime.now(UTC) - timedelta(days=31)).isoformat()
    with journal.transaction() as database:
        database.execute("UPDATE resubmits SET changed = ? WHERE id IN (?, ?)", (old, done, open_still))
    with closing(Journal(journal.path)) as later:
        later.intend([entry(9)])
        with later.transaction() as database:
            kept = database.execute("SELECT sequence_number, state FROM resubmits ORDER BY id").fetchall()
    assert kept == [(1, "done"), (2, "intended"), (3, "intended"), (9, "intended")]


def test_what_has_ended_stays_as_it_is(journal: Journal) -> None:
    ids = journal.intend([entry()])
    journal.mark(ids, ResubmitState.DONE)
    journal.mark(ids, ResubmitState.SENT)
    assert journal.unfinished(HOST) == []


def test_an_edit_of_a_later_attempt_is_written_down(journal: Journal) -> None:
    journal.mark_edited(journal.intend([entry(1)]))
    journal.intend([entry(2)])
    journal.mark_edited([])
    assert [found.edited for found in journal.unfinished(HOST)] == [True, False]


def test_unfinished_ones_are_found_by_their_original(journal: Journal) -> None:
    first, again, other = entry(1), replace(entry(1), clone_id="later"), replace(entry(1), enqueued_time="another")
    journal.intend([first, other, again])
    found = journal.find_begun(HOST, [replace(first, source=first.source.upper()).key, entry(2).key])
    assert found == {again.key: again}
    assert journal.unfinished(HOST, "ORDERS/$deadletterqueue") == [first, other, again]
    assert journal.unfinished(HOST, "elsewhere") == journal.unfinished(HOST, "payments") == []


def test_a_journal_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "no-folder"
    folder.write_text("a file")
    with pytest.raises(JournalError, match=r"The journal .*cannot be used .*let this user read and write it\."):
        Journal(folder / "journal.sqlite").intend([entry()])


def test_hostile_texts_are_kept_as_they_are(journal: Journal) -> None:
    hostile = replace(entry(), message_id="'); DROP TABLE resubmits; --\x00\x1b", clone_id="é🚚")
    journal.intend([hostile])
    assert journal.unfinished(HOST) == [hostile]


def test_a_journal_is_in_the_users_data_directory() -> None:
    assert Journal().path == platformdirs.user_data_path("sbnotebook") / "journal.sqlite"


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("existing", [False, True], ids=["new file", "empty file"])
def test_only_the_owner_can_read_it(tmp_path: Path, existing: bool) -> None:
    path = tmp_path / "new" / "journal.sqlite"
    if existing:
        path.parent.mkdir(mode=0o700)
        path.touch(mode=0o666)
    with closing(Journal(path)) as journal:
        journal.intend([entry()])
        assert {mode(file) for file in path.parent.iterdir()} == {0o600}
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700


TEXT = "not a database at all, and longer than the head of one: " * 20
# The version and the set-up of a database that is not a journal of ours.
FOREIGN = {
    "text": None,
    "other database": (0, "CREATE TABLE photos (id INTEGER)"),
    "other database of the same version": (1, "CREATE TABLE photos (id INTEGER)"),
    "other database of another version": (2, "CREATE TABLE photos (id INTEGER)"),
    "another version of it": (2, "CREATE TABLE resubmits (id INTEGER)"),
    "journal without a version": (0, "CREATE TABLE resubmits (id INTEGER)"),
    "version without a table": (1, "CREATE TABLE t (id INTEGER); DROP TABLE t"),
}


def make_foreign(path: Path, kind: str) -> None:
    made = FOREIGN[kind]
    if made is None:
        path.write_text(TEXT)
        return
    with closing(sqlite3.connect(path)) as database:
        database.executescript(f"{made[1]}; PRAGMA user_version = {made[0]};")


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_is_left_as_it_is(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "journal.sqlite"
    make_foreign(path, kind)
    path.chmod(0o644)
    before = path.read_bytes(), path.stat()
    for use in (lambda: Journal(path).unfinished(HOST), lambda: Journal(path).intend([entry()])):
        with pytest.raises(ConfigurationError, match="is not a journal of this version of sbnotebook: move it away"):
            use()
    after = path.stat()
    assert path.read_bytes() == before[0]
    assert (after.st_mtime_ns, after.st_mode, after.st_ino) == (
        before[1].st_mtime_ns, before[1].st_mode, before[1].st_ino
    )  # fmt: skip
    assert [file.name for file in tmp_path.iterdir()] == ["journal.sqlite"]


def test_a_locked_file_is_not_called_foreign(journal: Journal, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def impatient(*args: str, check_same_thread: bool, **_: float) -> sqlite3.Connection:
        return connect(*args, check_same_thread=check_same_thread, timeout=0)

    path.parent.mkdir()
    with closing(connect(path)) as other:
        other.executescript("BEGIN EXCLUSIVE; CREATE TABLE t (id INTEGER);")
        monkeypatch.setattr(sqlite3, "connect", impatient)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            journal.unfinished(HOST)


@pytest.mark.parametrize("attempt", range(5))
def test_many_may_make_the_file_at_once(path: Path, attempt: int) -> None:
    count = 8
    barrier = threading.Barrier(count)

    def use(number: int) -> None:
        with closing(Journal(path)) as journal:
            barrier.wait()
            journal.intend([entry(number)])

    with ThreadPoolExecutor(count) as threads:
        list(threads.map(use, range(count)))
    with closing(Journal(path)) as journal:
        assert {each.sequence_number for each in journal.unfinished(HOST)} == set(range(count)), attempt
