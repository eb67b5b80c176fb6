"""Sessions: messages that belong together are received by one client, in order.

Source: Service Bus documentation, "Message sessions".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Final
from uuid import UUID, uuid4

from sbnotebook.emulator.entities.message import BrokeredMessage

_TURNS: Final = count(1)


class MessageSession:
    def __init__(self, session_id: str, locked: dict[UUID, BrokeredMessage]) -> None:
        self.session_id = session_id
        self.state: bytes | None = None  # bytes that its clients keep in it; None without a state
        self.updated_time = 0  # ms; when the state was set
        self.message_count = 0  # messages that belong to it, received or not, but for scheduled ones
        self.holder: UUID | None = None  # token of the client that holds it; None without one
        self.locked_until = 0  # ms; when the lock ends, 0 without a lock
        self.held: dict[UUID, BrokeredMessage] = {}  # its messages that were received, by lock token
        self._locked = locked
        self.on_lost: Callable[[int], None] | None = None
        self._ready: dict[int, BrokeredMessage] = {}
        self._places: dict[int, tuple[int, int]] = {}  # of messages that are not ordered by their numbers
        self._order: list[tuple[tuple[int, int], int]] = []  # a heap of places and numbers, with some that are gone

    @property
    def has_ready(self) -> bool:
        """Tell whether ``take_ready`` would find a message."""
        return bool(self._ready)

    @property
    def ready_numbers(self) -> Collection[int]:
        """Return the sequence numbers of the messages that ``take_ready`` would find."""
        return self._ready.keys()

    def make_ready(self, message: BrokeredMessage) -> None:
        """Let ``take_ready`` find a message, in the place of its number."""
        number = message.sequence_number
        self._ready[number] = message
        self._places.pop(number, None)
        heappush(self._order, ((number, 0), number))

    def put_first(self, message: BrokeredMessage) -> None:
        self._put(message, (-next(_TURNS), 0))

    def put_last(self, message: BrokeredMessage) -> None:
        """Let a ready message follow all others that are ready now."""
        last = max(self._places.get(number, (number, 0))[0] for number in self._ready)
        self._put(message, (last, next(_TURNS)))

    def _put(self, message: BrokeredMessage, place: tuple[int, int]) -> None:
        self._places[message.sequence_number] = place
        heappush(self._order, (place, message.sequence_number))

    def withdraw(self, message: BrokeredMessage) -> None:
        """Mark a ready message as not ready, because it is about to be removed."""
        self._ready.pop(message.sequence_number, None)
        self._places.pop(message.sequence_number, None)

    def take_ready(self) -> BrokeredMessage | None:
        """Return the ready message that is the next one, which is not ready any more; None without one."""
        while self._order:
            place, number = heappop(self._order)
            if number in self._ready and self._places.get(number, (number, 0)) == place:
                self._places.pop(number, None)
                return self._ready.pop(number)
        return None

    def is_held(self, now: int) -> bool:
        return self.holder is not None and self.locked_until > now

    def hold(self, message: BrokeredMessage) -> None:
        """Lock a message that was received, for as long as the session is locked."""
        token = uuid4()
        message.lock_token, message.locked_until = token, self.locked_until
        self.held[token] = self._locked[token] = message


class Sessions:
    """The sessions of an entity.

    A session exists as long as it has messages, a state, or a holder.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, MessageSession] = {}
        self._free: OrderedDict[str, MessageSession] = OrderedDict()  # with messages, and without a holder
        self._held: dict[MessageSession, None] = {}  # in the order of locking
        self._locked: dict[UUID, BrokeredMessage] = {}  # of all sessions

    def get(self, session_id: str) -> MessageSession | None:
        return self._sessions.get(session_id)

    def find_or_create(self, session_id: str) -> MessageSession:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = MessageSession(session_id, self._locked)
        return session

    def make_ready(self, message: BrokeredMessage) -> None:
        session = self.find_or_create(message.session_id or "")
        session.make_ready(message)
        if session.holder is None:
            self._free.setdefault(session.session_id, session)

    def put_back(self, message: BrokeredMessage, order: str) -> None:
        """Give a message that came back, and is available again, its place."""
        session = self._sessions.get(message.session_id or "")
        if session is not None and message.sequence_number in session.ready_numbers:
            if order == "front":
                session.put_first(message)
            elif order == "back":
                session.put_last(message)

    def withdraw(self, message: BrokeredMessage) -> None:
        """Mark an available message as not available, because it is about to be removed."""
        session = self.find_or_create(message.session_id or "")
        session.withdraw(message)
        if not session.has_ready:
            self._free.pop(session.session_id, None)

    @property
    def has_free(self) -> bool:
        return bool(self._free)

    def next_free(self) -> MessageSession | None:
        return next(iter(self._free.values()), None)

    def lock(self, session: MessageSession, until: int) -> UUID:
        """Lock a session until a moment (ms), and return the client's token."""
        session.holder, session.locked_until = uuid4(), until
        self._free.pop(session.session_id, None)
        self._held[session] = None
        return session.holder

    def renew(self, session: MessageSession, until: int) -> None:
        session.locked_until = until
        for message in session.held.values():
            message.locked_until = until

    def unlock(self, session: MessageSession) -> None:
        """Unlock a session, whose locked messages must have been given back before."""
        until, session.holder, session.locked_until = session.locked_until, None, 0
        self._held.pop(session, None)
        on_lost, session.on_lost = session.on_lost, None
        if on_lost is not None:
            on_lost(until)
        if session.has_ready:
            self._free.setdefault(session.session_id, session)
        self.forget_empty(session)

    def expired(self, now: int) -> list[MessageSession]:
        return [session for session in self._held if session.locked_until <= now]

    def all_held(self) -> list[MessageSession]:
        return list(self._held)

    @property
    def held_messages(self) -> int:
        return len(self._locked)

    def find_held(self, token: UUID, now: int) -> BrokeredMessage | None:
        message = self._locked.get(token)
        return message if message is not None and message.locked_until > now else None

    def drop(self, message: BrokeredMessage) -> None:
        if message.lock_token is not None:
            session = self._sessions.get(message.session_id or "")
            if session is not None:
                session.held.pop(message.lock_token, None)
            self._locked.pop(message.lock_token, None)
            message.lock_token, message.locked_until = None, 0

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
        return min((session.locked_until for session in self._held), default=None)
