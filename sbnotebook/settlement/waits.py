"""How long actions wait where Service Bus says nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds that the actions of a namespace wait. The defaults fit Azure; a test on an emulator needs less."""

    silence: float = 2.0
    held: float = 60.0
    first_pause: float = 0.5
    longest_pause: float = 8.0
    first_look: float = 1.0
    longest_look: float = 5.0
    idle_session: float = 1.0
