"""The private parts of azure-servicebus 7.15 that sbnotebook uses: each name once, and where the SDK has it.

No other module imports a private module of the SDK. The others reach the private attributes of its objects by
:func:`private`, so that a type checker compares each use with the protocols here. One test compares the protocols with
the SDK that is installed.

Sources are paths in ``azure/servicebus``.
"""

# The other modules import the private names from here.
# pyright: reportUnusedImport=false

from __future__ import annotations

import asyncio
import logging
import queue
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast, overload

from sbnotebook.settlement.sdk import check_version

try:
    from azure.servicebus._common import constants
    from azure.servicebus._common import mgmt_handlers as _mgmt_handlers
    from azure.servicebus._pyamqp._decode import decode_empty_frame
    from azure.servicebus._pyamqp._decode import decode_frame as decode_frame_of_sdk
    from azure.servicebus._pyamqp._encode import describe_performative, encode_value
    from azure.servicebus._pyamqp._encode import encode_frame as encode_frame_of_sdk
    from azure.servicebus._pyamqp.aio import (
        _cbs_async,
        _client_async,
        _connection_async,
        _management_operation_async,
        _sasl_async,
        _sender_async,
        _session_async,
    )
    from azure.servicebus._pyamqp.client import certifi  # pyright: ignore[reportPrivateImportUsage]
    from azure.servicebus._pyamqp.constants import (
        FIELD,
        MESSAGE_DELIVERY_DONE_STATES,
        SEND_DISPOSITION_REJECT,
        CbsAuthState,
        LinkDeliverySettleReason,
        LinkState,
        ManagementLinkState,
        SessionTransferState,
    )
    from azure.servicebus._pyamqp.constants import ManagementExecuteOperationResult as PutResult
    from azure.servicebus._pyamqp.error import AMQPError, AMQPException, AuthenticationException
    from azure.servicebus._pyamqp.error import AMQPLinkError as AmqpLinkError
    from azure.servicebus._pyamqp.message import _MessageDelivery as MessageDelivery
    from azure.servicebus._pyamqp.outcomes import Accepted, Modified, Rejected, Released
    from azure.servicebus._pyamqp.performatives import TransferFrame
    from azure.servicebus._pyamqp.receiver import check_disposition_outcome, outcome_name
    from azure.servicebus._pyamqp.types import AMQPTypes, ObjDefinition
    from azure.servicebus.aio import _async_utils
    from azure.servicebus.aio._session_browser_async import _SessionBrowserAsync as Browser
except ImportError:
    check_version()  # says so in one sentence where the version is another one
    raise

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken
    from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender
    from azure.servicebus.exceptions import ServiceBusError

AnyClient: TypeAlias = "ServiceBusReceiver | ServiceBusSender | Browser"
"""A receiver, a sender, or a browser, which asks the management node of an entity without a link to the entity."""
Frame: TypeAlias = Sequence[Any]
"""The fields of a frame, in the order of AMQP 1.0 section 2.7, and the payload of a transfer at its end."""

Answer: TypeAlias = Callable[[int, Any, Any, Any], Any]
"""Reads the answer of a management node: its status, message, description and the AMQP transport."""

# Classes of which sbnotebook makes objects of its own, with the methods that these subclasses replace.
ManagementClient: Any = _client_async.AMQPClientAsync
"""``open_async``, ``mgmt_request_async`` and ``client_ready_async``; so the two below it."""
ReceiveClient: Any = _client_async.ReceiveClientAsync
SendClient: Any = _client_async.SendClientAsync
AmqpConnectionClass: Any = _connection_async.Connection
"""``listen`` and ``create_session``."""
AmqpSessionClass: Any = _session_async.Session
"""``create_sender_link`` and ``_outgoing_transfer``."""
SenderLinkClass: Any = _sender_async.SenderLink
"""``_outgoing_transfer``."""
OperationClass: Any = _management_operation_async.ManagementOperation
"""``execute``."""
AuthenticatorClass: Any = _cbs_async.CBSAuthenticator
"""``update_token`` and ``_on_execute_operation_complete``."""
TcpTransport: Any = _sasl_async.SASLTransport
"""``receive_frame``, ``send_frame`` and ``write``; so the next one."""
WebSocketTransport: Any = _sasl_async.SASLWithWebSocket
certificates: Final[Callable[[], str]] = certifi.where
"""The file of the certificates that the SDK trusts, in ``_pyamqp/client.py``."""


class Answers(Protocol):
    """``_common/mgmt_handlers.py``: each raises the exception of a status that is a failure."""

    default: Answer
    message_lock_renew_op: Answer
    schedule_op: Answer


mgmt_handlers: Final = cast("Answers", _mgmt_handlers)


class Socket(Protocol):
    """``AsyncTransport``, which alone has a ``reader``, or ``WebSocketTransportAsync`` in ``_transport_async.py``."""

    connected: bool

    async def _write(self, s: bytes) -> None: ...
    async def close(self) -> None: ...


class Auth(Protocol):
    """``_CBSAuthAsync`` in ``_pyamqp/aio/_authentication_async.py``: how one connection gets its tokens."""

    audience: str
    token_type: str | bytes
    get_token: Callable[[], Awaitable[AccessToken]]


create_authentication: Final = cast("Callable[[Any], Awaitable[Auth]]", _async_utils.create_authentication)
"""Makes how a client gets its tokens, as each of the SDK's clients does when it opens."""


class Authenticator(Protocol):
    """``CBSAuthenticator`` in ``_pyamqp/aio/_cbs_async.py``: the token of one connection."""

    auth_state: CbsAuthState
    _auth: Auth
    _expires_on: int
    _refresh_window: int
    _token_put_time: int | None

    async def _put_token(self, token: str, token_type: str, audience: str, expires_on: datetime) -> None: ...


class AmqpConnection(Protocol):
    """``Connection`` in ``_pyamqp/aio/_connection_async.py``."""

    _error: Exception | None
    _last_frame_received_time: float | None
    _socket_timeout: float
    _transport: Socket
    _remote_max_frame_size: int | None

    def _can_read(self) -> bool: ...
    async def _process_outgoing_frame(self, channel: int, frame: Any) -> None: ...
    async def listen(self, wait: float | bool = False, batch: int = 1) -> None: ...


class Session(Protocol):
    """``Session`` in ``_pyamqp/aio/_session_async.py``."""

    channel: int


class Link(Protocol):
    """``Link`` in ``_pyamqp/aio/_link_async.py``, and what the links of receivers and of senders have besides."""

    state: LinkState
    current_link_credit: int
    delivery_count: int
    link_credit: int
    _error: Exception | None
    _is_closed: bool
    _incoming_flow: Callable[[Frame], Awaitable[None]]
    _session: Session
    _received_delivery_tags: set[bytes]
    _first_frame: Frame
    _pending_dispositions: dict[int, dict[str, Any]]
    _incoming_transfer: Callable[[Frame], Awaitable[None]]
    _incoming_disposition: Callable[[Frame], Awaitable[None]]

    async def flow(self, *, link_credit: int | None = None, drain: bool = False) -> None: ...
    async def update_pending_deliveries(self) -> None: ...
    async def _process_incoming_message(self, frame: Frame, message: Any) -> Any: ...


class ManagementLink(Protocol):
    """``ManagementLink`` in ``_pyamqp/aio/_management_link_async.py``."""

    state: ManagementLinkState
    _response_link: Link
    execute_operation: Callable[..., Awaitable[Any]]
    cancel_operation: Callable[[Any], None]


class ManagementOperation(Protocol):
    """``ManagementOperation`` in ``_pyamqp/aio/_management_operation_async.py``."""

    _mgmt_link: ManagementLink
    _mgmt_error: Exception | None
    _connection: AmqpConnection


class Handler(Protocol):
    """``AMQPClientAsync`` in ``_pyamqp/aio/_client_async.py``: a connection and its links.

    And what ``ReceiveClientAsync`` and ``SendClientAsync`` have besides.
    """

    _cbs_authenticator: Authenticator | None
    _connection: AmqpConnection | None
    _link: Link | None
    _keep_alive_thread: asyncio.Future[None] | None
    _mgmt_links: MutableMapping[Any, ManagementOperation]
    _socket_timeout: float
    _received_messages: queue.SimpleQueue[tuple[Frame, Any]]
    _message_received_async: Callable[[Frame, Any], Awaitable[None]]
    client_ready_async: Callable[[], Awaitable[bool]]
    mgmt_request_async: Callable[..., Awaitable[Any]]

    async def auth_complete_async(self) -> bool: ...
    async def do_work_async(self, *, batch: int = 1) -> bool: ...
    async def _transfer_message_async(self, message_delivery: MessageDelivery) -> None: ...


class Transport(Protocol):
    """``PyamqpTransportAsync`` in ``aio/_transport/_pyamqp_transport_async.py``, and its base class."""

    AMQP_LONG_VALUE: Callable[[int], Any]
    AMQP_ARRAY_VALUE: Callable[[Sequence[Any]], Any]
    AMQP_UINT_VALUE: Callable[[int], Any]

    def create_servicebus_exception(self, logger: logging.Logger, exception: Exception) -> ServiceBusError: ...
    async def drain_and_release_messages_async(self, handler: Handler) -> None: ...


class Client(Protocol):
    """``BaseHandler`` in ``aio/_base_handler_async.py``, and what the classes below it have."""

    _amqp_transport: Transport
    _config: Any
    _handler: Handler | None
    _running: bool
    _auth_uri: str
    _entity_uri: str
    _max_message_size_on_link: int
    _max_batch_size_on_link: int
    _create_handler: Callable[[Any], None]
    _close_handler: Callable[[], Awaitable[None]]
    _handle_exception: Callable[[Exception], Awaitable[Exception]]
    _open: Callable[..., Awaitable[None]]

    def _check_live(self) -> None: ...
    def _populate_message_properties(self, message: dict[str, Any]) -> None: ...
    async def _open_with_retry(self) -> None: ...
    async def _do_retryable_operation(self, operation: Callable[..., Awaitable[Any]], **kwargs: Any) -> Any: ...
    async def _mgmt_request_response(
        self, mgmt_operation: bytes, message: Mapping[str, Any], callback: Answer
    ) -> Any: ...
    async def _mgmt_request_response_with_retry(
        self, mgmt_operation: bytes, message: Mapping[str, Any], callback: Answer
    ) -> Any: ...
    async def _settle_message_via_mgmt_link(
        self, settlement: Any, lock_tokens: list[Any], dead_letter_details: Mapping[str, Any] | None = None
    ) -> None: ...


class Failure(Protocol):
    """``ServiceBusError`` in ``exceptions.py``."""

    _condition: Any
    _retryable: bool
    _shutdown_handler: bool


@overload
def private(thing: AnyClient) -> Client: ...
@overload
def private(thing: ServiceBusError) -> Failure: ...
def private(thing: Any) -> Any:
    """Return an object of the SDK as it is, typed with its private attributes."""
    return thing
