"""Deleting messages in a batch, from entities that are large."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from sbnotebook.emulator.entities.message_log import SHELF, Residency
from sbnotebook.emulator.entities.registry import Changes, Registry
from sbnotebook.emulator.store import Store
from tests.emulator.entities.conftest import sent


def test_delete_does_not_read_messages_that_came_in_later(tmp_path: Path, registry: Registry) -> None:
    with closing(Store(tmp_path)) as store:
        registry.residency = Residency(store, budget=0)
        queue = registry.create_queue("orders")
        for moment in range(3 * SHELF):
            queue.send(sent("x"), moment)
        store.apply(registry.changes)
        registry.changes = Changes()
        registry.residency.shed()
        assert registry.residency.size == 0
        assert queue.delete(10, before=5, now=9_000) == 5
        first_shelf = registry.residency.size
        assert queue.delete(4_000, before=0, now=9_000) == 0
        assert queue.delete(4_000, before=5, now=9_000) == 0
        assert registry.residency.size == first_shelf < 2 * SHELF * 600
        assert len(queue.log) == 3 * SHELF - 5
