"""A namespace as Service Bus documents it, as plainly as possible and without the emulator's code.

Each message is in exactly one box, in one state. If the documentation leaves the number of a message open, the model
waits for it (``number`` is None until then).

Sources: Service Bus documentation, "Message transfers, locks, and settlement", "Message deferral",
"Overview of dead-letter queues", "Message expiration", "Message sequencing and timestamps", "Message
sessions", "Duplicate detection", "Chaining Service Bus entities with autoforwarding".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from uuid import UUID

__all__ = ["Copy", "Entity", "Namespace", "entity_of"]


@dataclass
class Entity:
    """The settings of an entity; a topic has ``subscriptions``, each with the labels that it accepts."""

    lock: int = 1000
    max_deliveries: int = 3
    life: int | None = None
    keeps_expired: bool = False
    has_sessions: bool = False
    window: int | None = None
    forward_to: str | None = None
    forward_dead_to: str | None = None
    can_send: bool = True
    subscriptions: dict[str, Callable[[str], bool]] = field(default_factory=dict[str, Callable[[str], bool]])


@dataclass
class Copy:
    """A message in a box."""

    body: str
    label: str = "blue"
    life: int | None = None
    session: str | None = None
    state: str = "active"
    number: int | None = None
    failures: int = 0
    expires: int | None = None
    due: int = 0
    reason: str | None = None
    token: UUID | None = None
    until: int = 0


def entity_of(path: str) -> str:
    """The entity that a box belongs to."""
    return path.partition("/$")[0]


class Namespace:
    """Boxes by path; ``name/$dlq`` and ``name/$transfer`` are those of sub-queues."""

    def __init__(self, entities: dict[str, Entity]) -> None:
        self.entities = entities
        self.boxes: dict[str, dict[str, Copy]] = {
            path: {} for name in entities for path in (name, f"{name}/$dlq", f"{name}/$transfer")
        }
        self.seen: dict[tuple[str, str], int] = {}
        self.states: dict[str, bytes] = {}
        self.holders: dict[str, tuple[UUID, int]] = {}

    # ----------------------------------------------------------------------------------- coming in

    def send(self, name: str, copy: Copy, now: int, message_id: str) -> Copy | None:
        """A message comes to a queue or topic; None if it does not stay there."""
        entity = self.entities[name]
        if entity.window is not None:
            if self.seen.get((name, message_id), 0) > now:
                return None
            self.seen[name, message_id] = now + entity.window
        if copy.due > now:
            copy.state = "scheduled"
            self.boxes[name][copy.body] = copy
            return copy
        return self.arrive(name, copy, now)

    def arrive(self, name: str, copy: Copy, now: int) -> Copy | None:
        """A message becomes active."""
        entity = self.entities[name]
        for subscription, accepts in entity.subscriptions.items():
            if accepts(copy.label):
                self.arrive(subscription, replace(copy), now)
        if entity.subscriptions:
            return None
        copy.state, copy.due = "active", 0
        lives = [life for life in (copy.life, entity.life) if life is not None]
        copy.life = min(lives, default=None)  # It keeps this one on its further way.
        copy.expires = None if copy.life is None else now + copy.life
        if entity.forward_to is not None:
            return self.forward(name, copy, now)
        self.boxes[name][copy.body] = copy
        return copy

    def forward(self, name: str, copy: Copy, now: int) -> Copy | None:
        """Forward a message to another entity, or to the transfer dead-letter queue: then it is the result."""
        target = self.entities[name].forward_to or ""
        if self.entities[target].can_send:
            self.arrive(target, replace(copy, number=None, failures=0), now)
            return None
        copy.reason, copy.expires = "MessagingEntityDisabled", None
        self.boxes[f"{name}/$transfer"][copy.body] = copy
        return copy

    # ----------------------------------------------------------------------------------- going out

    def owner(self, path: str) -> Entity:
        """The entity that a box belongs to."""
        return self.entities[entity_of(path)]

    def available(self, path: str, session: str | None = None) -> list[Copy]:
        """Return the available messages, in order."""
        found = [
            copy
            for copy in self.boxes[path].values()
            if copy.state == "active" and copy.token is None and session in (None, copy.session)
        ]
        return sorted(found, key=lambda copy: copy.number or 0)

    def locked(self, path: str) -> list[Copy]:
        """Return the held messages."""
        return [copy for copy in self.boxes[path].values() if copy.token is not None]

    def fail(self, path: str, copy: Copy, now: int, *, counts: bool = True) -> None:
        """A delivery has ended without success."""
        copy.token = None
        counts = counts and "$" not in path  # In a dead-letter queue no delivery counts.
        copy.failures += counts
        if counts and copy.failures >= self.owner(path).max_deliveries:
            self.bury(path, copy, "MaxDeliveryCountExceeded", now)
        elif copy.state == "active" and copy.expires is not None and copy.expires <= now:
            self.expire(path, copy, now)

    def expire(self, path: str, copy: Copy, now: int) -> None:
        """A message's time to live has passed."""
        if self.owner(path).keeps_expired:
            self.bury(path, copy, "TTLExpiredException", now)
        else:
            del self.boxes[path][copy.body]

    def bury(self, path: str, copy: Copy, reason: str, now: int) -> None:
        """A message goes to the dead-letter queue, and on from there."""
        del self.boxes[path][copy.body]
        target = self.owner(path).forward_dead_to
        dead = replace(copy, state="active", token=None, expires=None, session=None, reason=reason)
        if target is not None and self.entities[target].can_send:
            self.arrive(target, replace(dead, number=None, failures=0), now)
        else:
            self.boxes[f"{path}/$dlq"][copy.body] = dead

    def settle(self, path: str, copy: Copy, how: str, now: int) -> None:
        """Settle a message for its holder."""
        match how:
            case "complete":
                del self.boxes[path][copy.body]
            case "abandon":
                self.fail(path, copy, now)
            case "release":
                self.fail(path, copy, now, counts=False)
            case "defer":
                copy.state = "deferred"
                self.fail(path, copy, now)
            case _:
                self.bury(path, copy, "Bad", now)

    # ---------------------------------------------------------------------------------------- time

    def next_event(self) -> int | None:
        """When something happens by itself."""
        moments = [until for _, until in self.holders.values()]
        for path, box in self.boxes.items():
            for copy in box.values():
                if copy.state == "scheduled":
                    moments.append(copy.due)
                elif copy.token is not None:
                    moments += [copy.until] if copy.session is None or "$" in path else []
                elif copy.state == "active" and copy.expires is not None:
                    moments.append(copy.expires)
        return min(moments, default=None)

    def advance(self, now: int) -> None:
        """All that is due by a moment happens."""
        for path, copy in self.everything("scheduled"):
            if copy.due <= now:
                del self.boxes[path][copy.body]
                copy.number = None
                self.arrive(path, copy, now)
        self.holders = {name: held for name, held in self.holders.items() if held[1] > now}
        for path, copy in self.everything("active", "deferred"):
            if copy.token is not None and copy.until <= now:
                self.fail(path, copy, now)
        for path, copy in self.everything("active"):
            if copy.token is None and copy.expires is not None and copy.expires <= now:
                self.expire(path, copy, now)

    def everything(self, *states: str) -> list[tuple[str, Copy]]:
        """All messages that are in one of these states, with their boxes."""
        return [(path, copy) for path, box in self.boxes.items() for copy in box.values() if copy.state in states]

    def lose_locks(self, name: str | None, now: int) -> None:
        """All locks of an entity and its sub-queues are lost, or all that there are."""
        for path in list(self.boxes):
            if name in (None, entity_of(path)):
                for copy in self.locked(path):
                    self.fail(path, copy, now, counts=False)
        if name is None or self.entities[name].has_sessions:
            self.holders.clear()

    # ------------------------------------------------------------------------------------ sessions

    def sessions(self, name: str) -> set[str]:
        """Those that have messages or a state."""
        with_messages = {copy.session for copy in self.boxes[name].values() if copy.state != "scheduled"}
        return {session for session in with_messages if session is not None} | set(self.states)

    def free_sessions(self, name: str) -> set[str]:
        """Return the sessions that are not held and have an available message."""
        return {copy.session or "" for copy in self.available(name)} - set(self.holders)
