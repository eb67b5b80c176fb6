"""The identity of a connection: the name of its key, or its account."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from sbnotebook.settlement.connecting.failures import explained

if TYPE_CHECKING:
    from sbnotebook.settlement.connecting.connection import Connection

__all__ = ["account_of", "signed_in_as"]

_SCOPE: Final = "https://servicebus.azure.net/.default"
_WITHIN: Final = 10.0
"""Seconds to wait for a sign-in."""
_PEOPLE: Final = ("upn", "preferred_username", "unique_name", "email")
_APPS: Final = ("app_displayname", "appid", "azp", "oid")
_MAX_NAME: Final = 100
_MAX_ERROR: Final = 200


async def signed_in_as(connection: Connection) -> str:
    """Return in words who a connection is signed in as. A connection with a credential requests a token for that.

    Args:
        connection: not changed. The token is used only for the name in it.

    Returns:
        The name of the key or the account; where the sign-in failed, the reason.
    """
    if connection.parsed is not None:
        name = connection.parsed.key_name
        return f"the key {_shown(name)}" if name else "a shared access signature"
    try:
        _, credential = connection.host_and_credential()
        with anyio.fail_after(_WITHIN):
            token = await credential.get_token(_SCOPE)
    except TimeoutError:
        return f"no identity yet: signing in took longer than {_WITHIN:.0f} seconds"
    except Exception as error:  # noqa: BLE001 (a credential may raise anything, and the connection still works to show this)
        if "DefaultAzureCredential failed" in str(error):
            return "no identity: found no account here; sign in with az login, or give connect(…) a credential"
        return f"no identity: {type(error).__name__}: {explained(error)[:_MAX_ERROR]}"
    return account_of(token.token)


def account_of(token: str) -> str:
    """Return the account that a token names. Only the service verifies it.

    Args:
        token: a JSON Web Token. No other kind names an account.

    Example:
        >>> account_of("e30.eyJ1cG4iOiAiYW5uYUBleGFtcGxlLm9yZyJ9.c2ln")
        'anna@example.org'
    """
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
