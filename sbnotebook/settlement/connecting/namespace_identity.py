"""The identity of a namespace in local files, the same for every address and spelling."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from azure.servicebus.exceptions import ServiceBusConnectionError

from sbnotebook.settlement.connecting.connection_strings import canonical_host

if TYPE_CHECKING:
    from sbnotebook.settlement.connecting.connection import Connection

__all__ = ["NamespaceIdentity", "identity_of"]

_EMULATOR_PORT: Final = 5672
_WITHIN: Final = 10.0
"""Seconds to wait for an emulator's answer."""
_AMQP: Final = b"AMQP"
_HEADER: Final = _AMQP + b"\x03\x01\x00\x00"
"""The protocol header of a client that authenticates by SASL: AMQP 1.0 section 5.3.1."""
_MAX_ANSWER: Final = 10_000
_MAX_ID: Final = 100


@dataclass(frozen=True, slots=True)
class NamespaceIdentity:
    """The identity of a namespace in local files.

    Args:
        name: the host name of a namespace in Azure; for sbnotebook's emulator, ``emulator:`` and its own identity; for
            another emulator, ``address:`` and its address, which no pattern of an earlier address matches.
        earlier: the addresses under which versions without identities wrote about it, as patterns of SQLite's GLOB.
    """

    name: str
    earlier: tuple[str, ...] = ()


def identity_of(connection: Connection) -> NamespaceIdentity:
    """Return the identity of a namespace. sbnotebook's emulator is asked for it: call this in a thread.

    A namespace in Azure is known by its host name. The emulator gets another port each time it starts on demand, so it
    keeps an identity with its messages. Microsoft's emulator has none, and is known by its address.

    Args:
        connection: not changed, and not opened.

    Raises:
        ServiceBusConnectionError: the emulator does not answer.
    """
    address = canonical_host(connection.host)
    if not connection.is_emulator:
        return NamespaceIdentity(address)
    answer = _ask(connection.host)
    name, here = answer.get("id"), address.replace("[", "[[]")
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_ID or not name.isalnum():
        return NamespaceIdentity(f"address:{address}", (here,))
    anywhere = ("localhost", "localhost:*") if address.partition(":")[0] == "localhost" else (here,)
    earlier = {"here": (here,), "any": anywhere}.get(str(answer.get("earlier")), ())
    return NamespaceIdentity(f"emulator:{name}", earlier)


def _ask(host: str) -> dict[str, Any]:
    """Return what an emulator says about itself; nothing where it is not sbnotebook's."""
    try:
        with closing(http.client.HTTPConnection(_with_port(host), timeout=_WITHIN)) as http_connection:
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
        with closing(http.client.HTTPConnection(_with_port(host), timeout=_WITHIN)) as line:
            line.connect()
            line.sock.sendall(_HEADER)
            return line.sock.recv(len(_AMQP)) == _AMQP
    except OSError:
        return False


def _with_port(host: str) -> str:
    _, _, last = host.rpartition("]")
    return host if ":" in last else f"{host}:{_EMULATOR_PORT}"
