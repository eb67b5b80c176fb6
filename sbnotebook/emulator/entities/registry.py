"""All entities of a namespace."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from sbnotebook.emulator.entities.changes import Change, QueueCreated, QueueDeleted, QueueUpdated
from sbnotebook.emulator.entities.message import BrokeredMessage
from sbnotebook.emulator.entities.options import QueueOptions
from sbnotebook.emulator.entities.queue import Queue
from sbnotebook.emulator.entities.receivable import Receivable
from sbnotebook.errors import EmulatorError, InvalidEntityAddressError
from sbnotebook.model.address import EntityAddress, SubQueue

__all__ = ["Registry"]

_RESERVED: Final = frozenset(("entities", "faults", "health", "lease"))
"""What the emulator answers over HTTP where clients look for the description of a queue."""


class Registry:
    """The queues of a namespace by name; upper and lower case are the same."""

    def __init__(self) -> None:
        self._changes: list[Change] = []
        self._queues: dict[str, Queue] = {}

    def take_changes(self) -> list[Change]:
        """What has to be kept since the last call, in order."""
        changes = self._changes[:]
        self._changes.clear()
        return changes

    @property
    def queues(self) -> list[Queue]:
        """All queues by name."""
        return [queue for _, queue in sorted(self._queues.items())]

    def find_queue(self, name: str) -> Queue | None:
        """The queue of this name, None if there is none."""
        return self._queues.get(name.casefold())

    def find(self, path: str) -> Receivable | None:
        """The queue or dead-letter queue that an entity path names, None if there is none."""
        with suppress(InvalidEntityAddressError):
            address = EntityAddress.parse(path)
            queue = None if address.subscription else self.find_queue(address.name)
            if queue is not None and address.sub_queue is SubQueue.DEAD_LETTER:
                return queue.dead_letter
            return queue if address.sub_queue is None else None
        return None

    def create_queue(self, name: str, options: QueueOptions | None = None, *, now: int = 0) -> Queue:
        """Make a queue.

        Args:
            name: its name.
            options: how it treats its messages; None for the defaults.
            now: ms.

        Raises:
            InvalidEntityAddressError: it cannot have this name.
            EmulatorError: there is an entity of this name.
        """
        address = EntityAddress.parse(name)
        if address.subscription or address.sub_queue:
            raise InvalidEntityAddressError(f"{name[:80]!r} cannot be the name of a queue.")
        if address.name.casefold() in _RESERVED:
            text = f"{name[:80]!r} is an address of the emulator itself: give the queue another name."
            raise InvalidEntityAddressError(text)
        if self.find_queue(address.name) is not None:
            raise EmulatorError(f"There is already an entity {address.name!r}.")
        queue = Queue(address.name, options or QueueOptions(), self._changes, created_time=now)
        self._queues[address.name.casefold()] = queue
        self._changes.append(QueueCreated(queue.path, queue.options, now))
        return queue

    def update_queue(self, queue: Queue, options: QueueOptions) -> None:
        """Change how a queue treats its messages; as in Service Bus, locks that are held are lost."""
        queue.drop_locks()
        queue.options = options
        self._changes.append(QueueUpdated(queue.path, options))

    def delete_queue(self, queue: Queue) -> None:
        """Remove a queue with all its messages."""
        del self._queues[queue.path.casefold()]
        self._changes.append(QueueDeleted(queue.path))

    def restore_queue(
        self,
        name: str,
        options: QueueOptions,
        *,
        last_sequence_number: int,
        created_time: int,
        messages: Iterable[tuple[BrokeredMessage, bool]],
    ) -> None:
        """Put back a queue as it was kept; each message comes with whether it is dead-lettered."""
        queue = Queue(
            name, options, self._changes, last_sequence_number=last_sequence_number, created_time=created_time
        )
        self._queues[name.casefold()] = queue
        for message, is_dead_lettered in messages:
            (queue.dead_letter if is_dead_lettered else queue).put(message)

    def expire(self, now: int) -> None:
        """Do all that is due: end locks, activate scheduled messages."""
        for queue in self._queues.values():
            queue.expire(now)

    @property
    def next_deadline(self) -> int | None:
        """When ``expire`` has something to do next (ms); None if never."""
        deadlines = (queue.next_deadline for queue in self._queues.values())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)
