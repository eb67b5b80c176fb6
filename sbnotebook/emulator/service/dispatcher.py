"""The dispatcher, which gives each message to the next receiver that waits."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sbnotebook.emulator.entities.box import Receivable
    from sbnotebook.emulator.service.links import ReceiverLink, SessionReceiverLink, SessionWaiter

    _Source = Receivable | SessionReceiverLink

_MAX_MESSAGES: Final = 500
# What one entity delivers in one turn, so that others get theirs, and a client that does not read is noticed
_MAX_BYTES: Final = 4_194_304


class Dispatcher:
    """Gives available messages to the receivers that can take them, in turn."""

    def __init__(self) -> None:
        self.receivers: dict[_Source, deque[ReceiverLink]] = {}
        self.session_waiters: dict[SessionWaiter, None] = {}  # in the order in which they came

    def wait(self, receiver: ReceiverLink) -> None:
        """Add a receiver that can take messages, or wants an answer when there are none."""
        waiting = self.receivers.setdefault(receiver.source, deque())
        if receiver not in waiting:
            waiting.append(receiver)

    def forget(self, receiver: ReceiverLink) -> None:
        waiting = self.receivers.get(receiver.source)
        if waiting is not None and receiver in waiting:
            waiting.remove(receiver)

    @property
    def is_behind(self) -> bool:
        """Return whether there is more to deliver than one turn allows."""
        return bool(self.receivers) and any(
            waiting and source.has_available for source, waiting in self.receivers.items()
        )

    def dispatch(self, now: int) -> None:
        """Deliver the available messages. Receivers that can take no more are removed."""
        for waiter in list(self.session_waiters):
            if waiter.entity.sessions is not None and waiter.entity.sessions.free:
                waiter.accept(now)
        for source, waiting in list(self.receivers.items()):
            _deliver(source, waiting, now)
            for receiver in list(waiting):
                if not receiver.can_take or (receiver.is_draining and not source.has_available):
                    _dismiss(receiver, waiting)
            if not waiting:
                del self.receivers[source]


def _deliver(source: _Source, waiting: deque[ReceiverLink], now: int) -> None:
    messages = size = 0
    while waiting and source.has_available and messages < _MAX_MESSAGES and size < _MAX_BYTES:
        receiver = waiting[0]
        if receiver.can_take:
            waiting.rotate(-1)
            size += receiver.deliver(now)
            messages += 1
        else:
            _dismiss(receiver, waiting)


def _dismiss(receiver: ReceiverLink, waiting: deque[ReceiverLink]) -> None:
    waiting.remove(receiver)
    if receiver.is_draining:
        receiver.end_drain()
