"""Sessions: messages that belong together, held under one lock, with a state that outlives them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.exceptions import OperationTimeoutError, SessionLockLostError

from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import EntityAddress, LockedMessage, MessageState, PeekedMessage
from sbnotebook.model.durations import duration_text
from sbnotebook.settlement.connecting.connection import Connection
from sbnotebook.settlement.connecting.failures import explained
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.locking.lock_table import LONGEST, HeldMessages, Hold, LockEventKind, lock_times
from sbnotebook.settlement.locking.renewal import Clock, Links, Renewal
from sbnotebook.settlement.peek import PAGE, Peeker
from sbnotebook.settlement.plan import check_wait
from sbnotebook.settlement.requests import patiently
from sbnotebook.settlement.sdk import connections, management
from sbnotebook.settlement.sdk.errors import with_words
from sbnotebook.settlement.sdk.receivers import LockReceiver, ReceivedLock
from sbnotebook.settlement.wire.decoding import peeked_from_payload

if TYPE_CHECKING:
    from sbnotebook.settlement.locking.settle import Record, Settling

SessionState = bytes | str | dict[str, Any] | list[Any] | None
"""What a session's state can be set to: bytes, a text, what becomes JSON, or None for no state."""

_LONGEST_ID: Final = 128
"""Characters of a session id. A longer one would be in one frame, with which Service Bus closes the connection. Source:
Microsoft's page "Service Bus quotas"."""
_ANSWER_WITHIN: Final = 10.0


class SessionBatch(LockedBatch):
    """A session that this process holds alone, with the messages of it that are locked.

    A batch like any other: :meth:`settle` settles its messages, and closing releases the others. One
    lock holds all; it is renewed in the background, also while no message is held. When it is lost, all messages are
    lost with it, which the batch reports at once, and the batch is of no more use: open another one.

    Args:
        connection: the namespace.
        peeker: of a queue or a subscription with sessions.
        session_id: which session; None for the next one that has messages and that no receiver holds.
        max_wait: seconds to wait for the next one.
        renew_for: for how long the lock is renewed, counted from when the batch is made.
        clock: where the time comes from.
        records: written around each settlement.

    Raises:
        DecisionError: a sub-queue, which has no sessions.
    """

    def __init__(
        self,
        connection: Connection,
        peeker: Peeker,
        session_id: str | None,
        *,
        max_wait: float,
        renew_for: timedelta,
        clock: Clock,
        records: Sequence[Record],
    ) -> None:
        refuse_sub_queue(peeker.address)
        check_wait(max_wait)
        if len(session_id or "") > _LONGEST_ID:
            raise ConfigurationError(
                f"A session id has at most {_LONGEST_ID} characters; this one has {len(session_id or ''):,}."
            )
        super().__init__(connection, peeker, renew_for=renew_for, clock=clock, records=records)
        self._asked_id = session_id
        self._max_wait = max_wait

    async def __aenter__(self) -> Self:
        try:
            return await super().__aenter__()
        except OperationTimeoutError as error:
            text = f"No session of {self.address} that has messages was free within {duration_text(self._max_wait)}."
            raise with_words(error, text) if self._asked_id is None else error from error.__cause__

    def _new_renewal(self, over: Links, until: datetime) -> Renewal:
        self._lock = _SessionRenewal(self.table, over, self._busy, clock=self.clock, until=until)
        return self._lock

    @property
    def session_id(self) -> str:
        """Return which session it is; empty for the next available session until the batch is open."""
        session = self._receivers[-1].session if self._receivers else None
        if session is not None:
            self._asked_id = str(session.session_id)
        return self._asked_id or ""

    @property
    def is_lost(self) -> bool:
        """Return whether the session's lock was lost."""
        return self._lock.is_lost

    async def get_state(self) -> bytes | None:
        """Return the session's state; None when it has none."""
        async with self._busy:
            state: Any = await self._held_receiver().session.get_state()
        return None if state is None else bytes(state)

    async def get_state_text(self) -> str | None:
        """Return the session's state as text; bytes that are not UTF-8 are shown by their numbers."""
        state = await self.get_state()
        return None if state is None else state.decode(errors="backslashreplace")

    async def get_state_json(self) -> Any:
        """Return the session's state, parsed as JSON; None when it has none."""
        state = await self.get_state()
        try:
            return None if state is None else json.loads(state)
        except (ValueError, RecursionError):
            raise DecisionError("The session's state is not JSON: read it as text or as bytes.") from None

    async def set_state(self, state: SessionState) -> None:
        """Give the session another state, which stays when its messages are gone; None takes it away."""
        content = state if state is None or isinstance(state, (str, bytes)) else json.dumps(state)
        async with self._busy:
            await self._held_receiver().session.set_state(content)

    async def numbers_from(self, first: int) -> tuple[set[int], int]:
        """Peek a page of the session: return which of its messages can be received, and the last number looked at."""
        payloads = await patiently(self._peek, first, address=self.address, only_busy=True)
        page = [peeked_from_payload(payload, self.address, ()) for payload in payloads]
        now, last = self.clock.now(), page[-1].sequence_number if page else first - 1
        return {message.sequence_number for message in page if _may_come(message, now)}, last

    async def _peek(self, from_sequence_number: int) -> list[bytes]:
        async with self._busy:
            return await management.peek_payloads(
                self._held_receiver(), from_sequence_number, PAGE, session_id=self.session_id, with_bodies=False
            )

    # ---------------------------------------------------------------- what differs from a batch without a session

    def holds(self, message: LockedMessage) -> bool:
        """Return whether a message is held still, which is for as long as the session is."""
        self._lock.notice()
        return self.table.of(message) is not None

    def _new_receiver(self) -> LockReceiver:
        if self._receivers:
            raise DecisionError(
                f"The one link of session {self.session_id!r} has {self.per_link:,} messages that are not settled, and "
                "Service Bus sends no more over it: settle some of them first."
            )
        # Do not retry by itself: the wait for a session is over, and a lost session is lost.
        return self._connection.receiver(
            self.address,
            retries=0,
            session_id=NEXT_AVAILABLE_SESSION if self._asked_id is None else self._asked_id,
            max_wait_time=self._max_wait,
        )

    async def receive(self, count: int, *, max_wait: float = 5.0, more_wait: float = 1.0) -> tuple[LockedMessage, ...]:
        """Lock more messages of the session, in their order: see :meth:`LockedBatch.receive`."""
        room = self._room_on(self._held_receiver())
        return await super().receive(min(count, max(room, 1)), max_wait=max_wait, more_wait=more_wait)

    async def receive_deferred(self, sequence_numbers: Iterable[int]) -> tuple[LockedMessage, ...]:
        """Lock deferred messages of the session: see :meth:`LockedBatch.receive_deferred`."""
        self._held_receiver()
        return await super().receive_deferred(sequence_numbers)

    def _hold(self, lock: ReceivedLock, asked: datetime, *, is_read: bool) -> Hold:
        hold = super()._hold(lock, asked, is_read=is_read)
        hold.locked_until, hold.ends = self._lock.locked_until or hold.locked_until, self._lock.ends or hold.ends
        return hold

    async def _settle_held(self, settling: Settling, messages: Sequence[LockedMessage]) -> None:
        for receiver in self._receivers:
            await connections.catch_up(receiver)  # so that a detach that has come is noticed
        self._lock.notice()
        await super()._settle_held(settling, messages)
        self._lock.notice()

    def _held_receiver(self) -> LockReceiver:
        receiver = self._open_receiver()
        self._lock.notice()
        if self.is_lost:
            raise SessionLockLostError(message=self._lock.told.description)
        return receiver


class _SessionRenewal(Renewal):
    def __init__(
        self,
        held: HeldMessages,
        links: Links,
        busy: anyio.Lock,
        *,
        clock: Clock,
        until: datetime,
    ) -> None:
        super().__init__(held, links, clock=clock, until=until)
        self.locked_until: datetime | None = None
        self.ends: datetime | None = None
        """When it ends by the clock of this machine."""
        self._busy = busy
        # Renewed at once: the service says when the lock ends by its own clock, and not how long it is.
        self._renew_at = clock.now()
        self._period = LONGEST

    @property
    def is_lost(self) -> bool:
        return self.told.kind is LockEventKind.LOST

    def notice(self) -> None:
        if self.is_lost or not self._links.own:
            return
        if self.ends is not None and self._clock.now() >= self.ends:
            self._lose(f"The session's lock ended at {self.ends:%H:%M:%S} UTC.")
        elif not connections.is_open(self._links.own[-1]):
            self._lose("The session's lock was lost with its link.")

    async def _renew_due(self, now: datetime) -> None:
        self.notice()
        if now < self._renew_at or self.is_lost:
            return
        try:
            async with self._busy:
                if not self._links.own or not connections.is_open(self._links.own[-1]):
                    return
                asked = self._clock.now()
                with anyio.fail_after(_ANSWER_WITHIN):
                    until = await self._links.own[-1].session.renew_lock()
        except SessionLockLostError as error:
            self._lose(f"The session's lock was lost: {explained(error)}")
        except Exception as error:  # noqa: BLE001 (no error may end the batch, and the session with it)
            self._tell_result([*self._held], error)
        else:
            self._extend(asked, until.astimezone(UTC))
            self._tell_result((), None)

    def _shift(self, back: timedelta) -> None:
        super()._shift(back)
        self._renew_at += back
        if self.ends is not None:
            self.ends += back

    def _extend(self, asked: datetime, until: datetime) -> None:
        if until > asked:  # else the two clocks differ: the service tells when it is over
            self.ends, self._period, self._renew_at, _ = lock_times(asked, until, self._period)
        self.locked_until = until
        for hold in self._held:
            hold.extend(asked, until)
            hold.ends = self.ends or hold.ends

    def _lose(self, why: str) -> None:
        for hold in self._held:
            self._held.lose(hold, why)
        self._why_lost = why
        self._tell(LockEventKind.LOST, why, self._held.take_newly_lost())
        self.told = self._events[-1]


def _may_come(message: PeekedMessage, now: datetime) -> bool:
    """Return whether a message that was peeked can be received, as far as that shows."""
    if message.expires_at is not None and message.expires_at < now:
        return False  # it may be peeked for a while, and is not delivered
    if message.state is MessageState.SCHEDULED:  # a message that was scheduled may say so when it is active, too
        return message.scheduled_enqueue_time is not None and message.scheduled_enqueue_time <= now
    return message.state is MessageState.ACTIVE


def refuse_sub_queue(address: EntityAddress) -> None:
    if address.sub_queue is not None:
        raise DecisionError(f"{address} has no sessions: lock its messages one by one.")
