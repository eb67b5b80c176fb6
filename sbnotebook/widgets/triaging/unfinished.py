"""The banner for resubmits that the journal has as begun and not ended, such as those of a kernel that has died."""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets as widgets

from sbnotebook.client import Namespace, Plan
from sbnotebook.errors import DecisionError
from sbnotebook.model import EntityAddress
from sbnotebook.settlement.memory.journal import ResubmitEntry
from sbnotebook.widgets import background
from sbnotebook.widgets.panel_parts import button, row, set_shown, text

__all__ = ["UnfinishedBanner"]


class UnfinishedBanner(widgets.VBox):
    """Says which resubmits of an entity are unfinished, and offers the plan that finishes them.

    Args:
        namespace: whose journal it is.
        entity: where the originals stand.
        propose: is given what makes the plan, when the user wants to see it.
    """

    def __init__(
        self, namespace: Namespace, entity: EntityAddress, propose: Callable[[Callable[[], Plan]], object]
    ) -> None:
        self._namespace = namespace
        self._entity = entity
        self._words = text()
        look = button(
            "Look at the plan",
            "Shows what became of each of them, and what would be done; nothing is done yet",
            lambda: propose(self._plan),
            icon="eye",
            kind="warning",
        )
        super().__init__([row(self._words, look)])
        self.add_class("sbn-notice")
        set_shown(self, shown=False)

    def look(self) -> None:
        """Ask the journal, in the background."""
        background.start(lambda: self._namespace.unfinished(self._entity), done=self._show, failed=self._say)

    def _show(self, entries: list[ResubmitEntry]) -> None:
        count = len({entry.key for entry in entries})
        if entries and entries[0].changed is not None:
            self._words.value = (
                f"{count:,} {'resubmit' if count == 1 else 'resubmits'} from here, begun on "
                f"{entries[0].changed:%Y-%m-%d at %H:%M} UTC, did not come to an end: cut off, or still going on "
                "elsewhere. They can be finished, and nothing is sent twice."
            )
        set_shown(self, shown=bool(entries))

    def _say(self, problem: str) -> None:
        self._words.value = f"The journal cannot be read: {problem}"
        set_shown(self, shown=True)

    def _plan(self) -> Plan:
        plans = self._namespace.resume(self._entity)
        if not plans:
            raise DecisionError("They were finished meanwhile: there is nothing left to do.")
        return plans[0]
