"""What says which messages of an entity are to be seen, and how far looking is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

import ipywidgets as widgets

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress
from sbnotebook.widgets.panel_parts import button, row, set_shown, text
from sbnotebook.widgets.peeking import Ask
from sbnotebook.widgets.pretty import visible

__all__ = ["PeekBar", "View"]

_DEFAULT_COUNT: Final = 250
_MOST: Final = 100_000
_MAX_SESSION: Final = 80
_NO_SESSION: Final = "Choose a session to see its messages; looking does not lock it."
_SMALL: Final = {"description_width": "initial"}


class View(StrEnum):
    """Which messages of an entity are seen."""

    ALL = "All"
    ACTIVE = "Active"
    SCHEDULED = "Scheduled"
    DEFERRED = "Deferred"
    SESSIONS = "Sessions"
    DEAD_LETTERS = "Dead letters"


_STATES: Final = {View.ACTIVE: "active", View.SCHEDULED: "scheduled"}


class PeekBar(widgets.VBox):
    """Chooses messages of an entity: by state, session, expression, and where to begin.

    Args:
        changed: is called when another view or session is chosen, or the expression has changed.
        onward: is called to go on behind the last message.
        stop: is called to look no further.
    """

    def __init__(self, changed: Callable[[], object], onward: Callable[[], object], stop: Callable[[], object]) -> None:
        self._changed = changed
        self._quiet = False
        self._ids: list[str] = []
        self.views = widgets.ToggleButtons(options=[View.ALL.value], style={"button_width": "auto"})
        self.where = widgets.Text(
            description="Where",
            placeholder="subject = 'UA' and body_json->>'$.flight' = '1545'",
            continuous_update=False,
            style=_SMALL,
            layout={"width": "480px"},
        )
        self.first = widgets.Text("1", description="From #", style=_SMALL, layout={"width": "160px"})
        self.count = widgets.BoundedIntText(
            _DEFAULT_COUNT, min=1, max=_MOST, description="At most", style=_SMALL, layout={"width": "150px"}
        )
        self.sessions = widgets.Select(description="Session", rows=6, style=_SMALL, layout={"width": "480px"})
        self.problem = text("", "problem")
        self.status = text("", "quiet")
        self.peek = button("Peek", "Look at messages; none is locked or changed", changed, kind="primary")
        self.onward = button("Peek onward", "Look at those that stand behind the last one", onward)
        self.stop = button("Stop", "Look no further", stop)
        self.views.observe(lambda _: self._tell(), "value")
        self.where.observe(lambda _: self._tell(), "value")
        self.sessions.observe(lambda _: self._tell(), "index")
        buttons = row(self.first, self.count, self.peek, self.onward, self.stop)
        super().__init__([self.views, self.sessions, self.where, self.problem, buttons, self.status])
        self.say("")

    @property
    def view(self) -> View:
        """Which messages are seen."""
        return View(self.views.value)

    @property
    def session(self) -> str | None:
        """The session that is chosen, None for none."""
        place = self.sessions.index
        return self._ids[place] if self.view is View.SESSIONS and place is not None else None

    def read(self) -> Ask:
        """Which messages are wanted.

        Raises:
            ConfigurationError: the number to begin with is none.
        """
        first = self.first.value.strip() or "1"
        if not first.isdecimal():
            raise ConfigurationError("From # is a sequence number, such as 1.")
        where = self.where.value.strip() or None
        return Ask(self.count.value, int(first), _STATES.get(self.view), where, self.session)

    # ------------------------------------------------------------ what is seen

    def show_views(self, address: EntityAddress) -> None:
        """Offer the views that an entity has, and show all of its messages.

        Args:
            address: of a queue, a subscription or a sub-queue.
        """
        views = list(View)
        if address.subscription is not None:
            views.remove(View.SCHEDULED)  # which stand in the topic
        if address.sub_queue is not None:
            views = [View.ALL, View.ACTIVE, View.DEFERRED]
        self._quietly(self._set_views, [view.value for view in views])

    def _set_views(self, views: Sequence[str]) -> None:
        self.views.options = views
        self.views.value = View.ALL.value
        self.first.value = "1"
        self.show_sessions([])

    def show_sessions(self, ids: Sequence[str]) -> None:
        """Offer these sessions, of which none is chosen."""
        self._ids = list(ids)
        names = [visible(each if len(each) <= _MAX_SESSION else f"{each[:_MAX_SESSION]}…") or "(empty)" for each in ids]
        self._quietly(self._set_sessions, names)
        set_shown(self.sessions, shown=self.view is View.SESSIONS and bool(ids))
        if self.view is View.SESSIONS:
            self.say(_NO_SESSION if ids else "No session has active messages or a state.")

    def _set_sessions(self, names: Sequence[str]) -> None:
        self.sessions.options = list(zip(names, range(len(names)), strict=True))
        self.sessions.index = None

    def say(self, words: str, problem: str = "", *, is_busy: bool = False, follows: bool = False) -> None:
        """Say how far looking is.

        Args:
            words: in words.
            problem: what is wrong with what was asked for.
            is_busy: whether it goes on, so that it can be stopped.
            follows: whether messages may follow.
        """
        self.status.value, self.problem.value = words, problem
        set_shown(self.problem, shown=bool(problem))
        set_shown(self.stop, shown=is_busy)
        self.onward.disabled = is_busy or not follows

    def _tell(self) -> None:
        if not self._quiet:
            self._changed()

    def _quietly(self, change: Callable[[Sequence[str]], object], names: Sequence[str]) -> None:
        before, self._quiet = self._quiet, True
        try:
            change(names)
        finally:
            self._quiet = before
