"""Reach a namespace and sign in, before anything is asked of an entity.

The SDK's session browser opens a connection and puts a token, without a link. Service Bus checks the token before it
looks for the entity (azure-sdk-for-net issue 44734), so the answer that there is no such entity confirms the token,
too. What it answers to a token for the whole namespace is not documented: an answer that neither confirms nor refuses
the token does not count as a failure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import unquote_plus

import anyio
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusConnectionError, ServiceBusError

from sbnotebook.settlement.connecting.failures import explained
from sbnotebook.settlement.connecting.identity import account_of, key_of
from sbnotebook.settlement.connecting.refusals import said, service_words, unreachable
from sbnotebook.settlement.sdk import management

if TYPE_CHECKING:
    from sbnotebook.settlement.connecting.connection import Connection

_REACHED_WITHIN: Final = 15.0
"""Seconds to connect. A key has its token put within the same time."""
_ANSWERED_WITHIN: Final = 15.0
"""Seconds from the token of a credential to the answer."""
_CLOSED_WITHIN: Final = 2.0
"""Seconds."""
_MOST_WORDS: Final = 300
_CONFIRMED: Final = (200, 202, 404)
_REFUSED: Final = 401
_RESOURCE: Final = re.compile(r"[ &]sr=([^&;]*)")
"""The resource of a signature."""
_OBJECT: Final = re.compile(r" ssl:<[^<>]*>")
"""What aiohttp adds to its words about a connection."""
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


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the service answered to a token: the status, None without one, and its words."""

    status: int | None
    words: str
    token: str = field(repr=False)


class _Credential:
    """The credential of a connection. While it gives a token, the time to reach the namespace stands still."""

    def __init__(self, credential: Any, scope: anyio.CancelScope) -> None:
        self._credential, self._scope = credential, scope
        self.token = ""
        self.error: BaseException | None = None

    async def get_token(self, *scopes: str, **options: Any) -> Any:
        self._scope.deadline = inf  # the connection limits it
        try:
            token = await self._credential.get_token(*scopes, **options)
        except Exception as error:
            self.error = error
            raise
        self.token = token.token
        self._scope.deadline = anyio.current_time() + _ANSWERED_WITHIN
        return token

    async def close(self) -> None:
        """Close nothing: the credential is the connection's."""


async def sign_in(connection: Connection) -> SignedIn:
    """Open a connection to the namespace, put a token, and close it again.

    Args:
        connection: the namespace and how to sign in.
    """
    parsed, path = connection.parsed, _path(connection)
    answer = await _put_token(connection, path)
    if answer.status == _REFUSED and parsed is not None:
        if not path:
            answer = await _put_token(connection, _NO_ENTITY)
        if answer.status == _REFUSED:
            raise ServiceBusAuthenticationError(message=_refusal(connection.host, key_of(parsed), path, answer.words))
    connection.has_answered = True
    name = account_of(answer.token) if parsed is None else key_of(parsed)
    return SignedIn(name, answer.status in _CONFIRMED)


def _path(connection: Connection) -> str:
    """Return the path that the key of a connection is for; empty for the whole namespace."""
    parsed = connection.parsed
    if parsed is None:
        return ""
    if parsed.entity_path is not None:
        return parsed.entity_path
    resource = _RESOURCE.search(parsed.for_sdk.reveal())
    return "" if resource is None else unquote_plus(resource[1]).rpartition("://")[2].partition("/")[2].strip("/")


async def _put_token(connection: Connection, path: str) -> _Answer:
    host = connection.host
    with anyio.CancelScope(deadline=anyio.current_time() + _REACHED_WITHIN) as scope:
        credential = None if connection.parsed is not None else _Credential(connection.host_and_credential()[1], scope)
        client = connection.new_client(retries=0, credential=credential)
        browser = management.browser(client, path)  # held, because the client keeps weak references
        try:
            status, words = await management.token_status(browser)
        except Exception as error:  # noqa: BLE001 (a credential and a proxy may raise anything)
            _fail(connection, credential.error if credential else None, error)
        finally:
            with anyio.move_on_after(_CLOSED_WITHIN, shield=True):
                await client.close()
        return _Answer(status, service_words(words), credential.token if credential else "")
    advice = _advice(connection)
    raise ServiceBusConnectionError(message=f"{host} did not answer within {_REACHED_WITHIN:g} seconds: {advice}.")


def _fail(connection: Connection, of_credential: BaseException | None, error: Exception) -> NoReturn:
    host = connection.host
    if of_credential is not None:
        if "DefaultAzureCredential failed" in str(of_credential):
            words = f"You are not signed in to {host}. Run az login, then run the cell again."
        else:
            kind = type(of_credential).__name__
            words = f"Signing in to {host} failed with {kind}: {explained(of_credential)[:_MOST_WORDS]}"
        raise ServiceBusAuthenticationError(message=words) from of_credential
    if isinstance(error, ServiceBusError):  # ours: the time is over
        raise error
    words = _OBJECT.sub("", explained(error.__cause__ or error))[:_MOST_WORDS]
    clear = unreachable(host, words, is_emulator=connection.is_emulator)
    text = clear or f"{host} cannot be reached ({words}): {_advice(connection)}."
    raise ServiceBusConnectionError(message=text) from error


def _advice(connection: Connection) -> str:
    return "start the emulator, or check its port" if connection.is_emulator else _ADVICE


def _refusal(host: str, key: str, path: str, words: str) -> str:
    place = f" for {path}" if path else ""
    cause = (
        f"it is the key of another entity than {path}"
        if path
        else "it is the key of one queue or topic: then add EntityPath=NAME to the connection string"
    )
    return f"{host} refuses {key}{place}. Either it is wrong or has expired, or {cause}{said(words)}."
