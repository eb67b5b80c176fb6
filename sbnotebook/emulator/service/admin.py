"""What the emulator answers over HTTP, on the same port.

========================================  ==================================================
``GET /health``                           that it runs, and its process id
``GET /entities``                         the queues with their counts, as JSON
``GET /faults``, ``POST /faults``         what is made to go wrong, as JSON
``GET /lease``                            held open by a process that uses the emulator
``PUT``, ``GET``, ``DELETE /{queue}``     one queue, as ATOM
``GET /$Resources/queues?$skip=&$top=``   the queues, as ATOM, in pages
``GET /$namespaceinfo``                   the namespace, as ATOM
========================================  ==================================================

The ATOM part is what ``ServiceBusAdministrationClient`` needs for queues.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict, fields
from typing import Any, Final, cast

from aiohttp import web

from sbnotebook.emulator.entities import Queue, QueueOptions
from sbnotebook.emulator.faults import MAX_DELAY_MS, Faults
from sbnotebook.emulator.service import atom
from sbnotebook.emulator.service.access import authorize
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.leases import Leases
from sbnotebook.errors import ConfigurationError, SbNotebookError

__all__ = ["application"]

_LOGGER: Final = logging.getLogger(__name__)
_MAX_PAGE: Final = 1000
_MAX_DIGITS: Final = 9
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(broker: Broker, leases: Leases) -> web.Application:
    """The HTTP side of a namespace.

    Args:
        broker: the namespace.
        leases: counts who holds ``GET /lease`` open.
    """
    admin = _Admin(broker, leases)
    app = web.Application(middlewares=[_answer_errors, authorize(broker.access)])
    app.router.add_get("/health", admin.health)
    app.router.add_get("/entities", admin.entities)
    app.router.add_get("/faults", admin.faults)
    app.router.add_post("/faults", admin.set_faults)
    app.router.add_get("/lease", admin.lease)
    app.router.add_get("/$namespaceinfo", admin.namespace)
    app.router.add_get("/$Resources/{kind}", admin.list_queues)
    app.router.add_put("/{name:.+}", admin.put_queue)
    app.router.add_get("/{name:.+}", admin.get_queue)
    app.router.add_delete("/{name:.+}", admin.delete_queue)
    return app


class _RefusedError(Exception):
    """A request that ends with this status."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


@web.middleware
async def _answer_errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except _RefusedError as error:
        return _xml(atom.error(error.status, str(error)), error.status)
    except SbNotebookError as error:
        return _xml(atom.error(400, str(error)), 400)
    except (web.HTTPException, asyncio.CancelledError):
        raise
    except Exception:
        _LOGGER.exception("The request %s %s failed.", request.method, request.path)
        return _xml(atom.error(500, "The emulator failed to handle the request; its log says why."), 500)


class _Admin:
    def __init__(self, broker: Broker, leases: Leases) -> None:
        self._broker = broker
        self._leases = leases
        self._started = broker.clock.now()

    async def health(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "pid": os.getpid()})

    async def entities(self, _request: web.Request) -> web.Response:
        self._broker.moment()
        queues = self._broker.registry.queues
        return web.json_response(
            {
                "queues": [
                    {
                        "name": queue.path,
                        **queue.counts._asdict(),
                        "size_bytes": queue.size_bytes + queue.dead_letter.size_bytes,
                        "lock_duration_ms": queue.options.lock_duration,
                        "max_delivery_count": queue.options.max_delivery_count,
                    }
                    for queue in queues
                ]
            }
        )

    async def faults(self, _request: web.Request) -> web.Response:
        return web.json_response(asdict(self._broker.faults))

    async def set_faults(self, request: web.Request) -> web.Response:
        wanted = await _json_object(request)
        known = {field.name for field in fields(Faults)}
        for name, value in wanted.items():
            if name not in known or type(value) is not int or not 0 <= value <= MAX_DELAY_MS:
                text = f"{name[:40]!r} must be one of {sorted(known)}, with a number from 0 to {MAX_DELAY_MS}."
                raise ConfigurationError(text)
        for name, value in wanted.items():
            setattr(self._broker.faults, name, value)
        return await self.faults(request)

    async def lease(self, request: web.Request) -> web.StreamResponse:
        with self._leases.held():
            response = web.StreamResponse()
            await response.prepare(request)
            # A first chunk, because the headers alone would wait for it.
            await response.write(b"held\n")
            await asyncio.Event().wait()  # Cancelled when the client's connection ends.
        return response

    async def namespace(self, request: web.Request) -> web.Response:
        return _xml(atom.namespace_entry(request.host, self._started))

    async def list_queues(self, request: web.Request) -> web.Response:
        skip, top = _number(request, "$skip", 0), min(_number(request, "$top", 100), _MAX_PAGE)
        if not top:
            raise ConfigurationError("$top must be at least 1.")
        self._broker.moment()
        is_queues = request.match_info["kind"].casefold() == "queues"
        queues = self._broker.registry.queues if is_queues else []
        next_page = None
        if len(queues) > skip + top:
            next_page = str(request.url.with_query({"$skip": skip + top, "$top": top}))
        return _xml(atom.feed(request.path, queues[skip : skip + top], next_page))

    async def put_queue(self, request: web.Request) -> web.Response:
        name, body = request.match_info["name"], await request.read()
        registry = self._broker.registry
        queue = registry.find_queue(name)
        if "If-Match" in request.headers:
            queue = self._found(name)
            registry.update_queue(queue, atom.read_queue_options(body, queue.options))
            status = 200
        elif queue is not None:
            raise _RefusedError(409, f"There is already an entity {queue.path!r}.")
        else:
            options = atom.read_queue_options(body, QueueOptions())
            queue = registry.create_queue(name, options, now=self._broker.clock.now())
            status = 201
        await self._broker.kept()
        return _xml(atom.queue_entry(queue), status)

    async def get_queue(self, request: web.Request) -> web.Response:
        self._broker.moment()
        return _xml(atom.queue_entry(self._found(request.match_info["name"])))

    async def delete_queue(self, request: web.Request) -> web.Response:
        self._broker.delete_queue(self._found(request.match_info["name"]))
        await self._broker.kept()
        return web.Response()

    def _found(self, name: str) -> Queue:
        queue = self._broker.registry.find_queue(name)
        if queue is None:
            raise _RefusedError(404, f"There is no entity {name[:260]!r}.")
        return queue


async def _json_object(request: web.Request) -> dict[str, Any]:
    if request.content_type != "application/json":
        # A browser sends any other type for a page of another origin without asking first.
        raise _RefusedError(415, "The body must be JSON: send the header 'Content-Type: application/json'.")
    try:
        value: Any = await request.json()
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigurationError("The body must be a JSON object.")
    return cast("dict[str, Any]", value)


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    if not text.isdecimal() or len(text) > _MAX_DIGITS:
        raise ConfigurationError(f"{name} must be a number of at most {_MAX_DIGITS} digits, not {text[:40]!r}.")
    return int(text)


def _xml(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/xml", charset="utf-8")
