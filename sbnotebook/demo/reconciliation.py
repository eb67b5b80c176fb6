"""Accounting for every message that was sent: each exactly once, by sequence number and message id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from sbnotebook.model import ReceivedMessage, Report

__all__ = ["Reconciliation"]


@dataclass(slots=True)
class Reconciliation:
    """A record of the messages that went in, and where each ended.

    Args:
        expected: how many messages were to be sent.
        sent: message ids whose sending was confirmed.
        stored: message id by sequence number, as the queue held them before anything was consumed.
        completed: sequence numbers whose completion was confirmed.
        dead_lettered: by message id, the sequence number in the original queue of each message in the dead-letter queue
            at the end.
        resubmitted: sequence numbers whose clone was confirmed and whose original was completed.
        clones_completed: original message ids of the clones whose completion was confirmed.
        left_over: messages still in the queue at the end.
    """

    expected: int = 0
    sent: list[str] = field(default_factory=list[str])
    stored: dict[int, str] = field(default_factory=dict[int, str])
    stored_count: int = 0
    completed: list[int] = field(default_factory=list[int])
    dead_lettered: list[int] = field(default_factory=list[int])
    resubmitted: list[int] = field(default_factory=list[int])
    clones_completed: list[str] = field(default_factory=list[str])
    left_over: int = 0

    def note_stored(self, messages: Iterable[ReceivedMessage]) -> None:
        """Record the messages that the queue holds after the sending."""
        for message in messages:
            self.stored[message.sequence_number] = message.message_id or ""
            self.stored_count += 1

    def note_completed(self, report: Report) -> None:
        """Record the completions that the service confirmed."""
        self.completed += [o.sequence_number or 0 for o in report if o.ok and o.verb == "complete"]

    def problems(self) -> list[str]:
        """Return what does not add up, in words; nothing when every message is accounted for exactly once."""
        # Every stored message has exactly one end.
        ends = Counter([*self.completed, *self.dead_lettered, *self.resubmitted])
        found = {
            "confirmed sends that the queue did not hold": set(self.sent) - set(self.stored.values()),
            "messages in the queue that the demo did not send": set(self.stored.values()) - set(self.sent),
            "message ids that the queue held twice": _repeated(self.stored.values()),
            "messages that ended nowhere": self.stored.keys() - ends.keys(),
            "messages that ended twice": {number for number, count in ends.items() if count > 1},
            "ends of messages that were never stored": ends.keys() - self.stored.keys(),
            "clones that were not completed": self._resubmitted_ids() - set(self.clones_completed),
            "clones that were completed twice": _repeated(self.clones_completed),
            "completed clones of messages that were not resubmitted": set(self.clones_completed)
            - self._resubmitted_ids(),
        }
        problems = [f"{len(which):,} {what}" for what, which in found.items() if which]
        if len(self.sent) != self.expected:
            problems.append(f"{self.expected - len(self.sent):,} messages whose sending was not confirmed")
        if self.left_over:
            problems.append(f"{self.left_over:,} messages left in the queue")
        if self.stored_count != len(self.stored):
            problems.append(f"{self.stored_count - len(self.stored):,} sequence numbers that occur twice")
        return problems

    def _resubmitted_ids(self) -> set[str]:
        return {self.stored[number] for number in self.resubmitted if number in self.stored}


def _repeated(values: Iterable[str]) -> set[str]:
    return {value for value, count in Counter(values).items() if count > 1}
