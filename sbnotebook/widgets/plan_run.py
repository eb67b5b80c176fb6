"""A plan that is carried out in the background, and the outcomes that a table shows meanwhile."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from sbnotebook.client.plan import Plan
from sbnotebook.model import Outcome, OutcomeStatus, Report
from sbnotebook.model.durations import duration_text
from sbnotebook.settlement import Limits
from sbnotebook.widgets import background
from sbnotebook.widgets.plan_text import REMOVING
from sbnotebook.widgets.pretty import cell
from sbnotebook.widgets.table.message_table import MessageTable
from sbnotebook.widgets.table.rows import MessageKey

_TICK: Final = 0.1
"""Seconds between two looks, so that nothing on the screen changes more than ten times a second."""
_SOONEST: Final = 1.0
"""Seconds after which a rate says anything."""
_MAX_WHY: Final = 200
_OUTCOME: Final = "outcome"
"""The table's column."""


class PlanRun:
    """A plan that is carried out; a table shows the outcome of each message."""

    def __init__(self, plan: Plan, table: MessageTable | None, limits: Limits) -> None:
        self.plan = plan
        self.running = plan.start(max_in_flight=limits.max_in_flight, rate=limits.rate)
        self.report = Report()
        """Of its end."""
        self.problem = self.table_problem = ""
        self.is_cancelled = False
        self.done, self.status = 0.0, f"0 of {len(plan):,}"
        """How far it is, from 0 to 1 and in words."""
        self._counts = Counter[OutcomeStatus]()
        self._since = (time.monotonic(), 0)
        """When it began or went on, and the messages done by then."""
        self._watched_since = 0.0
        """When the watch over the last batch of a ramp began, by the monotonic clock."""
        self._batches = 0
        self._table = table

    def follow(self, ticked: Callable[[], object]) -> None:
        """Wait for its end, and call a function at each look at it."""
        try:
            has_ended = False
            while not has_ended:
                has_ended = self.running.wait(_TICK)
                self._tick()
                ticked()
            self.report = self.running.result()
        except Exception as error:  # noqa: BLE001 (the panel shows the error)
            self.problem, self.report = background.sentence(error), self.running.report
        self._mark(self.report)
        self._remove(self.report)

    def cancel(self) -> None:
        self.is_cancelled = True
        self.running.cancel()

    def _tick(self) -> None:
        running = self.running
        if len(running.steps) > self._batches:
            self._watched_since, self._batches = time.monotonic(), len(running.steps)
        if running.is_paused or running.steps:
            self._since = time.monotonic(), running.done
        new = running.new_outcomes()
        self._counts.update(outcome.status for outcome in new)
        self._mark(new)
        self.done, self.status = min(1.0, running.done / max(self.plan.total, 1)), self._words()

    def _words(self) -> str:
        counts, running = self._counts, self.running
        told = counts.total()
        # Messages to send are in no entity yet, and have no outcomes by number.
        done = told if self.plan.messages else running.done
        parts = [f"{done:,} of {len(self.plan):,}"]
        parts += [f"{count:,} {status}" for status, count in sorted(counts.items()) if count and count != told]
        watching = self._watching(told)
        if running.is_paused:
            if watching:
                return f"Paused: the others wait. {parts[0]}, {watching}"
            return "Paused. Locks are renewed. " + ", ".join(parts) if running.is_held else "Finishing …"
        if watching:
            return ", ".join([*parts, watching])
        begin, first = self._since
        took, left = time.monotonic() - begin, self.plan.total - running.done
        rate = (running.done - first) / took if took >= _SOONEST else 0.0
        if rate:
            parts.append(f"{rate:,.0f} a second" if rate >= 1 else "less than one a second")
        if running.in_flight:
            parts.append(f"{running.in_flight:,} in flight")
        if rate and left:
            parts.append(f"about {duration_text(left / rate, rounded=True)} left")
        return ", ".join(parts)

    def _watching(self, told: int) -> str:
        """Return how far the watch over a ramp is; nothing before it and after it."""
        ramp, steps = self.plan.ramp, self.running.steps
        if ramp is None or not steps or told > sum(ramp.batches):
            return ""
        left = max(0.0, ramp.watch.total_seconds() - (time.monotonic() - self._watched_since))
        curve = " → ".join(map(str, steps))
        return f"watching these: {curve}, {duration_text(left, rounded=True)} left at most"

    # ------------------------------------------------------------ the table

    def _mark(self, outcomes: Iterable[Outcome]) -> None:
        if self._table is None:
            return
        table = self._table
        of_rows = [outcome for outcome in outcomes if outcome.sequence_number is not None]
        cells = {key_of(outcome): {_OUTCOME: _text_of(outcome)} for outcome in of_rows}
        self._on_table(lambda: table.patch(cells))

    def _remove(self, report: Report) -> None:
        table = self._table
        gone = removed_by(report)
        if table is not None and gone:
            self._on_table(lambda: table.remove(gone))

    def _on_table(self, change: Callable[[], object]) -> None:
        # A table that was closed meanwhile must not hide how the plan ends.
        try:
            change()
        except Exception as error:  # noqa: BLE001 (told with the report)
            self.table_problem = f"The table does not show what became of them: {background.sentence(error)}"
            self._table = None


def removed_by(report: Report) -> list[MessageKey]:
    """Return the keys of the messages that have left their entity, by a report."""
    return [key_of(each) for each in report if each.ok and each.verb in REMOVING]


def key_of(outcome: Outcome) -> MessageKey:
    return str(outcome.entity), outcome.sequence_number or 0


def _text_of(outcome: Outcome) -> str:
    return _words(outcome.status, "" if outcome.ok else outcome.description or outcome.condition or "")


@lru_cache  # thousands of messages are skipped for one reason
def _words(status: OutcomeStatus, why: str) -> str:
    return f"{status}: {cell(why, _MAX_WHY)}" if why else str(status)
