"""How long actions wait where Service Bus says nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds that the actions of a namespace wait. The defaults fit Azure; a test on an emulator needs less.

    Args:
        silence: without a message, after which those that did not come are looked for.
        held: at most, for messages that another receiver holds.
        first_pause: between two attempts to lock existing messages that do not arrive; each is twice as long.
        longest_pause: the longest of them.
        first_look: between the first two looks at canaries; each later one is twice as long.
        longest_look: the longest of them.
        idle_session: without a message, after which a worker closes its session and takes another.
    """

    silence: float = 2.0
    held: float = 60.0
    first_pause: float = 0.5
    longest_pause: float = 8.0
    first_look: float = 1.0
    longest_look: float = 5.0
    idle_session: float = 1.0
