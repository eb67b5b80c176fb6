"""The head of the triage: where the messages stand, how many were peeked at and when, and how to look again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import ipywidgets as widgets

from sbnotebook.widgets.panel_parts import button, row, set_shown, text
from sbnotebook.widgets.pretty import visible

__all__ = ["TriageHeader"]

_READ_ONLY: Final = (
    "This connection only looks: plans can be made, and not carried out. To act, turn writing on with "
    "%sb_connect --write, or in Python connect with read_only=False."
)
_REFRESH: Final = "Peek at all messages again; what is selected stays selected"
_ONWARD: Final = "Look for messages behind the last one that is shown"
_STOP: Final = "Peek no further; the messages that are here stay"


class TriageHeader(widgets.VBox):
    """Says what is shown, and has the buttons to look again.

    Args:
        entity: where the messages stand.
        host: the namespace's host name.
        is_emulator: whether it is an emulator.
        is_read_only: whether nothing can be changed.
        refresh: peeks at all again.
        onward: peeks at what stands behind the last message.
        stop: peeks no further.
    """

    def __init__(
        self,
        entity: str,
        host: str,
        *,
        is_emulator: bool,
        is_read_only: bool,
        refresh: Callable[[], object],
        onward: Callable[[], object],
        stop: Callable[[], object],
    ) -> None:
        self._about = 0
        self._peeked_at = ""
        self._count = text()
        self._problem = text("", "problem")
        self._refresh = button("Refresh", _REFRESH, refresh, icon="refresh")
        self._onward = button("Peek onward", _ONWARD, onward, icon="forward")
        self._stop = button("Stop", _STOP, stop, icon="stop")
        self._bar = widgets.IntProgress(layout=widgets.Layout(width="200px"))
        place = text(f"on {host}{' (the emulator)' if is_emulator else ''}", "quiet")
        read_only = [_read_only()] if is_read_only else []
        super().__init__(
            [
                row(text(f"Triage of {entity}", "title"), place),
                *read_only,
                row(self._count, self._bar, self._stop, self._refresh, self._onward),
                self._problem,
            ]
        )

    def begin(self) -> None:
        """Show that peeking has begun."""
        self.say_problem("")
        self.expect(0)
        self.advance(0)
        self._switch(is_loading=True)

    def expect(self, about: int) -> None:
        """Say about how many messages there are by the service's count; any thread may.

        Args:
            about: the count, 0 where nobody knows.
        """
        self._about = about
        self._bar.max = max(about, 1)

    def advance(self, count: int) -> None:
        """Show how many messages have come until now."""
        is_known = self._about >= count and self._about > 0
        self._count.value = f"Peeking… {count:,} {f'of about {self._about:,} ' if is_known else ''}messages"
        self._bar.value = min(count, self._bar.max)
        set_shown(self._bar, shown=is_known)

    def end(self, words: str, *, is_fresh: bool = True) -> None:
        """Show that peeking has ended.

        Args:
            words: what is shown now, such as how many messages.
            is_fresh: whether that was peeked at now; else it is what was there before.
        """
        if is_fresh:
            self._peeked_at = f"{datetime.now(UTC):%H:%M:%S}"
        self.say(words)
        self._switch(is_loading=False)

    def say(self, words: str) -> None:
        """Show other words for what was peeked at last."""
        self._count.value = f"{words}, peeked at {self._peeked_at} UTC" if self._peeked_at else words

    def say_problem(self, sentence: str) -> None:
        """Show what went wrong; nothing where the sentence is empty."""
        self._problem.value = visible(sentence)
        set_shown(self._problem, shown=bool(sentence))

    @property
    def words(self) -> str:
        """What it says, for those who see text only."""
        return " ".join(filter(None, (self._count.value, self._problem.value)))

    def _switch(self, *, is_loading: bool) -> None:
        for widget in (self._stop, self._bar):
            set_shown(widget, shown=is_loading)
        for widget in (self._refresh, self._onward):
            set_shown(widget, shown=not is_loading)


def _read_only() -> widgets.Label:
    label = text(_READ_ONLY)
    label.add_class("sbn-notice")
    return label
