"""Whose the file is: other emulators, other programs, other versions, damage."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from sbnotebook.emulator import store as store_module
from sbnotebook.emulator.entities.message import BrokeredMessage
from sbnotebook.emulator.entities.registry import Changes
from sbnotebook.emulator.store import FILE_NAME, Store, is_in_use
from sbnotebook.errors import EmulatorError

BUSY_TIMEOUT = "sbnotebook.emulator.store.BUSY_TIMEOUT"


def queue(*messages: BrokeredMessage) -> Changes:
    changes = Changes()
    changes.entities.append((1, ("queue", "orders", {}, 7, 8, 0)))
    for message in messages:
        changes.add(4, message)
    return changes


OPENED_IN_ANOTHER_PROCESS = (
    "import sys; from pathlib import Path; from sbnotebook.emulator import store;"
    "store.BUSY_TIMEOUT = 0.1; store.Store(Path(sys.argv[1]))"
)


def test_a_second_process_is_kept_out_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BUSY_TIMEOUT, 0.1)
    store = Store(tmp_path)
    with pytest.raises(EmulatorError, match="Another emulator uses"):
        Store(tmp_path)  # on the way it must not close the file, which would end the lock of the first
    command = [sys.executable, "-c", OPENED_IN_ANOTHER_PROCESS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "Another emulator uses" in done.stderr
    store.close()
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


def test_of_two_that_find_nothing_one_owns_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BUSY_TIMEOUT, 0.1)
    create = store_module.create

    def create_late(path: Path) -> None:
        with pytest.raises(EmulatorError, match="Another emulator uses"):
            Store(tmp_path)  # a second one, after the first has seen that there is no file
        create(path)

    monkeypatch.setattr(store_module, "create", create_late)
    Store(tmp_path).close()


def test_a_log_of_a_removed_file_is_not_replayed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.apply(queue())
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name.endswith("-wal")}
    assert left  # as after a kill
    store.close()
    (tmp_path / FILE_NAME).unlink()
    for name, content in left.items():
        (tmp_path / name).write_bytes(content)
    with closing(Store(tmp_path)) as store:
        assert store.load(0)[0] == []


def test_a_store_is_in_use_while_it_is_open(tmp_path: Path) -> None:
    assert not is_in_use(tmp_path / "missing")
    with closing(Store(tmp_path)):
        assert is_in_use(tmp_path)
    assert not is_in_use(tmp_path)


def test_a_directory_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "taken" / "emulator.lock").mkdir(parents=True)
    for directory in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "taken"):
        with pytest.raises(EmulatorError, match="cannot be used"):
            Store(directory)


def test_the_data_is_the_owners_only(tmp_path: Path) -> None:
    store = Store(tmp_path / "data")
    assert store.path.parent.stat().st_mode & 0o077 == 0
    modes = {path.name: path.stat().st_mode & 0o077 for path in store.path.parent.iterdir()}
    assert modes.items() >= {"emulator.sqlite3": 0, "emulator.lock": 0}.items()
    assert set(modes.values()) == {0}
    store.close()


def test_a_lock_that_others_can_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "emulator.lock").touch(mode=0o644)
    with closing(Store(tmp_path)):
        assert stat.S_IMODE((tmp_path / "emulator.lock").stat().st_mode) == 0o600
        assert is_in_use(tmp_path)


def test_a_foreign_file_is_left_as_it_is(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as foreign:
        foreign.execute("CREATE TABLE t (a)")
    foreign.close()
    assert_untouched(tmp_path, "is not a file of the emulator")


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"\xff" * 200])
def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    assert_untouched(tmp_path, "is not a file of the emulator")


def test_a_later_format_is_left_as_it_is(tmp_path: Path) -> None:
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE_NAME) as database:
        database.execute("PRAGMA user_version = 3")
    database.close()
    assert_untouched(tmp_path, "has the format 3")


def store_of_500_messages(directory: Path) -> Path:
    with closing(Store(directory)) as store:
        messages = [BrokeredMessage(n, n, 0, b"x" * 200 + bytes([n % 256]), 201) for n in range(1, 501)]
        store.apply(queue(*messages))
    return store.path


def test_a_damaged_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = store_of_500_messages(tmp_path)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xee" * (len(content) - 4096)
    path.write_bytes(content)
    assert_untouched(tmp_path, "cannot be read")


def damage_payloads(path: Path) -> None:
    content = path.read_bytes()
    page = content.index(b"x" * 200) // 4096
    path.write_bytes(content[: page * 4096] + b"\xee" * 4096 + content[(page + 1) * 4096 :])


@pytest.mark.parametrize("asks_for_all", [True, False])
def test_damage_that_is_found_later_ends_the_keeping(tmp_path: Path, asks_for_all: bool) -> None:
    damage_payloads(store_of_500_messages(tmp_path))
    with closing(Store(tmp_path)) as store:
        assert store.load(0).shelves[0][2] == 500  # the messages themselves are whole
        with pytest.raises(EmulatorError, match="cannot be read"):
            store.load_shelf(4, 0) if asks_for_all else [store.load_payload(4, number) for number in range(1, 501)]
        for changes in (Changes(), queue()):
            with pytest.raises(EmulatorError, match="cannot be read"):
                store.apply(changes)


def test_a_message_that_is_not_there_has_no_payload(tmp_path: Path) -> None:
    store_of_500_messages(tmp_path)
    with closing(Store(tmp_path)) as store, pytest.raises(EmulatorError, match="has lost its payload"):
        store.load_payload(4, 999)


def assert_untouched(directory: Path, match: str) -> None:
    path = directory / FILE_NAME
    before = path.read_bytes()
    with pytest.raises(EmulatorError, match=match):
        Store(directory).load(0)
    assert path.read_bytes() == before
    assert not is_in_use(directory)
