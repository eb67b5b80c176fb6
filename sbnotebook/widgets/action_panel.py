"""The panel that shows a plan, asks, carries it out and reports. Every other panel acts by it."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from threading import Event
from typing import Final, Literal

from sbnotebook.analysis.descriptions import masked
from sbnotebook.client import Namespace, Plan
from sbnotebook.client.portal import Work
from sbnotebook.client.rehearsal import Consumer, Rehearsal, RehearsalResult
from sbnotebook.client.targets import duration, notebook_variable, ramp_of
from sbnotebook.errors import ConfigurationError, DecisionError, SbNotebookError
from sbnotebook.model import EntityAddress, FateStatus, Outcome, OutcomeStatus, Report, Resubmit
from sbnotebook.model.durations import duration_text
from sbnotebook.model.report import counted
from sbnotebook.settlement import Limits, Ramp, RunReport, number_list
from sbnotebook.widgets.blocks import Block, Button, Code, Column, Menu, Progress, Row, Table, Text, Title
from sbnotebook.widgets.fields import Entry, check_entry, number, watch
from sbnotebook.widgets.panel import Callbacks, Panel, must_wait, sentence
from sbnotebook.widgets.plan_text import REMOVING, can_resume, can_undo, failure_groups, plan_blocks, report_blocks
from sbnotebook.widgets.pretty import cell
from sbnotebook.widgets.table.message_table import MessageTable
from sbnotebook.widgets.table.row_packing import MessageKey

_DEFAULT: Final = Ramp()
_SHOWN: Final = 200


class RampForm:
    def __init__(self, changed: Callable[[], object]) -> None:
        self.is_wanted = check_entry(
            "Send a few first", tooltip="Send the first messages, and the others only if the consumer completes these"
        )
        self._batches = Entry(
            "First",
            lambda text: ramp_of(text, _DEFAULT.watch, _DEFAULT.stop_at).batches,
            str(_DEFAULT.batches[0]),
            hint="such as 10, or 1,5,20,100",
            size="short",
        )
        self._watch = Entry(
            "then watch them for", duration, duration_text(_DEFAULT.watch), hint="such as 10m", size="short"
        )
        self._stop_at = Entry(
            "Stop at",
            lambda text: Ramp(stop_at=number(text) if text else 0.0).stop_at,
            hint="the share that came back, such as 0.02; empty for any",
            size="short",
        )
        self._fields = self._batches, self._watch, self._stop_at
        watch([self.is_wanted, *self._fields], changed)

    def blocks(self) -> list[Block]:
        fields = [Row([each.block() for each in self._fields], key="ramp")] if self.is_wanted.value else []
        return [self.is_wanted.block(), *fields]

    def read(self) -> Ramp | None:
        if not self.is_wanted.value:
            return None
        return ramp_of(self._batches.read(), self._watch.read(), self._stop_at.read())


def _consumer(name: str) -> Consumer | None:
    if not name:
        return None
    found = notebook_variable(name)
    if callable(found) or isinstance(found, (str, list, tuple)):
        return found
    raise ConfigurationError(f"The notebook has no function or command {name[:60]!r}: run the cell that defines it.")


def rehearsal_blocks(rehearsal: Rehearsal) -> list[Block]:
    counts = ", ".join(f"{count:,} {result}" for result, count in rehearsal.counts.items())
    is_good = not rehearsal.counts.keys() - {RehearsalResult.CONSUMED, RehearsalResult.ARRIVED}
    groups: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for each in rehearsal:
        groups[each.result, each.reason or "", masked(each.description or "")].append(each.sequence_number)
    names = ["sequence_number", "message_id", "result", "reason", "description"]
    return [
        Title("Rehearsed on copies", is_small=True),
        Text(f"{counts}. The namespace is as it was.", "good" if is_good else "warning"),
        Table(
            ["messages", "result", "reason", "description", "numbers"],
            [
                [len(found), *key, number_list(found)]
                for key, found in sorted(groups.items(), key=lambda group: -len(group[1]))
            ],
        ),
        Table(
            ["number", "message id", *names[2:]],
            [[getattr(each, name) for name in names] for each in rehearsal[:_SHOWN]],
            "Each message" if len(rehearsal) <= _SHOWN else f"Each message, the first {_SHOWN} shown",
            is_open=False,
        ),
    ]


def ramp_blocks(report: Report) -> list[Block]:
    if not isinstance(report, RunReport) or not report.fates:
        return []
    counts = Counter((fate.status, fate.reason or "", fate.description or "") for fate in report.fates)
    is_good = all(fate.status is FateStatus.CONSUMED for fate in report.fates)
    curve = f"The ramp: {' → '.join(map(str, report.steps))}." if len(report.steps) > 1 else ""
    table = Table(
        ["messages", "fate", "reason", "description"],
        [[count, *key] for key, count in counts.most_common()],
        "The fate of the first messages, as it was seen last",
        is_open=not is_good,
    )
    return [Text(report.stopped or "", "warning"), Text(curve), table]


_NO_LIMITS: Final = Limits()
_TWICE: Final = "Restore the originals (duplicates)"
"""Sends back originals of a resubmit, whose clones remain."""
_WAITING: Final = Text(
    "While a cell runs, Pause and Cancel wait for its end. To have them answered at once, interrupt the cell.",
    "quiet",
)
_IDLE: Final = Text(
    "Nothing is planned. Choose messages and what to do with them: the plan is shown here first.", "quiet"
)

_TICK: Final = 0.1
"""Seconds between two looks, so that nothing on the screen changes more than ten times a second."""
_SOONEST: Final = 1.0
"""Seconds after which a rate says anything."""


_Stage = Literal["idle", "making", "proposed", "rehearsing", "running", "ended"]


class ActionPanel(Panel):
    """Shows a plan, carries it out when that is confirmed, and says how each message ended."""

    def __init__(self, namespace: Namespace, *, table: MessageTable | None = None, is_editing: bool = True) -> None:
        super().__init__()
        self._namespace = namespace
        self._table = table
        self._stage: _Stage
        self._turn = self._forward = self._copies = 0
        self._plan: Plan | None = None
        self._chosen: Plan | None = None
        """The plan with the ramp of the form; None while a field of it is at fault."""
        self._limits = _NO_LIMITS
        self._carried_out: Callable[[], object] = lambda: None
        self._work: PlanRun | None = None
        self.report: Report | None = None
        """Of the last plan that was carried out; None when it was put away."""
        self._proposed: list[Block] = []
        self._reported: list[Block] = []
        self.record: list[Block] = []
        """All plans that were carried out, and their reports, in words; without the rows of messages."""
        self.on_report = Callbacks(self.fail)
        self._ramp = RampForm(self._choose)
        self._consumer = Entry("Consumer", _consumer, hint="a function of this notebook; empty for none")
        self._asks_consumer = is_editing
        self._codes: dict[str, str] = {}
        self._shown_code = ""
        self._to = Entry("Send back to", str, hint="a queue or topic")
        self._enter("idle", _IDLE)

    def blocks(self) -> list[Block]:
        words = Column(self._words, look="words", forward=self._forward, key="words")
        return [Column([words, *self._controls()], look="actions", key="actions")]

    # ------------------------------------------------------------ what others use

    def propose(
        self,
        make: Callable[[], Plan],
        *,
        hidden: int = 0,
        title: str = "",
        limits: Limits = _NO_LIMITS,
        carried_out: Callable[[], object] = lambda: None,
    ) -> Callable[[str], None]:
        """Show a plan, to be confirmed, and return what takes it back until then, with a word why.

        ``carried_out`` is called when it has been, before the report is shown.

        Raises:
            DecisionError: another plan is being carried out.
        """
        with self.lock:
            if self._stage == "running":
                raise DecisionError("Another plan is being carried out: wait for its end, or cancel it.")
            self._turn += 1
            self._carried_out = carried_out
            heading = [Title(title, is_small=True)] if title else []
            self._enter("making", *heading, Text("Looking which messages it is for …", "quiet"))
            self.look(partial(self._make, make, limits, hidden=hidden, title=title))
            return partial(self._take_back, self._turn)

    def resume(self, entity: EntityAddress, title: str) -> None:
        def make() -> Plan:
            plans = self._namespace.resume(entity)
            if not plans:
                raise DecisionError("Nothing is left to finish: load the messages again to see their state.")
            return plans[0]

        self.propose(make, title=title)

    @property
    def is_open(self) -> bool:
        return self._stage != "idle"

    def cancel(self) -> None:
        """Stop the plan or rehearsal; :meth:`wait` until a plan has released its messages."""
        with self.lock:
            if self._stage == "rehearsing":
                self.abandon()
                self._enter("proposed", *self._proposed, Text("The rehearsal was cancelled.", "quiet"))
            elif self._work is not None:
                self._work.cancel()
                self.redraw()

    def close(self) -> None:
        with self.lock:
            self.cancel()
            self._go_back()
        super().close()

    # ------------------------------------------------------------ before

    def _make(self, make: Callable[[], Plan], limits: Limits, stop: Event, *, hidden: int, title: str) -> None:
        plan = make()
        blocks = plan_blocks(plan, plan.preview(), self._namespace, hidden=hidden, title=title, rate=limits.rate)
        with self.showing(stop):
            self._plan, self._limits, self._proposed = plan, limits, blocks
            self._ramp.is_wanted.value = False  # which chooses the plan
            self._forward += 1
            self._enter("proposed", *blocks)

    def ended(self, problem: str) -> None:
        if problem:
            self._forward += 1
            titles = (block for block in self._words if isinstance(block, Title))
            # An undo may need a field of the report; else it stays until its form is changed or closed.
            self._enter("ended" if self.report else "making", *titles, Text(problem, "error"))

    def _choose(self) -> None:
        """Make the plan with the ramp of the form, and its code, if a code says the same."""
        self._chosen, self._codes, self._shown_code = None, {}, ""
        plan, rate = self._plan, self._limits.rate
        with suppress(SbNotebookError):
            ramp = self._ramp.read()
            if plan is not None and ramp is not None:
                plan = plan.with_ramp(**asdict(ramp))
            self._chosen = plan
            if plan is not None:
                target = "emulator" if self._namespace.is_emulator else self._namespace.host
                self._codes = {"cell": plan.as_cell(rate=rate), "Python": plan.as_python(target=target, rate=rate)}

    def _show_code(self, code: str) -> None:
        self._shown_code = code
        self._copies += 1

    def _take_back(self, turn: int, why: str) -> None:
        with self.lock:
            if turn == self._turn and self._stage in ("making", "proposed", "rehearsing"):
                self._go_back(Text(why, "warning"))

    def _put_away(self) -> None:
        with self.lock:
            if self._stage == "ended":
                self.report = None
            if self._stage != "running":
                self._go_back()

    def _go_back(self, *words: Block) -> None:
        """Forget the plan, and go back to the report before it, which can still be undone."""
        self.abandon()
        self._plan = self._chosen = self._work = None
        if self.report:
            self._enter("ended", *(words or self._reported))
        else:
            self._enter("idle", *(words or [_IDLE]))

    # ------------------------------------------------------------ on copies

    def _rehearse(self) -> None:
        with self.lock:
            plan = self._plan
            if self._stage != "proposed" or plan is None or self._consumer.problem:
                return
            rehearsal = Work(self._namespace.asynchronous.rehearse, plan.asynchronous, self._consumer.read())
            self._enter("rehearsing", *self._proposed, Text(f"Rehearsing {counted(len(plan))} on copies …", "quiet"))
            self.look(partial(self._await, rehearsal))

    def _await(self, rehearsal: Work[Rehearsal], stop: Event) -> None:
        running = rehearsal.start()
        while not rehearsal.wait(_TICK):
            if stop.is_set():
                rehearsal.cancel()
        try:
            blocks = rehearsal_blocks(running.result())
        except Exception as error:  # noqa: BLE001 (shown here, where it is seen)
            blocks = [Text(f"The rehearsal failed: {sentence(error)}", "error")]
        with self.showing(stop):
            self._forward += 1
            self._enter("proposed", *self._proposed, *blocks)

    # ------------------------------------------------------------ while it is carried out

    def _confirmed(self, turn: int) -> None:
        with self.lock:
            plan = self._chosen
            # A second click of a double click comes here, too.
            if turn != self._turn or self._stage != "proposed" or plan is None or not self._can_confirm:
                return
            # What it does has been looked at; from now on the rows of the table say more.
            said = [block for block in self._words if not isinstance(block, Table)]
            if plan.ramp is not None:
                said.append(Text(plan.ramp.sentence(len(plan))))
            work = PlanRun(plan, self._table, self._limits)
            self._plan, self._chosen, self._work = None, None, work
            title = Title(f"Carried out at {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC", is_small=True)
            self._enter("running", *said, *([_WAITING] if must_wait() else []))
            self.look(partial(self._carry_out, work, [title, *said]))

    # ------------------------------------------------------------ afterwards

    def _carry_out(self, work: PlanRun, said: list[Block], stop: Event) -> None:
        work.follow(self.redraw)
        with self.showing(stop):
            self._work = None
            report = self.report = work.report
            self._reported = [*ramp_blocks(report), Text(work.problem, "error"), Text(work.table_problem, "error")]
            if report or not work.problem:
                self._reported[:0] = report_blocks(report, work.plan, cancelled=work.is_cancelled)
            self.record += [*said, *self._reported]
            self._forward += 1
            self._carried_out()
            self._enter("ended", *self._reported)
        self.on_report.tell(report)
        self.redraw()

    def _selecting(self, report: Report) -> Iterable[Button]:
        table = self._table
        if table is None:
            return
        # Messages that may have been sent are first looked for: by Resume, or by peeking again.
        groups = [group for group in failure_groups(report) if group.status is not OutcomeStatus.UNCONFIRMED]
        for group in groups[:4]:
            keys = [key_of(each) for each in group.outcomes if each.sequence_number is not None]
            name = "Select these again" if len(groups) == 1 else f"Select {len(keys):,} again: {cell(group.why, 40)}"
            if keys:
                yield Button(name, partial(table.select, keys), f"Select the messages that ended as {group.status}")

    def _undo(self, report: Report, title: str) -> None:
        to, is_twice = self._to.read() or None, title == _TWICE
        self.propose(lambda: self._namespace.undo(report, to=to, include_resubmitted=is_twice), title=title)

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
            case "making":
                return [Row([not_now])]
            case "proposed":
                return [Row([self._confirmation(), not_now]), *self._trial_blocks(), *self._code_blocks()]
            case "rehearsing":
                return [Row([Button("Cancel", self.cancel, "End the rehearsal", icon="stop")])]
            case "running":
                return self._progress()
            case "ended":
                return [Row(self._afterwards(self.report or Report()))]
            case "idle":
                return []

    def _confirmation(self) -> Button:
        """Return a button for one plan alone: a late click does nothing to another plan."""
        tone = "danger" if self._plan is not None and self._plan.verb in REMOVING else "primary"
        confirm, key = partial(self._confirmed, self._turn), f"carry-out-{self._turn}"
        return Button("Carry out", confirm, "Do what the plan says", tone, is_enabled=self._can_confirm, key=key)

    def _trial_blocks(self) -> list[Block]:
        plan, chosen = self._plan, self._chosen
        if plan is None or not len(plan) or not plan.inner.sends_clones:
            return []
        tip = "Carry it out on copies, in an emulator of this kernel; the namespace stays as it is"
        effect = chosen.ramp.sentence(len(plan)) if chosen is not None and chosen.ramp is not None else ""
        return [
            Row(
                [
                    Button("Rehearse", self._rehearse, tip, icon="copy"),
                    *(self._consumer.blocks() if self._asks_consumer else []),
                ],
                key="rehearse",
            ),
            *self._ramp.blocks(),
            Text(effect, "quiet", key="sentence"),
        ]

    def _code_blocks(self) -> list[Block]:
        tip = "Copy the code of the plan, and show it"
        buttons = [Button(f"Copy as {kind}", partial(self._show_code, code), tip) for kind, code in self._codes.items()]
        shown = [Code(self._shown_code, self._copies)] if self._shown_code else []
        return [Row(buttons, key="copy"), *shown] if buttons else []

    def _progress(self) -> list[Block]:
        work = self._work
        if work is None:
            return []
        running, is_free = work.running, not work.is_cancelled
        name, icon, switch = "Pause", "pause", running.pause
        if running.is_paused:
            name, icon, switch = "Continue", "play", running.resume
        hint, give_back = "Begin nothing more, and keep the locks", "Begin nothing more, and give the rest back"
        cancel = "Cancel" if is_free else "Cancelling …"
        return [
            Row([Progress(work.done), Text(work.status, key="status")]),
            Row([
                Button(name, switch, hint, icon=icon, is_enabled=is_free, key="pause"),
                Button(cancel, self.cancel, give_back, icon="stop", is_enabled=is_free, key="cancel"),
            ]),
        ]  # fmt: skip

    def _afterwards(self, report: Report) -> list[Block]:
        found: list[Block] = []
        more: list[Block] = []
        if can_resume(report):
            resume = partial(self.resume, report[0].entity, "Resume")
            found.append(Button("Resume", resume, "Plan to finish interrupted resubmits", "primary", "forward"))
        if can_undo(report, self._namespace):
            if any(each.verb == Resubmit.verb for each in report):
                again = Button(_TWICE, partial(self._undo, report, _TWICE), "Plan to send the originals once more")
                more.append(Menu("More", [again]))
            else:
                undo = partial(self._undo, report, "Undo")
                found.append(Button("Undo", undo, "Plan to send removed messages back", icon="undo"))
            # Sent to the topic, all subscriptions would get them.
            if report[0].entity.subscription:
                found.append(self._to.block())
        return [*found, *self._selecting(report), Button("Done", self._put_away, "Put the report away"), *more]


class PlanRun:
    """A plan that is carried out; a table shows the outcome of each message."""

    def __init__(self, plan: Plan, table: MessageTable | None, limits: Limits) -> None:
        self.plan = plan
        self.running = plan.start(max_in_flight=limits.max_in_flight, rate=limits.rate)
        self.report = Report()
        self.problem = self.table_problem = ""
        self.is_cancelled = False
        self.done, self.status = 0.0, f"0 of {len(plan):,}"
        """The progress from 0 to 1, and in words."""
        self._counts = Counter[OutcomeStatus]()
        self._since = (time.monotonic(), 0)
        """The time from which the rate is measured, and the messages done by then."""
        self._watched = (0, 0.0)
        """The batches of a ramp that are watched, and since when the last of them is."""
        self._table = table

    def follow(self, ticked: Callable[[], object]) -> None:
        try:
            while not self.running.wait(_TICK):
                self._tick()
                ticked()
            self.report = self.running.result()
        except Exception as error:  # noqa: BLE001 (the panel shows the error)
            self.problem, self.report = sentence(error), self.running.report
        self._show(self.report, removed_by(self.report))

    def cancel(self) -> None:
        self.is_cancelled = True
        self.running.cancel()

    def _tick(self) -> None:
        running = self.running
        if len(running.steps) > self._watched[0]:
            self._watched = len(running.steps), time.monotonic()
        if running.is_paused or running.steps:
            self._since = time.monotonic(), running.done
        new = running.new_outcomes()
        self._counts.update(outcome.status for outcome in new)
        self._show(new)
        self.done, self.status = min(1.0, running.done / max(self.plan.total, 1)), self._words()

    def _words(self) -> str:
        counts, running, told = self._counts, self.running, self._counts.total()
        # Messages to send are in no entity yet, and have no outcomes by number.
        done = told if self.plan.messages else running.done
        parts = [f"{done:,} of {len(self.plan):,}"]
        parts += [f"{count:,} {status}" for status, count in sorted(counts.items()) if count and count != told]
        watching = self._watching(told)
        if watching:
            return f"{'Paused: the others wait. ' if running.is_paused else ''}{', '.join([*parts, watching])}"
        if running.is_paused:
            return "Paused. Locks are renewed. " + ", ".join(parts) if running.is_held else "Finishing …"
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
        ramp, steps = self.plan.ramp, self.running.steps
        if ramp is None or not steps or told > sum(ramp.batches):
            return ""
        left = max(0.0, ramp.watch.total_seconds() - (time.monotonic() - self._watched[1]))
        return f"watching these: {' → '.join(map(str, steps))}, {duration_text(left, rounded=True)} left at most"

    def _show(self, outcomes: Iterable[Outcome], gone: Sequence[MessageKey] = ()) -> None:
        if self._table is None:
            return
        of_rows = (outcome for outcome in outcomes if outcome.sequence_number is not None)
        # A table that was closed meanwhile must not hide how the plan ends.
        try:
            self._table.patch({key_of(outcome): {"outcome": _text_of(outcome)} for outcome in of_rows})
            if gone:
                self._table.remove(gone)
        except Exception as error:  # noqa: BLE001 (told with the report)
            self.table_problem = f"The table does not show what became of them: {sentence(error)}"
            self._table = None


def removed_by(report: Report) -> list[MessageKey]:
    return [key_of(each) for each in report if each.ok and each.verb in REMOVING]


def key_of(outcome: Outcome) -> MessageKey:
    return str(outcome.entity), outcome.sequence_number or 0


def _text_of(outcome: Outcome) -> str:
    why = "" if outcome.ok else outcome.description or outcome.condition or ""
    return f"{outcome.status}: {cell(why, 200)}" if why else str(outcome.status)
