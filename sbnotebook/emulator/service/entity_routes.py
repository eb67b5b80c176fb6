"""The administration of entities over HTTP, for ``ServiceBusAdministrationClient``.

``PUT`` creates, with the header ``If-Match`` it updates; ``GET`` reads, ``DELETE`` removes.

Source: Service Bus REST documentation, "Entities"; what a namespace answered, as recorded for the tests of Azure's SDKs
(azure-sdk-for-net, SessionRecords of ServiceBusManagementClientLiveTests; azure-sdk-for-python, tests/recordings;
azure-sdk-for-java, session-records).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from xml.etree import ElementTree as ET

from aiohttp import web

from sbnotebook.emulator.clock import ticks_of
from sbnotebook.emulator.entities.options import (
    Options,
    QueueOptions,
    SubscriptionOptions,
    TopicOptions,
    forwarding_of,
    forwarding_target,
)
from sbnotebook.emulator.entities.queue import Queue, Subscription, Topic
from sbnotebook.emulator.entities.refusals import KNOW_MORE, RefusedError
from sbnotebook.emulator.entities.registry import AnyEntity
from sbnotebook.emulator.entities.rules.rule import Rule
from sbnotebook.emulator.service import descriptions
from sbnotebook.emulator.service.access import namespace_of
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.errors import ConfigurationError, InvalidEntityAddressError
from sbnotebook.model.address import EntityAddress

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

_MAX_PAGE: Final = 1000
_MAX_DIGITS: Final = 9
_MAX_PATH: Final = 260
# The two words may be written in upper and lower case.
# A subscription can have the name of the list that it is in; a topic cannot end with it.
_SUBSCRIPTIONS: Final = "/{entity:.+(?<!(?i:/subscriptions))}/{_subscriptions:(?i:subscriptions)}"
_SUBSCRIPTION: Final = f"{_SUBSCRIPTIONS}/{{subscription}}"
_RULES: Final = f"{_SUBSCRIPTION}/{{_rules:(?i:rules)}}"
_SLASH: Final = "{_slash:/?}"  # @azure/service-bus for JavaScript asks for a list with a slash at the end
_CONFLICT: Final = (
    "SubCode=40900. Conflict. You're requesting an operation that isn't allowed in the resource's current state. "
    + KNOW_MORE
)
_NOT_FOUND: Final = f"SubCode=40400. Not Found. The Operation doesn't exist. {KNOW_MORE}"
_NO_POLICY: Final = f"The incoming request is not recognized as a namespace policy put request. {KNOW_MORE}"
_SENT: Final = web.RequestKey("sent", ET.Element)  # The description in the body of a request, which its answer needs
_CONTENT_TYPE: Final = "application/atom+xml; type={}; charset=utf-8"
_FORWARDING: Final = {
    "forward_to": "ServiceBusSupplementaryAuthorization",
    "forward_dead_letters_to": "ServiceBusDlqSupplementaryAuthorization",
}
"""The headers in which a client shows that it may manage the entity that an option names."""
_O = TypeVar("_O", bound=Options)
_T = TypeVar("_T")
_Find = Callable[[web.Request], AnyEntity | Rule]


def add_entity_routes(router: web.UrlDispatcher, broker: Broker) -> None:
    routes = _EntityRoutes(broker)
    router.add_get("/$namespaceinfo", routes.namespace)
    router.add_get("/$Resources/{kind}", routes.list_entities)
    router.add_route("*", "/", _refuse_list)
    # Lists are read only.
    for path, get_list in ((_RULES, routes.list_rules), (_SUBSCRIPTIONS, routes.list_subscriptions)):
        router.add_put(path + _SLASH, _refuse_list)
        router.add_get(path + _SLASH, routes.answering(get_list))
    # Longer paths first: the last one takes every path.
    for path, find, put in (
        (f"{_RULES}/{{rule}}", routes.find_rule, routes.put_rule),
        (_SUBSCRIPTION, routes.find_subscription, routes.put_subscription),
        ("/{entity:.+}", routes.find_entity, routes.put_entity),
    ):
        router.add_get(path, routes.answering(partial(routes.get, find)))
        router.add_put(path, routes.answering(put))
        router.add_delete(path, routes.answering(partial(routes.delete, find)))


class _EntityRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._registry = broker.registry
        self._started = broker.clock.now()

    def answering(self, handler: Handler) -> Handler:
        """Return the handler of a request for an entity, with what all of them have in common."""

        async def answer(request: web.Request) -> web.StreamResponse:
            self._broker.advance()
            # The tag is that of the queue or topic, as it was before the request.
            owner = self._registry.find(_owner_path(request))
            tag = ticks_of(owner.updated_time) if isinstance(owner, Queue | Topic) else None
            response = await handler(request)
            if tag is not None:
                response.headers["ETag"] = str(tag)
            return response

        return answer

    async def namespace(self, request: web.Request) -> web.Response:
        name, now = _namespace(request), self._broker.clock.now()
        description = descriptions.describe_namespace(name, self._registry.tier, self._started)
        return _atom(descriptions.entry(name, str(request.url), None, now, description, name))

    async def list_entities(self, request: web.Request) -> web.Response:
        self._broker.advance()
        kind = request.match_info["kind"].title()
        if kind not in ("Queues", "Topics"):
            raise web.HTTPNotFound(text="There is a list of queues, and one of topics.")
        return self._page(request, kind, self._registry.queues if kind == "Queues" else self._registry.topics)

    async def list_subscriptions(self, request: web.Request) -> web.Response:
        return self._page(request, "Subscriptions", self._topic(request).subscriptions)

    async def list_rules(self, request: web.Request) -> web.Response:
        return self._page(request, "Rules", self.find_subscription(request).rules)

    async def put_entity(self, request: web.Request) -> web.Response:
        body = await _body(request, "QueueDescription", "TopicDescription")
        kind = TopicOptions if body is not None and body.tag == "TopicDescription" else QueueOptions
        if "If-Match" in request.headers:
            entity = self.find_entity(request)
            if type(entity.options) is not kind:
                raise ConfigurationError(f"{entity.path!r} cannot become another kind of entity: delete it first.")
            self._broker.update(entity, self._read(request, kind, body, entity.options))
            return await self._stored(request, entity)
        name, options = request.match_info["entity"], self._read(request, kind, body, None)
        if isinstance(self._registry.find(name), Queue | Topic):
            raise web.HTTPConflict(text=_CONFLICT)
        return await self._stored(request, self._registry.create(name, options, now=self._broker.now))

    async def put_subscription(self, request: web.Request) -> web.Response:
        body = await _body(request, "SubscriptionDescription")
        if "If-Match" in request.headers:
            found = self.find_subscription(request)
            self._broker.update(found, self._read(request, SubscriptionOptions, body, found.options))
            return await self._stored(request, found)
        options = self._read(request, SubscriptionOptions, body, None)
        now = self._broker.now
        rule = None if body is None else descriptions.read_default_rule(body, now)
        topic, name = self._topic(request), request.match_info["subscription"]
        if topic.find_subscription(name) is not None:
            raise _exists(request, topic)
        made = self._registry.create_subscription(topic, name, options, now=now, rules=None if rule is None else [rule])
        return await self._stored(request, made)

    async def put_rule(self, request: web.Request) -> web.Response:
        body = await _body(request, "RuleDescription")
        if body is None:
            raise ConfigurationError("The body must have a RuleDescription.")
        subscription, name, now = self.find_subscription(request), request.match_info["rule"], self._broker.now
        # A new rule, or a new description of one that exists.
        rule = descriptions.read_rule(name, body, now)
        if "If-Match" in request.headers:
            before = self.find_rule(request)
            rule = replace(rule, name=before.name, created_time=before.created_time)
        elif subscription.find_rule(name) is not None:
            raise _exists(request, subscription.topic)
        self._registry.put_rule(subscription, rule, now=now)
        return await self._stored(request, rule)

    async def get(self, find: _Find, request: web.Request) -> web.Response:
        return _atom(self._entry(request, find(request)))

    async def delete(self, find: _Find, request: web.Request) -> web.Response:
        found = find(request)
        if isinstance(found, Rule):
            self._registry.remove_rule(self.find_subscription(request), found.name, now=self._broker.now)
        else:
            self._broker.delete(found)
        await self._broker.committed()
        return web.Response()

    def find_entity(self, request: web.Request) -> Queue | Topic:
        entity = self._registry.find(request.match_info["entity"])
        if isinstance(entity, Queue | Topic):
            return entity
        if self._registry.find(_owner_path(request)) is not None:
            # It is a sub-queue that is asked for.
            raise _wrong_verb(request)
        if request.method == "PUT":
            raise web.HTTPNotFound(text=_NO_POLICY if "subscription" in request.match_info else _NOT_FOUND)
        if request.method == "DELETE":
            raise web.HTTPNotFound(text="No service is hosted at the specified address.")
        raise web.HTTPOk(
            text=descriptions.document(descriptions.missing(self._broker.clock.now())).decode(),
            headers={"Content-Type": _CONTENT_TYPE.format("feed")},
        )

    def _topic(self, request: web.Request) -> Topic:
        entity = self.find_entity(request)
        return _expected(entity if isinstance(entity, Topic) else None, request, entity)

    def find_subscription(self, request: web.Request) -> Subscription:
        topic = self._topic(request)
        return _expected(topic.find_subscription(request.match_info["subscription"]), request, topic)

    def find_rule(self, request: web.Request) -> Rule:
        subscription = self.find_subscription(request)
        return _expected(subscription.find_rule(request.match_info["rule"]), request, subscription.topic)

    def _read(self, request: web.Request, kind: type[_O], body: ET.Element | None, known: _O | None) -> _O:
        if body is None:
            return known or kind()
        options = descriptions.read_entity(
            kind, body, known, self._registry.tier, _version(request), self._broker.clock.now()
        )
        # The client must be allowed to manage an entity that another one is to forward to, which its own key does not
        # say. Source: azure-servicebus-messaging-samples, AutoForward ("the caller must have Manage rights on both
        # entities"); without the header, Azure answers 401 (azure-sdk-for-java 22657, azure-sdk-for-python 15610).
        for name, address in forwarding_of(options).items():
            header, target = _FORWARDING[name], forwarding_target(address)
            try:
                self._broker.access.require_manage(request.host, target, request.headers.get(header))
            except RefusedError as error:
                text = f"The header {header} needs a token that may manage '{target[:_MAX_PATH]}'."
                raise web.HTTPUnauthorized(text=f"SubCode=40100. Unauthorized. {text} {error}") from None
        self._registry.check_targets(options)
        return options

    def _entry(self, request: web.Request, entity: AnyEntity | Rule, *, is_listed: bool = False) -> ET.Element:
        if isinstance(entity, Rule):
            address, created = _address(request, entity.name if is_listed else None), entity.created_time
            return descriptions.entry(entity.name, address, created, created, descriptions.describe_rule(entity))
        description = descriptions.describe_entity(
            entity,
            request.host,
            self._registry.tier,
            _version(request),
            is_write=request.method == "PUT",
            sent=request.get(_SENT),
        )
        # An answer to an update does not say when the entity was created, and that to a subscription has no author.
        name, author = (entity.name, None) if isinstance(entity, Subscription) else (entity.path, _namespace(request))
        created = None if "If-Match" in request.headers else entity.created_time
        address = _address(request, name if is_listed else None)
        return descriptions.entry(name, address, created, entity.updated_time, description, author)

    def _page(self, request: web.Request, title: str, items: Sequence[AnyEntity] | Sequence[Rule]) -> web.Response:
        skip, top = _number(request, "$skip", 0), min(_number(request, "$top", 100), _MAX_PAGE)
        if not top:
            raise ConfigurationError("$top must be at least 1.")
        entries = [self._entry(request, item, is_listed=True) for item in items[skip : skip + top]]
        following = {"$skip": skip + top, "$top": top}
        next_page = str(request.url.update_query(following)) if len(items) > skip + top else None
        return _atom(descriptions.feed(title, str(request.url), self._broker.clock.now(), entries, next_page))

    async def _stored(self, request: web.Request, item: AnyEntity | Rule) -> web.Response:
        await self._broker.committed()
        return _atom(self._entry(request, item), 200 if "If-Match" in request.headers else 201)


def _atom(root: ET.Element, status: int = 200) -> web.Response:
    headers = {"Content-Type": _CONTENT_TYPE.format(root.tag)}
    return web.Response(body=descriptions.document(root), status=status, headers=headers)


def _namespace(request: web.Request) -> str:
    return namespace_of(request.url.host or "")


def _owner_path(request: web.Request) -> str:
    """Return the path of the queue or topic of an address, whose sub-queue the address may name."""
    path = request.match_info["entity"]
    try:
        return EntityAddress.parse(path).name
    except InvalidEntityAddressError:
        return path


def _path(request: web.Request, entity: Queue | Topic) -> str:
    parts = [request.match_info[name] for name in ("subscription", "rule") if name in request.match_info]
    return f"{_namespace(request)}:{entity.kind.title()}:{'|'.join((entity.path, *parts))}"


def _exists(request: web.Request, entity: Topic) -> web.HTTPException:
    return web.HTTPConflict(text=f"The messaging entity '{_path(request, entity)}' already exists. {KNOW_MORE}")


def _expected(found: _T | None, request: web.Request, entity: Queue | Topic) -> _T:
    if found is None:
        raise web.HTTPNotFound(text=f"Entity '{_path(request, entity)[:_MAX_PATH]}' was not found. {KNOW_MORE}")
    return found


def _address(request: web.Request, listed: str | None) -> str:
    if listed is None:
        is_inside = request.method == "GET" and "subscription" in request.match_info
        return str(request.url.with_scheme("sb") if is_inside else request.url)
    version = request.query.get("api-version")
    place = request.path.rstrip("/") if "entity" in request.match_info else ""
    return f"{request.url.origin()}{place}/{listed}" + (f"?api-version={version}" if version else "")


async def _refuse_list(request: web.Request) -> web.Response:
    raise _wrong_verb(request)


def _wrong_verb(request: web.Request) -> web.HTTPException:
    return web.HTTPBadRequest(text=f"The specified HTTP verb ({request.method}) is not valid. {KNOW_MORE}")


async def _body(request: web.Request, *kinds: str) -> ET.Element | None:
    """Return the description in the body, which must be of one of these kinds; None if there is no body."""
    body = await request.read()
    if not body.strip():
        return None
    description = descriptions.read_description(body)
    if description.tag not in kinds:
        raise ConfigurationError(f"The body must have a {' or a '.join(kinds)}.")
    request[_SENT] = description
    return description


def _version(request: web.Request) -> str:
    return request.query.get("api-version", "2024-05")


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    if not (text.isascii() and text.isdecimal()) or len(text) > _MAX_DIGITS:
        raise ConfigurationError(f"{name} must be a number of at most {_MAX_DIGITS} digits, not {text[:40]!r}.")
    return int(text)
