"""The costs of a plan: the operations that Service Bus bills a Standard namespace for it, and the time that it takes.

Source of the operations: Azure, "Service Bus pricing", FAQ "How is the operations meter calculated for queues and
topics?": an operation is any API interaction. To send or receive a message counts one for each 64 KB or part of it. To
complete, abandon or defer it counts one more, and each delivery counts by itself. To renew a lock counts, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sbnotebook.model import CancelScheduled, Message, Resubmit, Send, Undo
from sbnotebook.model.durations import duration_text

_BILLED: Final = 64 * 1024
"""Bytes of one operation."""
_LEAST: Final = 100
"""Messages from which on the cost is worth a sentence."""
_LEAST_MEASURED: Final = 100
"""Messages of a run from which on its speed says something about the next one."""


_REQUESTS: Final = {
    CancelScheduled.verb: (0, 1),
    Resubmit.verb: (2, 1),
    Send.verb: (1, 0),
    Undo.verb: (1, 0),
}
"""The transfers and the settlements that each message of a verb takes; another verb takes one of each."""


class Costs:
    """The costs of the plans of a namespace: operations, and time by the last run of each action while connected."""

    def __init__(self) -> None:
        self._speeds: dict[str, float] = {}
        """Messages a second, by action."""

    @staticmethod
    def operations(
        verb: str, messages: Sequence[Message] = (), count: int | None = None, *, others: int = 0, locked: bool = False
    ) -> str:
        """Return the operations of a plan, as a sentence; an empty text for a plan of few messages.

        Locks that are renewed, and attempts that are repeated, cost more. The messages are all or the first of
        ``count``, and ``locked`` ones are not received any more. The ``others`` are locked on the way, and released.

        Example:
            >>> Costs.operations("complete", [Message(body=b"1")] * 4_000)
            'It costs a Standard namespace about 8,000 operations.'
        """
        count = len(messages) if count is None else count
        if count + others < _LEAST:
            return ""
        transfers, settlements = _REQUESTS.get(verb, (1, 1))
        parts = sum(max(1, -(-len(message.body) // _BILLED)) for message in messages)
        moved = parts / len(messages) * count if messages else count
        operations = (0 if locked else round(moved * transfers)) + count * settlements + 2 * others
        return f"It costs a Standard namespace about {operations:,} operations."

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
