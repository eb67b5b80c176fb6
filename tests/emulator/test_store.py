from __future__ import annotations

import copy
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.emulator.entities.message import BrokeredMessage, BrokeredState
from sbnotebook.emulator.entities.message_log import SHELF
from sbnotebook.emulator.entities.registry import Changes, Snapshot
from sbnotebook.emulator.store import FILE_NAME, Store

BOX = 4
"""That of the entity 1."""
DESCRIPTION = {"lock_duration": 30_000, "rules": [None, "ä"]}
NOTHING = Snapshot([], [], [], [])

Step = Callable[[Changes], object]
"""What a turn does."""


def message(number: int, payload: bytes | None = None, **fields: Any) -> BrokeredMessage:
    payload = b"\x00\x53\x75\xa0\x01" + bytes([number % 256]) if payload is None else payload
    return BrokeredMessage(number, number, 100 + number, payload, len(payload), **fields)


def saved(number: int = 1, path: str = "orders", last: int = 0) -> Step:
    return lambda changes: changes.entities.append((number, ("queue", path, DESCRIPTION, 7, 8, last)))


def deleted(number: int) -> Step:
    return lambda changes: changes.entities.append((number, None))


def add(message: BrokeredMessage, box: int = BOX) -> Step:
    return lambda changes: changes.add(box, message)


def added(*numbers: int, box: int = BOX) -> list[Step]:
    return [add(message(number), box) for number in numbers]


def session(name: str, state: bytes | None, time: int, box: int = BOX) -> Step:
    return lambda changes: changes.sessions.update({(box, name): (state, time)})


def seen(name: str, until: int, at: int = 0) -> Step:
    def take(changes: Changes) -> None:
        changes.seen.append((1, name, until))
        changes.seen_at = at

    return take


def made(*steps: Step) -> Changes:
    changes = Changes()
    for step in steps:
        step(changes)
    return changes


def kept(directory: Path, *turns: Iterable[Step]) -> None:
    """One emulator's life."""
    with closing(Store(directory)) as store:
        store.load(0)
        for turn in turns:
            store.apply(made(*turn))


def loaded(directory: Path, now: int = 0) -> Snapshot:
    with closing(Store(directory)) as store:
        return store.load(now)


def standing(directory: Path) -> dict[int, list[tuple[object, ...]]]:
    """All messages by box."""
    with closing(Store(directory)) as store:
        found: defaultdict[int, list[tuple[object, ...]]] = defaultdict(list)
        for box, shelf, *_ in store.load(0).shelves:
            found[box] += map(plain, store.load_shelf(box, shelf))
        return found


def plain(each: BrokeredMessage) -> tuple[object, ...]:
    return astuple(replace(each, lock_token=None, locked_until=0))


def test_every_field_of_a_message_comes_back_but_the_lock(tmp_path: Path) -> None:
    full = BrokeredMessage(
        5, 3, 70, b"payload", 7, BrokeredState.SCHEDULED, 80, 2, 90, "session", "orders", 4, locked_until=1
    )
    kept(tmp_path, [saved(), add(full), *added(6)])
    assert standing(tmp_path) == {BOX: [plain(full), plain(message(6))]}


def test_a_large_payload_stays_in_the_file_until_it_is_asked_for(tmp_path: Path) -> None:
    kept(tmp_path, [saved(), *(add(message(n, payload=bytes([n]) * (16_383 + n))) for n in (1, 2))])
    with closing(Store(tmp_path)) as store:
        small, large = store.load_shelf(BOX, 0)
        assert (small.payload, small.size) == (b"\1" * 16_384, 16_384)
        assert (large.payload, large.size) == (None, 16_385)
        assert store.load_payload(BOX, 2) == b"\2" * 16_385
        large.delivery_count = 3
        store.apply(made(lambda changes: changes.update(BOX, large)))
        assert store.load_shelf(BOX, 0)[1].delivery_count == 3
        assert store.load_payload(BOX, 2) == b"\2" * 16_385


def test_a_message_without_its_payload_is_refused(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:
        with pytest.raises(sqlite3.IntegrityError, match="payload"):
            store.apply(made(saved(), add(BrokeredMessage(1, 1, 0, None, 20_000))))
        with pytest.raises(sqlite3.IntegrityError, match="payload"):
            store.apply(made(saved()))  # a caller that continues nevertheless
    assert loaded(tmp_path) == NOTHING


def test_sessions_and_ids_that_were_seen_come_back(tmp_path: Path) -> None:
    kept(
        tmp_path,
        [saved(), *(session(name, b"s", 5) for name in "abc"), seen("old", 50), seen("new", 60), seen("new", 70)],
        [session("a", b"t", 6), session("b", None, 6)],
    )
    found = loaded(tmp_path, now=50)
    assert found.sessions == [(BOX, "a", b"t", 6), (BOX, "c", b"s", 5)]
    assert found.seen == [(1, "new", 70)]


def test_ids_are_forgotten_once_their_time_has_passed(tmp_path: Path) -> None:
    kept(tmp_path, [saved(), seen("old", 105), seen("new", 106)])
    kept(tmp_path, [seen("newest", 200, at=105)])
    assert loaded(tmp_path, now=0).seen == [(1, "new", 106), (1, "newest", 200)]


def test_ids_are_forgotten_as_fast_as_they_come_in(tmp_path: Path) -> None:
    turns = [[seen(f"{turn}-{number}", turn + 1, at=turn) for number in range(1_000)] for turn in range(4)]
    kept(tmp_path, [saved()], *turns, *[[seen("last", 1_000, at=900)]] * 4)
    assert rows(tmp_path, "seen") == 1


def everything_of_one() -> list[Step]:
    boxes = [add(message(number), box) for box in (BOX, BOX + 1, BOX + 3) for number in range(1, 400)]
    return [saved(), *boxes, session("a", b"s", 5), *(seen(str(number), 10**6) for number in range(600))]


def test_remains_of_a_deleted_entity_are_removed_step_by_step(tmp_path: Path) -> None:
    kept(tmp_path, [*everything_of_one(), saved(2, "other", last=1), *added(1, box=8)], [deleted(1)])
    found = loaded(tmp_path)
    assert found.entities == [(2, "queue", "other", DESCRIPTION, 7, 8, 1)]
    assert found.shelves[-1] == (8, 0, 1, 6, 1, None, 0, 0)
    kept(tmp_path, *([session("a", b"", number, box=8)] for number in range(12)))
    assert [rows(tmp_path, table) for table in ("message", "payload", "seen", "session")] == [1, 1, 0, 1]


@pytest.mark.parametrize("is_restarted", [True, False])
def test_the_number_of_a_deleted_entity_can_be_given_again(tmp_path: Path, is_restarted: bool) -> None:
    turns: list[list[Step]] = [everything_of_one(), [deleted(1)], [saved(last=2), *added(2)]]
    lives = [turns[:2], turns[2:]] if is_restarted else [turns]
    for life in lives:
        kept(tmp_path, *life)
    assert loaded(tmp_path) == NOTHING._replace(
        entities=[(1, "queue", "orders", DESCRIPTION, 7, 8, 2)], shelves=[(BOX, 0, 1, 6, 1, None, 0, 0)]
    )


def rows(directory: Path, table: str) -> int:
    """How many there are in the file of an emulator that has ended."""
    with closing(sqlite3.connect(directory / FILE_NAME)) as database:
        return database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - a name of this file


KEYS = st.tuples(st.sampled_from((BOX, BOX + 1, BOX + 4)), st.sampled_from((1, 2, SHELF + 1)))


@given(
    turns=st.lists(
        st.lists(st.tuples(st.sampled_from(["add", "update", "rewrite", "remove"]), KEYS), max_size=8), max_size=8
    )
)
def test_any_changes_come_back_from_the_store(
    tmp_path_factory: pytest.TempPathFactory, turns: list[list[tuple[str, tuple[int, int]]]]
) -> None:
    directory = tmp_path_factory.mktemp("store")
    model: dict[tuple[int, int], BrokeredMessage] = {}
    history: list[list[Step]] = [[saved(), saved(2)]]
    for turn in turns:
        history.append([])
        for step, key in turn:
            history[-1] += changed(model, step, key)
    kept(directory, *history)
    expected: defaultdict[int, list[tuple[object, ...]]] = defaultdict(list)
    for box, number in sorted(model):
        expected[box].append(plain(model[box, number]))
    assert standing(directory) == expected
    assert rows(directory, "payload") == len(model)


def changed(model: dict[tuple[int, int], BrokeredMessage], step: str, key: tuple[int, int]) -> list[Step]:
    """Do what a box would do."""
    box, number = key
    if step == "add" and key not in model:
        model[key] = message(number)
        return [add(model[key], box)]
    if step == "add" or key not in model:
        return []
    if step == "remove":
        del model[key]
        return [lambda changes: changes.remove(box, number)]
    found = model[key] = copy.copy(model[key])
    found.delivery_count += 1
    if step == "rewrite":
        found.payload = (found.payload or b"") + b"!"
        found.size += 1
        return [lambda changes: changes.remove(box, number), add(found, box)]
    return [lambda changes: changes.update(box, found)]
