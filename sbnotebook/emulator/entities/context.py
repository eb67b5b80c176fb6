"""The namespace as its entities see it: where they report changes, ask for a turn later, and forward messages.

Entities take this protocol and not the registry, which makes them and so depends on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sbnotebook.emulator.entities.changes import Change
from sbnotebook.emulator.entities.message import BrokeredMessage, DeadLetterReason
from sbnotebook.emulator.entities.message_log import Residency
from sbnotebook.emulator.entities.quotas import Tier


class Sleeper(Protocol):
    """An entity, or a part of it, that acts once its time has come."""

    alarm: int | None
    is_deleted: bool

    def expire(self, now: int) -> None:
        """Do all that is due at a moment (ms)."""
        ...

    @property
    def next_deadline(self) -> int | None:
        """Return the time of the next work in ms; None if there is none."""
        ...


class ForwardingBox(Protocol):
    """A box whose messages wait there if the namespace has forwarded too many others in this turn."""

    def forward_waiting(self, sequence_number: int, now: int) -> None:
        """Forward a message that had to wait, if it is still there (now in ms)."""
        ...


class Context(Protocol):
    """The namespace of an entity.

    Attributes:
        tier: sets the quotas.
        changes: what the store has yet to write, in order.
        residency: decides which messages stay in memory.
        order_after_release: says by entity path where a message comes again that was given back:
            ``front``, ``place`` or ``back``.
    """

    tier: Tier
    changes: list[Change]
    residency: Residency
    order_after_release: Callable[[str], str]

    def wake(self, sleeper: Sleeper, when: int) -> None:
        """Call ``sleeper.expire`` at a moment (ms), or earlier."""
        ...

    def may_forward(self, box: ForwardingBox, message: BrokeredMessage) -> bool:
        """Tell whether a message may be forwarded now; if not, ``box.forward_waiting`` is called in a later turn."""
        ...

    def forward(
        self, message: BrokeredMessage, target: str, now: int, dead_letter_source: str | None
    ) -> DeadLetterReason | None:
        """Send a message, with its payload, on to another queue or topic."""
        ...
