"""Keys, tokens and claims: by the SDK, by hand, and over HTTP."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import anyio.lowlevel
import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
)

from sbnotebook.amqp.sections import APPLICATION_PROPERTIES
from sbnotebook.emulator import ManualClock, QueueOptions, RunningEmulator, running
from sbnotebook.emulator.entities.options import AuthorizationRule
from sbnotebook.emulator.entities.refusals import RefusedError
from sbnotebook.emulator.entities.registry import Registry
from sbnotebook.emulator.service.access import (
    LISTEN,
    MANAGE,
    ROOT_RULE,
    SEND,
    ConnectionAccess,
    NamespaceAccess,
)
from sbnotebook.testing import administration_client
from tests.emulator.service.conftest import Connect, token
from tests.emulator.service.management_client import ask
from tests.emulator.service.test_management_requests import reply, request

SENDER = AuthorizationRule("sender", "send-1", "send-2", frozenset({SEND}))
LISTENER = AuthorizationRule("listener", "listen-1", "", frozenset({LISTEN}))
OWNER = AuthorizationRule("owner", "own-1", "own-2", frozenset({MANAGE}))


@pytest.fixture
def emulator(clock: ManualClock) -> Iterator[RunningEmulator]:
    """``orders`` has keys of its own; ``bills``, and ``orders/old`` below it, have none."""
    keyed = QueueOptions(authorization_rules=(SENDER, LISTENER, OWNER))
    with running(queues={"orders": keyed, "bills": None, "orders/old": None}, clock=clock) as emulator:
        access = emulator._server.broker.access  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        access.clock = clock
        yield emulator


@contextmanager
def token_refused(reason: str) -> Generator[None]:
    """The SDK's error has the reason inside."""
    with pytest.raises(ServiceBusAuthenticationError) as caught:
        yield
    assert f"Status code: 401\nDescription: {reason}: " in caught.value.exc_msg


def connection_string(emulator: RunningEmulator, name: str, key: str) -> str:
    return emulator.connection_string.replace(ROOT_RULE.key_name, name).replace(ROOT_RULE.primary_key, key)


def client_of(text: str) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(text, retry_total=0)


def send(text: str, queue: str = "orders") -> None:
    with client_of(text) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("x"))


def receive(text: str, queue: str = "orders", **options: Any) -> list[str]:
    with client_of(text) as client, client.get_queue_receiver(queue, **options) as receiver:
        received = receiver.receive_messages(5, max_wait_time=0.2)
        for message in received:
            receiver.complete_message(message)
        return [str(message) for message in received]


@pytest.mark.parametrize(
    ("name", "key"),
    [(ROOT_RULE.key_name, "another"), ("nobody", ROOT_RULE.primary_key), ("listener", "send-1"), ("sender", "x")],
)
def test_a_wrong_key_opens_nothing(emulator: RunningEmulator, name: str, key: str) -> None:
    text = connection_string(emulator, name, key)
    with token_refused("InvalidSignature"):
        send(text)
    with token_refused("InvalidSignature"):
        receive(text)
    with pytest.raises(ClientAuthenticationError, match="InvalidSignature"):
        administration_client(text).get_queue("orders")
    assert emulator.counts("orders").active == 0


def test_a_key_opens_what_its_claims_say(emulator: RunningEmulator) -> None:
    for key in ("send-1", "send-2"):
        send(connection_string(emulator, "sender", key))
    assert receive(connection_string(emulator, "listener", "listen-1")) == ["x", "x"]
    with pytest.raises(ServiceBusAuthorizationError, match=r"'Listen' claim\(s\) are required.*'sb://\S+/orders'"):
        receive(connection_string(emulator, "sender", "send-1"))
    with pytest.raises(ServiceBusAuthorizationError, match=r"'Send' claim\(s\) are required.*'sb://\S+/orders'"):
        send(connection_string(emulator, "listener", "listen-1"))


def test_a_key_logs_in_by_itself(connect: Connect) -> None:
    root = connect(text=None, log_in=(ROOT_RULE.key_name, ROOT_RULE.primary_key))
    assert root.sender("bills").target is not None
    sender = connect(text=None, log_in=("sender", "send-2"))
    assert sender.sender("orders").target is not None
    assert sender.sender("bills", 1).target is None
    assert "'Send' claim(s) are required" in sender.refusal()
    assert sender.receiver("orders", 2).source is None
    assert "'Listen' claim(s) are required" in sender.refusal()
    for name, key in (("sender", ""), ("sender", "listen-1"), ("nobody", "send-1"), ("listener", "")):
        with pytest.raises(PermissionError):
            connect(text=None, log_in=(name, key))


def test_a_key_of_the_namespace_stays_one_beside_that_of_an_entity() -> None:
    root = replace(ROOT_RULE, claims=frozenset({SEND}))
    registry = Registry()
    registry.create_queue("copied", QueueOptions(authorization_rules=(root,)))
    grant = NamespaceAccess(registry, ManualClock()).log_in(root.key_name, root.primary_key)
    assert grant is not None
    assert grant.allows("bills", MANAGE)


def test_manage_includes_the_other_claims(emulator: RunningEmulator) -> None:
    text = connection_string(emulator, "owner", "own-2")
    send(text)
    assert receive(text) == ["x"]


def test_an_entity_key_grants_access_to_that_entity_only(emulator: RunningEmulator) -> None:
    text = connection_string(emulator, "listener", "listen-1")
    assert receive(text, sub_queue="deadletter") == []
    for other in ("bills", "orders/old", "nobody"):
        with token_refused("InvalidSignature"):
            receive(text, other)
    # The client alone asks for a token for the right queue: the scope must be held to it as well.
    for other in ("bills", "orders/old"):
        with token_refused("InvalidAudience"):
            receive(ready_token(emulator, token("orders", key_name="listener", key="listen-1")), other)


def ready_token(emulator: RunningEmulator, text: str) -> str:
    """A connection string that has no key, but a token."""
    endpoint = emulator.connection_string.partition(";")[0]
    return f"{endpoint};SharedAccessSignature={text};UseDevelopmentEmulator=true"


def test_a_connection_string_may_hold_a_token_instead_of_a_key(emulator: RunningEmulator) -> None:
    text = ready_token(emulator, token("orders"))
    send(text)
    assert receive(text) == ["x"]
    with token_refused("InvalidAudience"):
        send(text, "bills")
    with token_refused("InvalidSignature"):
        send(ready_token(emulator, token("orders", key="another")))


def test_tokens_expire_by_the_clock_of_the_emulator(emulator: RunningEmulator, clock: ManualClock) -> None:
    text = ready_token(emulator, token("orders", end=time.time() + 600))
    send(text)
    clock.advance(700)
    with token_refused("ExpiredToken"):
        send(text)


def test_a_clock_for_the_entities_alone_expires_no_token(emulator: RunningEmulator) -> None:
    another = ManualClock()
    emulator.use_clock(another)
    with client_of(emulator.connection_string) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("before"))
        another.advance(86_400)
        sender.send_messages(ServiceBusMessage("after"))
    assert receive(emulator.connection_string) == ["before", "after"]


@pytest.mark.parametrize(
    ("key", "operation", "claim"),
    [
        (LISTENER, "com.microsoft:schedule-message", "Send"),
        (LISTENER, "com.microsoft:cancel-scheduled-message", "Send"),
        (SENDER, "com.microsoft:peek-message", "Listen"),
        (SENDER, "com.microsoft:renew-lock", "Listen"),
        (SENDER, "com.microsoft:update-disposition", "Listen"),
        (SENDER, "com.microsoft:enumerate-rules", "Listen"),
    ],
)
def test_an_operation_without_its_claim_is_refused(
    connect: Connect, key: AuthorizationRule, operation: str, claim: str
) -> None:
    client = connect(text=token("orders", key_name=key.key_name, key=key.primary_key))
    client.sender("orders/$management")
    client.receiver("orders/$management")
    client.flow(1, 1)
    client.transfer(request(1, None, operation))
    properties = reply(client)[1][APPLICATION_PROPERTIES]
    assert isinstance(properties, dict)
    assert (properties["statusCode"], properties["errorCondition"]) == (401, "amqp:unauthorized-access")
    assert f"'{claim}' claim(s) are required" in str(properties["statusDescription"])


def test_a_link_without_a_token_is_refused(connect: Connect) -> None:
    client = connect(text=None)
    assert client.sender("orders").target is None
    assert client.refusal().startswith("amqp:unauthorized-access Unauthorized access. 'Send' claim(s)")
    assert client.receiver("nobody").source is None
    assert client.refusal().startswith("amqp:unauthorized-access Unauthorized access. 'Listen' claim(s)")
    assert client.sender("orders/$management").target is None
    assert "'Listen,Send' claim(s)" in client.refusal()
    assert client.sender("$cbs", 5).target is not None


def test_links_are_detached_when_their_token_expires(connect: Connect, clock: ManualClock) -> None:
    client = connect()
    assert client.sender("orders").target is not None
    clock.advance(3700)
    assert client.refusal().startswith("amqp:unauthorized-access")
    client.sender("orders")
    assert client.refusal().startswith("amqp:unauthorized-access")


def test_administration_needs_the_claim_manage(emulator: RunningEmulator) -> None:
    own = token("orders", key_name="owner", key="own-1")
    assert ask(emulator, "GET", "/orders", Authorization=own)[0] == 200
    path = "/orders?api-version=2021-05"  # The administration client for JavaScript signs the whole address.
    assert ask(emulator, "GET", path, Authorization=token(path[1:]))[0] == 200
    assert ask(emulator, "GET", "/bills", Authorization=own)[0] == 401
    assert ask(emulator, "GET", "/$Resources/queues", Authorization=own)[0] == 401
    assert ask(emulator, "GET", "/$Resources/queues")[0] == 200
    sends = token("orders", key_name="sender", key="send-1")
    status, text = ask(emulator, "DELETE", "/orders", Authorization=sends)
    assert status == 401
    assert "<Code>401</Code>" in text
    assert "'Manage' claim(s) are required" in text
    for method, path in (("PUT", "/new"), ("GET", "/orders"), ("DELETE", "/orders"), ("GET", "/$namespaceinfo")):
        status, text = ask(emulator, method, path, Authorization=None)
        assert status == 401
        assert "MissingToken" in text
    assert emulator.counts("orders").active == 0


@pytest.mark.parametrize("path", ["/health", "/entities", "/faults"])
def test_open_pages_need_no_key(emulator: RunningEmulator, path: str) -> None:
    assert ask(emulator, "GET", path, Authorization=None)[0] == 200
    for method, address in (("PUT", path), ("DELETE", path), ("GET", f"{path}?api-version=2024-05")):
        assert ask(emulator, method, address, Authorization=None)[0] == 401, "an entity can have this name"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SharedAccessSignature ",
        "Bearer x",
        "SharedAccessSignature sr=a&sig=b&se=1e3&skn=c",
        "SharedAccessSignature sr=a&sig=b&se=99999999999999999999&skn=c",
        "SharedAccessSignature sr=a&sig=b&se=\u0661&skn=c",
        token() + "&skn=other",
        token() + "&x=" + "y" * 10_000,
        token().replace("&se=", "&se=1"),
        token().replace("sr=sb", "sr=%00sb"),
        token().replace("sig=", "sig=%ff\udc80"),
        token().replace("skn=", "skn=" + "n" * 5_000),
    ],
)
def test_a_malformed_token_is_refused(text: str) -> None:
    with pytest.raises(RefusedError) as caught:
        NamespaceAccess(Registry(), ManualClock()).grant(text)
    assert len(str(caught.value)) < 600
    assert ROOT_RULE.primary_key not in str(caught.value)


def test_a_missing_second_key_signs_nothing() -> None:
    access = NamespaceAccess(Registry(), ManualClock())
    assert ROOT_RULE.secondary_key == ""
    with pytest.raises(RefusedError, match="InvalidSignature"):
        access.grant(token(key=""))


def test_more_keys_can_be_given_to_the_namespace() -> None:
    access = NamespaceAccess(Registry(), ManualClock())
    access.rules += (SENDER,)
    grant = access.grant(token("Orders", key_name="sender", key="send-2"))
    assert grant.allows("ORDERS/subscriptions/a", SEND)
    assert not grant.allows("orders", LISTEN)
    assert not grant.covers("orders2")
    assert access.grant(token()).covers("anything")


@pytest.mark.anyio
async def test_a_newer_token_keeps_links_and_the_last_one_lets_them_go() -> None:
    clock, expired = ManualClock(0), list[int]()
    registry = Registry()
    registry.create_queue("orders")
    access = ConnectionAccess(NamespaceAccess(registry, clock), lambda: expired.append(clock.now()))
    access.put_token(token("orders", end=10))
    access.put_token(token("orders", end=20))
    clock.advance(15)
    access.require("orders", SEND)
    clock.advance(5)
    with pytest.raises(RefusedError, match="Unauthorized access"):
        access.require("orders", SEND)
    await anyio.lowlevel.checkpoint()
    await anyio.lowlevel.checkpoint()
    assert expired == [20_000]


@pytest.mark.anyio
async def test_a_connection_holds_so_many_tokens_and_no_more() -> None:
    registry = Registry()
    access = ConnectionAccess(NamespaceAccess(registry, ManualClock(0)), lambda: None)
    for number in range(1001):
        registry.create_queue(f"q{number}")
        access.put_token(token(f"q{number}", end=10))
    access.require("q1", SEND)
    access.require("q1000", SEND)
    with pytest.raises(RefusedError):
        access.require("q0", SEND)
    access.close()
    with pytest.raises(RefusedError):
        access.require("q1000", SEND)
