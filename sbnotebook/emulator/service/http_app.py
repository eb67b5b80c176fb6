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

If the name of a web page resolves to 127.0.0.1, the page has the same origin as the emulator. The browser then lets the
page send requests and read the answers (DNS rebinding). The owner of a name on the public internet can do that. For a
name under ``.local`` or without a dot, each machine of the same network can (RFC 6762, "Multicast DNS"; RFC 4795,
"LLMNR"). So the emulator refuses names unless they are in a fixed list.

The page shows the entities and their messages, and changes nothing. Names and messages are written as text only. The
policy lets nothing run or load but the script and the style of the page itself, which it knows by their hashes.

Source: W3C, "Content Security Policy Level 3", section 2.3.1.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import web

from sbnotebook.amqp.sections import DATA, PROPERTIES, SEQUENCE, VALUE, section_value, split
from sbnotebook.emulator.entities.box import Receivable, ReceivingEntity
from sbnotebook.emulator.entities.message import BrokeredMessage
from sbnotebook.emulator.entities.queue import Topic
from sbnotebook.emulator.entities.refusals import RefusedError, with_tracking_id
from sbnotebook.emulator.logs import clean_logger
from sbnotebook.emulator.process import PROOF, prove, prove_lease
from sbnotebook.emulator.service import descriptions
from sbnotebook.emulator.service.access import ROOT_RULE, NamespaceAccess
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.entity_routes import add_entity_routes
from sbnotebook.emulator.service.fault_injection import change_faults
from sbnotebook.emulator.service.peer import WEBSOCKET_PATH, websocket_handler
from sbnotebook.errors import AmqpDecodeError, ConfigurationError, SbNotebookError

if TYPE_CHECKING:
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
    body = descriptions.error(status, with_tracking_id(detail, tracker))
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


@cache
def _parts() -> tuple[str, str]:
    folder = files("sbnotebook.emulator") / "static"
    html, style, script = ((folder / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html.replace("{style}", style).replace("{script}", script), policy


def page() -> web.Response:
    html, policy = _parts()
    headers = {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return web.Response(text=html, content_type="text/html", headers=headers)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_MOST: Final = 50  # Messages in one answer
# Bytes of the messages of one answer, unless its first message alone is larger; of such a message no body is shown
_MAX_BYTES: Final = 1_000_000
_MAX_TEXT: Final = 2000  # Characters of a text that are shown
_MESSAGE_ID, _SUBJECT = 0, 3  # places among the properties (AMQP 1.0 part 3, section 3.2.4)


def shown_messages(box: Receivable, start: int, now: int) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    size = 0
    for message in box.peek(start, _MOST):
        size += message.size
        if shown and size > _MAX_BYTES:
            break
        shown.append(_shown(box, message, now))
    return shown


def _shown(box: Receivable, message: BrokeredMessage, now: int) -> dict[str, Any]:
    is_locked = message.lock_token is not None and message.locked_until > now
    shown = {
        "sequence_number": message.sequence_number,
        "enqueued_time": message.enqueued_time,
        "state": "locked" if is_locked else message.state.name.lower(),
        "delivery_count": message.delivery_count,
        "session_id": message.session_id,
    }
    if message.size > _MAX_BYTES:
        return shown | {"message_id": None, "subject": None, "body": f"{message.size} bytes"}
    try:
        return shown | _texts(box.rendered(message))
    except AmqpDecodeError as error:
        return shown | {"message_id": None, "subject": None, "body": f"It cannot be read: {error}"[:_MAX_TEXT]}


def _texts(payload: bytes) -> dict[str, str | None]:
    sections = split(payload)
    properties: list[Any] = [None] * (_SUBJECT + 1)
    bodies: list[str] = []
    for section in sections:
        if section.code == PROPERTIES:
            found: Any = section_value(payload, section)
            properties = [*found, *properties]
        elif section.code in (DATA, SEQUENCE, VALUE):
            bodies.append(_text(section_value(payload, section)) or "")
    return {
        "message_id": _text(properties[_MESSAGE_ID]),
        "subject": _text(properties[_SUBJECT]),
        "body": "".join(bodies)[:_MAX_TEXT],
    }


def _text(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, bytes):
        return str(value)[:_MAX_TEXT]
    try:
        return value.decode()[:_MAX_TEXT]
    except UnicodeDecodeError:
        return f"{len(value)} bytes: {value[:64].hex(' ')}"


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
