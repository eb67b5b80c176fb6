"""Connection strings: read them, explain their faults without showing any of them, and hide secrets in texts."""

from __future__ import annotations

import ipaddress
import os
import re
import string
from dataclasses import dataclass, field
from typing import Final, Never, overload
from urllib.parse import parse_qs, urlsplit

from sbnotebook.errors import ConfigurationError

# A secret's name, the separator (as text, JSON, HTML or in a URL), and the secret. All in
# lower case: to ignore case takes the engine three times as long.
_QUOTES: Final = r"(?:\\*[\"']|&quot;|&#x27;|&#39;|%(?:25)*2[27])*"
_SECRET: Final = re.compile(
    r"(?:s(?:hared[-_ ]?access[-_ ]?(?:key|signature)|(?<![a-z]s)ig)|account[-_ ]?key|client[-_ ]?secret|password)"
    rf"{_QUOTES}\s*(?:=|:|%(?:25)*3[ad])\s*{_QUOTES}([^;&\s'\"\\]+)"
)
_BEARER: Final = re.compile(r"bearer\s+([\w.~+/=-]{16,})")
# Skip any text that begins like a web token, so that each part of a text is examined once.
_TOKEN: Final = re.compile(r"[eE](?<!\w[eE])[yY][jJ][\w-]++(\.[\w-]++\.[\w-]*+)?")
_IN_TOKENS: Final = f"{string.ascii_letters}{string.digits}-_.~+/="


class Hidden:
    """A text that no repr, no pickle and no variable of a traceback shows. Only :meth:`reveal` returns it.

    A function that gets a secret hides it in its first line, and hands it on like that.

    Args:
        text: the secret.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text. Keep it in no variable of a function that may raise."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hidden) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "***"

    def __reduce__(self) -> Never:
        raise ConfigurationError(
            "A connection to Service Bus is not pickled, because its key would be in the bytes: "
            "connect anew in each process, for example with env:VARIABLE."
        )


@overload
def hidden(text: str | Hidden) -> Hidden: ...
@overload
def hidden(text: str | Hidden | None) -> Hidden | None: ...
def hidden(text: str | Hidden | None) -> Hidden | None:
    """Return a hidden text. Hidden values and None are returned unchanged. Bytes count as an empty text.

    Args:
        text: that may be a secret.
    """
    if text is None or isinstance(text, Hidden):
        return text
    return Hidden(text if isinstance(text, str) else "")  # pyright: ignore[reportUnnecessaryIsInstance]


def scrub(text: str, most: int | None = None) -> str:
    """Return a text without the secrets of connection strings and tokens.

    Args:
        text: that may hold a secret.
        most: characters to return; None for all.

    Example:
        >>> scrub("Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=abc=")
        'Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=***'
        >>> scrub("It said: Bearer c2VjcmV0c2VjcmV0", most=22)
        'It said: Bearer '
    """
    if most is not None and len(text) > most:
        text = _without_half_a_token(text[:most])
    shown = _hide(_BEARER, _hide(_SECRET, text))
    return _TOKEN.sub(lambda match: "***" if match[1] else match[0], shown)[:most]


def _without_half_a_token(text: str) -> str:
    """Cut a text where its end may be the beginning of a token, too short for the patterns to tell."""
    begun = text.rstrip(_IN_TOKENS)
    if begun.rstrip().lower().endswith("bearer"):
        return begun
    place = text[len(begun) :].lower().find("eyj")
    return text if place < 0 else text[: len(begun) + place]


def _hide(pattern: re.Pattern[str], text: str) -> str:
    """Hide the first group of each match, with which it ends."""
    # The one letter whose lower case is longer, or places would differ.
    lowered = text.replace("\u0130", "i").lower()
    shown, end = list[str](), 0
    for match in pattern.finditer(lowered):
        shown += text[end : match.start(1)], "***"
        end = match.end()
    return "".join([*shown, text[end:]])


EMULATOR_HOSTS: Final = "SBNOTEBOOK_EMULATOR_HOSTS"
"""The environment variable with the hosts of emulators that you trust, beside this machine, separated by commas."""
TRANSPORTS: Final = {"amqp": False, "amqptcp": False, "websocket": True, "amqpwebsockets": True}
"""The values of TransportType in lower case, and whether each is a WebSocket."""
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
        "TransportType",
    )
}
_MAX_PORT: Final = 65_535
_LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "[::1]"))
_EMULATOR_PORT: Final = "5672"
_PORTS: Final = frozenset(("443", "5671", _EMULATOR_PORT))
"""Those of AMQP, with and without TLS, and of WebSockets: in Azure they all lead to the same namespace."""


_NO_HOST: Final = (
    "The namespace is not a host name: write NAMESPACE.servicebus.windows.net, or in a connection string "
    "Endpoint=sb://NAMESPACE.servicebus.windows.net/, followed by a semicolon."
)


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """A connection string: its parts that may be shown, and its text, which is not."""

    host: str
    entity_path: str | None
    key_name: str | None
    amqp_host: str = field(repr=False)
    is_emulator: bool = field(repr=False)
    transport: str | None = field(repr=False)
    text: Hidden = field(repr=False)
    for_sdk: Hidden = field(repr=False)

    @property
    def is_local_emulator(self) -> bool:
        """Return whether it is for an emulator on this machine, whose key is public."""
        return self.is_emulator and is_loopback(self.host)


def read_connection_string(given: str | Hidden) -> ConnectionString:
    """Read a connection string.

    Args:
        given: the connection string.

    Raises:
        ConfigurationError: it is none; its text is not in the sentence.

    Example:
        >>> read_connection_string("Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey=a2V5")
        ConnectionString(host='shop.servicebus.windows.net', entity_path=None, key_name='root')
    """
    given = hidden(given)
    found = _read(given)
    if isinstance(found, str):
        raise ConfigurationError(found)
    return found


def host_of(endpoint: str | Hidden) -> str:
    endpoint = hidden(endpoint)
    host, problem = _host(endpoint.reveal())
    if problem:
        raise ConfigurationError(problem)
    return host


def is_loopback(host: str) -> bool:
    """Return whether a host, with a port or without, is this machine by its very name."""
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def refuse_remote_emulator(host: str) -> None:
    """Check that an emulator is on this machine, or on a host that the environment names.

    An emulator has no encryption: with ``UseDevelopmentEmulator=true`` the key and all messages are readable on the
    way. Microsoft's clients are meant to take it for the local host only (azure-sdk-for-js, issue 28549, "Emulator
    connection string support"); those for Python do not check. Microsoft's documentation has it for other containers,
    too: "Test locally by using the Service Bus emulator".
    """
    name = urlsplit(f"//{host}").hostname or ""
    trusted = {each.strip().lower() for each in os.environ.get(EMULATOR_HOSTS, "").split(",")}
    if not is_loopback(host) and name not in trusted:
        raise ConfigurationError(
            f"The emulator at {host} is on another machine, and everything would go there unencrypted: "
            f"say allow_remote=True, or set {EMULATOR_HOSTS}={name} in the environment, if you trust the network. "
            "The connection string of a namespace in Azure has no UseDevelopmentEmulator=true."
        )


def canonical_host(host: str) -> str:
    """Return the one spelling of a host name: in lower case, without a final dot or a port that means nothing.

    Args:
        host: as a user or the service wrote it.

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


# These return the fault, because a function that raises shows its variables in a traceback.


def _read(given: Hidden) -> ConnectionString | str:
    parts, problem = _parts(given.reveal())
    host, no_host = _host(parts.get("Endpoint", ""))
    key, name, token = (parts.get(n, "") for n in ("SharedAccessKey", "SharedAccessKeyName", "SharedAccessSignature"))
    emulator = parts.get("UseDevelopmentEmulator", "false").lower()
    transport = parts.get("TransportType", "").casefold()
    for is_wrong, otherwise in (
        (problem, problem),
        ("Endpoint" not in parts, "has no Endpoint=sb://…"),
        (no_host, no_host),
        (not (key or token), "has neither a SharedAccessKey nor a SharedAccessSignature"),
        (key and token, "has a SharedAccessKey and a SharedAccessSignature, of which only one can be used"),
        (key and not name, "has a SharedAccessKey without its SharedAccessKeyName"),
        (not ((key + token).isascii() and (key + token).isprintable()), "has a key with characters that no key has"),
        (name != name.encode(errors="ignore").decode(), "has a SharedAccessKeyName that is not text"),
        (emulator not in ("true", "false"), "has a UseDevelopmentEmulator that is neither true nor false"),
        (
            transport not in ("", *TRANSPORTS),
            "has a TransportType other than websocket for port 443, or amqp for port 5671",
        ),
    ):
        if is_wrong:
            said = f"The connection string {otherwise}. It looks like this: {_EXAMPLE}."
            return otherwise if otherwise is no_host else said
    # An emulator without a port is at that of Microsoft's; the SDK would take the port of TLS.
    amqp_host = host if emulator == "false" or ":" in host else f"{host}:{_EMULATOR_PORT}"
    read_by_sdk = {**parts, "Endpoint": f"sb://{amqp_host}", "UseDevelopmentEmulator": emulator}
    # SharedAccessSignature sr=…&sig=…&se=…&skn=NAME
    names = [name, *parse_qs(token.rpartition(" ")[2]).get("skn", ())]
    for_sdk = Hidden(";".join(f"{name}={value}" for name, value in read_by_sdk.items()))
    return ConnectionString(
        host=host,
        amqp_host=amqp_host,
        entity_path=parts.get("EntityPath"),
        key_name=next(filter(None, names), None),
        is_emulator=emulator == "true",
        transport=transport or None,
        text=Hidden(given.reveal().strip()),
        for_sdk=for_sdk,
    )


def _host(endpoint: str) -> tuple[str, str]:
    match = _HOST.fullmatch(endpoint.strip())
    if match is None:  # not shown: a connection string that lost a semicolon has its secret here
        return "", _NO_HOST
    if match[1].startswith("["):
        return (
            "",
            "The namespace is an IPv6 address, which azure-servicebus cannot read: write a name, such as localhost.",
        )
    port = match[1].rpartition(":")[2]
    if ":" in match[1] and port.isdigit() and not 0 < int(port) <= _MAX_PORT:
        return "", f"The namespace's port is a number from 1 to {_MAX_PORT:,}."
    return match[1].lower(), ""  # one name for it in the journal, however it is spelled


def _parts(text: str) -> tuple[dict[str, str], str]:
    """Return the parts by their names, and the fault, if there is one."""
    parts: dict[str, str] = {}
    if not text.strip():
        return parts, "is empty"
    for number, part in enumerate(text.strip().rstrip(";").split(";"), start=1):
        name, equals, value = part.partition("=")
        known = _NAMES.get(name.strip().lower(), "")
        if not equals:
            return parts, f"has no = in part {number}, which should be NAME=VALUE"
        if known in parts:
            return parts, f"has {known} twice"
        if known and not value.strip():
            return parts, f"has nothing behind {known}="
        if known:
            parts[known] = value.strip()
    return parts, ""
