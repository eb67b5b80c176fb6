"""The SDK's administration clients, able to reach an emulator.

The SDK's administration client speaks HTTPS only, and an emulator has no certificate, so these speak plain HTTP to an
emulator. Then others can read the network traffic, so the emulator must be on this machine unless the caller allows
another one.
"""

# The SDK's classes are untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import http.client
import socket
from contextlib import closing
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from azure.core.pipeline.transport import RequestsTransport
from azure.servicebus.management import ServiceBusAdministrationClient

from sbnotebook.model.connection_strings import (
    ConnectionString,
    Hidden,
    hidden,
    read_connection_string,
    refuse_remote_emulator,
)

if TYPE_CHECKING:
    from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncServiceBusAdministrationClient

_ADMINISTRATION_PORT: Final = 5300
_ANSWERS_WITHIN: Final = 5.0
"""Seconds to wait for an emulator's answer."""
_HTTP_GREETING: Final = b"GET /$identity HTTP/1.1\r\nHost: localhost\r\n\r\n"


def administration_client(
    connection_string: str | Hidden, *, allow_remote: bool = False
) -> ServiceBusAdministrationClient:
    """Return the SDK's administration client for an emulator or for a namespace in Azure.

    Args:
        connection_string: of an emulator, or of a namespace in Azure, which is reached over HTTPS.
        allow_remote: whether the emulator may be on another machine. Requests go there unencrypted.

    Raises:
        ConfigurationError: the emulator is on another machine, or the connection string cannot be read.

    Example:
        >>> from sbnotebook.emulator import running
        >>> with running(queues=["orders"]) as emulator, administration_client(emulator.connection_string) as client:
        ...     [queue.name for queue in client.list_queues()]
        ['orders']
    """
    connection_string = hidden(connection_string)
    parsed = _parsed(connection_string, allow_remote=allow_remote)
    options: dict[str, Any] = {"transport": _PlainHttpTransport(parsed.amqp_host)} if parsed.is_emulator else {}
    return ServiceBusAdministrationClient.from_connection_string(parsed.for_sdk.reveal(), **options)


def async_administration_client(
    connection_string: str | Hidden, *, allow_remote: bool = False, **given: Any
) -> AsyncServiceBusAdministrationClient:
    """Return the same as :func:`administration_client` with ``await``.

    Args:
        connection_string: of an emulator, or of a namespace in Azure, which is reached over HTTPS.
        allow_remote: whether the emulator may be on another machine. Requests go there unencrypted.
        given: options of the SDK's client, such as ``retry_connect``.

    Raises:
        ConfigurationError: the emulator is on another machine, or the connection string cannot be read.
    """
    connection_string = hidden(connection_string)
    parsed = _parsed(connection_string, allow_remote=allow_remote)
    options = {"transport": _async_plain_http_transport()(parsed.amqp_host)} | given if parsed.is_emulator else given
    return async_client_class().from_connection_string(parsed.for_sdk.reveal(), **options)


def async_client_class() -> type[AsyncServiceBusAdministrationClient]:
    """Import the SDK's asynchronous client, with its aiohttp, when it is first used.

    That takes a quarter of the time to import sbnotebook.settlement, and a task of Spark that moves messages does
    without.
    """
    from azure.servicebus.aio.management import ServiceBusAdministrationClient as Imported

    return Imported


class _PlainHttpTransport(RequestsTransport):
    def __init__(self, host: str) -> None:
        # No proxy of the environment: it would see the token, and could not reach this machine.
        super().__init__(use_env_settings=False)
        self._host, self._there = host, ""

    def send(self, request: Any, **options: Any) -> Any:
        self._there = self._there or administration_host(self._host)
        request.url = _plain(request.url, self._host, self._there)
        return super().send(request, **options)


@cache
def _async_plain_http_transport() -> type[Any]:
    from azure.core.pipeline.transport import AioHttpTransport

    class AsyncPlainHttpTransport(AioHttpTransport):
        def __init__(self, host: str) -> None:
            super().__init__(use_env_settings=False)
            self._host, self._there = host, ""

        async def send(self, request: Any, **config: Any) -> Any:
            self._there = self._there or await asyncio.to_thread(administration_host, self._host)
            request.url = _plain(request.url, self._host, self._there)
            return await super().send(request, **config)

    return AsyncPlainHttpTransport


def _parsed(connection_string: Hidden, *, allow_remote: bool) -> ConnectionString:
    parsed = read_connection_string(connection_string)
    if parsed.is_emulator and not allow_remote:
        refuse_remote_emulator(parsed.host)
    return parsed


def administration_host(host: str) -> str:
    """Return the host and port of an emulator's administration.

    sbnotebook's emulator answers AMQP and HTTP at one port, Microsoft's at 5672 and 5300. Source: Service Bus
    documentation, "Test locally by using the Service Bus emulator", "Interact with the emulator".
    """
    places = (host, f"{host.rpartition(':')[0] or host}:{_ADMINISTRATION_PORT}")
    return next((place for place in places if answers(place, _HTTP_GREETING, b"HTTP")), host)


def answers(host: str, greeting: bytes, begin: bytes) -> bool:
    """Tell whether what listens at a host answers a greeting, and how its answer begins."""
    try:
        with closing(http.client.HTTPConnection(host, timeout=_ANSWERS_WITHIN)) as line:
            line.connect()
            line.sock.sendall(greeting)
            return line.sock.recv(len(begin), socket.MSG_WAITALL) == begin
    except (OSError, http.client.HTTPException):
        return False


def _plain(url: str, host: str, there: str) -> str:
    parts = urlsplit(url)
    # A redirect to elsewhere stays encrypted.
    is_host = parts.netloc.casefold() == host.casefold()
    return parts._replace(scheme="http", netloc=there).geturl() if is_host else url
