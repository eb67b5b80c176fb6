"""A plan as code to copy: buttons below the plan, and a field with the text."""

from __future__ import annotations

import ipywidgets as widgets

from sbnotebook.client.plan import Plan
from sbnotebook.errors import DecisionError
from sbnotebook.widgets.panel import button, row, set_shown

__all__ = ["PlanCode"]


class PlanCode(widgets.VBox):
    """Shows a plan as a cell or as Python, to copy it into a runbook.

    Example:
        >>> code = PlanCode()
        >>> code.field.value
        ''
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self.cell = button("Copy as cell…", "Show the plan as a cell, to copy it", lambda: self._show("cell"))
        self.python = button("Copy as Python…", "Show the plan as Python, to copy it", lambda: self._show("python"))
        self.field = widgets.Textarea(description="Code", rows=6, layout={"width": "100%"})
        self.field.tooltip = "The plan as code: select all of it, and copy it"
        # On a line of its own, below the buttons of the plan.
        super().__init__([row(self.cell, self.python), self.field], layout={"width": "100%"})
        self.forget()

    def offer(self, plan: Plan, *, target: str | None, rate: float | None) -> None:
        """Offer the code of a plan; nothing is shown for a plan without code.

        Args:
            plan: the plan.
            target: where it is carried out, as for :func:`sbnotebook.connect`.
            rate: messages a second at most, None for no limit.
        """
        self.forget()
        try:
            self._texts = {"cell": plan.as_cell(rate=rate), "python": plan.as_python(target=target, rate=rate)}
        except DecisionError:
            return
        set_shown(self, shown=True)

    def forget(self) -> None:
        """Hide the code of an earlier plan."""
        self._texts = {}
        self.field.value = ""
        set_shown(self.field, shown=False)
        set_shown(self, shown=False)

    def _show(self, kind: str) -> None:
        self.field.value = self._texts.get(kind, "")
        set_shown(self.field, shown=True)
