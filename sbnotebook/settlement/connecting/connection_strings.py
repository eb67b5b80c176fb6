"""Connection strings: read them, and explain what is wrong with one without showing any of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs

from sbnotebook.errors import ConfigurationError

__all__ = ["ConnectionString", "canonical_host", "host_of", "read"]

_HOST: Final = re.compile(r"(?:\w+://)?([\w.-]+(?::\d+)?|\[[\da-f:]+\](?::\d+)?)[\s/]*", re.IGNORECASE)
_EXAMPLE: Final = (
    "Endpoint=sb://NAMESPACE.servicebus.windows.net/;SharedAccessKeyName=NAME;SharedAccessKey=KEY, as it is copied "
    'from "Shared access policies" in the portal'
)
_NAMES: Final = {
    name.lower(): name
    for name in (
        "Endpoint",
        "SharedAccessKeyName",
        "SharedAccessKey",
        "SharedAccessSignature",
        "EntityPath",
        "UseDevelopmentEmulator",
    )
}
_MAX_PORT: Final = 65_535
_LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "[::1]"))
_EMULATOR_PORT: Final = "5672"
_PORTS: Final = frozenset(("443", "5671", _EMULATOR_PORT))
"""Those of AMQP, with and without TLS, and of WebSockets: in Azure they all lead to the same namespace."""


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """The parts of a connection string that may be shown.

    Args:
        host: the namespace's host name, with the port where there is one.
        entity_path: the only entity that it is for, None for all.
        key_name: the name of the key, or of the key behind a signature, None if it has none.
    """

    host: str
    entity_path: str | None
    key_name: str | None


def read(text: str) -> ConnectionString:
    """Read a connection string.

    Raises:
        ConfigurationError: a part is wrong. The text says which, and shows nothing of it.

    Example:
        >>> read("Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey=a2V5")
        ConnectionString(host='shop.servicebus.windows.net', entity_path=None, key_name='root')
    """
    parts = _parts(text)
    _expect("Endpoint" in parts, "has no Endpoint=sb://…")
    host = host_of(parts["Endpoint"])
    key, name, token = (parts.get(n) for n in ("SharedAccessKey", "SharedAccessKeyName", "SharedAccessSignature"))
    _expect(key or token, "has neither a SharedAccessKey nor a SharedAccessSignature")
    _expect(not (key and token), "has a SharedAccessKey and a SharedAccessSignature, of which only one can be used")
    _expect(not key or name, "has a SharedAccessKey without its SharedAccessKeyName")
    return ConnectionString(host, parts.get("EntityPath"), name or _key_behind(token or ""))


def host_of(endpoint: str) -> str:
    """Return the host name of an endpoint or a host name.

    Raises:
        ConfigurationError: it is none.
    """
    match = _HOST.fullmatch(endpoint.strip())
    if match is None:  # not shown: a connection string that lost a semicolon has its secret here
        raise ConfigurationError(
            "The namespace is no host name: it is written NAMESPACE.servicebus.windows.net, "
            "in a connection string Endpoint=sb://NAMESPACE.servicebus.windows.net/, with a semicolon behind it."
        )
    port = match[1].rpartition(":")[2]
    if ":" in match[1] and port.isdigit() and not 0 < int(port) <= _MAX_PORT:
        raise ConfigurationError(f"The namespace's port is a number from 1 to {_MAX_PORT:,}.")
    return match[1].lower()  # one name for it in the journal, however it is spelled


def canonical_host(host: str) -> str:
    """Return the one spelling of a host name: in lower case, without a final dot or a port that means nothing.

    Args:
        host: a host name, with a port or without.

    Example:
        >>> canonical_host("Shop.servicebus.windows.net.:5671"), canonical_host("127.0.0.1:5672")
        ('shop.servicebus.windows.net', 'localhost')
    """
    name, port = host.strip().lower(), ""
    if ":" in name.rpartition("]")[2]:
        name, _, port = name.rpartition(":")
    name = name.rstrip(".")
    if name in _LOOPBACK:
        return f"localhost:{port}" if port not in ("", _EMULATOR_PORT) else "localhost"
    return f"{name}:{port}" if port not in ("", *_PORTS) else name


def _key_behind(token: str) -> str | None:
    # SharedAccessSignature sr=…&sig=…&se=…&skn=NAME
    fields = parse_qs(token.rpartition(" ")[2])
    return fields.get("skn", [None])[0]


def _parts(text: str) -> dict[str, str]:
    _expect(text.strip(), "is empty")
    parts: dict[str, str] = {}
    for number, part in enumerate(text.strip().rstrip(";").split(";"), start=1):
        name, equals, value = part.partition("=")
        _expect(equals, f"has no = in part {number}, which should be NAME=VALUE")
        known = _NAMES.get(name.strip().lower())
        if known is None:
            continue
        _expect(known not in parts, f"has {known} twice")
        _expect(value.strip(), f"has nothing behind {known}=")
        parts[known] = value.strip()
    return parts


def _expect(condition: object, otherwise: str) -> None:
    if not condition:
        raise ConfigurationError(f"The connection string {otherwise}. It looks like this: {_EXAMPLE}.")
