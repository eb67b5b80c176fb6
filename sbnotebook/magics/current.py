"""What one shell works with: its connection, and the messages that it holds."""

from __future__ import annotations

import atexit
import weakref

from sbnotebook.client import LockedBatch, Namespace
from sbnotebook.client.targets import resolve
from sbnotebook.errors import ConfigurationError
from sbnotebook.magics.settings import SbMagics
from sbnotebook.settlement.connecting.connection import Connection

__all__ = ["Current"]


class Current:
    """The one connection and the one batch of locked messages of a shell, and its settings.

    When the shell ends, the messages that it still holds are released.

    Args:
        settings: the defaults of the magics, None for those that are built in.
    """

    def __init__(self, settings: SbMagics | None = None) -> None:
        self.settings = settings or SbMagics()
        self._target: str | None = None
        self._namespace: Namespace | None = None
        self._connections: list[Connection] = []
        self._batch: LockedBatch | None = None
        atexit.register(_close, weakref.ref(self))

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection."""
        return self._namespace is not None

    @property
    def namespace(self) -> Namespace:
        """The connection.

        Raises:
            ConfigurationError: there is none.
        """
        if self._namespace is None:
            raise ConfigurationError("There is no connection: run %sb_connect first.")
        return self._namespace

    @property
    def batch(self) -> LockedBatch:
        """The messages that are held.

        Raises:
            ConfigurationError: none were locked.
        """
        if self._batch is None:
            raise ConfigurationError("No messages are held: run %sb_lock ENTITY -n 10 first.")
        return self._batch

    def connect(self, target: str | None, *, read_only: bool | None = None) -> Namespace:
        """End the connection that there is and make another; when that fails, there is none.

        Args:
            target: as for :func:`sbnotebook.connect`.
            read_only: whether it only looks; None for so outside of the emulator. What was opened before on the same
                host does as this one.
        """
        self.close()
        found = resolve(target)
        only_looks = not found.connection.is_emulator if read_only is None else read_only
        self._connections.append(found.connection)
        for each in self._connections:  # panels that were opened with an earlier one are still on the screen
            if each.host == found.connection.host:
                each.read_only = only_looks
        self._target, self._namespace = target, Namespace(found)
        return self._namespace

    def reconnect(self, *, read_only: bool) -> Namespace:
        """Make the same connection once more, so that it writes or only looks; what is held is released.

        Args:
            read_only: whether it only looks.
        """
        return self.connect(self._target, read_only=read_only)

    def hold(self, batch: LockedBatch) -> LockedBatch:
        """Hold a batch in place of the one before, whose messages are released.

        Args:
            batch: which one.
        """
        self.release()
        self._batch = batch
        return batch

    def holds(self, batch: object) -> bool:
        """Whether this is the batch that is held."""
        return batch is self._batch

    def release(self) -> int:
        """Give back what is held; how many messages that were."""
        batch, self._batch = self._batch, None
        if batch is None:
            return 0
        count = len(batch)
        batch.close()
        return count

    def close(self) -> None:
        """Give back what is held and end the connection."""
        try:
            self.release()
        finally:
            namespace, self._namespace = self._namespace, None
            if namespace is not None:
                namespace.close()


def _close(current: weakref.ref[Current]) -> None:
    held = current()
    if held is not None:
        held.close()
