"""A plan as code to copy: buttons below the plan, which copy the text and show it."""

from __future__ import annotations

import ipywidgets as widgets

from sbnotebook.client.plan import Plan
from sbnotebook.errors import DecisionError
from sbnotebook.widgets.panel import button, row, set_shown
from sbnotebook.widgets.text_view import TextView, code_block

__all__ = ["PlanCode"]


class PlanCode(widgets.VBox):
    """Copies a plan as a cell or as Python, for a runbook, and shows the text.

    Example:
        >>> code = PlanCode()
        >>> code.shown
        ''
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self.cell = button("Copy as cell", "Copy the plan as a cell, and show it", lambda: self._show("cell"))
        self.python = button("Copy as Python", "Copy the plan as Python, and show it", lambda: self._show("python"))
        self.view = TextView()
        # On a line of its own, below the buttons of the plan.
        super().__init__([row(self.cell, self.python), self.view], layout={"width": "100%"})
        self.forget()

    @property
    def shown(self) -> str:
        """Return the code that is shown."""
        return "".join(block.get("text", "") for block in self.view.blocks)

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
        self.view.show()
        set_shown(self, shown=False)

    def _show(self, kind: str) -> None:
        self.view.show(code_block(self._texts.get(kind, "")))
        self.view.copy_code()
