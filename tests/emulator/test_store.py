from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.emulator.entities import BrokeredMessage, Queue, QueueOptions, Registry, SentMessage
from sbnotebook.emulator.store import FILE_NAME, Store, is_in_use
from sbnotebook.errors import EmulatorError

LATER = 10**15


def message(number: int, scheduled_time: int | None = None) -> SentMessage:
    return SentMessage(b"\x00\x53\x75\xa0\x01" + bytes([number % 256]), scheduled_time)


def seen(registry: Registry) -> object:
    """Everything that has to come back."""
    return [
        (queue.path, queue.options, queue.created_time, entity.path, without_locks(entity.peek(0, 10_000)))
        for queue in registry.queues
        for entity in (queue, queue.dead_letter)
    ]


def without_locks(messages: Iterable[BrokeredMessage]) -> list[tuple[object, ...]]:
    return [astuple(replace(found, lock_token=None, locked_until=0)) for found in messages]


def reopened(directory: Path) -> tuple[Store, Registry]:
    store, registry = Store(directory), Registry()
    store.load(registry)
    return store, registry


def test_everything_comes_back_but_the_locks(tmp_path: Path) -> None:
    store, registry = reopened(tmp_path)
    queue = registry.create_queue("Orders", QueueOptions(30_000, 5), now=77)
    registry.create_queue("empty")
    for number in range(6):
        queue.send(message(number), now=number)
    queue.send(message(9, LATER), now=5)
    store.apply(registry.take_changes())
    tokens = [found.lock_token for found in (queue.receive(0) for _ in range(5)) if found and found.lock_token]
    queue.complete(tokens[0], 0)
    queue.abandon(tokens[1], 0)
    queue.defer(tokens[2], 0)
    queue.dead_letter_message(tokens[3], 0, "Bad", "It is bad")
    store.apply(registry.take_changes())
    before = seen(registry)
    store.close()

    store, again = reopened(tmp_path)
    assert seen(again) == before
    restored = again.find_queue("orders")
    assert restored is not None
    assert restored.counts == (3, 0, 1, 1, 1)
    assert restored.send(message(1), 0).sequence_number == 8
    store.close()


def test_a_number_is_never_given_twice_even_if_its_message_is_gone(tmp_path: Path) -> None:
    store, registry = reopened(tmp_path)
    queue = registry.create_queue("orders")
    for _ in range(3):
        queue.send(message(1), 0)
        queue.receive_and_delete()
    store.apply(registry.take_changes())
    store.close()
    store, registry = reopened(tmp_path)
    assert registry.queues[0].send(message(1), 0).sequence_number == 4
    store.close()


def test_options_change_and_queues_go(tmp_path: Path) -> None:
    store, registry = reopened(tmp_path)
    for name in ("a", "b"):
        registry.create_queue(name).send(message(1), 0)
    registry.update_queue(registry.queues[0], QueueOptions(5_000, 2))
    registry.delete_queue(registry.queues[1])
    registry.create_queue("b")
    store.apply(registry.take_changes())
    store.close()
    store, registry = reopened(tmp_path)
    assert [(queue.path, queue.options, len(queue)) for queue in registry.queues] == [
        ("a", QueueOptions(5_000, 2), 1),
        ("b", QueueOptions(), 0),
    ]
    store.close()


def settle_next(how: str, queue: Queue, now: int) -> None:
    found = queue.receive(now)
    if found is None or found.lock_token is None:
        return
    if how == "dead-letter":
        queue.dead_letter_message(found.lock_token, now, "r", None)
    else:
        {"complete": queue.complete, "abandon": queue.abandon, "defer": queue.defer}[how](found.lock_token, now)


STEPS: dict[str, Callable[[Queue, int], object]] = {
    "send": lambda queue, now: queue.send(message(now), now),
    "schedule": lambda queue, now: queue.send(message(now, now + 5), now),
    "expire": lambda queue, now: queue.expire(now),
    "receive and delete": lambda queue, _: queue.receive_and_delete(),
    "receive deferred": lambda queue, now: queue.receive_deferred([1], now),
    **{how: partial(settle_next, how) for how in ("complete", "abandon", "defer", "dead-letter")},
}


@given(steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.booleans()), max_size=60))
def test_whatever_happens_it_comes_back(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool]]
) -> None:
    directory = tmp_path_factory.mktemp("store")
    store, registry = reopened(directory)
    queue = registry.create_queue("orders", QueueOptions(10, 3))
    for now, (step, ends_turn) in enumerate(steps):
        STEPS[step](queue, now)
        if ends_turn:
            store.apply(registry.take_changes())
    store.apply(registry.take_changes())
    before = seen(registry)
    store.close()
    store, again = reopened(directory)
    assert seen(again) == before
    store.close()


def test_a_second_emulator_is_kept_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbnotebook.emulator.store._BUSY_TIMEOUT", 0.1)
    store = Store(tmp_path)
    with pytest.raises(EmulatorError, match="Another emulator uses"):
        Store(tmp_path)
    store.close()
    Store(tmp_path).close()


OPENED_IN_ANOTHER_PROCESS = (
    "import sys; from pathlib import Path; import sbnotebook.emulator.store as store;"
    "store._BUSY_TIMEOUT = 0.1; store.Store(Path(sys.argv[1]))"
)


def test_another_process_is_kept_out_after_one_in_this_process_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbnotebook.emulator.store._BUSY_TIMEOUT", 0.1)
    store = Store(tmp_path)
    with pytest.raises(EmulatorError, match="Another emulator uses"):
        Store(tmp_path)  # on the way it must not close the file, which would end the lock of the first
    command = [sys.executable, "-c", OPENED_IN_ANOTHER_PROCESS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "Another emulator uses" in done.stderr
    store.close()
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


def test_of_two_that_find_nothing_one_owns_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbnotebook.emulator.store._BUSY_TIMEOUT", 0.1)

    class LateStore(Store):
        def _create(self) -> None:
            with pytest.raises(EmulatorError, match="Another emulator uses"):
                Store(tmp_path)  # a second one, after the first has seen that there is no file
            super()._create()

    LateStore(tmp_path).close()


def test_what_a_removed_file_left_behind_does_not_come_back(tmp_path: Path) -> None:
    store, registry = reopened(tmp_path)
    registry.create_queue("old")
    store.apply(registry.take_changes())
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name.endswith("-wal")}
    assert left  # as after a kill
    store.close()
    (tmp_path / FILE_NAME).unlink()
    for name, content in left.items():
        (tmp_path / name).write_bytes(content)
    store, registry = reopened(tmp_path)
    assert registry.queues == []
    store.close()


def test_it_is_in_use_while_it_is_open(tmp_path: Path) -> None:
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
    assert store.path.stat().st_mode & 0o077 == 0
    assert store.path.parent.stat().st_mode & 0o077 == 0
    store.close()


def test_a_foreign_file_is_left_as_it_is(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as foreign:
        foreign.execute("CREATE TABLE t (a)")
    foreign.close()
    assert_untouched(tmp_path, "is not a file of the emulator")


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"\xff" * 200])
def test_what_is_no_database_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    assert_untouched(tmp_path, "is not a file of the emulator")


def test_a_later_format_is_left_as_it_is(tmp_path: Path) -> None:
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE_NAME) as database:
        database.execute("PRAGMA user_version = 2")
    database.close()
    assert_untouched(tmp_path, "has the format 2")


def test_a_damaged_file_is_left_as_it_is(tmp_path: Path) -> None:
    store, registry = reopened(tmp_path)
    queue = registry.create_queue("orders")
    for number in range(500):
        queue.send(SentMessage(b"x" * 200 + bytes([number % 256]), None), 0)
    store.apply(registry.take_changes())
    store.close()
    path = tmp_path / FILE_NAME
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xee" * (len(content) - 4096)
    path.write_bytes(content)
    assert_untouched(tmp_path, "cannot be read")


def assert_untouched(directory: Path, match: str) -> None:
    path = directory / FILE_NAME
    before = path.read_bytes()
    with pytest.raises(EmulatorError, match=match):
        reopened(directory)
    assert path.read_bytes() == before
