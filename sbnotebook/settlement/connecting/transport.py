"""The transport to the service: AMQP over TCP, or over a WebSocket on the port of HTTPS.

Networks of companies often let only HTTPS out. Source: azure-servicebus, ``TransportType``; the name and the
values in a connection string are those of Microsoft's client for .NET.
"""

from __future__ import annotations

import os
import re
import ssl
from functools import cache
from typing import Final

from sbnotebook.errors import ConfigurationError
from sbnotebook.settlement.sdk.protocol import certificates

__all__ = ["VARIABLE", "is_over_websocket", "tls_context"]

VARIABLE: Final = "SBNOTEBOOK_TRANSPORT"
"""The environment variable for all connections of a process, except those to an emulator."""
_IN_CONNECTION_STRING: Final = re.compile(r"(?i)(?:^|;)\s*+TransportType\s*+=([^;]*+)")
_KINDS: Final = {"amqp": False, "amqptcp": False, "websocket": True, "amqpwebsockets": True}


def is_over_websocket(connection_string: str | None, *, is_emulator: bool = False) -> bool:
    """Return whether to use a WebSocket on port 443 instead of AMQP on port 5671.

    Args:
        connection_string: its TransportType goes before the environment; None for no connection string.
        is_emulator: whether to ignore the environment.

    Raises:
        ConfigurationError: the transport has an unknown name.

    Example:
        >>> is_over_websocket("Endpoint=sb://shop.servicebus.windows.net/;TransportType=AmqpWebSockets")
        True
    """
    said = _IN_CONNECTION_STRING.search(connection_string or "")
    kind = said[1].strip() if said else "" if is_emulator else os.environ.get(VARIABLE, "")
    if not kind:
        return False
    if kind.casefold() not in _KINDS:
        where = "The connection string's TransportType" if said else VARIABLE
        raise ConfigurationError(f"{where} is websocket for port 443, or amqp for port 5671.")
    return _KINDS[kind.casefold()]


@cache
def tls_context() -> ssl.SSLContext:
    """Return what all connections of this process check the service's certificate with.

    The SDK reads the certificates that it trusts for each connection, one to an emulator without TLS included, which
    takes 20 to 30 ms in the event loop. This reads the same file once. Source: azure-servicebus, ``_build_ssl_opts``.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks the certificate and the host name
    context.load_verify_locations(certificates())
    return context
