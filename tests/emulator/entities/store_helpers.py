"""The real store, for tests of the registry."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from sbnotebook.emulator.entities.message import BrokeredMessage
from sbnotebook.emulator.entities.registry import Changes, Registry, Snapshot
from sbnotebook.emulator.store import Store

__all__ = ["OnDisk"]


class OnDisk:
    """A store in a directory of its own."""

    def __init__(self) -> None:
        self._directory = TemporaryDirectory()
        self._store = Store(Path(self._directory.name))

    def keep(self, registry: Registry) -> None:
        """The end of a turn."""
        self._store.apply(registry.changes)
        registry.changes = Changes()
        registry.residency.shed()

    def load_shelf(self, box: int, shelf: int) -> list[BrokeredMessage]:
        """What a ``Store`` says."""
        return self._store.load_shelf(box, shelf)

    def load_payload(self, box: int, sequence_number: int) -> bytes:
        """What a ``Store`` says."""
        return self._store.load_payload(box, sequence_number)

    def snapshot(self, now: int) -> Snapshot:
        """What another process would find."""
        self._store.close()
        self._store = Store(Path(self._directory.name))
        return self._store.load(now)

    def close(self) -> None:
        """Nothing more is kept."""
        self._store.close()
        self._directory.cleanup()
