"""Faults that happen at once, on demand: lost locks, closed links, dropped and frozen connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sbnotebook.emulator.entities import AnyEntity, Condition, Receivable
from sbnotebook.emulator.faults import Faults
from sbnotebook.emulator.service.access import MANAGEMENT
from sbnotebook.emulator.service.broker import Broker, Peer, boxes
from sbnotebook.errors import ConfigurationError


def lose_locks(broker: Broker, path: str | None = None) -> None:
    """Drop all locks, as when the service moves an entity. No delivery counts as failed."""
    now = broker.advance()
    for entity in _named(broker, path):
        if isinstance(entity, Receivable):
            entity.drop_locks(now)
    broker.schedule_turn()


def close_links(broker: Broker, path: str | None = None) -> None:
    """Detach the links, as when an entity was changed; arguments and errors as for ``lose_locks``.

    The path of a management node, such as ``orders/$management``, means the links to it alone, as after ten idle
    minutes.
    """
    is_node = path is not None and path.endswith(MANAGEMENT)
    for entity in _named(broker, path and path.removesuffix(MANAGEMENT)):
        sentence = f"The entity '{entity.path}' was changed."
        broker.detach(entity, Condition.DETACH_FORCED, sentence, is_node=is_node)
    broker.schedule_turn()


def drop_connections(broker: Broker, path: str | None = None) -> None:
    """Drop all connections without a close; with a path only those that are attached to that entity."""
    for peer in _connected(broker, path):
        peer.abort()


def freeze(broker: Broker, path: str | None = None) -> None:
    """Stop reading and answering on all connections, new ones too; with a path only on those attached to it now."""
    for peer in _connected(broker, path):
        peer.freeze()
    if path is None:
        broker.freezes_new = True


def freeze_new(broker: Broker) -> None:
    """Stop reading and answering on new connections."""
    broker.freezes_new = True


def thaw(broker: Broker) -> None:
    """Read and answer on all connections again, starting with the requests that came in meanwhile."""
    broker.freezes_new = False
    for peer in list(broker.peers):
        peer.thaw()


def change_faults(broker: Broker, document: Mapping[str, Any]) -> dict[str, Any]:
    """Change the faults as a JSON object says."""
    standing = dict(document)
    acts = [(act, _target(broker, name, standing.pop(name))) for name, act in _ACTS.items() if name in standing]
    switches = [name for name in _SWITCHES if _is_asked(name, standing.pop(name, None))]
    faults = Faults() if "reset" in switches else broker.faults
    faults.change(standing)
    broker.faults = faults
    for name in switches:
        _SWITCHES[name](broker)
    for act, path in acts:
        act(broker, path)
    return faults.to_json()


_ACTS: Final[dict[str, Callable[[Broker, str | None], None]]] = {
    "lose_locks": lose_locks,
    "close_links": close_links,
    "drop_connections": drop_connections,
    "freeze": freeze,
}
_SWITCHES: Final[dict[str, Callable[[Broker], None]]] = {"reset": thaw, "thaw": thaw, "freeze_new": freeze_new}


def _target(broker: Broker, name: str, value: object) -> str | None:
    if value is True:
        return None
    if not isinstance(value, str):
        raise ConfigurationError(f"{name!r} must be the path of an entity, or true for all.")
    _named(broker, value.removesuffix(MANAGEMENT) if name == "close_links" else value)
    return value


def _is_asked(name: str, value: object) -> bool:
    if value is not None and value is not True:
        raise ConfigurationError(f"{name!r} can only be true.")
    return value is True


def _named(broker: Broker, path: str | None) -> list[AnyEntity | Receivable]:
    registry = broker.registry
    if path is None:
        return [*registry.entities, *(each for topic in registry.topics for each in topic.subscriptions)]
    entity = registry.find(path)
    if entity is None:
        raise ConfigurationError(f"There is no entity {path[:80]!r}.")
    return [entity]


def _connected(broker: Broker, path: str | None) -> list[Peer]:
    peers = list(broker.peers)
    if path is None:
        return peers
    attached = [box for entity in _named(broker, path) for box in boxes(entity)]
    return [peer for peer in peers if peer.is_attached_to(attached)]
