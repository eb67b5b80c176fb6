"""Renewing the locks of a batch in the background."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

import anyio
from azure.servicebus.exceptions import MessageLockLostError

from sbnotebook.settlement import sdk_internals
from sbnotebook.settlement.held import HeldMessages, Hold

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver

__all__ = ["Clock", "Renewal", "SystemClock", "renew_at"]

_RENEW_AT: Final = 0.5
"""Renew when this part of the lock is left. The promise is a third; half leaves time for a slow answer."""
_CHUNK: Final = 100
"""Locks renewed in one request."""


class Clock(Protocol):
    """Where the time comes from; tests turn one by hand."""

    def now(self) -> datetime:
        """The time in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The time in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait for real."""
        await anyio.sleep(seconds)


def renew_at(locked_from: datetime, locked_until: datetime) -> datetime:
    """When a lock is to be renewed: with half of its time left."""
    return locked_until - (locked_until - locked_from) * _RENEW_AT


class Renewal:
    """Keeps the locks of a batch, and notices those that are lost.

    Args:
        held: the locks.
        receiver: gives the batch's receiver.
        busy: held by whoever uses the receiver.
        clock: where the time comes from.
        until: when renewing stops.
    """

    def __init__(
        self,
        held: HeldMessages,
        receiver: Callable[[], ServiceBusReceiver],
        busy: anyio.Lock,
        *,
        clock: Clock,
        until: datetime,
    ) -> None:
        self._held = held
        self._receiver = receiver
        self._busy = busy
        self._clock = clock
        self._until = until
        self.error: str | None = None
        """Why the last renewal failed, None when it did not."""

    async def run(self) -> None:
        """Renew what is due, each second, until it is cancelled."""
        while True:
            await self._clock.sleep(1.0)
            now = self._clock.now()
            due = [h for h in self._held if renew_at(h.locked_from, h.locked_until) <= now < self._until]
            for start in range(0, len(due), _CHUNK):
                await self._renew(due[start : start + _CHUNK])
            now = self._clock.now()
            for hold in self._held:
                if hold.locked_until <= now:
                    self._held.lose(hold)

    async def _renew(self, holds: Sequence[Hold]) -> None:
        try:
            async with self._busy:
                held = [hold for hold in holds if self._held.of(hold.message) is hold]
                if not held:
                    return
                now = self._clock.now()
                await sdk_internals.renew_locks(self._receiver(), [hold.received for hold in held])
        except MessageLockLostError as error:
            await self._find_lost(holds, error)
        except Exception as error:  # noqa: BLE001 (whatever it is must not end the batch, and its locks with it)
            # Tried again within a second, as long as the lock lasts.
            self.error = f"{type(error).__name__}: locks could not be renewed."
        else:
            self.error = None
            for hold in held:
                hold.locked_from, hold.locked_until = now, hold.received.locked_until_utc or hold.locked_until

    async def _find_lost(self, holds: Sequence[Hold], error: MessageLockLostError) -> None:
        if len(holds) == 1:
            self._held.lose(holds[0])
            self.error = f"{type(error).__name__}: a lock was lost."
            return
        for hold in holds:
            await self._renew([hold])
