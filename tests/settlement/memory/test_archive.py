from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sbnotebook.errors import ArchiveError, ConfigurationError
from sbnotebook.model import EntityAddress
from sbnotebook.settlement.memory.archive import Archive, ArchivedMessage, ArchiveState, room_for

HOST = "shop.servicebus.windows.net"
ORDERS = EntityAddress("orders")


def message(number: int = 1, body: bytes = b"body", entity: str = "orders") -> ArchivedMessage:
    return ArchivedMessage(HOST, entity, number, f"m{number}", "2026-01-01T00:00:00+00:00", "complete", body)


def room_of(kept: ArchivedMessage, size: int) -> int:
    return room_for(size, kept.entity, kept.message_id)


def written_ago(path: Path, age: timedelta) -> None:
    """Let everything that is in the archive have been written earlier."""
    with closing(sqlite3.connect(path)) as database, database:
        seconds = age.total_seconds()
        database.execute("UPDATE archived SET archived = archived - ?, keep_until = keep_until - ?", (seconds, seconds))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "archive.sqlite"


@pytest.fixture
def archive(path: Path) -> Iterator[Archive]:
    with closing(Archive(path)) as archive:
        yield archive


def test_what_is_kept_is_found_with_its_bytes(archive: Archive) -> None:
    kept = [message(3, b"\x00\xff"), message(1), replace(message(2), message_id=None)]
    rows = archive.keep(kept)
    found = archive.find(HOST)
    assert [replace(each, row=0, archived=0.0) for each in found] == [replace(each, payload=b"") for each in kept]
    assert archive.payloads(rows) == dict(zip(rows, [b"\x00\xff", b"body", b"body"], strict=True))
    assert {each.state for each in found} == {ArchiveState.REMOVING}


def test_namespaces_entities_and_numbers_are_apart(archive: Archive) -> None:
    archive.keep([message(1), message(2), message(1, entity="orders/$DeadLetterQueue")])
    archive.keep([replace(message(1), namespace="other.servicebus.windows.net")])
    assert len(archive.find(HOST)) == 3
    assert [each.sequence_number for each in archive.find(HOST.upper(), EntityAddress("ORDERS"))] == [1, 2]
    assert [each.entity for each in archive.find(HOST, ORDERS.dead_letter, numbers=[1, 2])] == [
        "orders/$DeadLetterQueue"
    ]
    assert [each.sequence_number for each in archive.find(HOST, ORDERS, numbers=[2, 7])] == [2]
    assert archive.find("x' OR '1'='1") == []


def test_only_what_was_archived_since_is_found(archive: Archive, path: Path) -> None:
    archive.keep([message(1)])
    written_ago(path, timedelta(hours=1))
    archive.keep([message(2)])
    since = datetime.now(UTC) - timedelta(minutes=30)
    assert [each.sequence_number for each in archive.find(HOST, since=since)] == [2]


def test_ends_are_written_down(archive: Archive) -> None:
    rows = archive.keep([message(number) for number in range(4)])
    archive.note({rows[0]: ArchiveState.REMOVED, rows[1]: ArchiveState.KEPT, rows[2]: None})
    assert [(each.sequence_number, each.state) for each in archive.find(HOST)] == [
        (0, ArchiveState.REMOVED),
        (1, ArchiveState.KEPT),
        (3, ArchiveState.REMOVING),
    ]
    counts = {(each.entity, each.verb, each.state, each.count) for each in archive.counts(HOST)}
    assert counts == {(ORDERS, "complete", state, 1) for state in (ArchiveState.REMOVED, ArchiveState.REMOVING)}


def test_only_one_can_claim_a_message(archive: Archive, path: Path) -> None:
    rows = archive.keep([message(1), message(2), message(3)])
    archive.note({rows[0]: ArchiveState.REMOVED, rows[2]: ArchiveState.KEPT})
    with closing(Archive(path)) as other:
        expected = dict.fromkeys(rows, ArchiveState.REMOVED)
        assert archive.claim(expected) == {rows[0]}
        assert other.claim(expected) == set()
    states = [ArchiveState.RETURNING, ArchiveState.REMOVING, ArchiveState.KEPT]
    assert [each.state for each in archive.find(HOST)] == states
    archive.note({rows[0]: ArchiveState.RETURNED})
    assert archive.find(HOST)[0].state is ArchiveState.RETURNED


def test_many_rows_are_asked_for_at_once(archive: Archive) -> None:
    rows = archive.keep([message(number, b"%d" % number) for number in range(3_000)])
    assert len(archive.payloads(rows)) == len(archive.find(HOST, ORDERS, numbers=range(3_000))) == 3_000
    assert len(archive.claim(dict.fromkeys(rows, ArchiveState.REMOVING))) == 3_000


def test_there_is_room_up_to_the_last_byte(path: Path) -> None:
    with closing(Archive(path, max_bytes=200_000)) as archive:
        archive.keep([message(1, b"x" * 50_000)])
        used = archive.size
    with closing(Archive(path, max_bytes=used + 1)) as archive:
        archive.require_room()
    with closing(Archive(path, max_bytes=used)) as archive, pytest.raises(ArchiveError, match="is full"):
        archive.require_room()
    row = room_of(message(2), 1_000)
    two = [message(2, b"x" * 1_000), message(3, b"x" * 1_000)]
    with closing(Archive(path, max_bytes=used + 2 * row - 1)) as archive, pytest.raises(ArchiveError, match="is full"):
        archive.keep(two)
    with closing(Archive(path, max_bytes=used + 2 * row)) as archive:
        assert len(archive.keep(two)) == 2


def test_a_full_archive_keeps_nothing_and_says_how_to_go_on(path: Path) -> None:
    with closing(Archive(path, max_bytes=200_000)) as archive:
        archive.keep([message(1, b"x" * 50_000)])
        archive.require_room(50_000)
        too_much = [message(2, b"x" * 100_000), message(3, b"x" * 100_000)]
        with pytest.raises(ArchiveError) as full:
            archive.keep(too_much)
        with pytest.raises(ArchiveError, match="is full"):
            archive.require_room(150_000)
        for word in ("Nothing was removed", str(path), "200,000", "max_bytes", "prune", "archive=False"):
            assert word in str(full.value)
        assert [each.sequence_number for each in archive.find(HOST)] == [1]
        assert archive.prune(older_than=timedelta(0)) == 1
        assert archive.keep(too_much[:1])


@pytest.mark.parametrize("size", [0, 300, 1_000, 1_700, 3_000, 3_700, 4_100, 9_000])
def test_messages_take_no_more_than_the_required_room(path: Path, size: int) -> None:
    some = [replace(message(n, b"x" * size), message_id="é" * 60, entity="e" * 200) for n in range(1, 301)]
    with closing(Archive(path)) as archive:
        archive.keep([message(1)])
        before = archive.size
        archive.keep(some)
        assert archive.size - before <= sum(room_of(each, size) for each in some)


def test_room_is_counted_for_many_small_messages_too(path: Path) -> None:
    def fill(archive: Archive) -> None:
        for number in range(0, 10_000, 100):
            archive.keep([message(number + each, b"") for each in range(100)])

    with closing(Archive(path, max_bytes=300_000)) as archive, pytest.raises(ArchiveError, match="is full"):
        fill(archive)
    assert path.stat().st_size <= 300_000


def test_what_is_older_than_the_retention_is_removed_by_itself(path: Path) -> None:
    with closing(Archive(path)) as archive:
        archive.keep([message(1, b"the secret of the body")])
    written_ago(path, timedelta(days=7, seconds=1))
    with closing(Archive(path)) as archive:
        archive.keep([message(2)])
        assert [each.sequence_number for each in archive.find(HOST)] == [2]
    assert b"the secret of the body" not in path.read_bytes(), "its bytes are overwritten, too"


def test_opening_it_to_look_prunes_as_well(path: Path) -> None:
    with closing(Archive(path, retention=timedelta(days=1))) as archive:
        archive.keep([message(1)])
    written_ago(path, timedelta(days=2))
    with closing(Archive(path)) as archive:
        assert archive.find(HOST) == []


def test_each_message_is_kept_as_long_as_its_writer_said(path: Path) -> None:
    with closing(Archive(path, retention=timedelta(days=30))) as archive:
        archive.keep([message(1)])
    written_ago(path, timedelta(days=8))
    with closing(Archive(path)) as other:
        assert other.prune() == 0
        assert [each.sequence_number for each in other.find(HOST)] == [1]
    written_ago(path, timedelta(days=23))
    with closing(Archive(path)) as other:
        assert other.prune() == 1


def test_pruning_gives_the_room_back_to_the_disk(archive: Archive, path: Path) -> None:
    archive.keep([message(number, b"x" * 10_000) for number in range(200)])
    assert 2_000_000 < archive.size <= path.stat().st_size
    assert archive.prune() == 0
    assert archive.prune(older_than=timedelta(hours=1)) == 0
    assert archive.prune(older_than=timedelta(0)) == 200
    assert path.stat().st_size < 100_000


@pytest.mark.parametrize("arguments", [{"retention": timedelta(0)}, {"max_bytes": 0}, {"max_bytes": -1}])
def test_an_archive_that_keeps_nothing_is_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="must be positive"):
        Archive(**arguments)  # pyright: ignore[reportArgumentType]


def test_an_archive_that_was_made_and_not_used_makes_no_file(path: Path) -> None:
    with closing(Archive(path)) as archive:
        assert (archive.size, archive.counts(HOST)) == (0, [])
    assert not path.parent.exists()


def test_archive_unwritable_disk_fails_before_removal(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArchiveError, match=r"Nothing was done, because the archive .* cannot be used"):
        Archive(tmp_path / "file" / "archive.sqlite").keep([message()])


@pytest.mark.parametrize("value", ["off", "OFF", " 0 ", "false", "no"])
def test_the_environment_turns_it_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("SBNOTEBOOK_ARCHIVE", value)
    assert Archive.of(True, tmp_path) is None
    own = Archive(tmp_path / "own.sqlite")
    assert Archive.of(own, tmp_path) is own


@pytest.mark.parametrize("value", [None, "", "on", "1", "True"])
def test_it_is_on_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is None:
        monkeypatch.delenv("SBNOTEBOOK_ARCHIVE", raising=False)
    else:
        monkeypatch.setenv("SBNOTEBOOK_ARCHIVE", value)
    found = Archive.of(True, tmp_path)
    assert found is not None
    assert found.path == tmp_path / "archive.sqlite"
    assert Archive.of(False, tmp_path) is Archive.of(None, tmp_path) is None


def test_a_word_that_is_neither_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBNOTEBOOK_ARCHIVE", "of")
    with pytest.raises(ConfigurationError, match="SBNOTEBOOK_ARCHIVE is on or off"):
        Archive.of(True, tmp_path)
