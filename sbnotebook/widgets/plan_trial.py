"""Try a resubmit before all of it is carried out: on copies, or with its first messages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import ipywidgets as widgets

from sbnotebook.analysis.descriptions import masked
from sbnotebook.client.coercions import duration
from sbnotebook.client.plan import Plan
from sbnotebook.client.targets import notebook_variable
from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import FateStatus, Report
from sbnotebook.model.durations import duration_text
from sbnotebook.settlement import Ramp, RampReport
from sbnotebook.widgets.box_panel import button, row, set_shown, text
from sbnotebook.widgets.pretty import visible
from sbnotebook.widgets.text_view import Block, heading, paragraph, rows_block

if TYPE_CHECKING:
    from sbnotebook.client.rehearsal import Consumer, Rehearsal, Rehearsed

_DEFAULT: Final = Ramp()
_MOST: Final = 10_000
"""Messages of a canary at most."""
_FITTING: Final = {"description_width": "initial"}
_SHOWN: Final = 200
"""Messages of a rehearsal in its table."""
_NAMED: Final = 5
_MOST_NAME: Final = 60


class PlanTrial(widgets.VBox):
    """Asks whether a canary goes first, and offers to rehearse.

    Args:
        rehearse: is called when the user wants to see the plan on copies.
        changed: is called when another canary is chosen.
        is_naming: whether the user may name a function of the notebook, which the rehearsal then calls.

    Example:
        >>> trial = PlanTrial(lambda: None, lambda: None)
        >>> trial.wants_canary.value = True
        >>> trial.canary
        Ramp(batches=(10,), watch=datetime.timedelta(seconds=600), stop_at=0.0)
    """

    def __init__(
        self, rehearse: Callable[[], object], changed: Callable[[], object], *, is_naming: bool = True
    ) -> None:
        self._changed = changed
        self._is_naming = is_naming
        self._total = 0
        self._make_fields(rehearse)
        self._words = text("", "quiet")
        self._problem = text("", "problem")
        self._choice = row(self.count, self.watch, self.most)
        rehearsing = row(self.rehearse, *([self.consumer] if is_naming else []))
        parts = [rehearsing, self.wants_canary, self._choice, self._words, self._problem]
        super().__init__(parts, layout={"width": "100%"})
        for each in (self.wants_canary, self.count, self.watch, self.most):
            each.observe(lambda _: self._choose(), "value")
        self.forget()

    def _make_fields(self, rehearse: Callable[[], object]) -> None:
        self.wants_canary = widgets.Checkbox(
            description="Send a canary first",
            indent=False,
            tooltip="Send the first messages, and the others only if the consumer completes these",
            layout={"width": "auto"},
        )
        self.count = widgets.BoundedIntText(
            _DEFAULT.batches[0], min=1, max=_MOST, description="First", style=_FITTING, layout={"width": "110px"}
        )
        self.watch = widgets.Text(
            duration_text(_DEFAULT.watch),
            description="then watch them for",
            placeholder="such as 10m",
            continuous_update=False,
            style=_FITTING,
            layout={"width": "210px"},
        )
        self.most = widgets.BoundedIntText(
            0, min=0, max=_MOST, description="May come back", style=_FITTING, layout={"width": "160px"}
        )
        self.rehearse = button(
            "Rehearse",
            "Carry it out on copies, in an emulator of this kernel; the namespace stays as it is",
            rehearse,
            icon="copy",
        )
        self.consumer = widgets.Text(
            description="Consumer",
            placeholder="a function of this notebook; empty for none",
            style=_FITTING,
            layout={"width": "380px"},
        )

    def offer(self, plan: Plan) -> None:
        """Offer to try a plan; nothing is shown for a plan that sends no clones."""
        self.forget()
        self._total = len(plan)
        set_shown(self, shown=plan.inner.with_ramp is not None and len(plan) > 0)

    def forget(self) -> None:
        """Hide it, and choose no canary."""
        self.wants_canary.value = False
        self._show("")
        set_shown(self, shown=False)

    @property
    def canary(self) -> Ramp | None:
        """Return the chosen canary; None for none."""
        if not self.wants_canary.value:
            return None
        try:
            count, most = self.count.value, self.most.value
            share = (most + 0.5) / count if most else 0.0  # between so many and one more
            return Ramp((count,), duration(self.watch.value.strip()), share)
        except SbNotebookError as error:
            self._show(str(error))
            raise

    def named_consumer(self) -> Consumer | None:
        """Return the function or the command that the user named; None for none."""
        name = self.consumer.value.strip() if self._is_naming else ""
        if not name:
            return None
        found = notebook_variable(name)
        if callable(found) or isinstance(found, (str, list, tuple)):
            return found
        problem = f"The notebook has no function or command {name[:_MOST_NAME]!r}: run the cell that defines it."
        self._show(problem)
        raise ConfigurationError(problem)

    def _choose(self) -> None:
        self._show("")
        try:
            canary = self.canary
        except SbNotebookError:
            canary = None
        self._words.value = canary.sentence(self._total) if canary else ""
        set_shown(self._words, shown=canary is not None)
        self._changed()

    def _show(self, problem: str) -> None:
        self._problem.value = visible(problem)
        set_shown(self._problem, shown=bool(problem))
        set_shown(self._choice, shown=self.wants_canary.value)
        set_shown(self._words, shown=self.wants_canary.value and not problem)


def rehearsal_blocks(rehearsal: Rehearsal) -> list[Block]:
    """Describe a rehearsal: how many messages ended in which way and why, and each of the first ones."""
    from sbnotebook.client.rehearsal import RehearsalResult

    counts = ", ".join(f"{count:,} {result}" for result, count in rehearsal.counts.items())
    is_good = not rehearsal.counts.keys() - {RehearsalResult.CONSUMED, RehearsalResult.ARRIVED}
    groups: defaultdict[tuple[str, str, str], list[Rehearsed]] = defaultdict(list)
    for each in rehearsal:
        groups[str(each.result), each.reason or "", masked(each.description or "")].append(each)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    shown = f", the first {_SHOWN} shown" if len(rehearsal) > _SHOWN else ""
    return [
        heading("Rehearsed on copies"),
        paragraph(f"{counts}. The namespace is as it was.", "good" if is_good else "warning"),
        rows_block(
            ["messages", "result", "reason", "description", "numbers"],
            [[len(found), *key, _numbers(found)] for key, found in ordered],
        ),
        rows_block(
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


def canary_blocks(report: Report) -> list[Block]:
    """Describe what became of the canaries of a resubmit; nothing for another report."""
    if not isinstance(report, RampReport) or not report.fates:
        return []
    counts = Counter((fate.status, fate.reason or "", fate.description or "") for fate in report.fates)
    said = [[count, *key] for key, count in counts.most_common()]
    is_good = all(fate.status is FateStatus.CONSUMED for fate in report.fates)
    words = [] if report.stopped is None else [paragraph(report.stopped, "warning")]
    if len(report.steps) > 1:
        words.append(paragraph(f"The ramp: {' → '.join(map(str, report.steps))}."))
    caption = "The fate of the canaries, as it was seen last"
    return [*words, rows_block(["canaries", "fate", "reason", "description"], said, caption, is_open=not is_good)]
