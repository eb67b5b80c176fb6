"""All dead-letter queues of a namespace in a panel, on demand."""

from __future__ import annotations

import threading

import ipywidgets as widgets

from sbnotebook.client import Namespace
from sbnotebook.client.dead_letters import DeadLetters
from sbnotebook.widgets import background
from sbnotebook.widgets.panel import NO_MATHEMATICS, button, row, set_shown, text

__all__ = ["DeadLetterView"]

_SHOW, _HIDE = "All dead letters", "Hide dead letters"


class DeadLetterView(widgets.VBox):
    """A button that shows the table of :meth:`sbnotebook.client.Namespace.dead_letters`, and hides it again.

    Args:
        namespace: whose queues.

    Example:
        >>> view = DeadLetterView(namespace)  # doctest: +SKIP
        >>> view.look()  # doctest: +SKIP
    """

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._ended = threading.Event()
        self.letters: DeadLetters | None = None
        self.switch = button(
            _SHOW, "Show all dead-letter queues with their growth and causes", self._switch, icon="list"
        )
        self.status = text("", "quiet")
        self.problem = text("", "problem")
        self.table = widgets.HTML(layout={"max_height": "420px", "overflow": "auto"})
        for name in NO_MATHEMATICS:
            self.table.add_class(name)
        super().__init__([row(self.switch, self.status), self.problem, self.table])
        set_shown(self.table, shown=False)

    def look(self) -> None:
        """Look at the queues in the background, and show them."""
        self._ended.clear()
        self.switch.disabled = True
        self.status.value, self.problem.value = "Looking at all dead-letter queues…", ""
        background.start(self._namespace.dead_letters, done=self._show, failed=self._fail)

    def wait(self, seconds: float = 60.0) -> bool:
        """Wait until a look has ended; tells whether that is so."""
        return self._ended.wait(seconds)

    def _switch(self) -> None:
        if self.switch.description == _SHOW:
            self.look()
            return
        self.switch.description, self.table.value, self.status.value = _SHOW, "", ""
        set_shown(self.table, shown=False)

    def _show(self, letters: DeadLetters) -> None:
        self.letters = letters
        self.table.value = letters.as_html()
        set_shown(self.table, shown=True)
        self.switch.description = _HIDE
        self._end()

    def _fail(self, problem: str) -> None:
        self.problem.value = problem
        self._end()

    def _end(self) -> None:
        self.status.value, self.switch.disabled = "", False
        self._ended.set()
