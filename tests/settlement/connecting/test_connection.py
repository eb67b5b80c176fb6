from __future__ import annotations

import base64
import subprocess
import sys
import threading
import time
from typing import Any

import anyio
import pytest

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress
from sbnotebook.settlement import Connection

KEY = base64.b64encode(bytes(range(90, 122))).decode()
TEXT = f"Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey={KEY}"
TOKEN = "SharedAccessSignature sr=sb%3A%2F%2Fshop&sig=SECRET&se=1700000000&skn=root"


@pytest.mark.parametrize(
    ("text", "host"),
    [
        (TEXT, "shop.servicebus.windows.net"),
        (TEXT + ";EntityPath=orders", "shop.servicebus.windows.net"),
        (TEXT.replace("Endpoint", "endpoint").replace("Key=", "key="), "shop.servicebus.windows.net"),
        (
            "Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true",
            "127.0.0.1:5672",
        ),
        (f"Endpoint=sb://localhost/;SharedAccessSignature={TOKEN}", "localhost"),
        # The journal knows the namespace by it, so that a clone that was sent is found again.
        (TEXT.replace("shop", "Shop"), "shop.servicebus.windows.net"),
    ],
    ids=range(6),
)
def test_the_host_is_read_from_a_connection_string(text: str, host: str) -> None:
    connection = Connection(text)
    assert connection.host == host
    assert connection.connection_string == text
    assert connection.is_emulator is ("Emulator" in text)


class Credential:
    """What an azure.identity credential offers, asynchronous."""

    async def get_token(self, *_: str, **__: Any) -> Any:
        raise AssertionError("nothing is asked of it here")

    def __repr__(self) -> str:
        return f"Credential({KEY})"


class SyncCredential:
    def __init__(self) -> None:
        self.scopes: tuple[str, ...] = ()

    def get_token(self, *scopes: str, **_: Any) -> str:
        self.scopes = scopes
        return "token"


def test_a_host_needs_a_credential() -> None:
    with pytest.raises(ConfigurationError, match=r"To reach shop\.servicebus\.windows\.net .* a credential is needed"):
        Connection(host="shop.servicebus.windows.net")


@pytest.mark.parametrize("options", [{}, {"connection_string": TEXT, "host": "shop"}], ids=["nothing", "both"])
def test_one_way_is_given(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="Give a connection string, or"):
        Connection(**options)


def test_connection_string_as_host_is_refused_and_not_shown() -> None:
    for options in ({"host": TEXT}, {"host": TEXT, "credential": Credential()}):
        with pytest.raises(ConfigurationError, match="not a host name") as refused:
            Connection(**options)  # pyright: ignore[reportArgumentType]
        assert KEY not in str(refused.value)


def test_an_asynchronous_credential_is_used_as_it_is() -> None:
    credential = Credential()
    connection = Connection.with_credential("shop.servicebus.windows.net", credential)
    assert connection.host_and_credential() == ("shop.servicebus.windows.net", credential)
    assert (connection.connection_string, connection.is_emulator) == (None, False)


@pytest.mark.parametrize("failure", [OSError("no network"), SystemExit("signed out")], ids=repr)
def test_what_a_synchronous_credential_raises_reaches_its_caller(failure: BaseException) -> None:
    def get_token(*_: str, **__: Any) -> str:
        raise failure

    credential = SyncCredential()
    credential.get_token = get_token  # type: ignore[method-assign]
    asked = Connection.with_credential("shop.servicebus.windows.net", credential).host_and_credential()[1]

    async def ask() -> BaseException | None:
        with anyio.fail_after(30):
            try:
                await asked.get_token("scope")
            except (OSError, SystemExit) as error:
                return error
        return None

    assert anyio.run(ask) is failure


def test_a_sign_in_that_takes_long_is_asked_for_once() -> None:
    codes, is_signed_in = list[str](), threading.Event()

    def get_token(*_: str, **__: Any) -> str:
        codes.append("Enter the code ABC")  # a device code: each request shows another
        assert is_signed_in.wait(10)
        return "token"

    credential = SyncCredential()
    credential.get_token = get_token  # type: ignore[method-assign]
    asked = Connection.with_credential("shop.servicebus.windows.net", credential).host_and_credential()[1]

    async def ask() -> Any:
        with anyio.move_on_after(0.1):
            await asked.get_token("scope")
        async with anyio.create_task_group() as links:
            for _ in range(3):
                links.start_soon(asked.get_token, "scope")
            await anyio.sleep(0.1)
            is_signed_in.set()
        return list(codes)

    assert anyio.run(ask) == ["Enter the code ABC"]


def test_a_synchronous_credential_that_hangs_is_not_waited_for() -> None:
    credential, ends, keep_running = SyncCredential(), threading.Event(), list[bool]()

    def get_token(*_: str, **__: Any) -> str:
        keep_running.append(not threading.current_thread().daemon)
        return str(ends.wait(60))

    credential.get_token = get_token  # type: ignore[method-assign]
    connection = Connection.with_credential("shop.servicebus.windows.net", credential)

    async def ask() -> None:
        with anyio.move_on_after(0.1):
            await connection.host_and_credential()[1].get_token("scope")

    began = time.monotonic()
    try:
        anyio.run(ask)
        assert time.monotonic() - began < 30
        assert keep_running == [False], "the kernel ends without it"
    finally:
        ends.set()


class Closable(SyncCredential):
    """Counts how often it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_default_credential_is_closed_and_created_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Closable] = []

    def make() -> Closable:
        made.append(Closable())
        return made[-1]

    monkeypatch.setattr("azure.identity.DefaultAzureCredential", make)
    connection = Connection.with_credential("shop.servicebus.windows.net", write=True)
    connection.sender(EntityAddress("orders"))
    anyio.run(connection.close)
    anyio.run(connection.close)
    assert [each.closed for each in made] == [1]
    assert connection.host_and_credential()[1] is not None
    assert len(made) == 2
    anyio.run(connection.close)
    assert [each.closed for each in made] == [1, 1]


def test_the_sdk_prints_nothing_below_a_script() -> None:
    script = (
        "import logging; from sbnotebook.settlement import Connection\n"
        "Connection('Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey=k;UseDevelopmentEmulator=true')\n"
        "for name in ('azure.servicebus', 'azure.identity'): logging.getLogger(name).error('printed')\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stderr == ""


def test_the_callers_credential_is_left_open() -> None:
    credential = Closable()
    connection = Connection.with_credential("shop.servicebus.windows.net", credential, write=True)
    connection.sender(EntityAddress("orders"))
    anyio.run(connection.close)
    assert credential.closed == 0
