"""Sessions: messages that belong together are received by one client, in order.

Source: Service Bus documentation, "Message sessions".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Final
from uuid import UUID, uuid4

from sbnotebook.emulator.entities.message import BrokeredMessage

_TURNS: Final = count(1)


class MessageSession:
    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.state: bytes | None = None  # bytes that its clients keep in it; None without a state
        self.updated_time = 0  # ms; when the state was set
        self.message_count = 0  # messages that belong to it, received or not, but for scheduled ones
        self.holder: UUID | None = None  # token of the client that holds it; None without one
        self.locked_until = 0  # ms; when the lock ends, 0 without a lock
        self.held: dict[UUID, BrokeredMessage] = {}  # its messages that were received, by lock token
        self.on_lost: Callable[[int], None] | None = None
        self._ready: dict[int, tuple[tuple[int, int], BrokeredMessage]] = {}  # by number, with the place in the order
        self._order: list[tuple[tuple[int, int], int]] = []  # a heap of places and numbers, with some that are gone

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def make_ready(self, message: BrokeredMessage, order: str) -> None:
        """Let ``take_ready`` find a message: in the place of its number, at the front or the back."""
        number = message.sequence_number
        place = number, 0
        if order == "front":
            place = -next(_TURNS), 0
        elif order == "back":
            place = max([number, *(place for (place, _), _ in self._ready.values())]), next(_TURNS)
        self._ready[number] = place, message
        heappush(self._order, (place, number))

    def withdraw(self, message: BrokeredMessage) -> None:
        self._ready.pop(message.sequence_number, None)

    def take_ready(self) -> BrokeredMessage | None:
        """Return the ready message that is the next one, which is not ready any more; None without one."""
        while self._order:
            place, number = heappop(self._order)
            if number in self._ready and self._ready[number][0] == place:
                return self._ready.pop(number)[1]
        return None

    def is_held(self, now: int) -> bool:
        return self.holder is not None and self.locked_until > now


class Sessions:
    """The sessions of an entity.

    A session exists as long as it has messages, a state, or a holder.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, MessageSession] = {}
        self.free: OrderedDict[str, MessageSession] = OrderedDict()  # with messages, and without a holder
        self.held: dict[MessageSession, None] = {}  # in the order of locking

    def get(self, session_id: str) -> MessageSession | None:
        return self._sessions.get(session_id)

    def find_or_create(self, session_id: str) -> MessageSession:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = MessageSession(session_id)
        return session

    def make_ready(self, message: BrokeredMessage, order: str = "place") -> None:
        session = self.find_or_create(message.session_id or "")
        session.make_ready(message, order)
        if session.holder is None:
            self.free.setdefault(session.session_id, session)

    def withdraw(self, message: BrokeredMessage) -> None:
        session = self.find_or_create(message.session_id or "")
        session.withdraw(message)
        if not session.has_ready:
            self.free.pop(session.session_id, None)

    def lock(self, session: MessageSession, until: int) -> UUID:
        """Lock a session until a moment (ms), and return the client's token."""
        session.holder, session.locked_until = uuid4(), until
        self.free.pop(session.session_id, None)
        self.held[session] = None
        return session.holder

    def renew(self, session: MessageSession, until: int) -> None:
        session.locked_until = until
        for message in session.held.values():
            message.locked_until = until

    def unlock(self, session: MessageSession) -> None:
        """Unlock a session, whose locked messages must have been given back before."""
        until, session.holder, session.locked_until = session.locked_until, None, 0
        self.held.pop(session, None)
        on_lost, session.on_lost = session.on_lost, None
        if on_lost is not None:
            on_lost(until)
        if session.has_ready:
            self.free.setdefault(session.session_id, session)
        self.forget_empty(session)

    def expired(self, now: int) -> list[MessageSession]:
        return [session for session in self.held if session.locked_until <= now]

    def added(self, message: BrokeredMessage) -> None:
        self.find_or_create(message.session_id or "").message_count += 1

    def removed(self, message: BrokeredMessage) -> None:
        session = self.find_or_create(message.session_id or "")
        session.message_count -= 1
        self.forget_empty(session)

    def forget_empty(self, session: MessageSession) -> None:
        if not (session.message_count or session.holder or session.state is not None or session.has_ready):
            self._sessions.pop(session.session_id, None)

    def listed(self, updated_since: int | None) -> Iterator[MessageSession]:
        """Yield the sessions by id: those whose state was set since a moment (ms), or all with messages or a state."""
        for _, session in sorted(self._sessions.items()):
            if updated_since is None:
                if session.message_count or session.state is not None:
                    yield session
            elif session.state is not None and session.updated_time >= updated_since:
                yield session

    @property
    def next_end(self) -> int | None:
        return min((session.locked_until for session in self.held), default=None)
