"""A canary: the first messages of a resubmit are sent and watched, before the others follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import anyio.to_thread
from azure.core.exceptions import AzureError

from sbnotebook.errors import DecisionError, SbNotebookError
from sbnotebook.model import Fate, FateStatus, MessageState, Outcome, OutcomeStatus, ReceivedMessage, Report, Resubmit
from sbnotebook.model.durations import duration_text
from sbnotebook.settlement.actions.clone import clone_id_of
from sbnotebook.settlement.actions.fates import Fates, SentClone
from sbnotebook.settlement.connecting.failures import explained
from sbnotebook.settlement.engine import PickReport
from sbnotebook.settlement.locking.renewal import Clock, SystemClock
from sbnotebook.settlement.memory.journal import original_key
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Canary, Limits, Plan
from sbnotebook.settlement.resources import Resources
from sbnotebook.settlement.terms import Progress, outcome_for
from sbnotebook.settlement.watch import Watch, reporting

_SHOWN_REASONS: Final = 3
_SHOWN_TEXT: Final = 80
_REFUSED: Final = (SbNotebookError, AzureError, OSError)
_AGAIN: Final = "Resubmit again to continue."
_HARMLESS: Final = (OutcomeStatus.SETTLED, OutcomeStatus.NOT_FOUND)


class CanaryReport(PickReport):
    """The outcomes of a resubmit with a canary, and the fates of the messages that went first.

    Args:
        outcomes: of all messages, in their order; SKIPPED where the others did not follow.
        rest: as for :class:`PickReport`.
        fates: of the canaries whose clones were sent, as they were seen last.
        stopped: why the others did not follow, in a sentence; None where they did.
    """

    def __init__(self, outcomes: Iterable[Outcome], rest: Report, fates: Sequence[Fate], stopped: str | None) -> None:
        super().__init__(outcomes, rest)
        self.fates = tuple(fates)
        self.stopped = stopped

    def __str__(self) -> str:
        return f"{super().__str__()}; canary: {_summary(self.fates)}"


async def apply_with_canary(
    place: Place,
    to_namespace: Resources,
    plan: Plan,
    canary: Canary,
    limits: Limits,
    progress: Progress | None = None,
    seen: Progress | None = None,
) -> CanaryReport:
    """Resubmit the first messages of a plan, watch their clones, and resubmit the others if few enough came back.

    The others follow only if the fate of each canary is known. Meanwhile, they are not locked; they are locked when
    they follow.
    """
    trial = _Trial(place, plan, canary, limits, progress)
    return await trial.run(to_namespace, seen or _unseen)


class _Trial:
    """One plan that is applied with a canary."""

    def __init__(self, place: Place, plan: Plan, canary: Canary, limits: Limits, progress: Progress | None) -> None:
        decision = plan.decision
        if not isinstance(decision, Resubmit):
            raise DecisionError("A canary goes with a resubmit: the clones of its first messages are watched.")
        self._place = place
        self._plan = plan
        self._decision = decision
        self._canary = canary
        self._limits = limits
        self._progress = progress
        self._clock: Clock = place.namespace.clock or SystemClock()
        self._fates: dict[str, Fate] = {}
        self._given_back: dict[int | None, Outcome] = {}
        self._stopped: str | None = None
        self._watch = Watch()
        # Messages that the resubmit would skip say nothing about the consumer.
        limit = decision.limit_at(plan.entity)
        sends = [index for index, message in enumerate(plan.messages) if _is_sent(message, limit)][: canary.count]
        others = sorted(set(range(len(plan.messages))) - set(sends))
        self._order = [*sends, *others]
        self._first = tuple(plan.messages[index] for index in sends)
        self._rest = tuple(plan.messages[index] for index in others)

    async def run(self, namespace: Resources, seen: Progress) -> CanaryReport:
        to = self._decision.to or self._plan.entity.sends_to
        hidden = self._decision.atomic == "forward" and to != self._plan.entity.sends_to
        fates = Fates(namespace, to, forwarded_from=self._plan.entity.sends_to if hidden else None)
        if self._first:
            try:
                await fates.mark()
            except (AzureError, OSError) as error:
                raise DecisionError(f"Nothing was sent: the canary could not be watched. {explained(error)}") from None
        with reporting(self.report) as tell:
            self._watch = Watch(tell)
            with self._watch:
                sent = self._clock.now()
                report = await self._carry_out(self._first)
                clones = await self._clones(report, sent)
                await self._observe(fates, clones, seen)
                self._stopped = self._verdict(report, len(clones))
                if self._stopped is None and self._rest:
                    await self._follow()
        return self.report()

    def report(self) -> CanaryReport:
        """Return the outcomes known now, in the order of the plan."""
        done = list(self._watch.report)
        why = self._stopped or "Not attempted: the resubmit was interrupted before."
        messages = [self._plan.messages[index] for index in self._order[len(done) :]]
        done += [outcome_for(message, self._decision, OutcomeStatus.SKIPPED, why) for message in messages]
        outcomes = [outcome for _, outcome in sorted(zip(self._order, done, strict=True), key=lambda each: each[0])]
        return CanaryReport(outcomes, Report(self._given_back.values()), [*self._fates.values()], self._stopped)

    async def _carry_out(self, messages: tuple[ReceivedMessage, ...]) -> Report:
        report = await self._plan.carry_out(replace(self._plan, messages=messages), self._limits, self._progress)
        chosen = {message.sequence_number for message in self._plan.messages}
        rest = report.rest if isinstance(report, PickReport) else ()
        self._given_back |= {each.sequence_number: each for each in rest if each.sequence_number not in chosen}
        return report

    async def _follow(self) -> None:
        try:
            await self._carry_out(self._rest)
        except _REFUSED as error:  # the outcomes of the canaries must not be hidden
            self._stopped = f"Not attempted: {explained(error)} {_AGAIN}"

    async def _clones(self, report: Report, sent: datetime) -> list[SentClone]:
        """Return the clones that were sent, as the journal knows them; a transaction writes nothing there."""
        outcomes = zip(self._first, report, strict=True)
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

    async def _observe(self, fates: Fates, clones: Sequence[SentClone], seen: Progress) -> None:
        """Look at the clones until the fate of each is known, too many came back, or the time is over."""
        waits = self._place.namespace.waits
        until, pause = self._clock.now() + self._canary.watch, waits.first_look
        open_ones, gone = {clone.message_id: clone for clone in clones}, dict[str, FateStatus]()
        while open_ones:
            found = await fates.of(open_ones.values(), self._clock.now())
            self._fates |= found
            ended = [each for each, fate in found.items() if _is_final(fate, gone.get(each), is_sure=not fates.failed)]
            gone = {each: fate.status for each, fate in found.items()}
            for each in ended:
                del open_ones[each]
            seen(len(ended))
            # A peek may miss a message, so that one that is not to be found is looked for once more.
            is_doubtful = any(gone[each] is FateStatus.CONSUMED for each in open_ones)
            is_over = self._clock.now() >= until and not is_doubtful
            if not open_ones or is_over or self._count(FateStatus.CAME_BACK) > self._canary.max_came_back:
                return
            left = (until - self._clock.now()).total_seconds()
            await self._clock.sleep(waits.first_look if is_doubtful else min(pause, max(left, waits.first_look)))
            pause = min(2 * pause, waits.longest_look)

    def _count(self, status: FateStatus) -> int:
        return sum(fate.status is status for fate in self._fates.values())

    def _verdict(self, report: Report, sent: int) -> str | None:
        """Return why the others do not follow, in a sentence; None where they do."""
        if not self._first:
            return None
        back, waiting, unknown = map(self._count, (FateStatus.CAME_BACK, FateStatus.WAITING, FateStatus.UNKNOWN))
        why: list[str] = []
        unsure = sum(outcome.status is OutcomeStatus.UNCONFIRMED for outcome in report)
        failed = sum(outcome.status not in _HARMLESS for outcome in report) - unsure
        if failed:
            why.append(f"{_canaries(failed, len(report))} {_were(failed)} not resubmitted")
        if unsure:
            why.append(f"Service Bus did not confirm {_canaries(unsure, len(report))}")
        if back > self._canary.max_came_back:
            reasons = _reasons(fate for fate in self._fates.values() if fate.status is FateStatus.CAME_BACK)
            why.append(f"{_canaries(back, sent)} came back{reasons}")
        if unknown:
            fate = next(fate for fate in self._fates.values() if fate.status is FateStatus.UNKNOWN)
            doubt = f" ({fate.description})" if fate.description else ""
            why.append(f"the fate of {_canaries(unknown, sent)} is unknown{doubt}")
        if waiting and not back > self._canary.max_came_back:
            wait = "waits" if waiting == 1 else "wait"
            why.append(f"{_canaries(waiting, sent)} still {wait} after {duration_text(self._canary.watch)}")
        if not sent and not failed and not unsure:
            why.append("no canary was there to be sent")
        return f"Not attempted: {'; '.join(why)}. {_AGAIN}" if why else None


def _unseen(_count: int) -> None:
    """Do nothing with progress that no caller watches."""


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


def _canaries(count: int, of: int) -> str:
    return f"{count:,} of {of:,} canar{'y' if of == 1 else 'ies'}"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
