"""The costs of a plan: the operations that Service Bus bills a Standard namespace for it, and the time that it takes.

Source of the operations: Azure, "Service Bus pricing", FAQ "How is the operations meter calculated for queues and
topics?": an operation is any API interaction. To send or receive a message counts one for each 64 KB or part of it. To
complete, abandon or defer it counts one more, and each delivery counts by itself. To renew a lock counts, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sbnotebook.model import Message
from sbnotebook.model.durations import duration_text

_BILLED: Final = 64 * 1024
"""Bytes of one operation."""
_LEAST: Final = 100
"""Messages from which on the cost is worth a sentence."""
_LEAST_MEASURED: Final = 100
"""Messages of a run from which on its speed says something about the next one."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The requests of a plan to Service Bus for each of its messages.

    Args:
        transfers: how often each message is received or sent.
        settlements: how often each is settled or cancelled.
        others: messages that are locked on the way, and released.

    Example:
        >>> Cost(transfers=1, settlements=1).sentence([Message(body=b"1")] * 4_000)
        'It costs a Standard namespace about 8,000 operations.'
    """

    transfers: int = 1
    settlements: int = 1
    others: int = 0

    def sentence(self, messages: Sequence[Message], count: int | None = None) -> str:
        """Return the operations of a plan, as a sentence; an empty text for a plan of few messages.

        Locks that are renewed, and attempts that are repeated, cost more.
        """
        count = len(messages) if count is None else count
        if count + self.others < _LEAST:
            return ""
        parts = sum(max(1, -(-len(message.body) // _BILLED)) for message in messages)
        moved = parts / len(messages) * count if messages else count
        operations = round(moved * self.transfers) + count * self.settlements + 2 * self.others
        return f"It costs a Standard namespace about {operations:,} operations."


class Speeds:
    """Remembers the messages a second of the last run of each action, for as long as the namespace is connected."""

    def __init__(self) -> None:
        self._speeds: dict[str, float] = {}

    def note(self, verb: str, count: int, seconds: float) -> None:
        """Remember a run that was complete and that no rate held back. A run of few messages says nothing."""
        if count >= _LEAST_MEASURED and seconds > 0:
            self._speeds[verb] = count / seconds

    def estimate(self, verb: str, count: int) -> str:
        """Return how long an action takes, as a sentence; an empty text where no run was measured."""
        speed = self._speeds.get(verb)
        if speed is None or not count:
            return ""
        seconds = count / speed
        return (
            f"This takes {_in_words(seconds)} at {speed:,.0f} messages a second, the speed of the last {verb} over "
            "this connection."
        )


def _in_words(seconds: float) -> str:
    if seconds < 1:
        return "less than a second"
    return f"about {duration_text(seconds, rounded=True)}"
