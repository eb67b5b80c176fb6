"""How a request over HTTP is refused: a status, and a sentence in the form that clients read."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from sbnotebook.emulator.entities import EntityExistsError, Refusal, RefusedError
from sbnotebook.emulator.service import atom
from sbnotebook.errors import SbNotebookError

__all__ = ["RequestRefusedError", "answer_errors", "xml"]

_LOGGER: Final = logging.getLogger(__name__)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RequestRefusedError(Exception):
    """A request that ends with this status."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


@web.middleware
async def answer_errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Say in the body why a request was refused."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _refusal(error.status, error.text or error.reason)
    except (RequestRefusedError, RefusedError, SbNotebookError) as error:
        return _refusal(_status(error), str(error))
    except Exception:
        _LOGGER.exception("The request %s %s failed.", request.method, request.path)
        return _refusal(500, "The emulator failed to handle the request; its log says why.")


def _status(error: Exception) -> int:
    if isinstance(error, RequestRefusedError):
        return error.status
    if isinstance(error, EntityExistsError):
        return 409
    return 403 if isinstance(error, RefusedError) and error.refusal is Refusal.QUOTA_EXCEEDED else 400


def xml(body: bytes, status: int = 200) -> web.Response:
    """A document as the answer."""
    return web.Response(body=body, status=status, content_type="application/xml", charset="utf-8")


def _refusal(status: int, detail: str) -> web.Response:
    return xml(atom.error(status, detail), status)
