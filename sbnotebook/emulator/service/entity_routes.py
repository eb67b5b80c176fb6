"""The administration of entities over HTTP, for ``ServiceBusAdministrationClient``.

===============================================  ==========================================
``/{entity}``                                    a queue or a topic
``/{topic}/subscriptions``                       the subscriptions of a topic, in pages
``/{topic}/subscriptions/{name}``                a subscription
``/{topic}/subscriptions/{name}/rules``          the rules of a subscription, in pages
``/{topic}/subscriptions/{name}/rules/{rule}``   a rule
``/$Resources/queues``, ``/$Resources/topics``   all queues or topics, in pages
``/$namespaceinfo``                              the namespace
===============================================  ==========================================

``PUT`` creates, with the header ``If-Match`` it updates; ``GET`` reads, ``DELETE`` removes.

Source: Service Bus REST documentation, "Entities".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar
from xml.etree import ElementTree as ET

from aiohttp import web

from sbnotebook.emulator.entities import AnyEntity, Queue, Subscription, Tier, Topic
from sbnotebook.emulator.entities.options import Options, QueueOptions, SubscriptionOptions, TopicOptions
from sbnotebook.emulator.entities.rules import Rule
from sbnotebook.emulator.service import atom
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.descriptions import (
    describe_entity,
    describe_namespace,
    describe_rule,
    read_default_rule,
    read_entity,
    read_rule,
)
from sbnotebook.emulator.service.middleware import RequestRefusedError, xml
from sbnotebook.errors import ConfigurationError

__all__ = ["add_entity_routes"]

_MAX_PAGE: Final = 1000
_MAX_DIGITS: Final = 9
_LATEST: Final = "2024-05"
# The two words may be written in upper and lower case.
_SUBSCRIPTIONS: Final = "/{entity:.+}/{_subscriptions:(?i:subscriptions)}"
_SUBSCRIPTION: Final = f"{_SUBSCRIPTIONS}/{{subscription}}"
_RULES: Final = f"{_SUBSCRIPTION}/{{_rules:(?i:rules)}}"
_RULE: Final = f"{_RULES}/{{rule}}"
_SLASH: Final = "{_slash:/?}"
"""@azure/service-bus for JavaScript asks for a list with a slash at the end."""
_T = TypeVar("_T")
_O = TypeVar("_O", bound=Options)


def add_entity_routes(app: web.Application, broker: Broker) -> None:
    """Add the routes of the administration. Add them last: an entity can have almost any name."""
    routes = _EntityRoutes(broker)
    app.router.add_get("/$namespaceinfo", routes.namespace)
    app.router.add_get("/$Resources/{kind}", routes.list_entities)
    # Lists are read only.
    for path, get_list in ((_RULES, routes.list_rules), (_SUBSCRIPTIONS, routes.list_subscriptions)):
        app.router.add_put(path + _SLASH, _refuse_list)
        app.router.add_get(path + _SLASH, get_list)
    # Longer paths first: the last one takes every path.
    for path, get, put, delete in (
        (_RULE, routes.get_rule, routes.put_rule, routes.delete_rule),
        (_SUBSCRIPTION, routes.get_subscription, routes.put_subscription, routes.delete_subscription),
        ("/{entity:.+}", routes.get_entity, routes.put_entity, routes.delete_entity),
    ):
        app.router.add_get(path, get)
        app.router.add_put(path, put)
        app.router.add_delete(path, delete)


class _EntityRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._registry = broker.registry
        self._started = broker.clock.now()

    async def namespace(self, request: web.Request) -> web.Response:
        name = request.host
        description = describe_namespace(name, self._registry.tier.value, self._started)
        return xml(atom.entry(atom.Entry(name, str(request.url), self._started, self._started, description)))

    async def list_entities(self, request: web.Request) -> web.Response:
        self._broker.moment()
        kinds = {"queues": self._registry.queues, "topics": self._registry.topics}
        entities: list[Queue] | list[Topic] | None = kinds.get(request.match_info["kind"].casefold())
        if entities is None:
            raise RequestRefusedError(404, "There is a list of queues, and one of topics.")
        return _page(request, entities, lambda each: self._entry(request, each))

    async def list_subscriptions(self, request: web.Request) -> web.Response:
        self._broker.moment()
        return _page(request, self._topic(request).subscriptions, lambda each: self._entry(request, each))

    async def list_rules(self, request: web.Request) -> web.Response:
        self._broker.moment()
        subscription = self._subscription(request)
        return _page(request, subscription.rules, lambda each: _rule_entry(request, subscription, each))

    async def get_entity(self, request: web.Request) -> web.Response:
        self._broker.moment()
        return xml(atom.entry(self._entry(request, self._entity(request))))

    async def put_entity(self, request: web.Request) -> web.Response:
        name, body = request.match_info["entity"], await _body(request, "QueueDescription", "TopicDescription")
        is_topic = body is not None and _is(body, "TopicDescription")
        now = self._broker.moment()
        if "If-Match" in request.headers:
            return await self._update_entity(request, body, is_topic=is_topic)
        if is_topic:
            topic_options = self._read(request, TopicOptions, body, None)
            return await self._created(request, self._registry.create_topic(name, topic_options, now=now))
        options = self._read(request, QueueOptions, body, None)
        return await self._created(request, self._registry.create_queue(name, options, now=now))

    async def _update_entity(self, request: web.Request, body: ET.Element | None, *, is_topic: bool) -> web.Response:
        entity = self._entity(request)
        if isinstance(entity, Topic) is not is_topic:
            raise ConfigurationError(f"{entity.path!r} cannot become another kind of entity: delete it first.")
        if isinstance(entity, Topic):
            return await self._updated(request, entity, self._read(request, TopicOptions, body, entity.options))
        return await self._updated(request, entity, self._read(request, QueueOptions, body, entity.options))

    async def delete_entity(self, request: web.Request) -> web.Response:
        self._broker.moment()
        return await self._deleted(self._entity(request))

    async def get_subscription(self, request: web.Request) -> web.Response:
        self._broker.moment()
        return xml(atom.entry(self._entry(request, self._subscription(request))))

    async def put_subscription(self, request: web.Request) -> web.Response:
        body = await _body(request, "SubscriptionDescription")
        now = self._broker.moment()
        if "If-Match" in request.headers:
            found = self._subscription(request)
            return await self._updated(request, found, self._read(request, SubscriptionOptions, body, found.options))
        options = self._read(request, SubscriptionOptions, body, None)
        rule = None if body is None else read_default_rule(body, now)
        topic, name = self._topic(request), request.match_info["subscription"]
        made = self._registry.create_subscription(topic, name, options, now=now, rules=None if rule is None else [rule])
        return await self._created(request, made)

    async def delete_subscription(self, request: web.Request) -> web.Response:
        self._broker.moment()
        return await self._deleted(self._subscription(request))

    async def get_rule(self, request: web.Request) -> web.Response:
        self._broker.moment()
        return xml(atom.entry(_rule_entry(request, self._subscription(request), self._rule(request))))

    async def put_rule(self, request: web.Request) -> web.Response:
        body = await _body(request, "RuleDescription")
        now = self._broker.moment()
        if body is None:
            raise ConfigurationError("The body must have a RuleDescription.")
        subscription, name = self._subscription(request), request.match_info["rule"]
        # A new rule, or a new description of one that exists.
        rule, is_update = read_rule(name, body, now), "If-Match" in request.headers
        if is_update:
            before = self._rule(request)
            rule = replace(rule, name=before.name, created_time=before.created_time)
        elif subscription.find_rule(name) is not None:
            raise RequestRefusedError(409, f"There is already a rule {name!r}.")
        # Answer once it is stored.
        self._registry.put_rule(subscription, rule, now=now)
        await self._broker.kept()
        return xml(atom.entry(_rule_entry(request, subscription, rule)), 200 if is_update else 201)

    async def delete_rule(self, request: web.Request) -> web.Response:
        now = self._broker.moment()
        self._registry.remove_rule(self._subscription(request), self._rule(request).name, now=now)
        await self._broker.kept()
        return web.Response()

    def _entity(self, request: web.Request) -> Queue | Topic:
        name = request.match_info["entity"]
        queue = self._registry.find_queue(name)
        # An empty queue is false.
        entity = self._registry.find_topic(name) if queue is None else queue
        if entity is None:
            raise RequestRefusedError(404, f"There is no entity {name[:260]!r}.")
        return entity

    def _topic(self, request: web.Request) -> Topic:
        name = request.match_info["entity"]
        topic = self._registry.find_topic(name)
        if topic is None:
            raise RequestRefusedError(404, f"There is no topic {name[:260]!r}.")
        return topic

    def _subscription(self, request: web.Request) -> Subscription:
        topic, name = self._topic(request), request.match_info["subscription"]
        subscription = self._registry.find_subscription(topic.path, name)
        if subscription is None:
            raise RequestRefusedError(404, f"The topic {topic.path!r} has no subscription {name[:50]!r}.")
        return subscription

    def _rule(self, request: web.Request) -> Rule:
        name = request.match_info["rule"]
        rule = self._subscription(request).find_rule(name)
        if rule is None:
            raise RequestRefusedError(404, f"There is no rule {name[:50]!r}.")
        return rule

    def _read(self, request: web.Request, kind: type[_O], body: ET.Element | None, known: _O | None) -> _O:
        options = known or kind() if body is None else read_entity(kind, body, known, _version(request))
        size = getattr(options, "max_message_size_kb", None)
        if size is not None and self._registry.tier is not Tier.PREMIUM:
            raise ConfigurationError("MaxMessageSizeInKilobytes can be set in the tier Premium only.")
        return options

    def _entry(self, request: web.Request, entity: AnyEntity) -> atom.Entry:
        description = describe_entity(entity, request.host, self._registry.tier, _version(request))
        name = entity.name if isinstance(entity, Subscription) else entity.path
        address = f"{request.url.origin()}/{entity.path}"
        return atom.Entry(name, address, entity.created_time, entity.updated_time, description)

    async def _created(self, request: web.Request, entity: AnyEntity) -> web.Response:
        await self._broker.kept()
        return xml(atom.entry(self._entry(request, entity)), 201)

    async def _updated(self, request: web.Request, entity: AnyEntity, options: Options) -> web.Response:
        self._broker.update(entity, options)
        await self._broker.kept()
        return xml(atom.entry(self._entry(request, entity)))

    async def _deleted(self, entity: AnyEntity) -> web.Response:
        self._broker.delete(entity)
        await self._broker.kept()
        return web.Response()


async def _refuse_list(_request: web.Request) -> web.Response:
    raise RequestRefusedError(405, "A list cannot be written: name what is to be created.")


async def _body(request: web.Request, *kinds: str) -> ET.Element | None:
    """Return the description in the body, which must be of one of these kinds; None if there is no body."""
    body = await request.read()
    if not body.strip():
        return None
    description = atom.read_description(body)
    if not any(_is(description, kind) for kind in kinds):
        raise ConfigurationError(f"The body must have a {' or a '.join(kinds)}.")
    return description


def _is(description: ET.Element, kind: str) -> bool:
    return description.tag == atom.SERVICE_BUS + kind


def _rule_entry(request: web.Request, subscription: Subscription, rule: Rule) -> atom.Entry:
    time = rule.created_time
    address = f"{request.url.origin()}/{subscription.path}/Rules/{rule.name}"
    return atom.Entry(rule.name, address, time, time, describe_rule(rule))


def _page(request: web.Request, items: Sequence[_T], describe: Callable[[_T], atom.Entry]) -> web.Response:
    skip, top = _number(request, "$skip", 0), min(_number(request, "$top", 100), _MAX_PAGE)
    if not top:
        raise ConfigurationError("$top must be at least 1.")
    next_page = None
    if len(items) > skip + top:
        next_page = str(request.url.update_query({"$skip": skip + top, "$top": top}))
    entries = [describe(item) for item in items[skip : skip + top]]
    return xml(atom.feed(request.path, str(request.url), entries, next_page))


def _version(request: web.Request) -> str:
    return request.query.get("api-version", _LATEST)


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    if not (text.isascii() and text.isdecimal()) or len(text) > _MAX_DIGITS:
        raise ConfigurationError(f"{name} must be a number of at most {_MAX_DIGITS} digits, not {text[:40]!r}.")
    return int(text)
