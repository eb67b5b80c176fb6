"""A process that resumes interrupted resubmits, resubmits all of a queue, and kills itself on the way.

Run with a job, a dict in JSON: see :class:`Job`. It prints its results, line by line, and waits for a line between
resuming and resubmitting.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from sbnotebook.model import EntityAddress, Message, ReceivedMessage, Report, Resubmit
from sbnotebook.settlement import AsyncNamespace, Connection, Journal
from sbnotebook.settlement.memory.journal import ResubmitEntry, ResubmitState

MENDED = b" mended"


@dataclass
class Job:
    """What to do, and when to die.

    Args:
        connection_string: of the emulator.
        journal: the file.
        source: the queue whose messages are resubmitted.
        to: where.
        edited: whether the clones are edited.
        resend_unknown: whether to send again what may have arrived.
        atomic: whether each message has a transaction.
        die_at: before or after which writing of the journal: "before sent", "after intended"; "" for none.
        die_later: seconds after that; counted from the begin where there is no ``die_at``; negative for never.
    """

    connection_string: str
    journal: str
    source: str
    to: str
    edited: bool = False
    resend_unknown: bool = False
    atomic: bool = False
    die_at: str = ""
    die_later: float = 0


def die(later: float = 0) -> None:
    """End without any clean-up."""
    if later == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Timer(later, die).start()


class DeadlyJournal(Journal):
    """A journal at which the process dies."""

    def __init__(self, path: Path, job: Job) -> None:
        super().__init__(path)
        self.job = job
        self.is_armed = False

    def intend(self, entries: Sequence[ResubmitEntry]) -> list[int]:
        """Die before or after that."""
        self.reach(f"before {ResubmitState.INTENDED}")
        ids = super().intend(entries)
        self.reach(f"after {ResubmitState.INTENDED}")
        return ids

    def mark(self, ids: Iterable[int], state: ResubmitState) -> None:
        """Die before or after that."""
        found = list(ids)
        if found:
            self.reach(f"before {state}")
        super().mark(found, state)
        if found:
            self.reach(f"after {state}")

    def reach(self, step: str) -> None:
        """Die here, when that is the job."""
        if self.is_armed and step == self.job.die_at:
            die(self.job.die_later)


def mend(message: ReceivedMessage) -> Message:
    """The edit."""
    return message.with_changes(body=message.body + MENDED)


def say(what: str, report: Report) -> None:
    """Print a report."""
    sys.stdout.write(json.dumps({"what": what, **Counter(str(outcome.status) for outcome in report)}) + "\n")
    sys.stdout.flush()


async def work(job: Job) -> None:
    """Do the job."""
    journal = DeadlyJournal(Path(job.journal), job)
    async with AsyncNamespace(Connection(job.connection_string), journal=journal) as namespace:
        report = Report()
        for plan in await namespace.resume(max_wait=60):
            report += await plan.apply()
        say("resumed", report)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        source = namespace.entity(job.source)
        decision = Resubmit(to=EntityAddress(job.to), resend_unknown=job.resend_unknown, atomic=job.atomic)
        plan = source.plan_resubmit(await source.peek(), decision, edit=mend if job.edited else None)
        journal.is_armed = True
        if not job.die_at and job.die_later >= 0:
            die(job.die_later)
        say("resubmitted", await plan.apply())


if __name__ == "__main__":
    anyio.run(work, Job(**json.loads(sys.argv[1])))
