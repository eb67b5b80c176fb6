"""The SDK's administration clients, able to reach an emulator.

The SDK's administration client speaks HTTPS only, and an emulator has no certificate, so these speak plain HTTP to an
emulator. Others can read what goes over the network then, so the emulator must be on this machine unless the caller
allows another one.
"""

from __future__ import annotations

import ipaddress
from typing import Any
from urllib.parse import urlsplit

from azure.core.pipeline.transport import AioHttpTransport, RequestsTransport
from azure.servicebus import ServiceBusClient
from azure.servicebus.aio import management as aio_management
from azure.servicebus.management import ServiceBusAdministrationClient

from sbnotebook.errors import ConfigurationError
from sbnotebook.settlement.connecting.connection import Connection

__all__ = [
    "AsyncServiceBusAdministrationClient",
    "ServiceBusAdministrationClient",
    "ServiceBusClient",
    "administration_client",
    "async_administration_client",
]

AsyncServiceBusAdministrationClient = aio_management.ServiceBusAdministrationClient


def administration_client(connection_string: str, *, allow_remote: bool = False) -> ServiceBusAdministrationClient:
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
    host = _plain_http_host(connection_string, allow_remote=allow_remote)
    options: dict[str, Any] = {} if host is None else {"transport": _PlainHttpTransport(host)}
    return ServiceBusAdministrationClient.from_connection_string(connection_string, **options)


def async_administration_client(
    connection_string: str, *, allow_remote: bool = False
) -> AsyncServiceBusAdministrationClient:
    """Return the same as :func:`administration_client` with ``await``.

    Args:
        connection_string: of an emulator, or of a namespace in Azure, which is reached over HTTPS.
        allow_remote: whether the emulator may be on another machine. Requests go there unencrypted.

    Raises:
        ConfigurationError: the emulator is on another machine, or the connection string cannot be read.
    """
    host = _plain_http_host(connection_string, allow_remote=allow_remote)
    options: dict[str, Any] = {} if host is None else {"transport": _AsyncPlainHttpTransport(host)}
    return AsyncServiceBusAdministrationClient.from_connection_string(connection_string, **options)


class _PlainHttpTransport(RequestsTransport):
    def __init__(self, host: str) -> None:
        parent: Any = super()
        # No proxy of the environment: it would see the token, and could not reach this machine.
        parent.__init__(use_env_settings=False)
        self._host = host

    def send(self, request: Any, **options: Any) -> Any:
        request.url = _plain(request.url, self._host)
        parent: Any = super()
        return parent.send(request, **options)


class _AsyncPlainHttpTransport(AioHttpTransport):
    def __init__(self, host: str) -> None:
        parent: Any = super()
        parent.__init__(use_env_settings=False)
        self._host = host

    async def send(self, request: Any, **config: Any) -> Any:
        request.url = _plain(request.url, self._host)
        parent: Any = super()
        return await parent.send(request, **config)


def _plain_http_host(connection_string: str, *, allow_remote: bool) -> str | None:
    connection = Connection(connection_string)
    if not connection.is_emulator or connection.host is None:
        return None
    if not (allow_remote or _is_this_machine(urlsplit(f"//{connection.host}").hostname or "")):
        raise ConfigurationError(
            f"The emulator at {connection.host} is on another machine, and requests would go there unencrypted: "
            "say allow_remote=True if you trust the network."
        )
    return connection.host


def _is_this_machine(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _plain(url: str, host: str) -> str:
    parts = urlsplit(url)
    # A redirect to elsewhere stays encrypted.
    return parts._replace(scheme="http").geturl() if parts.netloc.casefold() == host.casefold() else url
