"""The SDK's receivers, senders and browsers as subclasses: they open and close in limited time, without needless waits.

The SDK sleeps after each frame until a client is open, half a second in all, and waits without end for a service that
is silent. Closing one, it waits up to a second for the task that keeps the connection alive, and it forgets the socket
of a broken connection. It gives the service credit for 10,000 answers of a management node, and then waits without end.

No class or function of the SDK is changed: :func:`adopt` makes one object an object of a subclass.
:class:`sbnotebook.settlement.sdk.receivers.LockReceiver` is a subclass of it in turn.
"""

# The SDK's classes are untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUntypedBaseClass=false

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import anyio
from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError, ServiceBusError

from sbnotebook.settlement.sdk.connections import (
    Encoded,
    RefreshingAuthenticator,
    SharedConnection,
    SharedOperation,
    hang_up,
    line_of,
    stop_refreshing,
)
from sbnotebook.settlement.sdk.errors import given_up
from sbnotebook.settlement.sdk.private import (
    MESSAGE_DELIVERY_DONE_STATES,
    AnyClient,
    AuthenticationException,
    Browser,
    ManagementClient,
    ManagementLinkState,
    MessageDelivery,
    ReceiveClient,
    SendClient,
    private,
)

_OPEN_LINKS: Final = (ManagementLinkState.OPENING, ManagementLinkState.OPEN)
_LOOKS: Final = 20
"""Frames that may come before a client is open: twice as many as do."""
_OPEN_WITHIN: Final = 60.0
"""Seconds to connect, to have a token confirmed and to attach a link; those to wait for a session come on top."""
_ANSWER_WITHIN: Final = 60.0
"""Seconds."""
_OF_REQUEST: Final = frozenset({"operation", "operation_type", "timeout"})
"""Arguments of a request; all others are for the links to its node."""
_TO_CONNECT: Final = (
    "max_frame_size", "channel_max", "idle_timeout", "properties", "network_trace", "transport_type",
    "http_proxy", "custom_endpoint_address", "socket_timeout", "use_tls", "ssl_opts",
)  # fmt: skip
"""Arguments of a connection that are attributes of its client, with an underscore."""


Explain: TypeAlias = Callable[[ServiceBusError], Awaitable[ServiceBusError | None]]
"""Returns a refusal in clearer words, which is then raised at once; None to let the SDK try again."""


def adopt(
    client: AnyClient,
    *,
    opened: Callable[[], object] | None = None,
    explain: Explain | None = None,
    kind: type | None = None,
) -> None:
    """Make one of the SDK's clients one of ours: call ``opened`` when it is open, and ``explain`` at each error."""
    made: Any = client
    made.__class__ = kind or _CLIENTS.get(type(client), type(client))
    made.on_open, made.explain = opened, explain
    if isinstance(client, ServiceBusSender):
        # The SDK keeps a connection alive by a task that listens every 30 seconds. When that task hears of new credit
        # while a message waits to be written, it writes the message, too, and Service Bus has it twice. Without that
        # task, waiting for a confirmation keeps the connection alive, and one that was idle for long is opened again.
        private(client)._config.keep_alive = None


def client_class(theirs: Any) -> type:  # noqa: C901 (it holds a class)
    """Return the subclass of a receiver, sender or browser. With one base, the layout of its objects is the same."""

    class Client(theirs):
        on_open: Callable[[], object] | None = None
        explain: Explain | None = None

        async def _open(self, *given: Any, **options: Any) -> None:
            if self._running:
                return
            within = _OPEN_WITHIN + (getattr(self, "_max_wait_time", None) or 0)
            with anyio.move_on_after(within) as scope:
                await super()._open(*given, **options)
            if scope.cancelled_caught:
                place = self._auth_uri.partition("://")[2]
                text = f"No link to {place} could be opened in {within:g} seconds: Service Bus did not answer."
                raise given_up(ServiceBusConnectionError(message=text))
            if self.on_open is not None:
                self.on_open()

        async def _handle_exception(self, exception: Exception) -> Exception:
            """Raise a refusal at once and in clearer words, which the SDK would retry for many seconds."""
            # The one place where the SDK's clients look at an error and decide whether to try again.
            try:
                error = await super()._handle_exception(exception)
            except ServiceBusError as final:
                await self._raise_explained(final)
                raise
            if isinstance(error, ServiceBusError):
                await self._raise_explained(error)
            return error

        async def _raise_explained(self, error: ServiceBusError) -> None:
            clear = None if self.explain is None else await self.explain(error)
            if clear is not None:
                private(clear)._condition = private(error)._condition
                raise given_up(clear) from error

        def _create_handler(self, auth: Any) -> None:
            super()._create_handler(auth)
            handler = self._handler
            handler.__class__ = _HANDLERS[type(handler)]
            handler._place = self._auth_uri.partition("://")[2]

        async def _close_handler(self) -> None:
            handler, line = self._handler, line_of(self)
            if handler is not None:
                if handler._keep_alive_thread is not None:
                    handler._keep_alive_thread.cancel()
                    handler._keep_alive_thread = None
                stop_refreshing(handler)
            try:
                await super()._close_handler()
            finally:
                await hang_up(line)

    return Client


def _handler_class(theirs: Any) -> type:  # noqa: C901 (it holds a class)
    class Handler(theirs):
        _is_ready = False

        async def open_async(self, connection: Any = None) -> None:
            if not self._session and not self._connection and connection is None:
                options = {name: getattr(self, f"_{name}") for name in _TO_CONNECT}
                scheme = "amqps" if self._use_tls else "amqp"
                self._connection = SharedConnection(
                    f"{scheme}://{self._hostname}", sasl_credential=self._auth.sasl, container_id=self._name, **options
                )
                await self._connection.open()
            await super().open_async(connection)
            if self._cbs_authenticator is not None:
                self._cbs_authenticator.__class__ = RefreshingAuthenticator

        async def client_ready_async(self) -> bool:
            if self._is_ready:
                return await super().client_ready_async()
            for _ in range(_LOOKS):
                if await super().client_ready_async():  # waits for a frame
                    self._is_ready = True  # from now on it is asked with every send
                    return True
            return False

        async def mgmt_request_async(self, message: Any, *, node: str = "$management", **options: Any) -> Any:
            """Ask a management node in limited time, with credit for the answer, over a new link if the old is gone."""
            with anyio.move_on_after(_ANSWER_WITHIN):
                async with self._mgmt_link_lock_async:
                    await self._prepare_node(node, options)
                ask = super().mgmt_request_async
                return await ask(message, node=node, **options)
            # Azure was seen to give no answer about a missing subscription (azure-sdk-for-net 43492).
            hint = ": check that the subscription exists" if "/subscriptions/" in self._place.casefold() else ""
            text = f"{self._place} did not answer a request in {_ANSWER_WITHIN:g} seconds{hint}."
            error = given_up(OperationTimeoutError(message=text))
            private(error)._shutdown_handler = self._link is None  # no message came on a link of this connection
            raise error

        async def _prepare_node(self, node: str, options: dict[str, Any]) -> None:
            for name, operation in tuple(self._mgmt_links.items()):
                if operation._mgmt_error is not None or operation._mgmt_link.state not in _OPEN_LINKS:
                    del self._mgmt_links[name]  # the SDK would raise it for each further request
                    continue
                answers = operation._mgmt_link._response_link
                if answers.current_link_credit < answers.link_credit // 2:
                    answers._received_delivery_tags.clear()  # the SDK keeps those of all answers, and uses none of them
                    await answers.flow()
            if node not in self._mgmt_links:
                named = {name: value for name, value in options.items() if name not in _OF_REQUEST}
                operation = SharedOperation(self._session, endpoint=node, **named)
                await operation.open()
                self._mgmt_links[node] = operation

    return Handler


_CLIENTS: Final = {theirs: client_class(theirs) for theirs in (ServiceBusReceiver, ServiceBusSender, Browser)}
_HANDLERS: Final = {theirs: _handler_class(theirs) for theirs in (ReceiveClient, SendClient, ManagementClient)}


_GLANCE: Final = 0.005
"""Seconds between two looks whether the token is confirmed."""


async def make_ready(sender: ServiceBusSender) -> None:
    """Wait until a sender's link is open and its token is confirmed, which the SDK renews here when that is due.

    Nothing is sent: an error here says for certain that the next message has not left the client.
    """
    parts = private(sender)
    parts._check_live()
    await parts._do_retryable_operation(_open_with_token, sender=parts)


async def _open_with_token(sender: Any) -> None:
    await sender._open()
    handler = sender._handler
    try:
        while not await handler.client_ready_async():  # noqa: ASYNC110 (the SDK has no event for it)
            await asyncio.sleep(_GLANCE)
    except TimeoutError as error:
        raise OperationTimeoutError(message="The token was not confirmed in time.") from error


async def send_payload(sender: ServiceBusSender, payload: bytes, *, batch: bool = False) -> None:
    """Send AMQP bytes once and wait for the confirmation.

    The SDK's ``send_messages`` does more around it, for messages of its own, which takes as long as all of this.
    """
    parts = private(sender)
    parts._check_live()
    await parts._do_retryable_operation(_transfer, sender=parts, message=Encoded(payload, is_batch=batch))


async def _transfer(sender: Any, message: Encoded) -> None:
    handler = sender._handler
    delivery = MessageDelivery(message)
    # Send the message, and listen until the confirmation comes.
    try:
        await _until_confirmed(handler, delivery)
    except (AuthenticationException, TimeoutError) as error:
        # The token is refused only now: the message was on its way before.
        said = f"The token could not be renewed before the confirmation came: {error}"
        raise ServiceBusConnectionError(message=said) from error
    if delivery.error is not None:
        raise delivery.error


async def _until_confirmed(handler: Any, delivery: MessageDelivery) -> None:
    await handler._transfer_message_async(delivery)
    await handler._link.update_pending_deliveries()  # which sends it
    if handler._connection is not None:
        await handler._connection.listen(wait=handler._socket_timeout)
    while delivery.state not in MESSAGE_DELIVERY_DONE_STATES:
        if not await handler.do_work_async():
            raise ServiceBusConnectionError(message="The sender was closed before the confirmation came.")


def max_message_bytes(sender: ServiceBusSender) -> int:
    return int(private(sender)._max_message_size_on_link)


def max_batch_bytes(sender: ServiceBusSender) -> int:
    return int(private(sender)._max_batch_size_on_link)
