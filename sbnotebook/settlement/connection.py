"""A connection to one namespace: how it is reached, and the SDK's senders and receivers on it."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
import anyio.to_thread
from azure.servicebus import ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, SubQueue
from sbnotebook.settlement import sdk_internals, sdk_locks

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential

__all__ = ["Connection", "scrub"]

# A secret's name, what may stand between it and the secret (as text, JSON, HTML or in a URL), and the secret.
_QUOTES: Final = r"(?:\\*[\"']|&quot;|&#x27;|&#39;|%(?:25)*2[27])*"
_SECRET: Final = re.compile(
    r"((?:shared[-_ ]?access[-_ ]?(?:key|signature)|account[-_ ]?key|client[-_ ]?secret|password|(?<![a-z])sig)"
    rf"{_QUOTES}\s*(?:=|:|%(?:25)*3[ad])\s*{_QUOTES})[^;&\s'\"\\]+",
    re.IGNORECASE,
)
_TOKEN: Final = re.compile(r"(bearer\s+)[\w.~+/=-]{16,}|\beyJ[\w-]+\.[\w-]+\.[\w-]*", re.IGNORECASE)
_HOST: Final = re.compile(r"(?:\w+://)?([\w.-]+(?::\d+)?|\[[\da-f:]+\](?::\d+)?)[\s/]*", re.IGNORECASE)
_SUB_QUEUES: Final = {
    SubQueue.DEAD_LETTER: ServiceBusSubQueue.DEAD_LETTER,
    SubQueue.TRANSFER_DEAD_LETTER: ServiceBusSubQueue.TRANSFER_DEAD_LETTER,
}


def scrub(text: str) -> str:
    """A text without the secrets of connection strings and tokens.

    Example:
        >>> scrub("Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=abc=")
        'Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=***'
    """
    return _TOKEN.sub(lambda match: f"{match[1] or ''}***", _SECRET.sub(r"\1***", text))


@dataclass(slots=True)
class Connection:
    """How one namespace is reached: by a connection string, or by its host name and a credential.

    Nothing is opened by making one. Each sender and each receiver opens a socket of its own, which takes the SDK
    about half a second: keep them.

    Args:
        connection_string: with a shared access key, or the emulator's.
        host: the fully qualified namespace, ``NAME.servicebus.windows.net``.
        credential: an asynchronous token credential, to go with ``host``.

    Raises:
        ConfigurationError: neither or both ways are given, or the connection string or the host cannot be read.
    """

    connection_string: str | None = field(default=None, repr=False)
    host: str | None = None
    credential: AsyncTokenCredential | None = field(default=None, repr=False)
    _clients: dict[int, ServiceBusClient] = field(default_factory=dict[int, ServiceBusClient], init=False, repr=False)

    def __post_init__(self) -> None:
        if (self.connection_string is None) == (self.host is None):
            raise ConfigurationError("Give a connection string, or a namespace's host name with a credential.")
        self.host = _host_of(self.connection_string) if self.connection_string is not None else _host(self.host or "")
        if self.connection_string is None and self.credential is None:
            raise ConfigurationError(f"To reach {self.host} without a connection string a credential is needed.")

    @classmethod
    def with_credential(cls, host: str, credential: Any = None) -> Connection:
        """Reach a namespace with a token credential.

        Args:
            host: ``NAME.servicebus.windows.net``.
            credential: of azure.identity, synchronous or asynchronous; None for its DefaultAzureCredential.
        """
        if credential is None:
            from azure.identity.aio import DefaultAzureCredential

            credential = DefaultAzureCredential()
        if not inspect.iscoroutinefunction(credential.get_token):
            credential = _InThreads(credential)
        return cls(host=host, credential=credential)

    @property
    def is_emulator(self) -> bool:
        """Whether the namespace is an emulator on a development machine."""
        return self.connection_string is not None and "UseDevelopmentEmulator=true" in self.connection_string

    def receiver(self, address: EntityAddress, **options: Any) -> ServiceBusReceiver:
        """A peek-lock receiver, not yet open, that keeps the bytes of what it receives.

        Opening it locks nothing: it asks for messages only when it is told to receive.

        Args:
            address: a queue, a subscription, or a sub-queue of one.
            options: passed on to the SDK, such as ``receive_mode``.
        """
        sub_queue = _SUB_QUEUES[address.sub_queue] if address.sub_queue else None
        options.setdefault("receive_mode", ServiceBusReceiveMode.PEEK_LOCK)
        client = self._client(retries=3)
        if address.subscription is None:
            receiver = client.get_queue_receiver(address.name, sub_queue=sub_queue, **options)
        else:
            receiver = client.get_subscription_receiver(
                address.name, address.subscription, sub_queue=sub_queue, **options
            )
        sdk_internals.keep_payloads(receiver)
        sdk_locks.keep_locks_alone(receiver)
        return receiver

    def sender(self, address: EntityAddress) -> ServiceBusSender:
        """A sender, not yet open, that sends once: a send without an answer must not be repeated blindly.

        Raises:
            ConfigurationError: the address is not one that takes messages.
        """
        if address.sub_queue is not None or address.subscription is not None:
            raise ConfigurationError(f"Messages cannot be sent to {address}: name a queue or a topic.")
        # The SDK has one sender class; a topic's differs from a queue's in name only.
        return self._client(retries=0).get_queue_sender(address.name)

    def host_and_credential(self) -> tuple[str, AsyncTokenCredential]:
        """What the SDK's clients take where there is no connection string."""
        if self.host is None or self.credential is None:
            raise ConfigurationError("This connection has no credential.")
        return self.host, self.credential

    async def close(self) -> None:
        """Close every sender and receiver that was made here."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.close()

    def _client(self, retries: int) -> ServiceBusClient:
        if retries not in self._clients:
            options: dict[str, Any] = {"retry_total": retries, "logging_enable": False}
            if self.connection_string is not None:
                client = ServiceBusClient.from_connection_string(self.connection_string, **options)
            else:
                client = ServiceBusClient(*self.host_and_credential(), **options)
            self._clients[retries] = client
        return self._clients[retries]


class _InThreads:
    """A synchronous credential for the asynchronous SDK: its requests run in threads."""

    def __init__(self, credential: Any) -> None:
        self._credential = credential

    async def get_token(self, *scopes: str, **options: Any) -> Any:
        return await anyio.to_thread.run_sync(partial(self._credential.get_token, *scopes, **options))

    async def close(self) -> None:
        """Close nothing: the credential is the caller's."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


def _host_of(connection_string: str) -> str:
    parts = dict(part.split("=", 1) for part in connection_string.split(";") if "=" in part)
    endpoint = next((value for key, value in parts.items() if key.strip().lower() == "endpoint"), None)
    keys = {key.strip().lower() for key in parts}
    if endpoint is None or not keys & {"sharedaccesskey", "sharedaccesssignature"}:
        raise ConfigurationError(
            "The connection string must hold Endpoint=sb://… and SharedAccessKeyName with SharedAccessKey, "
            "or SharedAccessSignature."
        )
    return _host(endpoint)


def _host(endpoint: str) -> str:
    match = _HOST.fullmatch(endpoint.strip())
    if match is None:  # not shown: a connection string that lost a semicolon has its secret here
        raise ConfigurationError("The namespace is no host name, such as NAME.servicebus.windows.net.")
    return match[1]
