"""The panel that shows a plan, asks for confirmation, carries it out and reports. Every other panel acts by it."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from enum import Enum, auto
from functools import lru_cache, partial
from threading import Event
from typing import TYPE_CHECKING, Final

from sbnotebook.analysis.descriptions import masked
from sbnotebook.client import Namespace
from sbnotebook.client.plan import Plan
from sbnotebook.client.portal import Work
from sbnotebook.client.targets import duration, notebook_variable, ramp_of
from sbnotebook.errors import ConfigurationError, DecisionError, SbNotebookError
from sbnotebook.model import EntityAddress, FateStatus, Outcome, OutcomeStatus, Report, Resubmit
from sbnotebook.model.durations import duration_text
from sbnotebook.settlement import Limits, Ramp, RunReport
from sbnotebook.widgets import panel
from sbnotebook.widgets.blocks import Block, Button, Code, Column, Menu, Progress, Row, Table, Text, Title
from sbnotebook.widgets.fields import Entry, check_entry, number, watch
from sbnotebook.widgets.panel import Callbacks, Panel, must_wait
from sbnotebook.widgets.plan_text import (
    REMOVING,
    can_resume,
    can_undo,
    code_of,
    failure_groups,
    plan_blocks,
    report_blocks,
)
from sbnotebook.widgets.pretty import cell
from sbnotebook.widgets.table.message_table import MessageTable
from sbnotebook.widgets.table.row_packing import MessageKey

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


_ROWS: Final = 5
_NO_LIMITS: Final = Limits()
_MAX_AGAIN: Final = 4
"""Reasons for which the messages can be selected again, each by a button."""
_CANCEL: Final = "Begin nothing more, and give the rest back"
_UNDO, _TWICE = "Undo", "Restore the originals (duplicates)"
"""The second sends back originals of a resubmit, whose clones remain."""
_WAITING: Final = Text(
    "While a cell runs, Pause and Cancel wait for its end. To have them answered at once, interrupt the cell.", "quiet"
)
_IDLE: Final = Text(
    "Nothing is planned. Choose messages and what to do with them: the plan is shown here first.", "quiet"
)

_TICK: Final = 0.1
"""Seconds between two looks, so that nothing on the screen changes more than ten times a second."""
_SOONEST: Final = 1.0
"""Seconds after which a rate says anything."""
_MAX_WHY: Final = 200
_OUTCOME: Final = "outcome"
"""The table's column."""


class _Stage(Enum):
    IDLE = auto()
    MAKING = auto()
    PROPOSED = auto()
    REHEARSING = auto()
    RUNNING = auto()
    ENDED = auto()


class ActionPanel(Panel):
    """Shows a plan, carries it out when that is confirmed, and says how each message ended."""

    def __init__(self, namespace: Namespace, *, table: MessageTable | None = None, is_editing: bool = True) -> None:
        super().__init__()
        self._namespace = namespace
        self._table = table
        self._turn = self._forward = 0
        self._plan: Plan | None = None
        self._limits = _NO_LIMITS
        self._work: PlanRun | None = None
        self._rehearsal: Work[Rehearsal] | None = None
        self.report: Report | None = None
        """Of the last plan that was carried out; None when it was put away."""
        self._proposed: tuple[Block, ...] = ()
        self._reported: tuple[Block, ...] = ()
        self.record: list[Block] = []
        """All plans that were carried out, and their reports, in words; without the rows of messages."""
        self.on_report = Callbacks(lambda why: self._add(Text(why, "error")))
        self._trial = PlanTrial(self._rehearse, self._offer_code, is_naming=is_editing)
        self._code: dict[str, str] = {}
        self._shown_code, self._copies = "", 0
        self._to = Entry("Send back to", str, hint="a queue or topic")
        self._enter(_Stage.IDLE, _IDLE)

    def blocks(self) -> list[Block]:
        words = Column(self._words, look="words", forward=self._forward, key="words")
        return [Column([words, *self._controls()], look="actions", key="actions")]

    # ------------------------------------------------------------ what others use

    def propose(
        self, make: Callable[[], Plan], *, hidden: int = 0, title: str = "", limits: Limits = _NO_LIMITS
    ) -> Callable[[str], None]:
        """Show a plan, to be confirmed. While another is being carried out it is refused, with a word."""
        with self.lock:
            if self._stage is _Stage.RUNNING:
                self._add(Text("Another plan is being carried out: wait for its end, or cancel it.", "warning"))
                return lambda _: None
            self._turn += 1
            heading = [Title(title, is_small=True)] if title else []
            self._enter(_Stage.MAKING, *heading, Text("Looking which messages it is for …", "quiet"))
            self.look(partial(self._make, make, limits, hidden=hidden, title=title))
            return partial(self._take_back, self._turn)

    def resume(self, entity: EntityAddress, title: str) -> None:
        """Propose to finish the interrupted resubmits of an entity."""

        def make() -> Plan:
            plans = self._namespace.resume(entity)
            if not plans:
                raise DecisionError("Nothing is left to finish: load the messages again to see their state.")
            return plans[0]

        self.propose(make, title=title)

    @property
    def is_open(self) -> bool:
        return self._stage is not _Stage.IDLE

    @property
    def busy(self) -> bool:
        return self._stage in (_Stage.MAKING, _Stage.REHEARSING, _Stage.RUNNING)

    def halt(self) -> None:
        super().halt()
        rehearsal, self._rehearsal = self._rehearsal, None
        if rehearsal is not None:
            rehearsal.cancel()

    def cancel(self) -> None:
        """Stop the plan or the rehearsal in progress; :meth:`wait` until a plan has released its messages."""
        with self.lock:
            if self._stage is _Stage.REHEARSING:
                self.abandon()
                self._enter(_Stage.PROPOSED, *self._proposed, Text("The rehearsal was cancelled.", "quiet"))
                return
        work = self._work
        if work is not None:
            work.cancel()
            self.redraw()

    def close(self) -> None:
        with self.lock:
            self._turn += 1
            work, self._work = self._work, None
            self._stage = _Stage.IDLE
        if work is not None:
            work.cancel()
        super().close()

    # ------------------------------------------------------------ before

    def _make(self, make: Callable[[], Plan], limits: Limits, stop: Event, *, hidden: int, title: str) -> None:
        plan = make()
        blocks = plan_blocks(plan, plan.preview(_ROWS), self._namespace, hidden=hidden, title=title, rate=limits.rate)
        with self.showing(stop):
            self._plan, self._limits = plan, limits
            self._trial.offer(plan)
            self._offer_code()
            self._proposed = tuple(blocks)
            self._forward += 1
            self._enter(_Stage.PROPOSED, *blocks)

    def ended(self, problem: str) -> None:
        if problem:
            self._forward += 1
            self._go_back(*(block for block in self._words if isinstance(block, Title)), Text(problem, "error"))

    def _offer_code(self) -> None:
        with self.lock, suppress(SbNotebookError):
            if self._plan is not None:
                target = "emulator" if self._namespace.is_emulator else self._namespace.host
                self._code = code_of(self._chosen(self._plan), target=target, rate=self._limits.rate)
                self._shown_code = ""

    def _code_blocks(self) -> list[Block]:
        if not self._code:
            return []
        names = {kind: f"Copy the plan as {'a cell' if kind == 'cell' else kind}, and show it" for kind in self._code}
        buttons = [Button(f"Copy as {kind}", partial(self._show_code, kind), tip) for kind, tip in names.items()]
        return [Row(buttons, key="copy"), *([Code(self._shown_code, self._copies)] if self._shown_code else [])]

    def _show_code(self, kind: str) -> None:
        self._shown_code = self._code[kind]
        self._copies += 1

    def _chosen(self, plan: Plan) -> Plan:
        ramp = self._trial.ramp
        return plan if ramp is None else plan.with_ramp(**asdict(ramp))

    def _take_back(self, turn: int, why: str) -> None:
        with self.lock:
            if turn == self._turn and self._stage in (_Stage.MAKING, _Stage.PROPOSED, _Stage.REHEARSING):
                self._go_back(Text(why, "warning"))

    def _put_away(self) -> None:
        """Forget the plan or the report that is shown."""
        with self.lock:
            if self._stage is _Stage.ENDED:
                self.report = None
            if self._stage in (_Stage.MAKING, _Stage.PROPOSED, _Stage.ENDED):
                self._go_back()

    def _go_back(self, *words: Block) -> None:
        """Forget the plan, and go back to the report before it, which can still be undone."""
        self.abandon()
        self._turn += 1
        self._plan = self._work = None
        if self.report:
            self._enter(_Stage.ENDED, *(words or self._reported))
        else:
            self._enter(_Stage.IDLE, *(words or [_IDLE]))

    # ------------------------------------------------------------ on copies

    def _rehearse(self) -> None:
        with self.lock:
            plan = self._plan
            if self._stage is not _Stage.PROPOSED or plan is None:
                return
            try:
                consumer = self._trial.consumer.read() if self._trial.is_naming else None
            except SbNotebookError:  # the form shows its fault
                return
            rehearsal = Work(self._namespace.asynchronous.rehearse, plan.asynchronous, consumer)
            words = f"Rehearsing {len(plan):,} message{'s' if len(plan) != 1 else ''} on copies …"
            self._enter(_Stage.REHEARSING, *self._proposed, Text(words, "quiet"))
            self.look(partial(self._await, rehearsal))
            self._rehearsal = rehearsal

    def _await(self, rehearsal: Work[Rehearsal], stop: Event) -> None:
        try:
            blocks = rehearsal_blocks(rehearsal.start().result())
        except Exception as error:  # noqa: BLE001 (shown here, where it is seen)
            blocks = [Text(f"The rehearsal failed: {panel.sentence(error)}", "error")]
        with self.showing(stop):
            self._rehearsal = None
            self._forward += 1
            self._enter(_Stage.PROPOSED, *self._proposed, *blocks)

    # ------------------------------------------------------------ while it is carried out

    def _confirmed(self, turn: int) -> None:
        with self.lock:
            plan = self._plan
            # A second click of a double click comes here, too.
            if turn != self._turn or self._stage is not _Stage.PROPOSED or plan is None or not self._can_confirm:
                return
            try:
                plan = self._chosen(plan)
            except SbNotebookError:  # the form shows its fault
                return
            # What it does has been looked at; from now on the rows of the table say more.
            said = [block for block in self._words if not isinstance(block, Table)]
            if plan.ramp is not None:
                said.append(Text(plan.ramp.sentence(len(plan))))
            try:
                work = PlanRun(plan, self._table, self._limits)
            except Exception as error:  # noqa: BLE001 (shown here, where it is seen)
                self.ended(panel.sentence(error))
                return
            self._plan, self._work = None, work
            title = Title(f"Carried out at {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC", is_small=True)
            self._enter(_Stage.RUNNING, *said, *([_WAITING] if must_wait() else []))
            self.look(partial(self._carry_out, work, [title, *said]))

    def _paused(self) -> None:
        if self._work is not None:
            running = self._work.running
            (running.resume if running.is_paused else running.pause)()

    # ------------------------------------------------------------ afterwards

    def _carry_out(self, work: PlanRun, said: list[Block], stop: Event) -> None:
        work.follow(self.redraw)
        with self.showing(stop):
            self._work = None
            report = self.report = work.report
            problems = [Text(each, "error") for each in (work.problem, work.table_problem) if each]
            blocks: list[Block] = []
            if report or not work.problem:
                blocks = [*report_blocks(report, work.plan, cancelled=work.is_cancelled), *ramp_blocks(report)]
            self._reported = (*blocks, *problems)
            self.record += [*said, *self._reported]
            self._forward += 1
            self._enter(_Stage.ENDED, *self._reported)
        self.on_report.tell(report)
        self.redraw()

    def _selecting(self, report: Report) -> Iterable[Button]:
        table = self._table
        if table is None:
            return
        # Messages that may have been sent are first looked for: by Resume, or by peeking again.
        groups = [group for group in failure_groups(report) if group.status is not OutcomeStatus.UNCONFIRMED]
        for group in groups[:_MAX_AGAIN]:
            keys = [key_of(each) for each in group.outcomes if each.sequence_number is not None]
            name = "Select these again" if len(groups) == 1 else f"Select {len(keys):,} again: {cell(group.why, 40)}"
            if keys:
                yield Button(name, partial(table.select, keys), f"Select the messages that ended as {group.status}")

    def _undone(self) -> None:
        report, to = self.report, self._to.read() or None
        if report is not None:
            # The button of a report with a resubmit says that it doubles the messages.
            is_twice = _is_resubmit(report)
            self.propose(
                lambda: self._namespace.undo(report, to=to, include_resubmitted=is_twice),
                title=_TWICE if is_twice else _UNDO,
            )

    # ------------------------------------------------------------ display

    def _enter(self, stage: _Stage, *words: Block) -> None:
        self._stage, self._words = stage, words
        self.redraw()

    @property
    def _can_confirm(self) -> bool:
        return self._plan is not None and len(self._plan) > 0 and not self._namespace.read_only

    def _controls(self) -> list[Block]:
        not_now = Button("Not now", self._put_away, "Forget the plan: nothing is done")
        match self._stage:
            case _Stage.MAKING:
                return [Row([not_now])]
            case _Stage.PROPOSED:
                return [Row([self._confirmation(), not_now]), *self._trial.blocks(), *self._code_blocks()]
            case _Stage.REHEARSING:
                return [Row([Button("Cancel", self.cancel, "End the rehearsal", icon="stop")])]
            case _Stage.RUNNING:
                return self._progress()
            case _Stage.ENDED:
                return [Row(self._afterwards(self.report or Report()))]
            case _Stage.IDLE:
                return []

    def _confirmation(self) -> Button:
        """Return a button for one plan alone: a late click on it does nothing when another plan is shown."""
        turn, plan = self._turn, self._plan
        tone = "danger" if plan is not None and plan.verb in REMOVING else "primary"
        confirm = partial(self._confirmed, turn)
        key = f"carry-out-{turn}"
        return Button("Carry out", confirm, "Do what the plan says", tone, is_enabled=self._can_confirm, key=key)

    def _progress(self) -> list[Block]:
        work = self._work
        if work is None:
            return []
        is_free = not work.is_cancelled
        name, icon = ("Continue", "play") if work.running.is_paused else ("Pause", "pause")
        cancel = "Cancel" if is_free else "Cancelling …"
        hint = "Begin nothing more, and keep the locks"
        return [
            Row([Progress(work.done), Text(work.status, key="status")]),
            Row([
                Button(name, self._paused, hint, icon=icon, is_enabled=is_free, key="pause"),
                Button(cancel, self.cancel, _CANCEL, icon="stop", is_enabled=is_free, key="cancel"),
            ]),
        ]  # fmt: skip

    def _afterwards(self, report: Report) -> list[Block]:
        can_be_undone, is_twice = can_undo(report, self._namespace), _is_resubmit(report)
        found: list[Block] = []
        if can_resume(report):
            resume = partial(self.resume, report[0].entity, "Resume")
            found.append(Button("Resume", resume, "Plan to finish interrupted resubmits", "primary", "forward"))
        if can_be_undone and not is_twice:
            found.append(Button(_UNDO, self._undone, "Plan to send removed messages back", icon="undo"))
        # Sent to the topic, all subscriptions would get them.
        if can_be_undone and any(each.entity.subscription for each in report[:1]):
            found.append(self._to.block())
        found += [*self._selecting(report), Button("Done", self._put_away, "Put the report away")]
        if can_be_undone and is_twice:
            found.append(Menu("More", [Button(_TWICE, self._undone, "Plan to send the originals once more")]))
        return found

    def _add(self, block: Block) -> None:
        with self.lock:
            if block not in self._words:
                self._enter(self._stage, *self._words, block)


def _is_resubmit(report: Report) -> bool:
    """Return whether an undo of a report sends originals back whose clones exist."""
    return any(each.verb == Resubmit.verb for each in report)


class PlanRun:
    """A plan that is carried out; a table shows the outcome of each message."""

    def __init__(self, plan: Plan, table: MessageTable | None, limits: Limits) -> None:
        self.plan = plan
        self.running = plan.start(max_in_flight=limits.max_in_flight, rate=limits.rate)
        self.report = Report()
        """The report of the ended plan."""
        self.problem = self.table_problem = ""
        self.is_cancelled = False
        self.done, self.status = 0.0, f"0 of {len(plan):,}"
        """The progress from 0 to 1, and in words."""
        self._counts = Counter[OutcomeStatus]()
        self._since = (time.monotonic(), 0)
        """The time from which the rate is measured, and the messages done by then."""
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
            self.problem, self.report = panel.sentence(error), self.running.report
        self._show(self.report, removed_by(self.report))

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
        self._show(new)
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

    def _show(self, outcomes: Iterable[Outcome], gone: Sequence[MessageKey] = ()) -> None:
        """Show outcomes in the table, without the rows that are gone."""
        if self._table is None:
            return
        of_rows = (outcome for outcome in outcomes if outcome.sequence_number is not None)
        # A table that was closed meanwhile must not hide how the plan ends.
        try:
            self._table.patch({key_of(outcome): {_OUTCOME: _text_of(outcome)} for outcome in of_rows})
            if gone:
                self._table.remove(gone)
        except Exception as error:  # noqa: BLE001 (told with the report)
            self.table_problem = f"The table does not show what became of them: {panel.sentence(error)}"
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
