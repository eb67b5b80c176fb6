"""What one shell works with: its connection, and the messages that it holds."""

from __future__ import annotations

import atexit
import weakref

from sbnotebook.client import LockedBatch, Namespace, connect
from sbnotebook.errors import ConfigurationError

__all__ = ["Current"]


class Current:
    """The one connection and the one batch of locked messages of a shell.

    When the shell ends, the messages that it still holds are released.
    """

    def __init__(self) -> None:
        self._namespace: Namespace | None = None
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

    def connect(self, target: str | None) -> Namespace:
        """End the connection that there is and make another; when that fails, there is none.

        Args:
            target: as for :func:`sbnotebook.connect`.
        """
        self.close()
        self._namespace = connect(target)
        return self._namespace

    def lock(self, entity: str, count: int) -> LockedBatch:
        """Lock messages and hold them; those that were held before are released.

        Args:
            entity: where.
            count: how many at most.
        """
        self.release()
        self._batch = self.namespace.entity(entity).lock(count)
        return self._batch

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
