"""Refreshed tokens of sbnotebook's connections: the valid one serves until the service has confirmed the next one.

The SDK refreshes a token when a tenth of its lifetime is left, in the middle of the next operation. It marks the
connection as 'in progress' before it asks the credential. If the credential then fails or is slow, or the caller is
cancelled, the connection refuses all further work, although its token is valid for minutes. The locks of its messages
end, and nothing can be released.

Source: ``update_token`` and ``handle_token`` in ``_pyamqp/aio/_cbs_async.py`` of azure-servicebus 7.15.
"""

# The SDK's classes are untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUntypedBaseClass=false

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import anyio
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from sbnotebook.settlement.sdk.errors import given_up
from sbnotebook.settlement.sdk.private import (
    AuthenticatorClass,
    CbsAuthState,
    PutResult,
    private,
)

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken
    from azure.servicebus.aio import ServiceBusReceiver

_LOGGER: Final = logging.getLogger(__name__)
_FIRST_WITHIN: Final = 45.0
"""Seconds that the credential may take for the first token: less than a link has to open."""
_GLANCE: Final = 0.1
"""Seconds that an operation waits for the credential. A shared access key needs none."""
_LOOK_AGAIN: Final = 1
"""Seconds until the next look at a credential that has not answered."""
_TRY_AGAIN: Final = 5
"""The most seconds until the next attempt: a quarter of the remaining time of the valid token."""
_LAST: Final = 5
"""Seconds before the end of the valid token in which operations wait for the next one, because they may outlast it.

They wait until that end, when the SDK raises that the token has expired."""
_WINDOW: Final = 0.1
"""The part of a token's life in which it is refreshed; the SDK's."""


async def refresh_if_due(receiver: ServiceBusReceiver) -> None:
    """Refresh the token of a receiver's connection if that is due; the SDK does so only when the receiver is used."""
    handler = private(receiver)._handler
    if handler is not None:
        with contextlib.suppress(Exception):  # the next operation reports the fault
            await handler.auth_complete_async()


def is_expired(handler: Any) -> bool:
    """Return whether the token of a client's connection has expired, and no next one is on its way."""
    cbs = handler._cbs_authenticator
    return cbs is not None and cbs.auth_state is not CbsAuthState.IN_PROGRESS and cbs._expires_on <= time.time()


def stop_refreshing(handler: Any) -> None:
    """Ask the credential no longer for a token of a connection that is closed; nothing where it is not being asked."""
    coming: asyncio.Task[AccessToken | None] | None = getattr(handler._cbs_authenticator, "_coming", None)
    if coming is not None:
        coming.cancel()


class RefreshingAuthenticator(AuthenticatorClass):
    """The token of one connection, refreshed without waiting for it."""

    _coming: asyncio.Task[AccessToken | None] | None = None
    """Asks the credential for the next token."""
    _sent: AccessToken | None = None
    """The next token, which was sent and is not confirmed."""

    async def update_token(self) -> None:
        """Put the first token, or begin to refresh it."""
        if self.auth_state is not CbsAuthState.REFRESH_REQUIRED:
            # Without it nothing works, so wait for it.
            with anyio.move_on_after(_FIRST_WITHIN) as scope:
                await super().update_token()
            if scope.cancelled_caught:
                raise _no_token()
            return
        # The SDK asks again when this is left of the valid token.
        self.auth_state = CbsAuthState.OK
        left = int(self._expires_on - time.time())
        self._refresh_window = left - _LOOK_AGAIN
        # Ask the credential in a separate task, which no operation cancels, and send its token when it arrives.
        coming: asyncio.Task[AccessToken | None] = self._coming or asyncio.create_task(_asked(self))
        self._coming = coming
        await asyncio.wait({coming}, timeout=_GLANCE if left > _LAST else max(left, _GLANCE))
        if not coming.done():
            return
        self._coming = None
        token = None if coming.cancelled() else coming.result()
        self._refresh_window = left - max(_LOOK_AGAIN, min(_TRY_AGAIN, left // 4))
        if token is not None:
            self._sent = token
            await put_token(self, self._auth, token)
            if left <= _LAST:
                self.auth_state, self._token_put_time = CbsAuthState.IN_PROGRESS, int(time.time())

    async def _on_execute_operation_complete(
        self,
        result: PutResult,
        status: int | None,
        description: str | None,
        answer: Any,
        error_condition: str | None = None,
        error: Exception | None = None,
    ) -> None:
        token: AccessToken | None = self._sent
        if token is None:
            # The SDK passes 'error' where the service has rejected the request, and does not take it.
            await super()._on_execute_operation_complete(result, status, description, answer, error_condition or error)
            return
        self._sent = None
        self.auth_state = CbsAuthState.OK  # any token that it has; next, the SDK checks whether that has expired
        if result is not PutResult.OK or error_condition:
            _LOGGER.warning("A refreshed token was refused, which is tried again: %s", error_condition or status)
            return
        self._expires_on = token.expires_on
        self._refresh_window = int((token.expires_on - time.time()) * _WINDOW)


async def put_token(cbs: Any, auth: Any, token: AccessToken) -> None:
    kind, until = auth.token_type, datetime.fromtimestamp(token.expires_on, UTC)
    await cbs._put_token(token.token, kind.decode() if isinstance(kind, bytes) else kind, auth.audience, until)


def _no_token() -> ServiceBusError:
    text = (
        f"The credential gave no token in {_FIRST_WITHIN:g} seconds: finish signing in and try again, or check that "
        "this machine reaches the service that gives tokens."
    )
    return given_up(ServiceBusConnectionError(message=text))


async def _asked(cbs: Any) -> AccessToken | None:
    try:
        return await cbs._auth.get_token()
    except Exception as error:  # noqa: BLE001 (after any error of the credential, the valid token still works)
        _LOGGER.warning("A token could not be refreshed, which is tried again: %s", type(error).__name__)
        return None
