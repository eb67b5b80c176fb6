"""Who waits for messages, and who gets the next one."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sbnotebook.emulator.entities import Receivable
    from sbnotebook.emulator.service.links import ReceiverLink

__all__ = ["Dispatcher"]

_MAX_AT_ONCE: Final = 500
"""Messages that one entity delivers in one turn, so that other connections get theirs."""


class Dispatcher:
    """Gives available messages to receivers with credit, to each one in its turn."""

    def __init__(self) -> None:
        self._waiting: dict[Receivable, deque[ReceiverLink]] = {}

    def wait(self, receiver: ReceiverLink) -> None:
        """A receiver can take messages, or wants to hear that there are none."""
        waiting = self._waiting.setdefault(receiver.entity, deque())
        if receiver not in waiting:
            waiting.append(receiver)

    def forget(self, receiver: ReceiverLink) -> None:
        """A receiver is gone."""
        waiting = self._waiting.get(receiver.entity)
        if waiting is not None and receiver in waiting:
            waiting.remove(receiver)

    @property
    def is_behind(self) -> bool:
        """Whether there is more to deliver than one turn allows."""
        return any(entity.has_available for entity in self._waiting)

    def dispatch(self, now: int) -> set[ReceiverLink]:
        """Deliver what can be delivered; returns the receivers that something was written for."""
        served: set[ReceiverLink] = set()
        for entity, waiting in list(self._waiting.items()):
            self._serve(entity, waiting, now, served)
            if not waiting:
                del self._waiting[entity]
        return served

    def _serve(self, entity: Receivable, waiting: deque[ReceiverLink], now: int, served: set[ReceiverLink]) -> None:
        for _ in range(_MAX_AT_ONCE):
            if not (waiting and entity.has_available):
                break
            receiver = waiting.popleft()
            if receiver.can_take:
                receiver.deliver(now)
                served.add(receiver)
                waiting.append(receiver)
            else:
                receiver.end_drain()
        self._dismiss(entity, waiting, served)

    def _dismiss(self, entity: Receivable, waiting: deque[ReceiverLink], served: set[ReceiverLink]) -> None:
        """Let go of those who can take no more, and answer those who do not want to wait."""
        for receiver in list(waiting):
            if receiver.can_take and (entity.has_available or not receiver.link.drain):
                continue
            waiting.remove(receiver)
            if receiver.end_drain():
                served.add(receiver)
