"""The dispatcher, which gives each message to the next receiver that waits."""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol
from uuid import UUID

from sbnotebook.emulator.entities import BrokeredMessage, MessageSession, ReceivingEntity

_MAX_MESSAGES: Final = 500
_MAX_BYTES: Final = 4_194_304
"""What one entity delivers in one turn, so that others get theirs, and a client that does not read is noticed."""


class Outlet(Protocol):
    """A source of messages: an entity, or a session that the client holds."""

    @property
    def has_available(self) -> bool:
        """Return whether ``receive`` would find a message."""
        ...

    def receive(self, now: int) -> BrokeredMessage | None:
        """Lock and return the first available message; None if there is none."""
        ...

    def receive_and_delete(self, now: int) -> BrokeredMessage | None:
        """Remove and return the first available message; None if there is none."""
        ...


class Receiver(Protocol):
    """A client's link that receives, as the dispatcher needs it."""

    @property
    def outlet(self) -> Outlet:
        """Return the source of its messages."""
        ...

    @property
    def can_take(self) -> bool:
        """Return whether a message can be sent to the client now."""
        ...

    @property
    def is_draining(self) -> bool:
        """Return whether the client wants an answer when there are no more messages, instead of waiting."""
        ...

    def deliver(self, now: int) -> int:
        """Send the next message, and return its size in bytes."""
        ...

    def end_drain(self) -> None:
        """Tell the client that there are no more messages."""
        ...


class HeldSession:
    """A session that a client holds, as a source of messages."""

    def __init__(self, entity: ReceivingEntity, session: MessageSession, token: UUID) -> None:
        self.entity = entity
        self.session = session
        self.token = token

    @property
    def has_available(self) -> bool:
        """Return whether ``receive`` would find a message."""
        return self.session.holder == self.token and self.session.has_ready

    def receive(self, now: int) -> BrokeredMessage | None:
        """Lock the session's available message with the smallest sequence number."""
        return self.entity.receive(now, self.session)

    def receive_and_delete(self, now: int) -> BrokeredMessage | None:
        """Remove the session's available message with the smallest sequence number."""
        return self.entity.receive_and_delete(now, self.session)


class Waiter(Protocol):
    """A client that waits for a session."""

    @property
    def entity(self) -> ReceivingEntity:
        """Return the entity for one of whose sessions it waits."""
        ...

    def accept(self, now: int) -> None:
        """Take a session that is free."""
        ...


class Dispatcher:
    """Gives available messages to the receivers that can take them, in turn."""

    def __init__(self) -> None:
        self._waiting: dict[Outlet, deque[Receiver]] = {}
        self._waiters: dict[Waiter, None] = {}  # in the order in which they came

    def wait(self, receiver: Receiver) -> None:
        """Add a receiver that can take messages, or wants an answer when there are none."""
        waiting = self._waiting.setdefault(receiver.outlet, deque())
        if receiver not in waiting:
            waiting.append(receiver)

    def forget(self, receiver: Receiver) -> None:
        """Remove a receiver."""
        waiting = self._waiting.get(receiver.outlet)
        if waiting is not None and receiver in waiting:
            waiting.remove(receiver)

    def wait_for_session(self, waiter: Waiter) -> None:
        """Add a client that waits for the next free session."""
        self._waiters[waiter] = None

    def forget_waiter(self, waiter: Waiter) -> None:
        """Remove a client that does not wait for a session any more."""
        self._waiters.pop(waiter, None)

    @property
    def is_behind(self) -> bool:
        """Return whether there is more to deliver than one turn allows."""
        return bool(self._waiting) and any(
            waiting and outlet.has_available for outlet, waiting in self._waiting.items()
        )

    def dispatch(self, now: int) -> None:
        """Deliver the available messages. Receivers that can take no more are removed."""
        for waiter in list(self._waiters):
            if waiter.entity.sessions is not None and waiter.entity.sessions.has_free:
                waiter.accept(now)
        for outlet, waiting in list(self._waiting.items()):
            _deliver(outlet, waiting, now)
            for receiver in list(waiting):
                if not receiver.can_take or (receiver.is_draining and not outlet.has_available):
                    _dismiss(receiver, waiting)
            if not waiting:
                del self._waiting[outlet]


def _deliver(outlet: Outlet, waiting: deque[Receiver], now: int) -> None:
    messages = size = 0
    while waiting and outlet.has_available and messages < _MAX_MESSAGES and size < _MAX_BYTES:
        receiver = waiting[0]
        if receiver.can_take:
            waiting.rotate(-1)
            size += receiver.deliver(now)
            messages += 1
        else:
            _dismiss(receiver, waiting)


def _dismiss(receiver: Receiver, waiting: deque[Receiver]) -> None:
    waiting.remove(receiver)
    if receiver.is_draining:
        receiver.end_drain()
