"""Faults that happen at once, on demand: lost locks, closed links, dropped and frozen connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from sbnotebook.emulator.entities.box import Receivable
from sbnotebook.emulator.entities.refusals import Condition
from sbnotebook.emulator.entities.registry import AnyEntity
from sbnotebook.emulator.faults import Faults
from sbnotebook.emulator.service.access import MANAGEMENT
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.peer import AmqpPeer
from sbnotebook.errors import ConfigurationError


def change_faults(broker: Broker, document: Mapping[str, Any]) -> dict[str, Any]:
    standing = dict(document)
    resets = standing.pop("reset", None)
    _expect_true("reset", True if resets is None else resets)
    asked = {name: _target(broker, name, standing.pop(name)) for name in ACTS if name in standing}
    faults = Faults() if resets else broker.faults
    faults.change(standing)
    broker.faults = faults
    if resets:
        _thaw(broker, None)
    for name, path in asked.items():
        ACTS[name](broker, path)
    return asdict(faults)


def _lose_locks(broker: Broker, path: str | None) -> None:
    # As when the service moves an entity.
    now = broker.advance()
    for entity in _named(broker, path):
        if isinstance(entity, Receivable):
            entity.drop_locks(now)
    broker.schedule_turn()


def _close_links(broker: Broker, path: str | None) -> None:
    is_node = path is not None and path.endswith(MANAGEMENT)
    for entity in _named(broker, path and path.removesuffix(MANAGEMENT)):
        sentence = f"The entity '{entity.path}' was changed."
        broker.detach(entity, Condition.DETACH_FORCED, sentence, is_node=is_node)
    broker.schedule_turn()


def _drop_connections(broker: Broker, path: str | None) -> None:
    for peer in _connected(broker, path):
        peer.abort()


def _freeze(broker: Broker, path: str | None) -> None:
    for peer in _connected(broker, path):
        peer.freeze()
    if path is None:
        broker.freezes_new = True


def _freeze_new(broker: Broker, _path: str | None) -> None:
    broker.freezes_new = True


def _thaw(broker: Broker, _path: str | None) -> None:
    broker.freezes_new = False
    for peer in list(broker.peers):
        peer.thaw()


ACTS: Final[dict[str, Callable[[Broker, str | None], None]]] = {
    "thaw": _thaw,
    "freeze_new": _freeze_new,
    "lose_locks": _lose_locks,
    "close_links": _close_links,
    "drop_connections": _drop_connections,
    "freeze": _freeze,
}
"""In the order in which those of one request happen, by the name of the method of ``RunningEmulator``."""
_OF_ALL: Final = frozenset(("thaw", "freeze_new"))  # Those that cannot be for one entity only


def _target(broker: Broker, name: str, value: object) -> str | None:
    if name in _OF_ALL:
        _expect_true(name, value)
    if value is True:
        return None
    if not isinstance(value, str):
        raise ConfigurationError(f"{name!r} must be the path of an entity, or true for all.")
    _named(broker, value.removesuffix(MANAGEMENT) if name == "close_links" else value)
    return value


def _expect_true(name: str, value: object) -> None:
    if value is not True:
        raise ConfigurationError(f"{name!r} can only be true.")


def _named(broker: Broker, path: str | None) -> list[AnyEntity | Receivable]:
    registry = broker.registry
    if path is None:
        return [*registry.entities, *(each for topic in registry.topics for each in topic.subscriptions)]
    entity = registry.find(path)
    if entity is None:
        raise ConfigurationError(f"There is no entity {path[:80]!r}.")
    return [entity]


def _connected(broker: Broker, path: str | None) -> list[AmqpPeer]:
    peers = list(broker.peers)
    if path is None:
        return peers
    attached = [box for entity in _named(broker, path) for box in entity.boxes]
    return [peer for peer in peers if peer.is_attached_to(attached)]
