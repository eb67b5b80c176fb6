"""The states of a message and the transitions between them: the one table that entities follow.

Sources: Service Bus documentation, "Message transfers, locks, and settlement", "Message deferral",
"Overview of dead-letter queues", "Message expiration", "Message sequencing and timestamps"; for deliveries in a
dead-letter queue, azure-sdk-for-net 53437.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from sbnotebook.emulator.entities.message import BrokeredMessage, BrokeredState


class _Key(Enum):
    """A member is found in a table by its identity, which is quicker than by its name."""

    __hash__ = object.__hash__


class Place(_Key):
    """The place of a message; it is in exactly one."""

    SCHEDULED = auto()
    """Waits for its time."""
    ACTIVE = auto()
    """Can be received."""
    LOCKED = auto()
    """Was received, and is held by a lock."""
    DEFERRED = auto()
    """Is set aside: only its sequence number finds it."""
    DEFERRED_LOCKED = auto()
    """Was received by its sequence number, and is held by a lock."""
    DEAD_LETTERED = auto()
    """Has gone to the dead-letter queue, where it is ACTIVE again, or on from there."""
    GONE = auto()
    """Is no longer in the entity."""


class MessageEvent(_Key):
    ACTIVATE = auto()
    CANCEL = auto()
    RECEIVE = auto()
    RECEIVE_AND_DELETE = auto()
    COMPLETE = auto()
    ABANDON = auto()
    DEFER = auto()
    DEAD_LETTER = auto()
    RELEASE = auto()
    LOCK_EXPIRED = auto()
    LOCK_DROPPED = auto()
    EXPIRE = auto()
    FORWARD = auto()


class Transition(NamedTuple):
    """One row: the next place, the cause of the event, and its condition."""

    to: Place
    actor: str  # the cause of the event
    condition: str  # what must be so; otherwise nothing happens
    counts: bool = False  # as a failed delivery; not in a dead-letter queue


_HELD: Final = "the lock is held"
_ENDED: Final = "the lock's end has come"

TRANSITIONS: Final[dict[tuple[Place, MessageEvent], Transition]] = {
    (Place.SCHEDULED, MessageEvent.ACTIVATE): Transition(
        Place.ACTIVE, "clock", "its time has come; it gets a new number"
    ),
    (Place.SCHEDULED, MessageEvent.CANCEL): Transition(Place.GONE, "sender", "always"),
    (Place.ACTIVE, MessageEvent.RECEIVE): Transition(Place.LOCKED, "receiver", "it is the first active one"),
    (Place.ACTIVE, MessageEvent.RECEIVE_AND_DELETE): Transition(Place.GONE, "receiver", "it is the first active one"),
    (Place.ACTIVE, MessageEvent.EXPIRE): Transition(
        Place.DEAD_LETTERED, "clock", "its time to live has passed; gone where expired messages are dropped"
    ),
    (Place.ACTIVE, MessageEvent.FORWARD): Transition(Place.GONE, "broker", "the entity forwards"),
    (Place.LOCKED, MessageEvent.COMPLETE): Transition(Place.GONE, "receiver", _HELD),
    (Place.LOCKED, MessageEvent.ABANDON): Transition(Place.ACTIVE, "receiver", _HELD, counts=True),
    (Place.LOCKED, MessageEvent.DEFER): Transition(Place.DEFERRED, "receiver", _HELD, counts=True),
    (Place.LOCKED, MessageEvent.DEAD_LETTER): Transition(Place.DEAD_LETTERED, "receiver", _HELD),
    (Place.LOCKED, MessageEvent.RELEASE): Transition(Place.ACTIVE, "receiver", _HELD),
    (Place.LOCKED, MessageEvent.LOCK_EXPIRED): Transition(Place.ACTIVE, "clock", _ENDED, counts=True),
    (Place.LOCKED, MessageEvent.LOCK_DROPPED): Transition(Place.ACTIVE, "broker", "the entity was changed"),
    (Place.DEFERRED, MessageEvent.RECEIVE): Transition(Place.DEFERRED_LOCKED, "receiver", "by its number"),
    (Place.DEFERRED, MessageEvent.RECEIVE_AND_DELETE): Transition(Place.GONE, "receiver", "by its number"),
    (Place.DEFERRED, MessageEvent.EXPIRE): Transition(
        Place.DEAD_LETTERED,
        "receiver",
        "a receiver asks for it after its time to live; gone where expired messages are dropped",
    ),
    (Place.DEFERRED_LOCKED, MessageEvent.COMPLETE): Transition(Place.GONE, "receiver", _HELD),
    (Place.DEFERRED_LOCKED, MessageEvent.ABANDON): Transition(Place.DEFERRED, "receiver", _HELD, counts=True),
    (Place.DEFERRED_LOCKED, MessageEvent.DEFER): Transition(Place.DEFERRED, "receiver", _HELD, counts=True),
    (Place.DEFERRED_LOCKED, MessageEvent.DEAD_LETTER): Transition(Place.DEAD_LETTERED, "receiver", _HELD),
    (Place.DEFERRED_LOCKED, MessageEvent.RELEASE): Transition(Place.DEFERRED, "receiver", _HELD),
    (Place.DEFERRED_LOCKED, MessageEvent.LOCK_EXPIRED): Transition(Place.DEFERRED, "clock", _ENDED, counts=True),
    (Place.DEFERRED_LOCKED, MessageEvent.LOCK_DROPPED): Transition(Place.DEFERRED, "broker", "the entity was changed"),
}
"""What happens to a message in a place; an event that has no row there is refused."""


def place_of(message: BrokeredMessage) -> Place:
    if message.state is BrokeredState.SCHEDULED:
        return Place.SCHEDULED
    if message.state is BrokeredState.DEFERRED:
        return Place.DEFERRED if message.lock_token is None else Place.DEFERRED_LOCKED
    return Place.ACTIVE if message.lock_token is None else Place.LOCKED
