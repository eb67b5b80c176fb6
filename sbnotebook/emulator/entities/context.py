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

__all__ = ["Context", "Sleeper"]


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

    def forward(
        self, message: BrokeredMessage, target: str, now: int, dead_letter_source: str | None
    ) -> DeadLetterReason | None:
        """Send a message, with its payload, on to another queue or topic.

        Args:
            message: stays where it is; the caller removes it.
            target: name of the queue or topic.
            now: ms.
            dead_letter_source: path of the entity that dead-lettered the message; None if none did.

        Returns:
            None once the message has arrived, otherwise the reason why it cannot.
        """
        ...
