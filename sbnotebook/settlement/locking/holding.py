"""What is told of a batch of held messages: which they are, until when, and how renewing their locks goes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta

from sbnotebook.errors import BatchClosedError, ConfigurationError
from sbnotebook.model import LockedMessage
from sbnotebook.settlement.locking.lock_events import LockEvent, LockEventKind, LockEvents, LockWatcher
from sbnotebook.settlement.locking.lock_table import HeldMessages
from sbnotebook.settlement.locking.renewal import Clock, Renewing

__all__ = ["Holding"]


class Holding(ABC):
    """What can be seen of a batch, and until when its locks are renewed.

    Args:
        held: the locks.
        renewal: keeps them.
        events: what happened to them.
        clock: where the time comes from.
    """

    def __init__(self, held: HeldMessages, renewal: Renewing, events: LockEvents, clock: Clock) -> None:
        self.clock = clock
        self._held = held
        self._renewal = renewal
        self._events = events

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Tell whether messages can be held: from when the batch is opened until it is closed."""

    @property
    def messages(self) -> tuple[LockedMessage, ...]:
        """Return the messages that are held now, in the order in which they came."""
        return tuple(hold.message for hold in self._held if hold.is_read)

    @property
    def lost(self) -> tuple[int, ...]:
        """Return the sequence numbers of messages whose lock ended before they were settled."""
        return self._held.lost

    @property
    def status(self) -> LockEvent:
        """Return how renewing goes: well, late or failing and for which messages, or ended."""
        return self._renewal.state if self.is_open else self._events.state

    @property
    def events(self) -> tuple[LockEvent, ...]:
        """Return the last thousand events of the locks, lost locks included."""
        return self._events.kept

    def watch(self, watcher: LockWatcher) -> Callable[[], None]:
        """Have each event told at once, such as a lock that was lost or a renewal that fails.

        Args:
            watcher: is called on the event loop of the batch: it must be quick, and must not wait for the batch.

        Returns:
            A function that ends it.
        """
        return self._events.watch(watcher)

    @property
    def renewal_error(self) -> str | None:
        """Return what is wrong with renewing, in a sentence; None when all is well."""
        status = self.status
        return status.description if status.is_trouble else None

    def holds(self, message: LockedMessage) -> bool:
        """Tell whether the very lock that a message came with is still held."""
        return self._held.is_held(message, self.clock.now())

    def locked_until(self, sequence_number: int) -> datetime | None:
        """Return when the lock of a message ends, as last renewed; None when it is not held."""
        hold = self._held.get(sequence_number)
        return hold.locked_until if hold else None

    @property
    def lock_ends(self) -> dict[int, datetime]:
        """Return when each held lock ends, as last renewed, by sequence number.

        By the clock of this machine, which may differ from the service's in :meth:`locked_until`.
        """
        return {hold.message.sequence_number: hold.ends for hold in self._held if hold.is_read}

    @property
    def renew_until(self) -> datetime:
        """Return when renewing stops; the locks end soon after."""
        return self._renewal.until

    def extend(self, renew_for: timedelta) -> datetime:
        """Renew the locks for longer.

        Args:
            renew_for: for how long at least, from now; never for less than before.

        Returns:
            When renewing stops.

        Raises:
            ConfigurationError: it is not longer than nothing.
            BatchClosedError: the batch is closed.
        """
        if renew_for <= timedelta():
            raise ConfigurationError("Locks are renewed for longer than nothing: give a duration such as 30m.")
        if not self.is_open:
            raise BatchClosedError("The batch is closed and holds no messages: lock them again.")
        now = self.clock.now()
        self._renewal.until = max(self._renewal.until, now + renew_for)
        if self._events.state.kind is LockEventKind.ENDED:
            text = f"Locks are renewed again, until {self._renewal.until:%Y-%m-%d %H:%M:%S} UTC."
            self._events.tell(LockEvent(LockEventKind.RENEWING, now, (), text))
        return self._renewal.until
