"""A ramp: growing batches of a resubmit are sent and watched, before the others follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

import anyio.to_thread
from azure.core.exceptions import AzureError

from sbnotebook.errors import DecisionError
from sbnotebook.model import Fate, FateStatus, MessageState, OutcomeStatus, ReceivedMessage, Resubmit
from sbnotebook.model.clones import clone_id_of
from sbnotebook.model.durations import duration_text
from sbnotebook.settlement.actions.clone_search import CloneSearch
from sbnotebook.settlement.connecting.failures import explained
from sbnotebook.settlement.engine import ENDS_A_RUN, Run
from sbnotebook.settlement.memory.journal import SentClone, original_key
from sbnotebook.settlement.place import Place, Resources
from sbnotebook.settlement.plan import Ramp, RampStep

_SHOWN_REASONS: Final = 3
_SHOWN_TEXT: Final = 80


class Trial:
    """The batches of a ramp: each is sent after the fates of the clones before it."""

    def __init__(self, place: Place, run: Run, ramp: Ramp, decision: Resubmit, to_namespace: Resources) -> None:
        self._namespace = place.namespace
        self._clock = place.namespace.clock
        self._run = run
        self._ramp = ramp
        self._decision = decision
        to, own = decision.to or place.address.sends_to, place.address.sends_to
        hidden = own if decision.atomic == "forward" and to != own else None
        self._search = CloneSearch(to_namespace, to, forwarded_from=hidden)
        # Messages that the resubmit would skip say nothing about the consumer.
        limit = decision.limit_at(place.address)
        sent = (
            message
            for message in run.messages
            if message.state is not MessageState.SCHEDULED and (limit is None or message.resubmit_count < limit)
        )
        self._batches = [batch for size in ramp.batches if (batch := [*islice(sent, size)])]
        run.way = lambda: in_words(run.fates.values(), run.steps)

    async def carry_out(self, send: Callable[[Sequence[ReceivedMessage]], Awaitable[None]]) -> None:
        """Send the batches with ``send``, and then the other messages; stop the run where they do not follow."""
        if self._batches:
            await self._begin_watching()
        try:
            for batch in self._batches:
                began = self._clock.now()
                await send(batch)
                clones = await self._clones(batch, began)
                await self._observe(clones)
                if why := self._verdict(batch, [clone.message_id for clone in clones]):
                    self._run.stop(why)
                    return
            first = {id(message) for batch in self._batches for message in batch}
            await send([message for message in self._run.messages if id(message) not in first])
        except ENDS_A_RUN as error:
            self._run.stop(f"Not attempted: {explained(error)}")
            raise

    async def _begin_watching(self) -> None:
        try:
            await self._search.mark()
        except (AzureError, OSError) as error:
            raise DecisionError(f"Nothing was sent: the clones could not be watched. {explained(error)}") from None

    async def _clones(self, batch: Sequence[ReceivedMessage], sent: datetime) -> list[SentClone]:
        """Return the clones that were sent, as the journal knows them; a transaction writes nothing there."""
        ends = [(message, self._run.outcome_of(message)) for message in batch]
        originals = [message for message, end in ends if end is not None and end.ok]
        identity = await anyio.to_thread.run_sync(self._namespace.identity)
        keys = [original_key(message) for message in originals]
        begun = await anyio.to_thread.run_sync(self._namespace.journal.find_begun, identity, keys)
        return [
            SentClone(
                entry.clone_id if entry else clone_id_of(message),
                sent,
                message.time_to_live,
                is_scheduled=entry.scheduled is not None if entry else self._decision.delay is not None,
            )
            for message, entry in zip(originals, map(begun.get, keys), strict=True)
        ]

    async def _observe(self, clones: Sequence[SentClone]) -> None:
        """Look at the clones until the fate of each is known, too many came back, or the time is over."""
        run, waits = self._run, self._namespace.waits
        run.steps.append(RampStep(len(clones)))
        until, pause = self._clock.now() + self._ramp.watch, waits.first_look
        open_ones, gone = {clone.message_id: clone for clone in clones}, dict[str, FateStatus]()
        while open_ones:
            found = await self._search.fates(open_ones.values(), self._clock.now())
            run.fates |= found
            now = {each: fate.status for each, fate in found.items()}
            # A clone is at its end if it came back, or if two looks at all places say the same.
            sure = [] if self._search.failed else [each for each, status in now.items() if gone.get(each) is status]
            ended = {each for each in sure if now[each] is not FateStatus.WAITING}
            ended |= {each for each, status in now.items() if status is FateStatus.CAME_BACK}
            open_ones, gone = {each: clone for each, clone in open_ones.items() if each not in ended}, now
            counts = Counter(
                run.fates[each.message_id].status
                for each in clones
                if each.message_id in run.fates and each.message_id not in open_ones
            )
            run.steps[-1] = step = RampStep(len(clones), counts[FateStatus.CONSUMED], counts[FateStatus.CAME_BACK])
            if run.limits.seen is not None:
                run.limits.seen(tuple(run.steps))
            # A peek may miss a message, so that one that is not to be found is looked for once more.
            is_doubtful = any(gone[each] is FateStatus.CONSUMED for each in open_ones)
            is_over = self._clock.now() >= until and not is_doubtful
            if not open_ones or is_over or self._ramp.stops(step):
                return
            left = (until - self._clock.now()).total_seconds()
            await self._clock.sleep(waits.first_look if is_doubtful else min(pause, max(left, waits.first_look)))
            pause = min(2 * pause, waits.longest_look)

    def _verdict(self, batch: Sequence[ReceivedMessage], ids: Sequence[str]) -> str | None:
        """Return why the others do not follow, in a sentence; None where they do."""
        sent, found = len(ids), [self._run.fates[each] for each in ids if each in self._run.fates]
        by_status = {status: [fate for fate in found if fate.status is status] for status in FateStatus}
        back, waiting, unknown = (
            len(by_status[status]) for status in (FateStatus.CAME_BACK, FateStatus.WAITING, FateStatus.UNKNOWN)
        )
        ends = Counter(end.status for message in batch if (end := self._run.outcome_of(message)) is not None)
        unsure = ends[OutcomeStatus.UNCONFIRMED]
        failed = len(batch) - unsure - ends[OutcomeStatus.SETTLED] - ends[OutcomeStatus.NOT_FOUND]
        has_failed = self._ramp.stops(RampStep(sent, back=back))
        doubt = next((f" ({fate.description})" for fate in by_status[FateStatus.UNKNOWN] if fate.description), "")
        wait = f"{'waits' if waiting == 1 else 'wait'} after {duration_text(self._ramp.watch)}"
        said = {
            f"{_of(failed, len(batch))} {'was' if failed == 1 else 'were'} not resubmitted": failed,
            f"Service Bus did not confirm {_of(unsure, len(batch))}": unsure,
            f"{_of(back, sent)} came back{_reasons(by_status[FateStatus.CAME_BACK])}": has_failed,
            f"the fate of {_of(unknown, sent)} is unknown{doubt}": unknown,
            f"{_of(waiting, sent)} still {wait}": waiting and not has_failed,
            "no message of the batch was there to be sent": not (sent or failed or unsure),
        }
        why = "; ".join(reason for reason, is_so in said.items() if is_so)
        return f"Not attempted: {why}." if why else None


def in_words(fates: Collection[Fate], steps: Sequence[RampStep]) -> str:
    """Return what became of the batches of a ramp, in a clause."""
    counts = Counter(fate.status for fate in fates)
    back = _reasons(fate for fate in fates if fate.status is FateStatus.CAME_BACK)
    if len(steps) > 1:
        return f"ramp: {' → '.join(map(str, steps))}{back}"
    said = [f"{counts[status]:,} {status}" for status in FateStatus if counts[status]]
    return f"ramp: {', '.join(said)}{back}" if said else "ramp: nothing was sent"


def _reasons(fates: Iterable[Fate]) -> str:
    """Return the reasons of dead letters, which the consumer wrote, cut short and quoted."""
    counts = Counter(fate.reason for fate in fates if fate.reason)
    said = [f"{reason[:_SHOWN_TEXT]!r} {count:,} times" for reason, count in counts.most_common(_SHOWN_REASONS)]
    return f" ({', '.join(said)})" if said else ""


def _of(count: int, of: int) -> str:
    return f"{count:,} of {of:,}"
