"""Which subscriptions of a topic take a message, by their rules: Service Bus accepts and drops one that none takes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final

from sbnotebook.amqp import Timestamp
from sbnotebook.emulator.entities.rules.rule import (
    FALSE_FILTER,
    TRUE_FILTER,
    Filter,
    Rule,
    SqlAction,
    correlation_filter,
    sql_filter,
)
from sbnotebook.emulator.entities.rules.subject import FilterError, RuleSubject
from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import EntityAddress, Message, Resubmit, Undo
from sbnotebook.model.clones import clone_of
from sbnotebook.model.routes import PlacedRules, Route, RuleDescription
from sbnotebook.settlement import AsyncEntity, Connection, Plan, Resources, payload_of, route_of

_HOPS: Final = 4
"""Entities to which Service Bus forwards a message one after the other. Source: its documentation, "Autoforwarding"."""
_MOST: Final = 1_000
"""Messages of a plan that are looked at for its preview."""
_NAMED: Final = 5
_UNSENT: Final = re.compile(r"(?i)enqueued|sequence_?number|deliverycount|lockeduntil|expiresat|\bstate\b|newid")
"""Words of an expression that read more than the message has when it is sent."""
_FAILED: Final = "a rule cannot be evaluated on it"


@dataclass(frozen=True, slots=True)
class Receiver:
    """A subscription, or a queue at the end of a forwarding, that takes a message.

    Args:
        address: of it.
        rules: the names of the rules that take it; without those of a queue.
        copies: how many copies it gets: one for all rules without an action, and one for each other rule.
        notes: what else happens to it there, in clauses, such as that the subscription is disabled.
    """

    address: EntityAddress
    rules: tuple[str, ...] = ()
    copies: int = 1
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        rules = f"by {', '.join(self.rules)}" if self.rules else ""
        copies = f"{self.copies} copies" if self.copies != 1 else ""
        said = "; ".join(filter(None, (rules, copies, *self.notes)))
        return f"{self.address} ({said})" if said else str(self.address)


@dataclass(frozen=True, slots=True)
class Receivers:
    """The fate of one message that is sent to a topic.

    Args:
        to: the topic.
        taken: subscriptions, and queues behind them, that take it.
        refused: the subscriptions whose rules do not, and why where that is not plain.
        unknown: why it is not known of others, by their addresses.

    Example:
        >>> print(Receivers(EntityAddress("events"), refused={EntityAddress("events", "audit"): ""}))
        WARNING: no subscription of events takes it. Service Bus accepts and drops it.
    """

    to: EntityAddress
    taken: list[Receiver] = field(default_factory=list[Receiver])
    refused: dict[EntityAddress, str] = field(default_factory=dict[EntityAddress, str])
    unknown: dict[EntityAddress, str] = field(default_factory=dict[EntityAddress, str])

    @property
    def is_lost(self) -> bool:
        """Return whether it is known that no subscription takes the message."""
        return not self.taken and not self.unknown

    def __str__(self) -> str:
        if self.is_lost:
            why = [f"{place}: {why}" for place, why in self.refused.items() if why]
            return " ".join(
                [f"WARNING: no subscription of {self.to} takes it. Service Bus accepts and drops it.", *why]
            )
        taken = f"Taken by {', '.join(map(str, self.taken))}." if self.taken else ""
        unknown = "; ".join(f"{place}: {why}" for place, why in self.unknown.items())
        return " ".join(filter(None, (taken, f"Unknown: {unknown}." if unknown else "")))


class Router:
    """Tells which subscriptions take messages, by rules that are read once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[str, Route] = {}
        self._compiled: dict[EntityAddress, list[Rule] | str] = {}

    async def receivers(self, to: EntityAddress, message: Message) -> Receivers | None:
        """Return who takes a message; None where the destination is a queue that forwards to no topic."""
        if not await self.may_reach_topic(to):
            return None
        found = Receivers(to)
        await self._follow(found, to.name, payload_of(message), _HOPS)
        return found

    async def may_reach_topic(self, to: EntityAddress) -> bool:
        """Return whether messages that are sent to a queue or topic come to rules, or may, as far as is known."""
        name = to.name
        for _ in range(_HOPS + 1):
            route = await self.route(name)
            if route.unknown or route.is_topic:
                return True
            if route.forwards_to is None:
                return False
            name = route.forwards_to
        return True

    async def route(self, name: str) -> Route:
        key = name.casefold()
        if key not in self._known:
            self._known[key] = await route_of(self._connection, name)
        return self._known[key]

    async def _follow(self, found: Receivers, name: str, payload: bytes, hops: int) -> None:
        route, address = await self.route(name), EntityAddress(name)
        if route.unknown:
            found.unknown[address] = "it is not there" if route.is_missing else route.unknown
        elif route.is_topic:
            for place in route.subscriptions:
                await self._look_at(found, place, payload, hops)
        elif route.forwards_to is None:
            found.taken.append(Receiver(address))
        else:
            await self._forward(found, address, route.forwards_to, payload, hops)

    async def _forward(self, found: Receivers, source: EntityAddress, target: str, payload: bytes, hops: int) -> None:
        if hops == 0:
            note = f"dead-lettered there: Service Bus forwards a message {_HOPS} times at most"
            found.taken.append(Receiver(source, notes=(note,)))
        else:
            await self._follow(found, target, payload, hops - 1)

    async def _look_at(self, found: Receivers, place: PlacedRules, payload: bytes, hops: int) -> None:
        rules, address = self._rules(place), place.address
        if isinstance(rules, str):
            found.unknown[address] = rules
            return
        subject = RuleSubject(payload)
        try:
            matching = [rule for rule in rules if rule.filter.matches(subject)]
            copies = [payload] if any(rule.action is None for rule in matching) else []
            copies += [rule.copy(subject) for rule in matching if rule.action is not None]
        except FilterError:
            if place.keeps_failures:
                found.taken.append(Receiver(address.dead_letter, notes=(_FAILED,)))
            else:
                found.refused[address] = f"{_FAILED}, so it is dropped there"
            return
        if _depends(place, rules, matching):
            found.unknown[address] = "a rule reads what Service Bus sets as it takes the message"
        elif not matching:
            found.refused[address] = ""
        elif place.forwards_to is not None:
            for copy in copies:
                await self._forward(found, address, place.forwards_to, copy, hops)
        else:
            names = tuple(rule.name for rule in matching)
            found.taken.append(Receiver(address, names, len(copies), _notes(place, payload)))

    def _rules(self, place: PlacedRules) -> list[Rule] | str:
        if place.address not in self._compiled:
            try:
                self._compiled[place.address] = [_rule(described) for described in place.rules]
            except (SbNotebookError, TypeError, ValueError) as error:
                self._compiled[place.address] = f"sbnotebook cannot evaluate its rules ({error})"
        return self._compiled[place.address]


def _notes(place: PlacedRules, payload: bytes) -> tuple[str, ...]:
    disabled = ("disabled: its consumers receive nothing until it is active",) if place.is_disabled else ()
    if place.in_sessions and RuleSubject(payload).system("sessionid") is None:
        return (*disabled, "it has no session id, which its consumers need")
    return disabled


def _depends(place: PlacedRules, rules: Iterable[Rule], matching: list[Rule]) -> bool:
    """Return whether rules that decide on a message read more than it has when it is sent."""
    certain = any(
        rule in matching and not _UNSENT.search(described.expression)
        for rule, described in zip(rules, place.rules, strict=True)
    )
    return not certain and any(_UNSENT.search(described.expression) for described in place.rules)


def _rule(described: RuleDescription) -> Rule:
    action = SqlAction(described.action, _values(described.action_parameters)) if described.action else None
    return Rule(described.name, _filter(described), action)


def _filter(described: RuleDescription) -> Filter:
    match described.kind:
        case "true":
            return TRUE_FILTER
        case "false":
            return FALSE_FILTER
        case "sql":
            return sql_filter(described.expression, _values(described.parameters))
        case "correlation":
            return correlation_filter(**described.fields, properties=_values(described.properties))
        case _:
            raise ConfigurationError(f"the rule {described.name[:60]!r} has a filter of an unknown kind")


def _values(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in given.items()}


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return Timestamp.from_datetime(value if value.tzinfo else value.replace(tzinfo=UTC))
    if isinstance(value, timedelta):
        raise ConfigurationError("a duration as a parameter")
    return value


async def receivers_sentence(
    router: Router, to: EntityAddress, messages: Iterable[Message], *, is_topic: bool = False
) -> str:
    route = await router.route(to.name)
    if route.is_missing:
        return f"{route.unknown} %sb_create queue {to.name} creates it."
    if route.unknown:
        topic = "" if is_topic else f"If {to} is a topic: "
        return f"{topic}It is unknown which subscriptions take them: {route.unknown}."
    if not await router.may_reach_topic(to):
        return ""
    taken: Counter[str] = Counter()
    lost: list[str] = []
    unknown: dict[EntityAddress, str] = {}
    looked = [*islice(messages, _MOST + 1)]
    count, more = len(looked[:_MOST]), len(looked) > _MOST
    for place, message in enumerate(looked[:_MOST], start=1):
        found = await router.receivers(to, message)
        if found is None:
            continue
        taken.update({str(replace(receiver, rules=(), copies=1)) for receiver in found.taken})
        unknown |= found.unknown
        if found.is_lost:
            lost.append(_name(message, place))
    return " ".join(_said(to, taken, lost, unknown, f"the first {count:,}" if more else f"{count:,}"))


def _said(
    to: EntityAddress, taken: Counter[str], lost: list[str], unknown: Mapping[EntityAddress, str], of: str
) -> Iterable[str]:
    if lost:
        named = ", ".join(lost[:_NAMED]) + (", …" if len(lost) > _NAMED else "")
        noun, them = "message" if of == "1" else "messages", "it" if len(lost) == 1 else "them"
        yield (
            f"WARNING: no subscription of {to} takes {len(lost):,} of {of} {noun} ({named}): Service Bus accepts and "
            f"drops {them}."
        )
    if taken:
        yield f"By the rules, of {of}: " + ", ".join(f"{place} takes {n:,}" for place, n in taken.most_common()) + "."
    if unknown:
        whys = "; ".join(f"{place}: {why}" for place, why in islice(unknown.items(), _NAMED))
        yield f"Unknown: {whys}."


def _name(message: Message, place: int) -> str:
    number = getattr(message, "sequence_number", None)
    if number:
        return f"#{number}"
    return repr(message.message_id[:60]) if message.message_id else f"number {place:,}"


async def sent_to(entity: AsyncEntity, messages: Iterable[Message]) -> str:
    return await receivers_sentence(Router(entity.namespace.connection), entity.address, messages)


async def clones_sent(namespace: Resources, plan: Plan) -> str:
    decision, source = plan.decision, plan.entity
    to = decision.to if isinstance(decision, (Resubmit, Undo)) else None
    if to is None or not plan.messages:
        return ""
    is_same = isinstance(decision, Resubmit) and decision.to_host is None and to == source.sends_to
    if is_same and source.subscription is None:  # it came from there, so it is a queue
        return ""
    return await receivers_sentence(Router(namespace.connection), to, _sent(plan), is_topic=is_same)


def _sent(plan: Plan) -> Iterable[Message]:
    """Yield what a plan sends; not for a message whose edit fails, because nothing is sent for it."""
    for message in plan.messages:
        if not isinstance(plan.decision, Resubmit):
            yield message
            continue
        clone: Message | None = None
        with suppress(Exception):  # a user's edit may raise anything; the preview shows it
            made = clone_of(message, plan.decision, plan.edit, datetime.now(UTC))
            payload_of(made)
            clone = made
        if clone is None:
            continue
        # Its own number names it to the user.
        yield message.with_changes(**{each.name: getattr(clone, each.name) for each in fields(Message)})
