"""A ramp: growing batches of a resubmit are sent and watched, before the others follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Final

import anyio.to_thread
from azure.core.exceptions import AzureError

from sbnotebook.errors import DecisionError
from sbnotebook.model import Fate, FateStatus, MessageState, Outcome, OutcomeStatus, ReceivedMessage, Report, Resubmit
from sbnotebook.model.durations import duration_text
from sbnotebook.settlement.actions.clone import clone_id_of
from sbnotebook.settlement.actions.clone_search import CloneSearch, SentClone
from sbnotebook.settlement.connecting.failures import explained
from sbnotebook.settlement.engine import ENDS_A_RUN, PickReport
from sbnotebook.settlement.memory.journal import original_key
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Limits, Plan, Ramp, RampStep, StepListener
from sbnotebook.settlement.resources import Resources
from sbnotebook.settlement.terms import Progress, outcome_for
from sbnotebook.settlement.watch import Watch, reporting

_SHOWN_REASONS: Final = 3
_SHOWN_TEXT: Final = 80
_AGAIN: Final = "Resubmit again to continue."
_HARMLESS: Final = (OutcomeStatus.SETTLED, OutcomeStatus.NOT_FOUND)


class RampReport(PickReport):
    """The outcomes of a resubmit with a ramp, and the fates of the messages that went first.

    Args:
        outcomes: of all messages, in their order; SKIPPED where they did not follow.
        rest: as for :class:`PickReport`.
        fates: of the clones that were sent in batches, as they were seen last.
        steps: the batches, in their order.
        stopped: why the others did not follow, in a sentence; None where they did.
    """

    def __init__(
        self,
        outcomes: Iterable[Outcome],
        rest: Report,
        fates: Sequence[Fate],
        steps: Sequence[RampStep],
        stopped: str | None,
    ) -> None:
        super().__init__(outcomes, rest)
        self.fates = tuple(fates)
        self.steps = tuple(steps)
        self.stopped = stopped

    def __str__(self) -> str:
        if len(self.steps) <= 1:
            return f"{super().__str__()}; ramp: {_summary(self.fates)}"
        back = _reasons(fate for fate in self.fates if fate.status is FateStatus.CAME_BACK)
        return f"{super().__str__()}; ramp: {' → '.join(map(str, self.steps))}{back}"


async def apply_with_ramp(
    place: Place,
    to_namespace: Resources,
    ramp: Ramp,
    seen: StepListener | None,
    plan: Plan,
    limits: Limits,
    progress: Progress | None,
) -> RampReport:
    """Resubmit a plan in growing batches, each after the fates of the clones before it."""
    trial = _Trial(place, plan, ramp, limits, progress)
    return await trial.run(to_namespace, seen or (lambda _steps: None))


class _Trial:
    """One plan that is applied with a ramp."""

    def __init__(self, place: Place, plan: Plan, ramp: Ramp, limits: Limits, progress: Progress | None) -> None:
        decision = plan.decision
        if not isinstance(decision, Resubmit):
            raise DecisionError("A ramp goes with a resubmit: the clones of its batches are watched.")
        self._place = place
        self._plan = plan
        self._decision = decision
        self._ramp = ramp
        self._limits = limits
        self._progress = progress
        self._clock = place.namespace.clock
        self._fates: dict[str, Fate] = {}
        self._steps: list[RampStep] = []
        self._given_back: dict[int | None, Outcome] = {}
        self._stopped: str | None = None
        self._watch = Watch()
        # Messages that the resubmit would skip say nothing about the consumer.
        limit = decision.limit_at(plan.entity)
        sent = (index for index, message in enumerate(plan.messages) if _is_sent(message, limit))
        batches = [batch for size in ramp.batches if (batch := [*islice(sent, size)])]
        first = [index for batch in batches for index in batch]
        others = sorted(set(range(len(plan.messages))) - set(first))
        self._order = [*first, *others]
        self._batches = [tuple(plan.messages[index] for index in batch) for batch in batches]
        self._rest = tuple(plan.messages[index] for index in others)

    async def run(self, namespace: Resources, seen: StepListener) -> RampReport:
        to = self._decision.to or self._plan.entity.sends_to
        hidden = self._decision.atomic == "forward" and to != self._plan.entity.sends_to
        search = CloneSearch(namespace, to, forwarded_from=self._plan.entity.sends_to if hidden else None)
        if self._batches:
            try:
                await search.mark()
            except (AzureError, OSError) as error:
                raise DecisionError(f"Nothing was sent: the clones could not be watched. {explained(error)}") from None
        with reporting(self.report) as tell:
            self._watch = Watch(tell)
            with self._watch:
                for batch in self._batches:
                    await self._try(batch, search, seen)
                    if self._stopped is not None:
                        break
                if self._stopped is None and self._rest:
                    await self._follow(self._rest)
        return self.report()

    async def _try(self, batch: tuple[ReceivedMessage, ...], search: CloneSearch, seen: StepListener) -> None:
        """Send a batch, and watch its clones."""
        sent = self._clock.now()
        report = await (self._follow(batch) if self._steps else self._carry_out(batch))
        if report is None:
            return
        clones = await self._clones(batch, report, sent)
        self._steps.append(RampStep(len(clones)))
        await self._observe(search, clones, seen)
        self._stopped = self._verdict(report, [clone.message_id for clone in clones])

    def report(self) -> RampReport:
        """Return the outcomes known now, in the order of the plan."""
        done = list(self._watch.report)
        why = self._stopped or "Not attempted: the resubmit was interrupted before."
        messages = [self._plan.messages[index] for index in self._order[len(done) :]]
        done += [outcome_for(message, self._decision, OutcomeStatus.SKIPPED, why) for message in messages]
        outcomes = [outcome for _, outcome in sorted(zip(self._order, done, strict=True), key=lambda each: each[0])]
        rest = Report(self._given_back.values())
        return RampReport(outcomes, rest, [*self._fates.values()], self._steps, self._stopped)

    async def _carry_out(self, messages: tuple[ReceivedMessage, ...]) -> Report:
        report = await self._plan.carry_out(replace(self._plan, messages=messages), self._limits, self._progress)
        chosen = {message.sequence_number for message in self._plan.messages}
        rest = report.rest if isinstance(report, PickReport) else ()
        self._given_back |= {each.sequence_number: each for each in rest if each.sequence_number not in chosen}
        return report

    async def _follow(self, messages: tuple[ReceivedMessage, ...]) -> Report | None:
        try:
            return await self._carry_out(messages)
        except ENDS_A_RUN as error:  # the outcomes of earlier batches must not be hidden
            self._stopped = f"Not attempted: {explained(error)} {_AGAIN}"
            return None

    async def _clones(self, batch: tuple[ReceivedMessage, ...], report: Report, sent: datetime) -> list[SentClone]:
        """Return the clones that were sent, as the journal knows them; a transaction writes nothing there."""
        outcomes = zip(batch, report, strict=True)
        originals = [message for message, outcome in outcomes if outcome.status is OutcomeStatus.SETTLED]
        namespace = self._place.namespace
        identity = await anyio.to_thread.run_sync(namespace.identity)
        keys = [original_key(message) for message in originals]
        begun = await anyio.to_thread.run_sync(namespace.journal.find_begun, identity, keys)
        clones: list[SentClone] = []
        for message, key in zip(originals, keys, strict=True):
            entry = begun.get(key)
            clone_id = entry.clone_id if entry else clone_id_of(message)
            is_scheduled = entry.scheduled is not None if entry else self._decision.delay is not None
            clones.append(SentClone(clone_id, sent, message.time_to_live, is_scheduled))
        return clones

    # ---------------------------------------------------------------- watching

    async def _observe(self, search: CloneSearch, clones: Sequence[SentClone], seen: StepListener) -> None:
        """Look at the clones until the fate of each is known, too many came back, or the time is over."""
        waits = self._place.namespace.waits
        until, pause = self._clock.now() + self._ramp.watch, waits.first_look
        open_ones, gone = {clone.message_id: clone for clone in clones}, dict[str, FateStatus]()
        while open_ones:
            found = await search.fates(open_ones.values(), self._clock.now())
            self._fates |= found
            ended = [each for each, fate in found.items() if _is_final(fate, gone.get(each), is_sure=not search.failed)]
            gone = {each: fate.status for each, fate in found.items()}
            for each in ended:
                del open_ones[each]
            self._steps[-1] = step = self._step([clone.message_id for clone in clones], open_ones)
            seen(tuple(self._steps))
            # A peek may miss a message, so that one that is not to be found is looked for once more.
            is_doubtful = any(gone[each] is FateStatus.CONSUMED for each in open_ones)
            is_over = self._clock.now() >= until and not is_doubtful
            if not open_ones or is_over or self._ramp.stops(step):
                return
            left = (until - self._clock.now()).total_seconds()
            await self._clock.sleep(waits.first_look if is_doubtful else min(pause, max(left, waits.first_look)))
            pause = min(2 * pause, waits.longest_look)

    def _step(self, ids: Sequence[str], open_ones: Collection[str]) -> RampStep:
        counts = Counter(self._fates[each].status for each in ids if each in self._fates and each not in open_ones)
        return RampStep(len(ids), counts[FateStatus.CONSUMED], counts[FateStatus.CAME_BACK])

    def _verdict(self, report: Report, ids: Sequence[str]) -> str | None:
        """Return why the others do not follow, in a sentence; None where they do."""
        sent, found = len(ids), [self._fates[each] for each in ids if each in self._fates]
        counts = Counter(fate.status for fate in found)
        back, waiting, unknown = (
            counts[status] for status in (FateStatus.CAME_BACK, FateStatus.WAITING, FateStatus.UNKNOWN)
        )
        why: list[str] = []
        unsure = sum(outcome.status is OutcomeStatus.UNCONFIRMED for outcome in report)
        failed = sum(outcome.status not in _HARMLESS for outcome in report) - unsure
        if failed:
            why.append(f"{_of(failed, len(report))} {'was' if failed == 1 else 'were'} not resubmitted")
        if unsure:
            why.append(f"Service Bus did not confirm {_of(unsure, len(report))}")
        if has_failed := self._ramp.stops(RampStep(sent, back=back)):
            reasons = _reasons(fate for fate in found if fate.status is FateStatus.CAME_BACK)
            why.append(f"{_of(back, sent)} came back{reasons}")
        if unknown:
            fate = next(fate for fate in found if fate.status is FateStatus.UNKNOWN)
            doubt = f" ({fate.description})" if fate.description else ""
            why.append(f"the fate of {_of(unknown, sent)} is unknown{doubt}")
        if waiting and not has_failed:
            wait = "waits" if waiting == 1 else "wait"
            why.append(f"{_of(waiting, sent)} still {wait} after {duration_text(self._ramp.watch)}")
        if not sent and not failed and not unsure:
            why.append("no message of the batch was there to be sent")
        return f"Not attempted: {'; '.join(why)}. {_AGAIN}" if why else None


def _is_sent(message: ReceivedMessage, limit: int | None) -> bool:
    return message.state is not MessageState.SCHEDULED and (limit is None or message.resubmit_count < limit)


def _is_final(fate: Fate, before: FateStatus | None, *, is_sure: bool) -> bool:
    if fate.status is FateStatus.CAME_BACK:
        return True
    return is_sure and fate.status is not FateStatus.WAITING and fate.status is before


def _summary(fates: Sequence[Fate]) -> str:
    counts = Counter(fate.status for fate in fates)
    said = [f"{counts[status]:,} {status}" for status in FateStatus if counts[status]]
    back = _reasons(fate for fate in fates if fate.status is FateStatus.CAME_BACK)
    return f"{', '.join(said)}{back}" if said else "nothing was sent"


def _reasons(fates: Iterable[Fate]) -> str:
    """Return the reasons of dead letters, which the consumer wrote, cut short and quoted."""
    counts = Counter(fate.reason for fate in fates if fate.reason)
    said = [f"{reason[:_SHOWN_TEXT]!r} {count:,} times" for reason, count in counts.most_common(_SHOWN_REASONS)]
    return f" ({', '.join(said)})" if said else ""


def _of(count: int, of: int) -> str:
    return f"{count:,} of {of:,}"
