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
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import asdict
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
from sbnotebook.emulator.service.access import ROOT_RULE
from sbnotebook.emulator.service.broker import Broker, change_faults
from sbnotebook.emulator.service.entity_routes import add_entity_routes
from sbnotebook.emulator.service.peer import WEBSOCKET_PATH, answer_websocket
from sbnotebook.errors import AmqpDecodeError, ConfigurationError, SbNotebookError

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

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
        return _refusal(request, error.status, error.text or str(error))
    except SbNotebookError as error:
        status = error.condition.status if isinstance(error, RefusedError) else 400
        return _refusal(request, status, str(error))
    except Exception:
        _LOGGER.exception("The request %s %s failed.", request.method, request.path)
        return _refusal(request, 500, "The emulator failed to handle the request; its log says why.")


def answer_pages(broker: Broker, names: Iterable[str]) -> Middleware:
    """Return the middleware that checks requests, takes in their bodies, and answers the emulator's own pages.

    The pages need no key; all else needs the claim Manage, before its body is read. A WebSocket sends its tokens to
    ``$cbs``, as any other connection.
    """
    accepted = NAMES.union(map(_plain, names))

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        _check_name(request, accepted)
        method = "GET" if request.method == "HEAD" else request.method
        # An entity can have the name of a page: administration clients always send this parameter.
        page = None if "api-version" in request.query else _PAGES.get((method, request.path))
        if page is None:
            broker.access.require_manage(request.host, request.path.strip("/"), request.headers.get("Authorization"))
        try:
            async with asyncio.timeout(_BODY_TIMEOUT):
                await request.read()
        except TimeoutError:
            raise web.HTTPRequestTimeout(
                text=f"The body of the request did not come within {_BODY_TIMEOUT:g} seconds."
            ) from None
        return await (handler(request) if page is None else page(broker, request))

    return answer


def _check_name(request: web.Request, accepted: Collection[str]) -> None:
    """Check the host name of a request. Addresses are always accepted: a page cannot make one resolve to another."""
    name = _plain(_host_of(request))
    if not name:
        raise web.HTTPBadRequest(text="The header Host has no name or address that can be read.")
    if name in accepted or name.endswith(_ENDS):
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise web.HTTPForbidden(
            text=f"Ask for localhost or 127.0.0.1, and not for {name[:100]}, "
            "or start the emulator with --allow-host and this name.",
        ) from None


def _refusal(request: web.Request, status: int, detail: str) -> web.Response:
    # As recorded for azure-sdk-for-net, SessionRecords of ServiceBusManagementClientLiveTests.
    detail = with_tracking_id(detail, f"{_host_of(request)}:{request.path.strip('/')[:_MAX_PATH]}")
    return web.Response(
        body=descriptions.error(status, detail),
        status=status,
        content_type="application/xml",
        charset="utf-8",
    )


def _host_of(request: web.Request) -> str:
    """Return the host name of a request; "" where it cannot be read."""
    try:
        return request.url.host or ""
    except ValueError:
        return ""


def _plain(name: str) -> str:
    return name.casefold().rstrip(".")


async def page(*_: object) -> web.Response:
    folder = files("sbnotebook.emulator") / "static"
    html, style, script = ((folder / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    headers = {
        "Content-Security-Policy": (
            f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    text = html.replace("{style}", style).replace("{script}", script)
    return web.Response(text=text, content_type="text/html", headers=headers)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_SEQUENCE_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_MOST: Final = 50  # Messages in one answer
# Bytes of the messages of one answer, unless its first message alone is larger; of such a message no body is shown
_MAX_BYTES: Final = 1_000_000
_MAX_TEXT: Final = 2000  # Characters of a text that are shown


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
    shown = {
        "sequence_number": message.sequence_number,
        "enqueued_time": message.enqueued_time,
        "state": "locked" if message.lock_token and message.locked_until > now else message.state.name.lower(),
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
    shown = (PROPERTIES, DATA, SEQUENCE, VALUE)
    values = [(each.code, section_value(payload, each)) for each in split(payload) if each.code in shown]
    properties: Any = next((value for code, value in values if code == PROPERTIES), ())
    message_id, _, _, subject = [*properties, None, None, None, None][:4]
    body = "".join(_text(value) or "" for code, value in values if code != PROPERTIES)
    return {"message_id": _text(message_id), "subject": _text(subject), "body": body[:_MAX_TEXT]}


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


def application(broker: Broker, host_names: Iterable[str]) -> web.Application:
    app = web.Application(middlewares=[answer_errors, answer_pages(broker, host_names)], client_max_size=_MAX_BODY)
    add_entity_routes(app.router, broker)
    return app


async def health(broker: Broker, request: web.Request) -> web.Response:
    answer = {"status": "ok", "pid": os.getpid()}
    challenge = request.query.get("challenge")
    if challenge is not None and request.transport is not None:
        answer["proof"] = prove(broker.secret, request.transport.get_extra_info("sockname")[1], challenge)
    return web.json_response(answer)


async def identity(broker: Broker, _request: web.Request) -> web.Response:
    return web.json_response({"id": broker.identity})


async def entities(broker: Broker, _request: web.Request) -> web.Response:
    broker.advance()
    return web.json_response(
        {
            "tier": broker.registry.tier.value,
            "queues": [_receiving(queue, queue.path) for queue in broker.registry.queues],
            "topics": [_topic(topic) for topic in broker.registry.topics],
        }
    )


async def messages(broker: Broker, request: web.Request) -> web.Response:
    # Everyone who knows the key can read them in any case; a key of the user's own has to be shown.
    if broker.access.rules[0].primary_key != ROOT_RULE.primary_key:
        broker.access.require_manage(request.host, "messages", request.headers.get("Authorization"))
    now, start = broker.advance(), request.query.get("from", "0")
    box = broker.registry.find(request.query.get("entity", ""))
    if not isinstance(box, Receivable) or not _SEQUENCE_NUMBER.fullmatch(start):
        raise web.HTTPNotFound(text="Say the path of a queue, subscription or sub-queue, and a number.")
    return web.json_response({"messages": shown_messages(box, int(start), now)})


async def faults(broker: Broker, request: web.Request) -> web.Response:
    if request.method != "POST":
        return web.json_response(asdict(broker.faults))
    if request.content_type != "application/json":
        # A browser sends any other type for a page of another origin without asking first.
        raise web.HTTPUnsupportedMediaType(
            text="The body must be JSON: send the header 'Content-Type: application/json'."
        )
    try:
        document: Any = await request.json()
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ConfigurationError("The body must be a JSON object.")
    changed = change_faults(broker, cast("dict[str, Any]", document))
    await broker.committed()
    return web.json_response(changed)


async def lease(broker: Broker, request: web.Request) -> web.StreamResponse:
    # A lease that anyone could take may have to make room for others.
    proof = request.headers.get(PROOF, "").encode()
    if request.transport is not None and hmac.compare_digest(proof, prove_lease(broker.secret).encode()):
        broker.connections.settle(request.transport)
    broker.leases += 1
    try:
        response = web.StreamResponse()
        await response.prepare(request)
        # A first chunk, because the headers alone would wait for it.
        await response.write(b"held\n")
        await asyncio.Event().wait()  # Cancelled when the client's connection ends.
    finally:
        broker.leases -= 1
    return response


_PAGES: Final[dict[tuple[str, str], Callable[[Broker, web.Request], Awaitable[web.StreamResponse]]]] = {
    ("GET", "/"): page,
    ("GET", "/health"): health,
    ("GET", "/entities"): entities,
    ("GET", "/messages"): messages,
    ("GET", "/faults"): faults,
    ("POST", "/faults"): faults,
    ("GET", "/lease"): lease,
    ("GET", "/$identity"): identity,
    ("GET", WEBSOCKET_PATH): answer_websocket,
}


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
