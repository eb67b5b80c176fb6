"""The transport to the service: AMQP over TCP, or over a WebSocket on the port of HTTPS.

Networks of companies often let only HTTPS out. Source: azure-servicebus, ``TransportType``; the name and the
values in a connection string are those of Microsoft's client for .NET.
"""

from __future__ import annotations

import os
import ssl
from functools import cache
from typing import Final

from sbnotebook.errors import ConfigurationError
from sbnotebook.settlement.connecting.connection_strings import TRANSPORTS
from sbnotebook.settlement.sdk.protocol import certificates

__all__ = ["VARIABLE", "is_over_websocket", "tls_context"]

VARIABLE: Final = "SBNOTEBOOK_TRANSPORT"
"""The environment variable for all connections of a process, except those to an emulator."""


def is_over_websocket(said: str | None = None, *, is_emulator: bool = False) -> bool:
    """Return whether to use a WebSocket on port 443 instead of AMQP on port 5671.

    Args:
        said: the TransportType of the connection string, one of `TRANSPORTS`, which goes before the
            environment; None where it has none.
        is_emulator: whether to ignore the environment.

    Raises:
        ConfigurationError: the transport of the environment has an unknown name.

    Example:
        >>> is_over_websocket("amqpwebsockets")
        True
    """
    kind = said or ("" if is_emulator else os.environ.get(VARIABLE, "").casefold())
    if not kind:
        return False
    if kind not in TRANSPORTS:
        raise ConfigurationError(f"{VARIABLE} is websocket for port 443, or amqp for port 5671.")
    return TRANSPORTS[kind]


@cache
def tls_context() -> ssl.SSLContext:
    """Return what all connections of this process check the service's certificate with.

    The SDK reads the certificates that it trusts for each connection, one to an emulator without TLS included, which
    takes 20 to 30 ms in the event loop. This reads the same file once. Source: azure-servicebus, ``_build_ssl_opts``.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks the certificate and the host name
    context.load_verify_locations(certificates())
    return context
