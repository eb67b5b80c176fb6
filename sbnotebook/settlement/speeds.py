"""The speed of earlier runs in a namespace, from which a preview estimates how long a plan takes."""

from __future__ import annotations

from typing import Final

from sbnotebook.model.durations import duration_text

__all__ = ["Speeds"]

_LEAST: Final = 100
"""Messages of a run from which on its speed says something about the next one."""


class Speeds:
    """Remembers the messages a second of the last run of each action, for as long as the namespace is connected.

    Example:
        >>> speeds = Speeds()
        >>> speeds.estimate("purge", 5_000)
        ''
        >>> speeds.note("purge", 2_000, seconds=4.0)
        >>> speeds.estimate("purge", 5_000)
        'This takes about 10s at 500 messages a second, the speed of the last purge over this connection.'
    """

    def __init__(self) -> None:
        self._speeds: dict[str, float] = {}

    def note(self, verb: str, count: int, seconds: float) -> None:
        """Remember a run that was complete and that no rate held back. A run of few messages says nothing.

        Args:
            verb: the action.
            count: messages of the run.
            seconds: from its start to its end.
        """
        if count >= _LEAST and seconds > 0:
            self._speeds[verb] = count / seconds

    def estimate(self, verb: str, count: int) -> str:
        """Return how long an action takes, as a sentence; an empty text where no run was measured.

        Args:
            verb: the action.
            count: messages of the plan.
        """
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
