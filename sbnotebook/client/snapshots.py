"""Snapshots of whole namespaces, and what differs between two of them. A snapshot is a copy of all entities."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sbnotebook.analysis.masks import Masks
from sbnotebook.analysis.shown import ShownRows, Table
from sbnotebook.client.copying import MOST, Copied, copied
from sbnotebook.errors import DecisionError
from sbnotebook.model import EntityAddress, ReceivedMessage, SubQueue

if TYPE_CHECKING:
    from sbnotebook.settlement import Connection, EntityCounts

_COUNTED: Final = (
    "active messages",
    "scheduled messages",
    "dead letters",
    "messages in the transfer dead-letter queue",
)
_EXISTS: Final = "entity"
_NAMES, _OPTIONS = {"Queues": "queue", "Topics": "topic", "Subscriptions": "subscription"}, "Properties"


async def snapshot_of(
    connection: Connection,
    entities: Sequence[EntityCounts],
    peek: Callable[[EntityAddress], Awaitable[Iterable[ReceivedMessage]]] | None,
    masks: Masks,
) -> AbstractAsyncContextManager[Copied]:
    """Copy all entities into a fresh emulator, with the messages that a peek finds in each queue and sub-queue."""
    messages: list[ReceivedMessage] = []
    counts = {
        str(each.address): (each.active, each.scheduled, each.dead_letter, each.transfer_dead_letter)
        for each in entities
    }
    for each in entities if peek is not None else ():
        filled = {None: each.active + each.scheduled, SubQueue.DEAD_LETTER: each.dead_letter}
        for sub_queue, count in filled.items():
            if count and each.kind != "topic" and peek is not None:
                messages += await peek(EntityAddress(each.address.name, each.address.subscription, sub_queue))
        if len(messages) > MOST:
            raise DecisionError(f"A snapshot has {MOST:,} messages at most, and these are more: take a smaller sample.")
    names = [each.address.name for each in entities if each.kind != "subscription"]
    return copied(connection, None, messages, beside=names, masks=masks, counts=counts)


class NamespaceDifference(NamedTuple):
    """One difference between two namespaces.

    Args:
        entity: where it is.
        what: an option, a rule or a count; ``entity`` where only one namespace has the entity.
        one: its value in the first namespace; None where it has none.
        other: its value in the second.
    """

    entity: str
    what: str
    one: str | None
    other: str | None


class Comparison(ShownRows[NamespaceDifference]):
    """The differences of two namespaces or snapshots. Shown as a table in a notebook and as text elsewhere."""

    _one_line = False
    _fields = NamespaceDifference._fields

    def __init__(self, differences: Iterable[NamespaceDifference], names: tuple[str, str]) -> None:
        super().__init__(differences)
        self._names = names

    def _table(self, most: int) -> Table:
        count, (one, other) = len(self), self._names
        said = f"{count:,} difference{'s' if count != 1 else ''}" if count else "No difference"
        more = f", the first {most:,} shown" if count > most else ""
        rows = [list(each) for each in self[:most]]
        return ("entity", "what", one, other), rows, f"{said} between {one} and {other}{more}."


def compared(one: Copied, other: Copied, names: tuple[str, str], *, counts: bool) -> Comparison:
    """Compare the options, the rules and the counts of two copies."""
    first, second = (dict(_described(each)) | (_counted(each) if counts else {}) for each in (one, other))
    alone = {place for place, what in first.keys() ^ second.keys() if what == _EXISTS}
    keys = sorted(first.keys() | second.keys(), key=lambda key: (key[0].casefold(), key[1] != _EXISTS, key[1]))
    return Comparison(
        (
            NamespaceDifference(place, what, first.get((place, what)), second.get((place, what)))
            for place, what in keys
            if first.get((place, what)) != second.get((place, what)) and (what == _EXISTS or place not in alone)
        ),
        names,
    )


def _counted(copy: Copied) -> dict[tuple[str, str], str | None]:
    return {
        (path, what): f"{count:,}"
        for path, each in copy.counts.items()
        for what, count in zip(_COUNTED, each, strict=True)
    }


def _described(copy: Copied) -> Iterator[tuple[tuple[str, str], str | None]]:
    """Yield each option and rule, by its entity and name."""
    for namespace in copy.configuration["UserConfig"]["Namespaces"]:
        yield from _items(namespace, ())


def _items(holder: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[tuple[tuple[str, str], str | None]]:
    for list_name, kind in _NAMES.items():
        for item in holder.get(list_name, ()):
            own = *names, str(item["Name"])
            place = str(EntityAddress.parse("/subscriptions/".join(own)))
            yield (place, _EXISTS), kind
            for option, value in item[_OPTIONS].items():
                yield (place, option), _text(value)
            for rule in item.get("Rules", ()):
                yield (place, f"rule {rule['Name']}"), _text(rule[_OPTIONS])
            yield from _items(item, own)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
