from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest
import trustme

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Complete
from sbnotebook.model.connection_strings import read_connection_string
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.connecting.connection import TRANSPORT_VARIABLE, is_over_websocket, tls_context
from sbnotebook.settlement.sdk.private import TcpTransport, certificates
from tests.filled_queues import filled_queue, settle_first

AZURE = "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey=a2V5"


def test_the_connection_string_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_connection_string(AZURE).transport is None
    assert not is_over_websocket()
    for name, is_websocket in (("Amqp", False), ("AmqpTcp", False), ("WebSocket", True), ("AmqpWebSockets", True)):
        assert is_over_websocket(read_connection_string(f"{AZURE};TransportType={name}").transport) is is_websocket
    monkeypatch.setenv(TRANSPORT_VARIABLE, "websocket")
    assert is_over_websocket()
    assert not is_over_websocket(read_connection_string(f"{AZURE};transporttype = amqp ;").transport)
    assert not is_over_websocket(is_emulator=True)
    monkeypatch.setenv(TRANSPORT_VARIABLE, "pigeon")
    with pytest.raises(ConfigurationError, match="SBNOTEBOOK_TRANSPORT is websocket for port 443, or amqp"):
        is_over_websocket()


def test_what_the_sdk_trusts_is_trusted() -> None:
    theirs = TcpTransport._build_ssl_opts(None, {"ca_certs": certificates()})  # noqa: SLF001
    ours = tls_context()
    assert ours.get_ca_certs(binary_form=True) == theirs.get_ca_certs(binary_form=True)
    assert (ours.verify_mode, ours.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (ours.verify_mode, ours.verify_flags, ours.options) == (
        theirs.verify_mode,
        theirs.verify_flags,
        theirs.options,
    )


@pytest.mark.anyio
async def test_a_service_without_a_trusted_certificate_is_refused() -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority: Any = trustme.CA()
    authority.issue_cert("localhost").configure_cert(server)

    def never(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        raise AssertionError("It was trusted.")

    async with await asyncio.start_server(never, "127.0.0.1", ssl=server) as listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", port, ssl=tls_context(), server_hostname="localhost")
        listening.close()


@pytest.mark.anyio
async def test_certificates_are_read_once_for_all_connections(
    own: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls_context()

    def read_connection_string(*_: object, **__: object) -> None:
        raise AssertionError("The certificates are read again, which takes 20 to 30 ms.")

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", read_connection_string)
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", read_connection_string)
    queue = await filled_queue(own, "orders", 3)
    await settle_first(queue, Complete(), 3)
    assert await queue.peek() == []
