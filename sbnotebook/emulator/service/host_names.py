"""By which names the emulator may be asked over HTTP where only this machine reaches it.

A web page whose own name is made to lead to 127.0.0.1 is of one origin with the emulator for a browser, which then lets
it ask and read (DNS rebinding). Only names on the public internet can be made to do that, and nobody who means this
machine uses one.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from aiohttp import web

from sbnotebook.emulator.service.refusal import RequestRefusedError

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

__all__ = ["refuse_public_names"]

_OWN: Final = (".internal", ".local", ".localhost", ".servicebus.windows.net")
"""Ends of names that no stranger can lead anywhere: no public server of names answers for the first three (RFC 6761,
RFC 6762, ICANN's resolution of 2024-07-29), and the last is Azure's, under which some have the emulator stand in."""


@web.middleware
async def refuse_public_names(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse what came in over the loopback interface and asks for a name of the public internet."""
    socket = request.transport.get_extra_info("sockname") if request.transport else None
    name = request.url.host or ""
    if socket and _is_loopback(socket[0]) and "." in name and not (_is_address(name) or _is_own(name)):
        raise RequestRefusedError(403, f"Ask for localhost or 127.0.0.1, and not for {name[:100]}.")
    return await handler(request)


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
