"""The causes of the messages of a table, found in the background, for the list beside it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from sbnotebook.analysis.arrays import array_of_numbers
from sbnotebook.analysis.groups import CAUSE, CauseReader, Group, group_by_cause
from sbnotebook.widgets import background
from sbnotebook.widgets.pretty import visible

if TYPE_CHECKING:
    import pyarrow as pa

MOST: Final = 200
"""Causes that the browser gets at once, and in an answer; it asks for others."""
_LONGEST: Final = 300


class Causes(NamedTuple):
    fingerprints: list[str]
    every: list[dict[str, str]]

    @property
    def told(self) -> list[dict[str, str]]:
        """Return the largest causes, at most 200."""
        return self.every[:MOST]

    def named(self, fingerprints: Collection[str]) -> list[dict[str, str]]:
        return [cause for cause in self.every if cause["fingerprint"] in fingerprints][:MOST]

    def having(self, words: str) -> list[dict[str, str]]:
        """Return the causes whose texts have all of these words, in any case, the largest first."""
        sought = words.lower().split()

        def has_all(cause: dict[str, str]) -> bool:
            text = "\n".join(value for name, value in cause.items() if name != "fingerprint").lower()
            return all(word in text for word in sought)

        return [cause for cause in self.every if has_all(cause)]


class CauseFinder:
    """Finds the causes of messages that come part by part. Each message is examined once, in a separate thread."""

    def __init__(self, found: Callable[[int, Causes], object], failed: Callable[[str], object]) -> None:
        self._found = found
        self._failed = failed
        self._lock = threading.Lock()
        self._is_busy = False
        self._wanted: tuple[int, pa.Table] | None = None
        self._thread: threading.Thread | None = None
        self._turn = -1
        self._tally = Tally()

    def find(self, turn: int, table: pa.Table) -> None:
        with self._lock:
            self._wanted = (turn, table)
            if self._is_busy:
                return
            self._is_busy = True
            self._thread = background.start(self._look, done=lambda _: None, failed=self._fail)

    def wait(self, timeout: float) -> bool:
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return not self._is_busy

    def _look(self) -> None:
        while (wanted := self._next()) is not None:
            turn, table = wanted
            if turn != self._turn:
                self._turn, self._tally = turn, Tally()
            self._tally.add(table.slice(len(self._tally.fingerprints)))
            self._found(turn, self._tally.causes())

    def _next(self) -> tuple[int, pa.Table] | None:
        with self._lock:
            wanted, self._wanted = self._wanted, None
            self._is_busy = wanted is not None
            return wanted

    def _fail(self, problem: str) -> None:
        with self._lock:
            self._is_busy = False
        self._failed(problem)


class Tally:
    def __init__(self) -> None:
        self.fingerprints: list[str] = []
        self._counts: Counter[str] = Counter()
        self._told: dict[str, dict[str, str]] = {}
        self._read = CauseReader()

    def add(self, table: Any) -> None:
        # By place: two entities may have messages with the same sequence number.
        places = array_of_numbers(np.arange(len(table), dtype=np.int64))
        number = table.schema.get_field_index("sequence_number")
        added = [""] * len(table)
        for group in group_by_cause(table.set_column(number, "sequence_number", places), CAUSE, self._read):
            self._counts[group.fingerprint] += group.count
            if group.fingerprint not in self._told:
                self._told[group.fingerprint] = _told(group)
            for place in group.sequence_numbers:
                added[place] = group.fingerprint
        self.fingerprints += added

    def causes(self) -> Causes:
        every = [self._told[fingerprint] for fingerprint, _ in self._counts.most_common()]
        return Causes(list(self.fingerprints), every)


def _told(group: Group) -> dict[str, str]:
    texts = {
        "reason": group.reason,
        "cause": group.cause,
        "frame": group.frame,
        "subject": group.subject,
        "source": group.source,
    }
    return {"fingerprint": group.fingerprint} | {name: visible((text or "")[:_LONGEST]) for name, text in texts.items()}
