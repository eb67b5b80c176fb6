"""The HTTP side of the emulator, on the same port as AMQP.

========================================  ==================================================
``GET /``                                 a page for the browser: the entities with their counts
``GET /health``                           the emulator's status and process ID; with ``?challenge=``, its proof
``GET /entities``                         the entities with their counts, as JSON
``GET /messages?entity=&from=``           messages of an entity from a number on, as JSON; they stay as they are
``GET /faults``, ``POST /faults``         the faults on demand, as JSON
``GET /lease``                            held open by a process that uses the emulator
``GET /$identity``                        the identity of the namespace for clients, the same at every address
``GET /$servicebus/websocket``            AMQP in a WebSocket
anything else                             the administration of entities: ``entity_routes``
========================================  ==================================================
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final, cast

from aiohttp import web

from sbnotebook.emulator.entities.box import Receivable, ReceivingEntity
from sbnotebook.emulator.entities.topic import Topic
from sbnotebook.emulator.proof import PROOF, prove, prove_lease
from sbnotebook.emulator.service.access import ROOT_RULE
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.entity_routes import add_entity_routes
from sbnotebook.emulator.service.fault_injection import change_faults
from sbnotebook.emulator.service.middleware import (
    answer_errors,
    answer_pages,
    expect_body,
    refuse_other_names,
)
from sbnotebook.emulator.service.page import page, shown_messages
from sbnotebook.emulator.service.websocket import WEBSOCKET_PATH, websocket_handler
from sbnotebook.errors import ConfigurationError

_MAX_BODY: Final = 262_144  # Bytes of a request's body: many times the longest description of an entity
_NUMBER: Final = re.compile(r"[0-9]{1,19}")


def application(broker: Broker, *, secret: str, host_names: Iterable[str]) -> web.Application:
    admin = _Admin(broker, secret)
    pages = {
        ("GET", "/"): admin.page,
        ("GET", "/health"): admin.health,
        ("GET", "/entities"): admin.entities,
        ("GET", "/messages"): admin.messages,
        ("GET", "/faults"): admin.faults,
        ("POST", "/faults"): admin.set_faults,
        ("GET", "/lease"): admin.lease,
        ("GET", "/$identity"): admin.identity,
        ("GET", WEBSOCKET_PATH): websocket_handler(broker),
    }
    middlewares = [answer_errors, refuse_other_names(host_names), expect_body, answer_pages(pages, broker.access)]
    app = web.Application(middlewares=middlewares, client_max_size=_MAX_BODY)
    add_entity_routes(app.router, broker)
    return app


class _Admin:
    def __init__(self, broker: Broker, secret: str) -> None:
        self._broker = broker
        self._secret = secret

    async def page(self, _request: web.Request) -> web.Response:
        return page()

    async def health(self, request: web.Request) -> web.Response:
        answer = {"status": "ok", "pid": os.getpid()}
        challenge = request.query.get("challenge")
        if challenge is not None and request.transport is not None:
            port = request.transport.get_extra_info("sockname")[1]
            answer["proof"] = prove(self._secret, port, challenge)
        return web.json_response(answer)

    async def identity(self, _request: web.Request) -> web.Response:
        return web.json_response({"id": self._broker.identity})

    async def entities(self, _request: web.Request) -> web.Response:
        self._broker.advance()
        registry = self._broker.registry
        return web.json_response(
            {
                "tier": registry.tier.value,
                "queues": [_receiving(queue, queue.path) for queue in registry.queues],
                "topics": [_topic(topic) for topic in registry.topics],
            }
        )

    async def messages(self, request: web.Request) -> web.Response:
        # Everyone who knows the key can read them in any case; a key of the user's own has to be shown.
        if self._broker.access.rules[0].primary_key != ROOT_RULE.primary_key:
            path = request.path.strip("/")
            self._broker.access.require_manage(request.host, path, request.headers.get("Authorization"))
        now, path, start = self._broker.advance(), request.query.get("entity", ""), request.query.get("from", "0")
        box = self._broker.registry.find(path)
        if not isinstance(box, Receivable) or not _NUMBER.fullmatch(start):
            raise web.HTTPNotFound(text="Say the path of a queue, subscription or sub-queue, and a number.")
        return web.json_response({"messages": shown_messages(box, int(start), now)})

    async def faults(self, _request: web.Request) -> web.Response:
        return web.json_response(asdict(self._broker.faults))

    async def set_faults(self, request: web.Request) -> web.Response:
        faults = change_faults(self._broker, await _json_object(request))
        await self._broker.committed()
        return web.json_response(faults)

    async def lease(self, request: web.Request) -> web.StreamResponse:
        # A lease that anyone could take may have to make room for others.
        proof = request.headers.get(PROOF, "").encode()
        if request.transport is not None and hmac.compare_digest(proof, prove_lease(self._secret).encode()):
            self._broker.connections.settle(request.transport)
        self._broker.leases += 1
        try:
            response = web.StreamResponse()
            await response.prepare(request)
            # A first chunk, because the headers alone would wait for it.
            await response.write(b"held\n")
            await asyncio.Event().wait()  # Cancelled when the client's connection ends.
        finally:
            self._broker.leases -= 1
        return response


def _receiving(entity: ReceivingEntity, name: str) -> dict[str, Any]:
    return {
        "name": name,
        **entity.counts._asdict(),
        "size_bytes": entity.total_size,
        "status": entity.options.status.value,
        "requires_session": entity.options.requires_session,
        "lock_duration_ms": entity.options.lock_duration,
        "max_delivery_count": entity.options.max_delivery_count,
    }


def _topic(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.path,
        "scheduled": topic.scheduled_count,
        "size_bytes": topic.total_size,
        "status": topic.options.status.value,
        "subscriptions": [_receiving(each, each.name) | {"rules": len(each.rules)} for each in topic.subscriptions],
    }


async def _json_object(request: web.Request) -> dict[str, Any]:
    if request.content_type != "application/json":
        # A browser sends any other type for a page of another origin without asking first.
        raise web.HTTPUnsupportedMediaType(
            text="The body must be JSON: send the header 'Content-Type: application/json'."
        )
    try:
        value: Any = await request.json()
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigurationError("The body must be a JSON object.")
    return cast("dict[str, Any]", value)
