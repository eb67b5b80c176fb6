"""Who waits for messages, and who gets the next one."""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from sbnotebook.emulator.entities import Receivable

__all__ = ["Dispatcher", "Receiver"]

_MAX_MESSAGES: Final = 500
_MAX_BYTES: Final = 4_194_304
"""What one entity delivers in one turn, so that others get theirs, and a client that does not read is noticed."""


class Receiver(Protocol):
    """A client's link that receives, as the dispatcher sees it."""

    @property
    def entity(self) -> Receivable:
        """What it receives from."""
        ...

    @property
    def can_take(self) -> bool:
        """Whether a message can be sent to the client now."""
        ...

    @property
    def is_draining(self) -> bool:
        """Whether the client wants to hear that there are no more messages, instead of waiting."""
        ...

    def deliver(self, now: int) -> int:
        """Send the next message of the entity; its bytes."""
        ...

    def end_drain(self) -> None:
        """Say that there are no more messages."""
        ...


class Dispatcher:
    """Gives available messages to receivers that can take them, to each one in its turn."""

    def __init__(self) -> None:
        self._waiting: dict[Receivable, deque[Receiver]] = {}

    def wait(self, receiver: Receiver) -> None:
        """A receiver can take messages, or wants to hear that there are none."""
        waiting = self._waiting.setdefault(receiver.entity, deque())
        if receiver not in waiting:
            waiting.append(receiver)

    def forget(self, receiver: Receiver) -> None:
        """A receiver is gone."""
        waiting = self._waiting.get(receiver.entity)
        if waiting is not None and receiver in waiting:
            waiting.remove(receiver)

    @property
    def is_behind(self) -> bool:
        """Whether there is more to deliver than one turn allows."""
        return any(waiting and entity.has_available for entity, waiting in self._waiting.items())

    def dispatch(self, now: int) -> None:
        """Deliver what can be delivered; who can take no more waits no longer."""
        for entity, waiting in list(self._waiting.items()):
            _deliver(entity, waiting, now)
            for receiver in list(waiting):
                if not receiver.can_take or (receiver.is_draining and not entity.has_available):
                    _dismiss(receiver, waiting)
            if not waiting:
                del self._waiting[entity]


def _deliver(entity: Receivable, waiting: deque[Receiver], now: int) -> None:
    messages = size = 0
    while waiting and entity.has_available and messages < _MAX_MESSAGES and size < _MAX_BYTES:
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
