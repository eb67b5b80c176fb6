"""The states of a message and the transitions between them: the one table that entities follow.

The page "Outcomes" also names the cause of each, and its time.

Sources: Service Bus documentation, "Message transfers, locks, and settlement", "Message deferral",
"Overview of dead-letter queues", "Message expiration", "Message sequencing and timestamps"; for deliveries in a
dead-letter queue, azure-sdk-for-net 53437.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Final, NamedTuple

from sbnotebook.emulator.entities.message import BrokeredMessage, BrokeredState

# Numbers, because a table finds them quicker than members of another enumeration.


class Place(IntEnum):
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


class MessageEvent(IntEnum):
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
    to: Place
    counts: bool = False  # as a failed delivery; not in a dead-letter queue


TRANSITIONS: Final[dict[tuple[Place, MessageEvent], Transition]] = {
    (Place.SCHEDULED, MessageEvent.ACTIVATE): Transition(Place.ACTIVE),
    (Place.SCHEDULED, MessageEvent.CANCEL): Transition(Place.GONE),
    (Place.ACTIVE, MessageEvent.RECEIVE): Transition(Place.LOCKED),
    (Place.ACTIVE, MessageEvent.RECEIVE_AND_DELETE): Transition(Place.GONE),
    (Place.ACTIVE, MessageEvent.EXPIRE): Transition(Place.DEAD_LETTERED),  # gone where expired messages are dropped
    (Place.ACTIVE, MessageEvent.FORWARD): Transition(Place.GONE),
    (Place.LOCKED, MessageEvent.COMPLETE): Transition(Place.GONE),
    (Place.LOCKED, MessageEvent.ABANDON): Transition(Place.ACTIVE, counts=True),
    (Place.LOCKED, MessageEvent.DEFER): Transition(Place.DEFERRED, counts=True),
    (Place.LOCKED, MessageEvent.DEAD_LETTER): Transition(Place.DEAD_LETTERED),
    (Place.LOCKED, MessageEvent.RELEASE): Transition(Place.ACTIVE),
    (Place.LOCKED, MessageEvent.LOCK_EXPIRED): Transition(Place.ACTIVE, counts=True),
    (Place.LOCKED, MessageEvent.LOCK_DROPPED): Transition(Place.ACTIVE),
    (Place.DEFERRED, MessageEvent.RECEIVE): Transition(Place.DEFERRED_LOCKED),
    (Place.DEFERRED, MessageEvent.RECEIVE_AND_DELETE): Transition(Place.GONE),
    (Place.DEFERRED, MessageEvent.EXPIRE): Transition(Place.DEAD_LETTERED),  # gone where expired messages are dropped
    (Place.DEFERRED_LOCKED, MessageEvent.COMPLETE): Transition(Place.GONE),
    (Place.DEFERRED_LOCKED, MessageEvent.ABANDON): Transition(Place.DEFERRED, counts=True),
    (Place.DEFERRED_LOCKED, MessageEvent.DEFER): Transition(Place.DEFERRED, counts=True),
    (Place.DEFERRED_LOCKED, MessageEvent.DEAD_LETTER): Transition(Place.DEAD_LETTERED),
    (Place.DEFERRED_LOCKED, MessageEvent.RELEASE): Transition(Place.DEFERRED),
    (Place.DEFERRED_LOCKED, MessageEvent.LOCK_EXPIRED): Transition(Place.DEFERRED, counts=True),
    (Place.DEFERRED_LOCKED, MessageEvent.LOCK_DROPPED): Transition(Place.DEFERRED),
}
"""What happens to a message in a place; an event that has no row there is refused."""


def place_of(message: BrokeredMessage) -> Place:
    if message.state is BrokeredState.SCHEDULED:
        return Place.SCHEDULED
    if message.state is BrokeredState.DEFERRED:
        return Place.DEFERRED if message.lock_token is None else Place.DEFERRED_LOCKED
    return Place.ACTIVE if message.lock_token is None else Place.LOCKED
