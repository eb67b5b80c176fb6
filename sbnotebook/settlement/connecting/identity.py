"""The identities of a connection: its key or account, and its namespace, which local files know by one name."""

from __future__ import annotations

import base64
import http.client
import json
import socket
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, cast

from azure.servicebus.exceptions import ServiceBusConnectionError

from sbnotebook.model.connection_strings import ConnectionString, canonical_host

if TYPE_CHECKING:
    from sbnotebook.settlement.connecting.connection import Connection

_PEOPLE: Final = ("upn", "preferred_username", "unique_name", "email")
_APPS: Final = ("app_displayname", "appid", "azp", "oid")
_MAX_NAME: Final = 100
_ANSWERS_WITHIN: Final = 10.0
"""Seconds to wait for an emulator's answer."""
_AMQP: Final = b"AMQP"
_HEADER: Final = _AMQP + b"\x03\x01\x00\x00"
"""The protocol header of a client that authenticates by SASL: AMQP 1.0 section 5.3.1."""
_MAX_ANSWER: Final = 10_000
_MAX_ID: Final = 100


def key_of(parsed: ConnectionString) -> str:
    """Return in words with what a connection string signs in."""
    return f"the key {_shown(parsed.key_name)}" if parsed.key_name else "a shared access signature"


def account_of(token: str) -> str:
    """Return the account that a token names. Only the service verifies it."""
    claims = _claims(token)
    for name in (*_PEOPLE, *_APPS):
        value = claims.get(name)
        if isinstance(value, str) and value:
            return _shown(value) if name in _PEOPLE else f"the application {_shown(value)}"
    return "an account that its token does not name"


def _claims(token: str) -> dict[str, Any]:
    _, _, rest = token.partition(".")
    payload = rest.partition(".")[0]
    try:
        found: Any = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _shown(name: str) -> str:
    return name[:_MAX_NAME] if name.isprintable() else repr(name[:_MAX_NAME])


def identity_of(connection: Connection) -> str:
    """Return the name of a namespace in local files. sbnotebook's emulator is asked for it: call this in a thread.

    A namespace in Azure is known by its host name. The emulator gets another port each time it starts on demand, so it
    keeps an identity with its messages: ``emulator:`` and that. Microsoft's emulator has none, and is known by
    ``address:`` and its address.
    """
    address, parsed = canonical_host(connection.host), connection.parsed
    if parsed is None or not parsed.is_emulator:
        return address
    name = _ask(parsed.amqp_host).get("id")
    is_name = isinstance(name, str) and 0 < len(name) <= _MAX_ID and name.isalnum()
    return f"emulator:{name}" if is_name else f"address:{address}"


def _ask(host: str) -> dict[str, Any]:
    """Return what an emulator says about itself; nothing where it is not sbnotebook's."""
    try:
        with closing(http.client.HTTPConnection(host, timeout=_ANSWERS_WITHIN)) as http_connection:
            http_connection.request("GET", "/$identity")
            # After its header, a server that speaks AMQP only may keep silent, and the connection open.
            if http_connection.sock.recv(len(_AMQP), socket.MSG_PEEK) == _AMQP:
                return {}
            answer: Any = json.loads(http_connection.getresponse().read(_MAX_ANSWER))
    except (http.client.HTTPException, ConnectionResetError, ValueError):
        return {}  # it speaks AMQP only, or does not know the question
    except OSError as error:
        if isinstance(error, TimeoutError) and _speaks_amqp(host):
            return {}
        raise ServiceBusConnectionError(
            message=f"The emulator at {host} does not answer: {error}.", error=error
        ) from error
    return cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}


def _speaks_amqp(host: str) -> bool:
    """Tell whether an emulator answers AMQP, so that its silence means that it does not speak HTTP."""
    try:
        with closing(http.client.HTTPConnection(host, timeout=_ANSWERS_WITHIN)) as line:
            line.connect()
            line.sock.sendall(_HEADER)
            return line.sock.recv(len(_AMQP)) == _AMQP
    except OSError:
        return False
