"""The private names of azure-servicebus 7.15 that sbnotebook uses: no other module imports a private module of the SDK.

The others reach the private attributes of its objects by :func:`private`. One test looks for each attribute in the
objects of the SDK that is installed. Sources are paths in ``azure/servicebus``: clients are ``BaseHandler`` in
``aio/_base_handler_async.py``, and their handlers ``AMQPClientAsync`` in ``_pyamqp/aio/_client_async.py``. Connections,
sessions, links, and the links and operations of management nodes are beside it, in modules with their names.
"""

# The other modules import the private names from here.
# pyright: reportUnusedImport=false

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from sbnotebook.settlement.sdk import check_version

try:
    from azure.servicebus._common import constants
    from azure.servicebus._common import mgmt_handlers as _mgmt_handlers
    from azure.servicebus._pyamqp._decode import decode_empty_frame, decode_frame
    from azure.servicebus._pyamqp._encode import describe_performative, encode_frame, encode_value
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
    from azure.servicebus._pyamqp.types import AMQPTypes
    from azure.servicebus.aio import _async_utils
    from azure.servicebus.aio._session_browser_async import _SessionBrowserAsync as Browser
except ImportError:
    check_version()  # says so in one sentence where the version is another one
    raise

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender

AnyClient: TypeAlias = "ServiceBusReceiver | ServiceBusSender | Browser"
"""A receiver, a sender, or a browser, which asks the management node of an entity without a link to the entity."""
Frame: TypeAlias = Sequence[Any]
"""The fields of a frame, in the order of AMQP 1.0 section 2.7, and the payload of a transfer at its end."""

Answer: TypeAlias = Callable[[int, Any, Any, Any], Any]
"""Reads the answer of a management node: its status, message, description and the AMQP transport."""

# Classes of which sbnotebook makes objects of its own.
ManagementClient: Any = _client_async.AMQPClientAsync
ReceiveClient: Any = _client_async.ReceiveClientAsync
SendClient: Any = _client_async.SendClientAsync
AmqpConnectionClass: Any = _connection_async.Connection
AmqpSessionClass: Any = _session_async.Session
SenderLinkClass: Any = _sender_async.SenderLink
OperationClass: Any = _management_operation_async.ManagementOperation
AuthenticatorClass: Any = _cbs_async.CBSAuthenticator
TcpTransport: Any = _sasl_async.SASLTransport
WebSocketTransport: Any = _sasl_async.SASLWithWebSocket
certificates: Final[Callable[[], str]] = certifi.where
"""The file of the certificates that the SDK trusts, in ``_pyamqp/client.py``."""
mgmt_handlers: Any = _mgmt_handlers
"""Each is an ``Answer``, and raises the exception of a status that is a failure."""
create_authentication: Final = cast("Callable[[Any], Awaitable[Any]]", _async_utils.create_authentication)
"""Makes how a client gets its tokens, as each of the SDK's clients does when it opens."""


def private(thing: object) -> Any:
    """Return an object of the SDK as it is, typed with its private attributes."""
    return thing
