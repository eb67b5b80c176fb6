"""A connection to one namespace: its transport, identity and sign-in, and the SDK's senders and receivers on it.

The transport is AMQP over TCP, or over a WebSocket on the port of HTTPS: networks of companies often let only HTTPS
out. Source: azure-servicebus, ``TransportType``. The name and the values in a connection string are those of
Microsoft's client for .NET.

To sign in, sbnotebook reaches the namespace before it asks anything of an entity. The SDK's session browser opens a
connection and puts a token, without a link. Service Bus checks the token before it looks for the entity
(azure-sdk-for-net issue 44734), so the answer that there is no such entity confirms the token, too. What it answers to
a token for the whole namespace is not documented: an answer that neither confirms nor refuses the token does not count
as a failure.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import inspect
import json
import logging
import os
import re
import socket
import ssl
import threading
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote_plus

import anyio
from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusReceiveMode, ServiceBusSubQueue, TransportType
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from sbnotebook.errors import ConfigurationError, ReadOnlyError
from sbnotebook.model import EntityAddress, SubQueue, connection_strings
from sbnotebook.model.connection_strings import TRANSPORTS, ConnectionString, Hidden, canonical_host, hidden, scrub
from sbnotebook.settlement.connecting import failures
from sbnotebook.settlement.connecting.administration_clients import (
    answers,
    async_administration_client,
    async_client_class,
)
from sbnotebook.settlement.connecting.failures import explained, said, service_words, unreachable
from sbnotebook.settlement.sdk import check_version, errors, management
from sbnotebook.settlement.sdk.clients import adopt
from sbnotebook.settlement.sdk.connections import first_token
from sbnotebook.settlement.sdk.private import certificates, constants
from sbnotebook.settlement.sdk.receivers import LockReceiver

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential
    from azure.servicebus.aio.management import ServiceBusAdministrationClient

_PEOPLE: Final = ("upn", "preferred_username", "unique_name", "email")
_APPS: Final = ("app_displayname", "appid", "azp", "oid")
_MAX_NAME: Final = 100
_ANSWERS_WITHIN: Final = 10.0
"""Seconds to wait for an emulator's answer."""
_QUIET: Final = logging.NullHandler()
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
    try:
        payload = token.split(".")[1]
        found: Any = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, IndexError, RecursionError):
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
        # Its silence means that it does not speak HTTP, if it answers AMQP.
        if isinstance(error, TimeoutError) and answers(host, _HEADER, _AMQP):
            return {}
        raise ServiceBusConnectionError(
            message=f"The emulator at {host} does not answer: {error}.", error=error
        ) from error
    return cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}


_SUB_QUEUES: Final = {
    SubQueue.DEAD_LETTER: ServiceBusSubQueue.DEAD_LETTER,
    SubQueue.TRANSFER_DEAD_LETTER: ServiceBusSubQueue.TRANSFER_DEAD_LETTER,
}
_AZURE: Final = ".servicebus.windows.net"
TRANSPORT_VARIABLE: Final = "SBNOTEBOOK_TRANSPORT"
"""The environment variable for all connections of a process, except those to an emulator."""


class Connection:
    """A connection to one namespace: by a connection string, or by its host name and a credential.

    Creating one opens nothing. Each sender and each receiver opens a socket of its own, so keep them. It cannot be
    pickled, because the key would be in the bytes.

    Args:
        connection_string: with a shared access key, or the emulator's.
        host: the fully qualified namespace, ``NAME.servicebus.windows.net``.
        credential: an asynchronous token credential, to go with ``host``.
        write: whether it may send, lock, settle, create and delete; None for an emulator only.
        allow_remote: whether an emulator may be on another machine. Everything goes there unencrypted.

    Attributes:
        read_only: whether it refuses to send, lock, settle, create and delete anything.
        has_answered: whether the namespace has answered before, so that it is worth waiting for. Set it to True where
            another process has connected before.

    Raises:
        ConfigurationError: neither or both are given, the connection string or the host cannot be read, an emulator is
            on another machine, or sbnotebook does not work with the version of azure-servicebus that is installed.
    """

    read_only: bool = True
    has_answered: bool = False

    def __init__(
        self,
        connection_string: str | Hidden | None = None,
        host: str | Hidden | None = None,
        credential: AsyncTokenCredential | None = None,
        *,
        write: bool | None = None,
        allow_remote: bool = False,
    ) -> None:
        connection_string = hidden(connection_string)
        host = hidden(host)  # a key may be here by mistake
        check_version()
        # Errors and reports show failures. Python prints log records without a handler, with their tracebacks; your
        # own handler still gets them.
        logging.getLogger("azure").addHandler(_QUIET)
        if (connection_string is None) == (host is None):
            raise ConfigurationError("Give a connection string, or a namespace's host name with a credential.")
        self.parsed = (
            None if connection_string is None else connection_strings.read_connection_string(connection_string)
        )
        self.host = connection_strings.host_of(host or Hidden("")) if self.parsed is None else self.parsed.host
        self.credential: AsyncTokenCredential | None = credential
        self.read_only = not (self.is_emulator if write is None else write)
        self._clients: dict[int, ServiceBusClient] = {}
        self._owns_credential = False
        if self.parsed is None and credential is None:
            raise ConfigurationError(f"To reach {self.host} without a connection string a credential is needed.")
        if self.is_emulator and not allow_remote:
            connection_strings.refuse_remote_emulator(self.host)

    def __repr__(self) -> str:
        return f"Connection(host={self.host!r}, read_only={self.read_only})"

    @classmethod
    def with_credential(cls, host: str | Hidden, credential: Any = None, *, write: bool | None = None) -> Connection:
        """Return a connection with a token credential.

        Args:
            host: ``NAME.servicebus.windows.net``.
            credential: of azure.identity, synchronous or asynchronous; None for its DefaultAzureCredential, which is
                closed with the connection. Close your own credential yourself.
            write: as for the class.

        Raises:
            ConfigurationError: the host cannot be read, or the credential gives no tokens.
        """
        host = hidden(host)
        if credential is not None and not hasattr(credential, "get_token"):
            raise ConfigurationError(
                "The credential is none of azure.identity's, which give tokens: put a key into a connection string."
            )
        if credential is None:
            connection = cls(host=host, credential=_default_credential(), write=write)
            connection._owns_credential = True
            return connection
        if not inspect.iscoroutinefunction(credential.get_token):
            credential = _InThreads(credential)
        return cls(host=host, credential=credential, write=write)

    @property
    def is_emulator(self) -> bool:
        """Return whether the namespace is an emulator."""
        return self.parsed is not None and self.parsed.is_emulator

    @property
    def name(self) -> str:
        """Return the name of the namespace, such as ``shop`` for ``shop.servicebus.windows.net``, or else the host."""
        return self.host.removesuffix(_AZURE)

    def again(self) -> Connection:
        """Return a new connection to the same namespace, for use on another event loop."""
        if self.parsed is not None:
            other = Connection(self.parsed.text, allow_remote=True)
        else:
            other = Connection.with_credential(self.host, None if self._owns_credential else self.credential)
        other.read_only, other.has_answered = self.read_only, self.has_answered
        return other

    @property
    def connection_string(self) -> str | None:
        """Return the connection string, a secret; None where a credential is used."""
        return None if self.parsed is None else self.parsed.text.reveal()

    def require_writing(self) -> None:
        """Check that the connection may change something.

        Every sender, every receiver that locks and every change of an entity calls this.
        """
        if self.read_only:
            raise ReadOnlyError(self.host)

    def browser(self, address: EntityAddress, *, retries: int = 3) -> management.Browser:
        """Return a client that peeks at an entity, with sessions or without. Its first use opens it."""
        self._check_entity(address)
        return management.browser(self._client(retries), address.path, **self._listeners(address))

    def receiver(self, address: EntityAddress, *, retries: int = 3, **options: Any) -> LockReceiver:
        """Return a peek-lock receiver, not open yet.

        Opening it locks nothing.
        """
        self.require_writing()
        self._check_entity(address)
        sub_queue = _SUB_QUEUES[address.sub_queue] if address.sub_queue else None
        options.setdefault("receive_mode", ServiceBusReceiveMode.PEEK_LOCK)
        client = self._client(retries)
        if address.subscription is None:
            receiver = client.get_queue_receiver(address.name, sub_queue=sub_queue, **options)
        else:
            receiver = client.get_subscription_receiver(
                address.name, address.subscription, sub_queue=sub_queue, **options
            )
        adopt(receiver, kind=LockReceiver, **self._listeners(address))
        return cast("LockReceiver", receiver)

    def sender(self, address: EntityAddress) -> ServiceBusSender:
        """Return a sender that never repeats a send, not open yet: a send without an answer may have arrived."""
        self.require_writing()
        if address.sub_queue is not None or address.subscription is not None:
            raise ConfigurationError(f"Messages cannot be sent to {address}: name a queue or a topic.")
        self._check_entity(address)
        # The SDK has one sender class; a topic's differs from a queue's in name only.
        sender = self._client(retries=0).get_queue_sender(address.name)
        adopt(sender, **self._listeners(address))
        return sender

    def host_and_credential(self) -> tuple[str, AsyncTokenCredential]:
        """Return the host and the credential of a connection without a connection string."""
        if self._owns_credential and self.credential is None:  # closed, and needed again
            self.credential = _default_credential()
        if self.credential is None:
            raise ConfigurationError("This connection has no credential.")
        return self.host, self.credential

    async def close(self) -> None:
        """Close every sender and receiver of this connection, and its credential unless the caller passed it in."""
        clients, self._clients = list(self._clients.values()), {}
        try:
            for client in clients:
                await client.close()
        finally:
            if self._owns_credential and self.credential is not None:
                credential, self.credential = self.credential, None
                await credential.close()

    def _check_entity(self, address: EntityAddress) -> None:
        if self.parsed is not None and self.parsed.entity_path not in (None, address.name):
            raise ConfigurationError(
                f"The connection string is for one entity only, by its EntityPath, and that is not {address}: take the "
                "connection string of the namespace, or leave EntityPath out where the key is the namespace's."
            )

    def _listeners(self, address: EntityAddress) -> dict[str, Any]:
        return {"opened": self._note_answer, "explain": partial(self._explained, address)}

    def _note_answer(self) -> None:
        self.has_answered = True

    async def _explained(self, address: EntityAddress, error: ServiceBusError) -> ServiceBusError | None:
        if failures.is_missing(error):
            return MessagingEntityNotFoundError(message=await self.missing(address))
        words = failures.refusal(error, address, self.host)
        if words is None and not self.has_answered:  # Service Bus is back soon, an address that is wrong never
            words = failures.unreachable(self.host, str(error), is_emulator=self.is_emulator)
        return errors.with_words(error, scrub(words)) if words is not None else None

    async def missing(self, address: EntityAddress) -> str:
        """Return that an entity is not there, with the one that may be meant where this connection may list them."""
        async with self.administration_client() as client:
            return scrub(failures.missing(address, self.host, await failures.known_addresses(client, address)))

    def administration_client(self) -> ServiceBusAdministrationClient:
        """Return the SDK's administration client of the namespace, not open yet."""
        options: dict[str, Any] = {} if self.has_answered else {"retry_connect": 0}
        if self.parsed is not None:
            # The connection was allowed to go where it goes.
            return async_administration_client(self.parsed.text, allow_remote=True, **options)
        return async_client_class()(*self.host_and_credential(), **options)

    def _client(self, retries: int) -> ServiceBusClient:
        if retries not in self._clients:
            self._clients[retries] = self.new_client(retries=retries)
        return self._clients[retries]

    def new_client(
        self, *, retries: int, over_websocket: bool | None = None, credential: Any = None
    ) -> ServiceBusClient:
        """Return a client of the SDK, which the caller closes."""
        options: dict[str, Any] = {"retry_total": retries, "ssl_context": tls_context()}
        if over_websocket is None:
            said = None if self.parsed is None else self.parsed.transport
            over_websocket = is_over_websocket(said, is_emulator=self.is_emulator)
        if over_websocket:
            options["transport_type"] = TransportType.AmqpOverWebsocket
            if self.is_emulator and self.parsed is not None:  # the SDK would go to port 443
                options["custom_endpoint_address"] = f"http://{self.parsed.amqp_host}"
        if self.parsed is not None:
            return ServiceBusClient.from_connection_string(self.parsed.for_sdk.reveal(), **options)
        host, own = self.host_and_credential()
        return ServiceBusClient(host, credential or own, **options)


def _default_credential() -> Any:
    from azure.identity import DefaultAzureCredential

    # The asynchronous one opens sessions of aiohttp, which complain where a namespace is dropped without closing it.
    return _InThreads(DefaultAzureCredential(), is_owned=True)


class _InThreads:
    """A synchronous credential for the asynchronous SDK: its requests run in threads.

    All links that open at once wait for the same request, so a user signs in once. A request continues where its caller
    has stopped to wait: the next one finds the sign-in that the user finished meanwhile.
    """

    def __init__(self, credential: Any, *, is_owned: bool = False) -> None:
        self._credential, self._is_owned = credential, is_owned
        self._asked: dict[object, Future[Any]] = {}
        self._lock = threading.Lock()

    async def get_token(self, *scopes: str, **options: Any) -> Any:
        key = (scopes, repr(sorted(options.items())))
        with self._lock:
            if key not in self._asked or self._asked[key].done():
                self._asked[key] = asked = Future[Any]()
                # A daemon: a sign-in that never ends does not keep the kernel from ending.
                threading.Thread(target=self._ask, args=(asked, scopes, options), daemon=True).start()
            asked = self._asked[key]
        return await asyncio.shield(asyncio.wrap_future(asked))

    def _ask(self, asked: Future[Any], scopes: tuple[str, ...], options: dict[str, Any]) -> None:
        try:
            asked.set_result(self._credential.get_token(*scopes, **options))
        except BaseException as error:  # noqa: BLE001 (a credential may raise anything; its callers raise it)
            asked.set_exception(error)

    async def close(self) -> None:
        """Close the credential if it is the connection's own; the caller's stays open."""
        if self._is_owned:
            await asyncio.to_thread(self._credential.close)


def is_over_websocket(said: str | None = None, *, is_emulator: bool = False) -> bool:
    """Return whether to use a WebSocket on port 443 instead of AMQP on port 5671."""
    kind = said or ("" if is_emulator else os.environ.get(TRANSPORT_VARIABLE, "").casefold())
    if not kind:
        return False
    if kind not in TRANSPORTS:
        raise ConfigurationError(f"{TRANSPORT_VARIABLE} is websocket for port 443, or amqp for port 5671.")
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


_REACHED_WITHIN: Final = 15.0
"""Seconds to connect and to have the token answered. The credential may take longer before that."""
_CLOSED_WITHIN: Final = 2.0
"""Seconds."""
_MOST_WORDS: Final = 300
_CONFIRMED: Final = (200, 202, 404)
_REFUSED: Final = 401
_RESOURCE: Final = re.compile(r"[ &]sr=([^&;]*)")
"""The resource of a signature."""
_OBJECT: Final = re.compile(r" ssl:<[^<>]*>")
"""The object that aiohttp adds to the text of a connection error."""
_NO_ENTITY: Final = "sbnotebook-sign-in"
"""A path to ask for where the namespace itself refuses a key. It need not exist."""


_ADVICE: Final = (
    "check the name, and that the firewall lets port 5671 through; where it lets out HTTPS only, set "
    "SBNOTEBOOK_TRANSPORT=websocket"
)


@dataclass(frozen=True, slots=True)
class SignedIn:
    name: str
    is_confirmed: bool


async def sign_in(connection: Connection) -> SignedIn:
    """Open a connection to the namespace, put a token, and close it again.

    Args:
        connection: the namespace and how to sign in.
    """
    parsed, path = connection.parsed, _path(connection)
    token: Any = await _token(connection) if parsed is None else None
    status, words = await _put_token(connection, path, token)
    if status == _REFUSED and parsed is not None:
        if not path:
            status, words = await _put_token(connection, _NO_ENTITY)
        if status == _REFUSED:
            text = f"{connection.host} refuses {key_of(parsed)}{_why_refused(path)}{said(words)}."
            raise ServiceBusAuthenticationError(message=text)
    connection.has_answered = True
    name = account_of(token.token) if parsed is None else key_of(parsed)
    return SignedIn(name, status in _CONFIRMED)


def _why_refused(path: str) -> str:
    maybe = "Either it is wrong or has expired, or it is the key of"
    if path:
        return f" for {path}. {maybe} another entity than {path}"
    return f". {maybe} one queue or topic: then add EntityPath=NAME to the connection string"


def _path(connection: Connection) -> str:
    """Return the path that the key of a connection is for; empty for the whole namespace."""
    parsed = connection.parsed
    if parsed is None:
        return ""
    if parsed.entity_path is not None:
        return parsed.entity_path
    resource = _RESOURCE.search(parsed.for_sdk.reveal())
    return "" if resource is None else unquote_plus(resource[1]).rpartition("://")[2].partition("/")[2].strip("/")


async def _token(connection: Connection) -> Any:
    host, credential = connection.host_and_credential()
    try:
        with first_token():
            return await credential.get_token(constants.JWT_TOKEN_SCOPE)
    except ServiceBusConnectionError:  # ours: the time is over
        raise
    except Exception as error:
        await _put_token(connection, "", AccessToken("none", 2**31))  # a host that cannot be reached is said first
        words = f"Signing in to {host} failed with {type(error).__name__}: {explained(error)[:_MOST_WORDS]}"
        if "DefaultAzureCredential failed" in str(error):
            words = f"You are not signed in to {host}. Run az login, then run the cell again."
        raise ServiceBusAuthenticationError(message=words) from error


async def _put_token(connection: Connection, path: str, token: Any = None) -> tuple[int | None, str]:
    """Return the status that the service answers to a token, None without one, and its words."""

    async def get_token(*_: object, **__: object) -> Any:
        return token

    host, advice = connection.host, "start the emulator, or check its port" if connection.is_emulator else _ADVICE
    with anyio.move_on_after(_REACHED_WITHIN):
        client = connection.new_client(retries=0, credential=token and SimpleNamespace(get_token=get_token))
        browser = management.browser(client, path)  # held, because the client keeps weak references
        try:
            status, words = await management.token_status(browser)
        except ServiceBusError:  # ours: the time is over
            raise
        except Exception as error:
            words = _OBJECT.sub("", explained(error.__cause__ or error))[:_MOST_WORDS]
            clear = unreachable(host, words, is_emulator=connection.is_emulator)
            text = clear or f"{host} cannot be reached ({words}): {advice}."
            raise ServiceBusConnectionError(message=text) from error
        finally:
            with anyio.move_on_after(_CLOSED_WITHIN, shield=True):
                await client.close()
        return status, service_words(words)
    raise ServiceBusConnectionError(message=f"{host} did not answer within {_REACHED_WITHIN:g} seconds: {advice}.")
