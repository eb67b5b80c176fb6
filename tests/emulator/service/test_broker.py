from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from sbnotebook.emulator import ManualClock
from sbnotebook.emulator.entities.box import Receivable
from sbnotebook.emulator.entities.message import SentMessage
from sbnotebook.emulator.entities.refusals import Condition
from sbnotebook.emulator.entities.registry import Changes, Registry
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.store import Store

MESSAGE = SentMessage(b"\x00\x53\x75\xa0\x00")


@dataclass(eq=False)
class Client:
    """A connection that records the content of the file at each flush."""

    path: Path
    kept: list[int] = field(default_factory=list[int])
    is_aborted: bool = False
    lost: list[str] = field(default_factory=list[str])

    def flush(self) -> None:
        # The store uses the file alone: its write-ahead log has the commits.
        self.kept.append((self.path.parent / f"{self.path.name}-wal").read_bytes().count(b"hello"))

    def close(self) -> None:
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    def detach_from(
        self, entities: Collection[Any], condition: Condition, sentence: str, *, is_node: bool = False
    ) -> None:
        assert not is_node
        self.lost.append(f"{[entity.path for entity in entities]} {condition.name} {sentence}")

    def is_attached_to(self, entities: Collection[object]) -> bool:
        return bool(entities) and not self.is_aborted


@pytest.mark.anyio
async def test_changes_that_are_not_stored_are_not_confirmed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    registry = Registry()
    broker = Broker(registry, ManualClock(), store, lambda _: None)
    queue = registry.create_queue("orders")
    client: Any = Client(store.path)
    broker.peers.add(client)
    for count in (1, 3):
        for _ in range(count):
            queue.send(SentMessage(b"hello"), 0)
            broker.touch(client)
        await broker.committed()
    assert len(client.kept) == 2  # one flush for each turn
    assert client.kept[0] >= 1
    assert client.kept[1] >= 4
    store.close()


class ShortOfMemoryStore(Store):
    """A store that fails in another way than the database does."""

    def apply(self, changes: Changes) -> None:
        if changes:
            raise MemoryError


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [Store, ShortOfMemoryStore])
async def test_a_store_failure_drops_all_connections(tmp_path: Path, kind: type[Store]) -> None:
    store = kind(tmp_path)
    failures: list[Exception] = []
    registry = Registry()
    broker = Broker(registry, ManualClock(), store, failures.append)
    queue = registry.create_queue("orders")
    client: Any = Client(store.path)
    broker.peers.add(client)
    store.close()
    queue.send(MESSAGE, 0)
    broker.touch(client)
    for _ in range(3):
        await asyncio.sleep(0)
    assert client.is_aborted
    assert not client.kept
    assert len(failures) == 1


@dataclass(eq=False)
class BrokenReceiver:
    """A receiver that the emulator fails to send to."""

    source: Receivable
    can_take: bool = True
    is_draining: bool = False

    def deliver(self, now: int) -> int:
        raise RuntimeError(f"a fault of the emulator at {now}")

    def end_drain(self) -> None:
        pass


@pytest.mark.anyio
async def test_sent_messages_are_stored_though_delivering_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path)
    broker = Broker(Registry(), ManualClock(), store, lambda _: None)
    queue = broker.registry.create_queue("orders")
    broker.receivers[queue][cast("Any", BrokenReceiver(queue))] = None
    client: Any = Client(store.path)
    queue.send(SentMessage(b"hello"), 0)
    broker.touch(client)
    await broker.committed()
    store.close()
    assert len(client.kept) == 1
    assert client.kept[0] >= 1
    assert [record.message for record in caplog.records] == ["Messages were not delivered."]
