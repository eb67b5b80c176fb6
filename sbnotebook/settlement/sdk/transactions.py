"""A transaction that sends one message and completes another: both happen, or neither.

The SDK has no transactions. Its links can do what they need: a control link on which a transaction is declared and
discharged, and a state on each transfer that names it. All of it runs on one connection and one AMQP session, in one
task, and nothing is tried twice. Close the connection after any failure, which rolls back open work.

Sources: AMQP 1.0 part 4, transactions; Service Bus documentation, "AMQP 1.0 in Azure Service Bus and Event Hubs
protocol guide" and "AMQP 1.0 in Azure Service Bus request-response-based operations"; azure-sdk-for-net,
AmqpConnectionScope.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

import anyio
import anyio.lowlevel
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError, ServiceBusError

from sbnotebook.amqp import Described, ULong, encode
from sbnotebook.settlement.sdk.connections import Encoded, put_token
from sbnotebook.settlement.sdk.errors import as_service_bus_error, condition_of
from sbnotebook.settlement.sdk.management import Browser
from sbnotebook.settlement.sdk.private import (
    FIELD,
    AMQPException,
    AMQPTypes,
    CbsAuthState,
    Frame,
    LinkState,
    constants,
    create_authentication,
    mgmt_handlers,
    private,
)

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusSender

_LIMIT: Final = 50.0
"""Seconds from the declaration of a transaction to the answer to its discharge. The service rolls back after 120."""
_OPEN_WITHIN: Final = 30.0
"""Seconds to open the connection and its links."""
_RENEW_BEFORE: Final = 300.0
"""Seconds before a token expires, and the least between two lines that are opened for that."""
_STATE_ROOM: Final = 300
"""Bytes that a state takes in a frame, at most: an id has 255."""
_UPDATE_DISPOSITION: Final = b"com.microsoft:update-disposition"
_ROLLED_BACK: Final = ("amqp:transaction:rollback", "amqp:transaction:timeout")
"""Conditions of a commit that was refused. Any other one does not say how far the service came."""
_DECLARE, _DISCHARGE = ULong(0x31), ULong(0x32)
_COORDINATOR, _DECLARED, _TRANSACTIONAL = 0x30, 0x33, 0x34
_TXN_ID: Final = FIELD("txn_id", AMQPTypes.binary, True, None, False)
_AMQP_VALUE: Final = b"\x00\x53\x77"
# Positions in an attach and in a disposition (AMQP 1.0 sections 2.7.3 and 2.7.6).
_SOURCE, _TARGET = 5, 6
_ROLE, _SETTLED, _STATE = 0, 3, 4
_UNSETTLED_MODE: Final = 0


class _Composite(list[Any]):
    """A composite value of one field (AMQP 1.0 section 1.4), as the SDK encodes it."""

    def __init__(self, code: int, field: Any, value: object) -> None:
        super().__init__([value])
        self._code, self._definition = code, (field,)


class DischargeUnansweredError(Exception):
    """A commit was sent, and its answer did not come or says nothing: it is done, or it is rolled back."""


class TransactionLine:
    """One connection for transactions, of one task; close it after an error."""

    def __init__(self, browser: Browser, sender: ServiceBusSender, via: ServiceBusSender | None = None) -> None:
        self._parts: Any = private(browser)
        self._sender = sender
        self._via = via
        self._txn_id: bytes | None = None
        """The transaction that each transfer is in; None for none."""
        self._open_id = b""
        self._until = 0.0
        self._links: list[Any] = []
        self._control: Any = None
        self._out: Any = None
        self.renew_at = math.inf
        """When to open another line, in seconds since 1970: before a token for the destination expires."""

    async def move(self, payload: bytes, lock_token: UUID) -> None:
        await self.begin(payload, lock_token)
        await self.commit()

    async def begin(self, payload: bytes, lock_token: UUID) -> None:
        self._until = anyio.current_time() + _LIMIT
        with self._answered_until(self._until):
            state = await self._transfer(self._control, _value(_DECLARE, [None]))
            if getattr(state, "descriptor", None) != _DECLARED:
                raise _refusal(state)
            # The work. After any failure, closing the connection rolls it back.
            self._txn_id = self._open_id = bytes(state[0])
            _expect_accepted(await self._transfer(self._out, payload))
            await self._complete(lock_token)
            self._txn_id = None

    async def commit(self) -> None:
        try:
            with self._answered_until(self._until):
                _expect_accepted(await self._transfer(self._control, _value(_DISCHARGE, [self._open_id, False])))
        except Exception as error:
            if condition_of(error)[0] in _ROLLED_BACK:
                raise
            raise DischargeUnansweredError(str(error)) from error

    async def close(self) -> None:
        """Close the connection, which rolls back a transaction that is open."""
        try:
            await self._parts._close_handler()
        finally:
            self._parts._running = False

    # ---------------------------------------------------------------- links

    async def open(self) -> None:
        parts = self._parts
        parts._config.keep_alive = None
        entity = f"amqps://{parts._auth_uri.partition('://')[2]}"
        target: Any = private(self._sender)._entity_uri
        with self._answered_until(anyio.current_time() + _OPEN_WITHIN):
            await parts._open(_OPEN_WITHIN)
            for entity_to_send_to in (self._sender, self._via):
                if entity_to_send_to is not None:
                    await self._put_token(entity_to_send_to)
            session: Any = parts._handler._session
            self._name_transactions(session)
            # If the control link comes first, the first entity after it accepts messages to others. Otherwise there is
            # only one queue or topic.
            if self._via is not None:
                await self._open_control(session)
            await self._attach(session.create_receiver_link(entity, link_credit=0, on_transfer=_ignore))
            self._out = session.create_sender_link(target, send_settle_mode=_UNSETTLED_MODE)
            await self._attach(self._out)
            if self._via is None:
                await self._open_control(session)

    async def _put_token(self, sender: ServiceBusSender) -> None:
        """Put a token for an entity to send to; the SDK has put one for that of the messages to complete."""
        auth = await create_authentication(sender)
        cbs: Any = self._parts._handler._cbs_authenticator
        if cbs is None:
            return
        token = await auth.get_token()
        # Where each new token is as short, another line would not help either, and opening one takes long.
        renew_at = max(token.expires_on - _RENEW_BEFORE, time.time() + _RENEW_BEFORE)
        self.renew_at = min(self.renew_at, renew_at)
        cbs.auth_state = CbsAuthState.IN_PROGRESS
        await put_token(cbs, auth, token)
        await self._listen(lambda: cbs.auth_state is not CbsAuthState.IN_PROGRESS)
        if not await cbs.handle_token():
            raise ServiceBusConnectionError(message="The token for the destination was not accepted.")

    async def _open_control(self, session: Any) -> None:
        self._control = session.create_sender_link(f"control-{uuid.uuid4()}", send_settle_mode=_UNSETTLED_MODE)
        self._control.target = _Composite(_COORDINATOR, None, None)  # without capabilities
        await self._attach(self._control)

    async def _attach(self, link: Any) -> None:
        _adapt(link)
        self._links.append(link)
        await link.attach()
        await self._listen(lambda: link.state is LinkState.ATTACHED)
        # A refused link is attached without one of its ends, and detached with the reason in the next frame.
        if link._is_refused:
            await self._listen(lambda: link.state is not LinkState.ATTACHED)

    def _name_transactions(self, session: Any) -> None:
        """Name the transaction in progress in each transfer, except for those about tokens."""
        transfer, cbs = session._outgoing_transfer, self._parts._handler._cbs_authenticator
        tokens = None if cbs is None else cbs._mgmt_link._request_link.handle

        async def transfer_in_transaction(delivery: Any, *trace: Any) -> None:
            if self._txn_id is not None and delivery.frame["handle"] != tokens:
                # Without an outcome: a receiver sets those.
                delivery.frame["state"] = _Composite(_TRANSACTIONAL, _TXN_ID, self._txn_id)
            await transfer(delivery, *trace)

        session._outgoing_transfer = transfer_in_transaction
        session._connection._remote_max_frame_size -= _STATE_ROOM

    # ---------------------------------------------------------------- requests and answers

    async def _transfer(self, link: Any, payload: bytes) -> Any:
        answers: list[Any] = []

        async def answered(reason: Any, state: Any) -> None:
            answers.append((reason, state))

        await link.send_transfer(Encoded(payload, is_batch=False), on_send_complete=answered)
        await self._listen(lambda: bool(answers))
        ((_, state),) = answers
        if state is None:
            raise ServiceBusConnectionError(message="The link was detached before the answer came.")
        return state

    async def _complete(self, lock_token: UUID) -> None:
        left = max(self._until - anyio.current_time(), 0.001)  # for the SDK, none means no limit
        transport = self._parts._amqp_transport
        request = {
            constants.MGMT_REQUEST_DISPOSITION_STATUS: constants.MESSAGE_MGMT_SETTLEMENT_TERM_MAP["complete"],
            constants.MGMT_REQUEST_LOCK_TOKENS: transport.AMQP_ARRAY_VALUE([lock_token]),
        }
        await self._parts._mgmt_request_response(_UPDATE_DISPOSITION, request, mgmt_handlers.default, timeout=left)

    async def _listen(self, is_done: Callable[[], bool]) -> None:
        connection: Any = self._parts._handler._connection
        while not is_done():
            await anyio.lowlevel.checkpoint()  # so that the limit applies where there is nothing to read any more
            await connection.listen(wait=False)
            if connection._error is not None:
                raise connection._error
            for link in self._links:
                link.get_state()  # which raises what ended it

    @contextmanager
    def _answered_until(self, until: float) -> Generator[None]:
        """Limit a block, including writes: a service that stops reading blocks writes to it."""
        try:
            with anyio.fail_after(max(until - anyio.current_time(), 0)), as_service_bus_error(self._parts):
                yield
        except TimeoutError as error:
            raise OperationTimeoutError(message="The service took too long to answer.") from error


def _expect_accepted(state: Any) -> None:
    if not isinstance(_outcome(state), dict) or "accepted" not in _outcome(state):
        raise _refusal(state)


def _refusal(state: Any) -> ServiceBusError | AMQPException:
    found = _outcome(state)
    outcome = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if not outcome.get("rejected"):
        return ServiceBusConnectionError(message=f"The answer cannot be understood: {state!r:.200}")
    condition, *more = outcome["rejected"][0]
    return AMQPException(condition, description=more[0] if more else None)


async def _ignore(*_: Any) -> None:
    """Take a message that cannot come: the link has no credit."""


def _value(descriptor: ULong, fields: list[Any]) -> bytes:
    return _AMQP_VALUE + encode(Described(descriptor, fields))


def _outcome(state: Any) -> Any:
    """Return an outcome without the transactional state around it."""
    if getattr(state, "descriptor", None) == _TRANSACTIONAL:
        return state[1] if len(state) > 1 else None
    return state


def _adapt(link: Any) -> None:
    """Let a link be attached by an answer with ends that have no fields, which the SDK takes for none.

    It also takes an outcome that is not settled yet, and none that is about what this client received.
    """
    attach, take = link._incoming_attach, link._incoming_disposition

    async def attach_with_ends(frame: Frame) -> None:
        link._is_refused = frame[_SOURCE] is None or frame[_TARGET] is None
        ends = [*frame]
        for end in (_SOURCE, _TARGET):
            ends[end] = ends[end] or [None]
        await attach(ends)

    async def take_outcome(frame: Frame) -> None:
        answer = [*frame]
        if answer[_ROLE] and answer[_STATE] is not None:
            answer[_SETTLED] = True
            await take(answer)

    link._incoming_attach, link._incoming_disposition = attach_with_ends, take_outcome
