"""The one test that compares what sbnotebook uses of the private side of the SDK with the SDK that is installed."""

# ruff: noqa: SLF001 (this compares private parts of the SDK)
# pyright: reportPrivateUsage=false

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusError

import sbnotebook
from sbnotebook.model import EntityAddress, Message
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.sdk import management, protocol
from sbnotebook.settlement.sdk.receivers import ReceivedLock

PROTOCOLS: dict[str, Any] = {
    name: value
    for name, value in vars(protocol).items()
    if getattr(value, "_is_protocol", False) and value.__module__ == protocol.__name__
}


@pytest.mark.anyio
async def test_protocol_names_what_the_sdk_has(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("parts")
    address, connection = EntityAddress("parts"), namespace.connection
    await namespace.entity("parts").send([Message()])
    client = connection.new_client(retries=0)
    async with client, connection.receiver(address) as receiver, connection.sender(address) as sender:
        async with client.get_queue_receiver("parts") as theirs:
            (message,) = await theirs.receive_messages(1, max_wait_time=5)
        browser = connection.browser(address)
        await management.peek_payloads(browser, 1, 1)
        await management.renew_locks(
            receiver, [ReceivedLock.of_message(message)]
        )  # opens the link to the management node
        parts = _parts(receiver, sender, browser)
        missing = [why for name, things in parts.items() for why in _missing(name, things)]
    await browser.close()
    assert not missing
    assert {"_delivery_id", "_delivery_tag"} <= vars(message).keys()
    assert hasattr(client, "_create_session_browser")
    assert parts.keys() == PROTOCOLS.keys()


def _parts(receiver: Any, sender: Any, browser: Any) -> dict[str, list[Any]]:
    """Return what the SDK has for each protocol."""
    taking, sending = receiver._handler, sender._handler
    (operation,) = taking._mgmt_links.values()
    return {
        "Answers": [protocol.mgmt_handlers],
        "Auth": [taking._auth, sending._auth],
        "Authenticator": [taking._cbs_authenticator, sending._cbs_authenticator],
        "Client": [browser, receiver, sender],
        "AmqpConnection": [taking._connection],
        "Failure": [ServiceBusError("failed")],
        "Handler": [taking, sending],
        "Link": [taking._link, sending._link, operation._mgmt_link._response_link],
        "ManagementLink": [operation._mgmt_link],
        "ManagementOperation": [operation],
        "Session": [taking._link._session],
        "Socket": [taking._connection._transport],
        "Transport": [receiver._amqp_transport],
    }


def _missing(name: str, things: list[Any]) -> list[str]:
    """Return what a protocol declares that none of the things has; a link has what a receiver or a sender needs."""
    members: set[str] = {*inspect.get_annotations(PROTOCOLS[name]), *vars(PROTOCOLS[name])}
    made = {"_abc_impl", "_is_protocol", "_is_runtime_protocol"}  # by typing.Protocol
    named = [member for member in members - made if not member.startswith("__")]
    return [f"{name}.{member}" for member in named if all(_lacks(PROTOCOLS[name], thing, member) for thing in things)]


def _lacks(declared: Any, thing: Any, member: str) -> bool:
    if not hasattr(thing, member):
        return True
    wanted: Callable[..., Any] | None = inspect.getattr_static(declared, member, None)
    if not inspect.isfunction(wanted):
        return False
    takes = inspect.signature(getattr(thing, member)).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values()):
        return False
    return bool(inspect.signature(wanted).parameters.keys() - {"self", "kwargs"} - takes.keys())


def test_private_modules_are_imported_in_one_place() -> None:
    root = Path(sbnotebook.__file__).parent
    importing = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for module in _imported(path)
        if re.match(r"azure\..*\._(?!_)", module)
    }
    assert importing == {"settlement/sdk/protocol.py"}


def _imported(path: Path) -> list[str]:
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return plain + [
        f"{node.module}.{alias.name}" for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
