"""The middlewares of the HTTP side: refusals, host names, and keys.

If the name of a web page is made to resolve to 127.0.0.1, the page has the same origin as the emulator for a browser,
which then lets the page send requests and read the answers (DNS rebinding). Only names on the public internet can be
made to do that, and no client that means this machine uses one.
"""

from __future__ import annotations

import ipaddress
import logging
from typing import TYPE_CHECKING, Final

from aiohttp import web

from sbnotebook.emulator.entities import EntityExistsError, Refusal, RefusedError
from sbnotebook.emulator.service import atom
from sbnotebook.emulator.service.access import AccessRefusedError, NamespaceAccess
from sbnotebook.emulator.service.conditions import with_tracking_id
from sbnotebook.errors import SbNotebookError

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

__all__ = ["OPEN_PAGES", "RequestRefusedError", "answer_errors", "authorize", "refuse_public_names"]

OPEN_PAGES: Final = frozenset(
    ("/", "/health", "/entities", "/faults", "/lease", "/$identity", "/$servicebus/websocket")
)
"""Paths that need no key; none of them can be the name of an entity. A WebSocket sends its tokens to ``$cbs``, as any
other connection."""

_MAX_PATH: Final = 260
_LOGGER: Final = logging.getLogger(__name__)
_OWN: Final = (".internal", ".local", ".localhost", ".servicebus.windows.net")
"""Ends of names that no stranger can redirect: no public name server answers for the first three (RFC 6761, RFC 6762,
ICANN's resolution of 2024-07-29), and the last is Azure's, under which some users run the emulator."""


class RequestRefusedError(Exception):
    """A request that ends with this status."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a refused request with the reason in the body."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _refusal(request, error.status, error.text or error.reason)
    except (RequestRefusedError, RefusedError, SbNotebookError) as error:
        return _refusal(request, _status(error), str(error))
    except Exception:
        _LOGGER.exception("The request %s %s failed.", request.method, request.path)
        return _refusal(request, 500, "The emulator failed to handle the request; its log says why.")


@web.middleware
async def refuse_public_names(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests that came in over the loopback interface for a name of the public internet."""
    socket = request.transport.get_extra_info("sockname") if request.transport else None
    name = request.url.host or ""
    if socket and _is_loopback(socket[0]) and "." in name and not (_is_address(name) or _is_own(name)):
        raise RequestRefusedError(403, f"Ask for localhost or 127.0.0.1, and not for {name[:100]}.")
    return await handler(request)


def authorize(access: NamespaceAccess) -> Middleware:
    """Return the middleware that requires a key with the claim Manage, except for ``OPEN_PAGES``."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.path not in OPEN_PAGES:
                access.require_manage(request.host, request.path.strip("/"), request.headers.get("Authorization"))
        except AccessRefusedError as error:
            return _refusal(request, 401, str(error))
        return await handler(request)

    return check


def _status(error: Exception) -> int:
    if isinstance(error, RequestRefusedError):
        return error.status
    if isinstance(error, EntityExistsError):
        return 409
    return 403 if isinstance(error, RefusedError) and error.refusal is Refusal.QUOTA_EXCEEDED else 400


def _refusal(request: web.Request, status: int, detail: str) -> web.Response:
    # As recorded for azure-sdk-for-net, SessionRecords of ServiceBusManagementClientLiveTests.
    tracker = f"{request.url.host}:{request.path.strip('/')[:_MAX_PATH]}"
    body = atom.error(status, with_tracking_id(detail, tracker))
    return web.Response(body=body, status=status, content_type="application/xml", charset="utf-8")


def _is_own(name: str) -> bool:
    return name.casefold().rstrip(".").endswith(_OWN)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
