"""Links on sessions: a client that receives from one session, or waits for the next one.

Source: Service Bus documentation, "Message sessions"; AMQP 1.0 in Azure Service Bus protocol guide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from sbnotebook.emulator.amqp import SendingLink, Source
from sbnotebook.emulator.entities import BrokeredMessage, ReceivingEntity, RefusedError, Session
from sbnotebook.emulator.service.conditions import Condition, condition_of
from sbnotebook.emulator.service.links import LinkHandler, ReceiverLink
from sbnotebook.model.amqp import AmqpValue, Described, Long, Symbol, UInt

if TYPE_CHECKING:
    from sbnotebook.emulator.service.peer import AmqpPeer

__all__ = ["SESSION_FILTER", "HeldSession", "SessionReceiverLink", "SessionWaiter", "attach_session"]

SESSION_FILTER: Final = Symbol("com.microsoft:session-filter")
"""In the filter of a source: which session, or null for the next one that is free."""
_LOCKED_UNTIL: Final = Symbol("com.microsoft:locked-until-utc")
_TIMEOUT: Final = Symbol("com.microsoft:timeout")
_GRACE: Final = 1000
"""How long (ms) a link stays after the lock of its session has ended: azure-servicebus's own live tests rely on some
time. Nothing can be received or settled any more."""
_DEFAULT_TIMEOUT: Final = 60_000
_MAX_TIMEOUT: Final = 86_400_000
_TICKS_OF_1970: Final = 621_355_968_000_000_000
_TICKS_PER_MS: Final = 10_000


class HeldSession:
    """A session that a client holds, as something to receive from."""

    def __init__(self, entity: ReceivingEntity, session: Session, token: UUID) -> None:
        self.entity = entity
        self.session = session
        self.token = token

    @property
    def has_available(self) -> bool:
        """Whether ``receive`` would find a message."""
        return self.session.holder == self.token and self.session.has_ready

    def receive(self, now: int) -> BrokeredMessage | None:
        """Lock the session's available message with the smallest sequence number."""
        return self.entity.receive(now, self.session)

    def receive_and_delete(self, now: int) -> BrokeredMessage | None:
        """Take out the session's available message with the smallest sequence number."""
        return self.entity.receive_and_delete(now, self.session)


class SessionReceiverLink(ReceiverLink):
    """A client receives from a session; the session is its own until the link or the lock ends."""

    lock_lost = Condition.SESSION_LOCK_LOST

    def __init__(self, peer: AmqpPeer, link: SendingLink, held: HeldSession) -> None:
        super().__init__(peer, link, held.entity, held)
        self._held = held
        self._name = (held.entity, link.name)
        peer.broker.session_links[self._name] = held.session.session_id
        held.session.on_lost = self._lose
        self._cancel_alarm: Callable[[], None] | None = None

    def detached(self) -> None:
        """The link is gone, so the session is free again."""
        super().detached()
        if self._cancel_alarm is not None:
            self._cancel_alarm()
        if self._held.session.holder == self._held.token:
            self._held.session.on_lost = None
        self._peer.broker.session_links.pop(self._name, None)
        self._held.entity.close_session(self._held.session, self._held.token, self._peer.broker.moment())
        self._peer.broker.schedule_turn()

    def _lose(self, until: int) -> None:
        clock = self._peer.broker.clock
        if until <= clock.now():
            self._cancel_alarm = clock.wake_at(until + _GRACE, self._end)
        else:
            self._end()

    def _end(self) -> None:
        self._peer.detach(self._link, Condition.SESSION_LOCK_LOST.error("The session lock was lost."))


class SessionWaiter(LinkHandler):
    """A client waits for a session; its link is attached once there is one."""

    def __init__(self, peer: AmqpPeer, link: SendingLink, entity: ReceivingEntity) -> None:
        super().__init__(entity)
        self.entity = entity
        self._peer = peer
        self._link = link
        self._cancel_alarm: Callable[[], None] | None = None

    def wait(self, timeout: int) -> None:
        """Wait at most for a time (ms)."""
        broker = self._peer.broker
        broker.dispatcher.wait_for_session(self)
        self._cancel_alarm = broker.clock.wake_at(broker.clock.now() + timeout, self._give_up)
        broker.schedule_turn()

    def accept(self, now: int) -> None:
        """There is a session that nobody holds."""
        accepted = self.entity.accept_session(None, now)
        if accepted is None:
            return
        self._stop()
        handler = _accepted(self._peer, self._link, HeldSession(self.entity, *accepted))
        self._peer.handlers[self._link] = handler
        handler.credit_changed()
        self._peer.broker.touch(self._peer)

    def detached(self) -> None:
        """The client does not wait any more."""
        self._stop()

    def _stop(self) -> None:
        self._peer.broker.dispatcher.forget_waiter(self)
        if self._cancel_alarm is not None:
            self._cancel_alarm()

    def _give_up(self) -> None:
        self._peer.broker.dispatcher.forget_waiter(self)
        text = "The operation did not complete within the allotted time: no session became available."
        self._peer.detach(self._link, Condition.TIMEOUT.error(text))


def attach_session(peer: AmqpPeer, link: SendingLink, entity: ReceivingEntity) -> LinkHandler | None:
    """Attach a link to the session that its source names; None if it was refused."""
    wanted = _filter(link)
    wanted = wanted.value if isinstance(wanted, Described) else wanted
    if not isinstance(wanted, str | None):
        link.refuse(Condition.ARGUMENT_ERROR.error("The session id in the filter must be a string, or null."))
        return None
    try:
        accepted = entity.accept_session(wanted, peer.broker.moment())
    except RefusedError as error:
        link.refuse(condition_of(error).error(str(error)))
        return None
    if accepted is None:
        waiter = SessionWaiter(peer, link, entity)
        waiter.wait(_timeout(link))
        return waiter
    return _accepted(peer, link, HeldSession(entity, *accepted))


def _accepted(peer: AmqpPeer, link: SendingLink, held: HeldSession) -> SessionReceiverLink:
    source, asked = link.source or Source(), _filter(link)
    session_id: AmqpValue = held.session.session_id
    if isinstance(asked, Described):
        session_id = Described(asked.descriptor, session_id)  # The SDK for Go writes and reads it like this.
    # azure-servicebus compares the address byte by byte, so it goes back as it came.
    answer = Source(source.address, filter={SESSION_FILTER: session_id})
    ticks = held.session.locked_until * _TICKS_PER_MS + _TICKS_OF_1970
    limit = peer.broker.max_message_size(held.entity)
    link.accept(source=answer, properties={_LOCKED_UNTIL: Long(ticks)}, max_message_size=limit)
    return SessionReceiverLink(peer, link, held)


def _filter(link: SendingLink) -> AmqpValue:
    return (link.source.filter or {}).get(SESSION_FILTER) if link.source is not None else None


def _timeout(link: SendingLink) -> int:
    timeout = link.properties.get(_TIMEOUT)
    return min(int(timeout), _MAX_TIMEOUT) if isinstance(timeout, UInt | int) else _DEFAULT_TIMEOUT
