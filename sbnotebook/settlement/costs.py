"""The costs of a plan: the operations that Service Bus bills a Standard namespace for it.

Source: Azure, "Service Bus pricing", FAQ "How is the operations meter calculated for queues and topics?": an operation
is any API interaction. To send or receive a message counts one for each 64 KB or part of it. To complete, abandon or
defer it counts one more, and each delivery counts by itself. To renew a lock counts, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sbnotebook.model import Message

__all__ = ["Cost"]

_BILLED: Final = 64 * 1024
"""Bytes of one operation."""
_LEAST: Final = 100
"""Messages from which on the cost is worth a sentence."""


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

        Args:
            messages: of the plan.
            count: how many there are, if ``messages`` are only the first of them.
        """
        count = len(messages) if count is None else count
        if count + self.others < _LEAST:
            return ""
        parts = sum(max(1, -(-len(message.body) // _BILLED)) for message in messages)
        moved = parts / len(messages) * count if messages else count
        operations = round(moved * self.transfers) + count * self.settlements + 2 * self.others
        return f"It costs a Standard namespace about {operations:,} operations."
