"""Try a resubmit before all of it is carried out: on copies, or with its first messages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sbnotebook.analysis.descriptions import masked
from sbnotebook.client.coercions import duration, ramp_of
from sbnotebook.client.plan import Plan
from sbnotebook.client.targets import notebook_variable
from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import FateStatus, Report
from sbnotebook.model.durations import duration_text
from sbnotebook.settlement import Ramp, RunReport
from sbnotebook.widgets.blocks import Block, Button, Row, Table, Text, Title
from sbnotebook.widgets.fields import Entry, check_entry, number, watch

if TYPE_CHECKING:
    from sbnotebook.client.rehearsal import Consumer, Rehearsal, Rehearsed

_DEFAULT: Final = Ramp()
_RAMP: Final = "Send the first messages, and the others only if the consumer completes these"
_REHEARSE: Final = "Carry it out on copies, in an emulator of this kernel; the namespace stays as it is"
_SHOWN: Final = 200
"""Messages of a rehearsal in its table."""
_NAMED: Final = 5
_MOST_NAME: Final = 60


class PlanTrial:
    """Asks whether growing batches go first, and offers to rehearse."""

    def __init__(
        self, rehearse: Callable[[], object], changed: Callable[[], object], *, is_naming: bool = True
    ) -> None:
        self._rehearse = rehearse
        self.is_naming = is_naming
        self._total = 0
        self.wants_ramp = check_entry("Send a few first", tooltip=_RAMP)
        self.batches = Entry("First", _sizes, str(_DEFAULT.batches[0]), hint="such as 10, or 1,5,20,100", size="short")
        self.watch = Entry(
            "then watch them for", duration, duration_text(_DEFAULT.watch), hint="such as 10m", size="short"
        )
        self.stop_at = Entry(
            "Stop at", _share, hint="the share that came back, such as 0.02; empty for any", size="short"
        )
        self.consumer = Entry("Consumer", _consumer, hint="a function of this notebook; empty for none")
        self._fields = self.batches, self.watch, self.stop_at
        watch([self.wants_ramp, *self._fields], changed)

    def blocks(self) -> list[Block]:
        """Return the offers; nothing for a plan that sends no clones."""
        if not self._total:
            return []
        consumer = self.consumer.blocks() if self.is_naming else []
        found: list[Block] = [
            Row([Button("Rehearse", self._rehearse, _REHEARSE, icon="copy"), *consumer], key="rehearse"),
            self.wants_ramp.block(),
        ]
        if self.wants_ramp.value:
            found.append(Row([each.block() for each in self._fields], key="ramp"))
            with suppress(SbNotebookError):  # the fields show it
                found.append(Text(str(self.ramp and self.ramp.sentence(self._total)), "quiet", key="sentence"))
        return found

    def offer(self, plan: Plan) -> None:
        """Offer to try a plan, with no ramp at first."""
        self.wants_ramp.value = False
        self._total = len(plan) if plan.inner.sends_clones else 0

    @property
    def ramp(self) -> Ramp | None:
        if not self.wants_ramp.value:
            return None
        return ramp_of(self.batches.read(), self.watch.read(), self.stop_at.read())


def _consumer(name: str) -> Consumer | None:
    if not name:
        return None
    found = notebook_variable(name)
    if callable(found) or isinstance(found, (str, list, tuple)):
        return found
    raise ConfigurationError(
        f"The notebook has no function or command {name[:_MOST_NAME]!r}: run the cell that defines it."
    )


def _sizes(text: str) -> tuple[int, ...]:
    return ramp_of(text, _DEFAULT.watch, _DEFAULT.stop_at).batches


def _share(text: str) -> float:
    return Ramp(stop_at=number(text) if text else 0.0).stop_at


def rehearsal_blocks(rehearsal: Rehearsal) -> list[Block]:
    from sbnotebook.client.rehearsal import RehearsalResult

    counts = ", ".join(f"{count:,} {result}" for result, count in rehearsal.counts.items())
    is_good = not rehearsal.counts.keys() - {RehearsalResult.CONSUMED, RehearsalResult.ARRIVED}
    groups: defaultdict[tuple[str, str, str], list[Rehearsed]] = defaultdict(list)
    for each in rehearsal:
        groups[str(each.result), each.reason or "", masked(each.description or "")].append(each)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    shown = f", the first {_SHOWN} shown" if len(rehearsal) > _SHOWN else ""
    return [
        Title("Rehearsed on copies", is_small=True),
        Text(f"{counts}. The namespace is as it was.", "good" if is_good else "warning"),
        Table(
            ["messages", "result", "reason", "description", "numbers"],
            [[len(found), *key, _numbers(found)] for key, found in ordered],
        ),
        Table(
            ["number", "message id", "result", "reason", "description"],
            [
                [each.sequence_number, each.message_id, str(each.result), each.reason, each.description]
                for each in rehearsal[:_SHOWN]
            ],
            f"Each message{shown}",
            is_open=False,
        ),
    ]


def _numbers(found: list[Rehearsed]) -> str:
    more = ", …" if len(found) > _NAMED else ""
    return ", ".join(str(each.sequence_number) for each in found[:_NAMED]) + more


def ramp_blocks(report: Report) -> list[Block]:
    """Describe what became of the messages that a ramp sent first; nothing for another report."""
    if not isinstance(report, RunReport) or not report.fates:
        return []
    counts = Counter((fate.status, fate.reason or "", fate.description or "") for fate in report.fates)
    said = [[count, *key] for key, count in counts.most_common()]
    is_good = all(fate.status is FateStatus.CONSUMED for fate in report.fates)
    words: list[Block] = [] if report.stopped is None else [Text(report.stopped, "warning")]
    if len(report.steps) > 1:
        words.append(Text(f"The ramp: {' → '.join(map(str, report.steps))}."))
    caption = "The fate of the first messages, as it was seen last"
    return [*words, Table(["messages", "fate", "reason", "description"], said, caption, is_open=not is_good)]
