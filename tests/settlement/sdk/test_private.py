"""The one test that compares what sbnotebook uses of the private side of the SDK with the SDK that is installed."""

# ruff: noqa: SLF001 (this compares private parts of the SDK)
# pyright: reportPrivateUsage=false

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusError

import sbnotebook
from sbnotebook.model import EntityAddress, Message
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.sdk import management, private
from sbnotebook.settlement.sdk.receivers import ReceivedLock

ROOT = Path(sbnotebook.__file__).parent
ATTRIBUTES = {
    "answers": "default message_lock_renew_op schedule_op",
    "auth": "audience token_type get_token",
    "authenticator": "auth_state handle_token _auth _expires_on _mgmt_link _put_token _refresh_window _token_put_time "
    "_on_execute_operation_complete",
    "connection": "listen open _can_read _error _last_frame_received_time _process_incoming_frame "
    "_process_outgoing_frame _remote_max_frame_size _socket_timeout _transport",
    "failure": "_condition _retryable _shutdown_handler",
    "handler": "auth_complete_async client_ready_async do_work_async mgmt_request_async open_async "
    "settle_messages_async _auth _cbs_authenticator _connection _hostname _keep_alive_thread _link _mgmt_links "
    "_message_received_async _mgmt_link_lock_async _name _received_messages _session _socket_timeout "
    "_transfer_message_async _use_tls",
    "link": "attach current_link_credit delivery_count flow get_state handle link_credit state _error _first_frame "
    "_incoming_attach _incoming_disposition _incoming_flow _incoming_transfer _is_closed _outgoing_transfer "
    "_pending_dispositions _process_incoming_message _received_delivery_tags _session network_trace "
    "network_trace_params update_pending_deliveries",
    "management link": "cancel_operation execute_operation state _pending_operations _request_link _response_link",
    "operation": "execute _connection _mgmt_error _mgmt_link",
    "client": "_amqp_transport _auth_uri _check_live _close_handler _config _create_handler "
    "_do_retryable_operation _entity_uri _handle_exception _handler _max_batch_size_on_link "
    "_max_message_size_on_link _max_wait_time _mgmt_request_response _mgmt_request_response_with_retry _open "
    "_open_with_retry _populate_message_properties _running _settle_message_via_mgmt_link",
    "session": "channel create_receiver_link create_sender_link next_outgoing_id outgoing_window "
    "remote_incoming_window _connection _outgoing_transfer",
    "socket": "close connected read receive_frame send_frame socket_lock _read_buffer _write",
    "transport": "AMQP_ARRAY_VALUE AMQP_LONG_VALUE AMQP_UINT_VALUE create_servicebus_exception "
    "drain_and_release_messages_async",
    "message": "_delivery_id _delivery_tag",
    "clients": "_create_session_browser",
    "stream": "_buffer",
    "composite": "_code _definition",
}
"""What sbnotebook uses of each kind of the SDK's objects."""


@pytest.mark.anyio
async def test_the_sdk_has_each_private_attribute(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("parts")
    address = EntityAddress("parts")
    await namespace.entity("parts").send([Message()])
    factory: Any = namespace.connection.new_client(retries=0)
    async with factory, factory.get_queue_receiver("parts") as receiver, factory.get_queue_sender("parts") as sender:
        browser = factory._create_session_browser(address.path)
        await management.peek_payloads(browser, 1, 1)
        (message,) = await receiver.receive_messages(1, max_wait_time=5)
        # Opens the link to the management node.
        await management.renew_locks(receiver, [ReceivedLock.of_message(message)])
        there = _there(receiver, sender, browser) | {"message": [message], "clients": [factory]}
        missing = [
            f"{kind}: {name}"
            for kind, names in ATTRIBUTES.items()
            for name in names.split()
            if not any(hasattr(thing, name) for thing in there[kind])
        ]
    assert not missing
    assert there.keys() == ATTRIBUTES.keys()


def _there(receiver: Any, sender: Any, browser: Any) -> dict[str, list[Any]]:
    taking, sending = receiver._handler, sender._handler
    (operation,) = taking._mgmt_links.values()
    return {
        "answers": [private.mgmt_handlers],
        "auth": [taking._auth, sending._auth],
        "authenticator": [taking._cbs_authenticator, sending._cbs_authenticator],
        "client": [browser, receiver, sender],
        "composite": [private.Accepted()],
        "connection": [taking._connection],
        "failure": [ServiceBusError("failed")],
        "handler": [taking, sending],
        "link": [taking._link, sending._link, operation._mgmt_link._response_link],
        "management link": [operation._mgmt_link],
        "operation": [operation],
        "session": [taking._link._session],
        "socket": [taking._connection._transport],
        "stream": [taking._connection._transport.reader],
        "transport": [receiver._amqp_transport],
    }


def test_each_private_attribute_that_is_used_is_compared() -> None:
    used: set[str] = set()
    own: set[str] = set()
    for path in (ROOT / "settlement" / "sdk").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Attribute(value=ast.Name("self"), attr=name, ctx=ast.Store()):
                    own.add(name)
                case ast.Attribute(attr=name):
                    used.add(name)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    own.add(name)
                case ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]):
                    own.add(name)
                case _:
                    pass
    compared = {name for names in ATTRIBUTES.values() for name in names.split()}
    assert not {name for name in used if re.match(r"_(?!_)", name)} - own - compared - {"_place", "_is_refused"}


def test_private_modules_are_imported_in_one_place() -> None:
    importing = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        for module in _imported(path)
        if re.match(r"azure\..*\._(?!_)", module)
    }
    assert importing == {"settlement/sdk/private.py"}


def _imported(path: Path) -> list[str]:
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return plain + [
        f"{node.module}.{alias.name}" for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
