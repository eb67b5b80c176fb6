"""Connecting reaches the namespace and signs in, or says within seconds what to do."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusConnectionError

from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.emulator.entities.options import AuthorizationRule, Claim, QueueOptions
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.emulator.service.access import ConnectionAccess
from sbnotebook.settlement import Connection
from sbnotebook.settlement.connecting import connection as module
from sbnotebook.settlement.connecting.connection import SignedIn, sign_in
from tests.azure import HOST, in_azure

pytestmark = pytest.mark.anyio

KEY = "c2VjcmV0a2V5"
CLAIMS = b'{"upn": "anna@example.org"}'
TOKEN = f"e30.{urlsafe_b64encode(CLAIMS).decode().rstrip('=')}.c2ln"


@pytest.fixture(scope="module")
def emulator() -> Iterator[RunningEmulator]:
    rule = AuthorizationRule("reader", KEY, "", frozenset({Claim.LISTEN}))
    with running(queues={"orders": QueueOptions(authorization_rules=(rule,)), "other": None}) as server:
        yield server


def keyed(emulator: RunningEmulator, name: str, key: str, rest: str = "") -> Connection:
    endpoint = emulator.connection_string.partition(";")[0]
    return in_azure(
        f"{endpoint};SharedAccessKeyName={name};SharedAccessKey={key};UseDevelopmentEmulator=true;{rest}".rstrip(";")
    )


class Credential:
    def __init__(self, answer: str | Exception = TOKEN, seconds: float = 0) -> None:
        self.answer, self.seconds, self.count = answer, seconds, 0

    async def get_token(self, *_: str, **__: Any) -> Any:
        self.count += 1
        await anyio.sleep(self.seconds)
        if isinstance(self.answer, Exception):
            raise self.answer
        return SimpleNamespace(token=self.answer, expires_on=int(time.time()) + 3600)

    async def close(self) -> None: ...


class WithoutTls(Connection):
    """A connection with a credential to an emulator, which has no certificate."""

    place = ""

    def new_client(self, *, retries: int, over_websocket: bool | None = None, credential: Any = None) -> Any:
        assert not over_websocket
        assert credential is not None
        return ServiceBusClient(self.place, credential, retry_total=retries, use_tls=False)


def with_account(emulator: RunningEmulator, credential: Credential) -> Connection:
    connection = WithoutTls(host=HOST, credential=credential)  # type: ignore[arg-type]
    connection.place = emulator.connection_string.split("//")[1].partition(";")[0].rstrip("/")
    return connection


async def test_a_key_is_confirmed(emulator: RunningEmulator) -> None:
    connection = in_azure(emulator.connection_string)
    assert await sign_in(connection) == SignedIn("the key RootManageSharedAccessKey", is_confirmed=True)
    assert connection.has_answered


@pytest.mark.parametrize(
    ("name", "key", "rest", "words"),
    [
        ("RootManageSharedAccessKey", KEY, "", "or it is the key of one queue or topic: then add EntityPath=NAME to"),
        ("reader", KEY, "", "or it is the key of one queue or topic: then add EntityPath=NAME to"),
        ("reader", KEY, "EntityPath=other", "refuses the key reader for other. Either it is wrong or has expired, or"),
    ],
)
async def test_a_refused_key_has_its_causes_named(
    emulator: RunningEmulator, name: str, key: str, rest: str, words: str
) -> None:
    with pytest.raises(ServiceBusAuthenticationError) as refused:
        await sign_in(keyed(emulator, name, key, rest))
    assert str(refused.value).startswith(f"{HOST} refuses the key {name}")
    assert words in str(refused.value)
    assert "(Service Bus says: " in str(refused.value)
    assert KEY not in str(refused.value)


async def test_the_key_of_an_entity_is_confirmed_at_it(emulator: RunningEmulator) -> None:
    assert (await sign_in(keyed(emulator, "reader", KEY, "EntityPath=orders"))).is_confirmed


async def test_a_signature_is_confirmed_at_what_it_is_for(emulator: RunningEmulator) -> None:
    from azure.servicebus._base_handler import _generate_sas_token  # pyright: ignore[reportPrivateUsage]

    endpoint = emulator.connection_string.partition(";")[0]
    host = endpoint.split("//")[1].rstrip("/")
    for place in ("orders", ""):
        name, key = ("reader", KEY) if place else ("RootManageSharedAccessKey", "SAS_KEY_VALUE")
        token: Any = _generate_sas_token(f"sb://{host}/{place}", name, key)
        text = f"{endpoint};SharedAccessSignature={token.token};UseDevelopmentEmulator=true"
        assert await sign_in(in_azure(text)) == SignedIn(f"the key {name}", is_confirmed=True)


@pytest.mark.parametrize("place", ["", "sbnotebook-sign-in"], ids=["namespace", "entity"])
async def test_a_key_that_one_of_two_places_takes_is_confirmed(
    emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """What Azure answers to a token for a whole namespace is not documented."""
    put_token = ConnectionAccess.put_token

    def refusing(self: ConnectionAccess, token: str, address: str) -> None:
        if address.partition("://")[2].partition("/")[2] == place:
            raise RefusedError(Condition.UNAUTHORIZED_ACCESS, "InvalidAudience")
        put_token(self, token, address)

    monkeypatch.setattr(ConnectionAccess, "put_token", refusing)
    assert (await sign_in(in_azure(emulator.connection_string))).is_confirmed


async def test_an_account_that_is_refused_may_have_a_role_on_a_queue(emulator: RunningEmulator) -> None:
    credential = Credential()
    assert await sign_in(with_account(emulator, credential)) == SignedIn("anna@example.org", is_confirmed=False)
    assert credential.count == 1, "az takes a second for each token"


async def test_an_account_is_confirmed(emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch) -> None:
    def accept(*_: object) -> None: ...

    monkeypatch.setattr(ConnectionAccess, "put_token", accept)
    assert await sign_in(with_account(emulator, Credential())) == SignedIn("anna@example.org", is_confirmed=True)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            ClientAuthenticationError("DefaultAzureCredential failed to retrieve a token from …"),
            f"You are not signed in to {HOST}. Run az login, then run the cell again.",
        ),
        (ValueError(f"no\nSharedAccessKey={KEY}"), f"Signing in to {HOST} failed with ValueError: no SharedAccessKey="),
    ],
)
async def test_who_is_not_signed_in_is_told_so(emulator: RunningEmulator, error: Exception, words: str) -> None:
    with pytest.raises(ServiceBusAuthenticationError) as refused:
        await sign_in(with_account(emulator, Credential(error)))
    assert str(refused.value).startswith(words)
    assert KEY not in str(refused.value)


async def test_a_sign_in_may_take_longer_than_reaching_the_host(
    emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REACHED_WITHIN", 1.0)
    assert (await sign_in(with_account(emulator, Credential(seconds=1.2)))).name == "anna@example.org"


async def test_a_sign_in_is_not_waited_for_without_end(
    emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbnotebook.settlement.sdk.connections._FIRST_WITHIN", 0.3)
    with (
        anyio.fail_after(10),
        pytest.raises(ServiceBusConnectionError, match=r"gave no token in 0\.3 seconds: finish signing in"),
    ):
        await sign_in(with_account(emulator, Credential(seconds=60)))


async def test_a_host_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REACHED_WITHIN", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connection = in_azure(
            f"Endpoint=sb://127.0.0.1:{port}/;SharedAccessKeyName=n;SharedAccessKey={KEY};UseDevelopmentEmulator=true"
        )
        with pytest.raises(ServiceBusConnectionError, match=r"did not answer within 0\.5 seconds: check the name"):
            await sign_in(connection)


@pytest.mark.parametrize("transport", ["", ";TransportType=AmqpWebSockets"], ids=["tcp", "websocket"])
@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("127.0.0.1:1", "Nothing listens at 127.0.0.1:1: check the name, and the firewall."),
        ("no-such-host.invalid", "There is no host no-such-host.invalid: check the namespace's name, and the"),
    ],
)
async def test_a_host_that_cannot_be_reached_is_one_sentence(host: str, words: str, transport: str) -> None:
    with pytest.raises(ServiceBusConnectionError) as failed, anyio.fail_after(30):
        await sign_in(Connection(f"Endpoint=sb://{host}/;SharedAccessKeyName=n;SharedAccessKey={KEY}{transport}"))
    assert str(failed.value).startswith(words)


DROPPED = """
import gc
from sbnotebook.client.portal import run
from sbnotebook.client.targets import resolve

async def use(connection):
    try:
        await connection.host_and_credential()[1].get_token("https://servicebus.azure.net/.default")
    except Exception:
        pass

run(use, resolve("127.0.0.1").connection)
gc.collect()
"""


async def test_a_namespace_that_is_dropped_says_nothing() -> None:
    ran = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, check=True, timeout=60)  # noqa: ASYNC221
    assert ran.stderr == ""
