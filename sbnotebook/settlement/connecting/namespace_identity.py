"""The identity of a namespace: what local files know it by, whatever address and spelling it is reached by."""

from __future__ import annotations

import http.client
import json
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
_MAX_ANSWER: Final = 10_000
_MAX_ID: Final = 100


@dataclass(frozen=True, slots=True)
class NamespaceIdentity:
    """What local files know a namespace by.

    Args:
        name: the host name of a namespace in Azure; for an emulator, ``emulator:`` and its own identity.
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
    address = canonical_host(connection.host or "")
    if not connection.is_emulator:
        return NamespaceIdentity(address)
    answer = _ask(connection.host or "")
    name = answer.get("id")
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_ID or not name.isalnum():
        return NamespaceIdentity(address)
    here = address.replace("[", "[[]")
    anywhere = ("localhost", "localhost:*") if address.partition(":")[0] == "localhost" else (here,)
    earlier = {"here": (here,), "any": anywhere}.get(str(answer.get("earlier")), ())
    return NamespaceIdentity(f"emulator:{name}", earlier)


def _ask(host: str) -> dict[str, Any]:
    """Return what an emulator says about itself; nothing where it is not sbnotebook's."""
    try:
        with closing(http.client.HTTPConnection(_with_port(host), timeout=_WITHIN)) as http_connection:
            http_connection.request("GET", "/$identity")
            answer: Any = json.loads(http_connection.getresponse().read(_MAX_ANSWER))
    except (http.client.HTTPException, ConnectionResetError, ValueError):
        return {}  # it speaks AMQP only, or does not know the question
    except OSError as error:
        raise ServiceBusConnectionError(
            message=f"The emulator at {host} does not answer: {error}.", error=error
        ) from error
    return cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}


def _with_port(host: str) -> str:
    _, _, last = host.rpartition("]")
    return host if ":" in last else f"{host}:{_EMULATOR_PORT}"
