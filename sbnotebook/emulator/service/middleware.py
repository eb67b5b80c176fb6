"""The middlewares of the HTTP side: refusals, host names, bodies, pages and keys.

If the name of a web page resolves to 127.0.0.1, the page has the same origin as the emulator. The browser then lets the
page send requests and read the answers (DNS rebinding). The owner of a name on the public internet can do that. For a
name under ``.local`` or without a dot, each machine of the same network can (RFC 6762, "Multicast DNS"; RFC 4795,
"LLMNR"). So the emulator refuses names unless they are in a fixed list.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING, Final

from aiohttp import web

from sbnotebook.emulator.entities.refusals import RefusedError
from sbnotebook.emulator.logs import clean_logger
from sbnotebook.emulator.service import atom
from sbnotebook.emulator.service.access import NamespaceAccess
from sbnotebook.emulator.service.conditions import with_tracking_id
from sbnotebook.errors import SbNotebookError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiohttp.typedefs import Handler, Middleware

# A parameter in every address of an administration client, so that an entity can have the name of a page
_ASKS_FOR_ENTITY: Final = "api-version"
_MAX_PATH: Final = 260
_BODY_TIMEOUT: Final = 30.0  # Seconds for the whole body
_LOGGER: Final = clean_logger(__name__)
NAMES: Final = frozenset(("localhost", "host.docker.internal", "host.containers.internal"))
"""This machine, by itself and from a container of Docker or Podman. No public name server answers for the last two
(ICANN's resolution of 2024-07-29)."""
_ENDS: Final = (".localhost", ".servicebus.windows.net")
"""Ends of names that no stranger can redirect: the first leads to this machine (RFC 6761), and the second is Azure's,
under which some users run the emulator."""


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPOk:
        raise
    except web.HTTPException as error:
        return _refusal(request, _status(error), error.text or error.reason)
    except SbNotebookError as error:
        return _refusal(request, _status(error), str(error))
    except Exception:
        _LOGGER.exception("The request %s %s failed.", request.method, request.path)
        return _refusal(request, 500, "The emulator failed to handle the request; its log says why.")


def refuse_other_names(names: Iterable[str]) -> Middleware:
    """Return the middleware that refuses requests for a host name that is not in the list.

    Addresses are always accepted: a page cannot make one resolve to another.
    """
    accepted = NAMES.union(map(_plain, names))

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        name = _plain(_host_of(request))
        if not name:
            raise web.HTTPBadRequest(text="The header Host has no name or address that can be read.")
        if name not in accepted and not name.endswith(_ENDS) and not _is_address(name):
            raise web.HTTPForbidden(
                text=f"Ask for localhost or 127.0.0.1, and not for {name[:100]}, "
                "or start the emulator with --allow-host and this name.",
            )
        return await handler(request)

    return check


@web.middleware
async def expect_body(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Take in the body of a request, for which the client has only some time."""
    try:
        async with asyncio.timeout(_BODY_TIMEOUT):
            await request.read()
    except TimeoutError:
        response = _refusal(request, 408, f"The body of the request did not come within {_BODY_TIMEOUT:g} seconds.")
        response.force_close()
        return response
    return await handler(request)


def answer_pages(pages: Mapping[tuple[str, str], Handler], access: NamespaceAccess) -> Middleware:
    """Return the middleware that answers the emulator's own pages, which need no key; all else needs the claim Manage.

    A WebSocket sends its tokens to ``$cbs``, as any other connection.
    """

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        method = "GET" if request.method == "HEAD" else request.method
        page = None if _ASKS_FOR_ENTITY in request.query else pages.get((method, request.path))
        if page is not None:
            return await page(request)
        access.require_manage(request.host, request.path.strip("/"), request.headers.get("Authorization"))
        return await handler(request)

    return answer


def _status(error: Exception) -> int:
    if isinstance(error, web.HTTPException):
        return error.status
    return error.condition.status if isinstance(error, RefusedError) else 400


def _refusal(request: web.Request, status: int, detail: str) -> web.Response:
    # As recorded for azure-sdk-for-net, SessionRecords of ServiceBusManagementClientLiveTests.
    tracker = f"{_host_of(request)}:{request.path.strip('/')[:_MAX_PATH]}"
    body = atom.error(status, with_tracking_id(detail, tracker))
    return web.Response(body=body, status=status, content_type="application/xml", charset="utf-8")


def _host_of(request: web.Request) -> str:
    """Return the host name of a request; "" where it cannot be read."""
    try:
        return request.url.host or ""
    except ValueError:
        return ""


def _plain(name: str) -> str:
    return name.casefold().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
