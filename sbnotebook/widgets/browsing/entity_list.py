"""The entities of a tree as a plain list, for where the tree is not displayed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import ipywidgets as widgets

from sbnotebook.settlement.administration import EntityCounts
from sbnotebook.widgets.browsing.entity_tree import EntityTree
from sbnotebook.widgets.panel_parts import button, row, text

__all__ = ["EntityList"]

_ROWS: Final = 16
_INDENT: Final = "\u2003"  # an ordinary space at the beginning would not be seen
_WATCHED: Final = ("as_of", "problem", "chosen")


class EntityList(widgets.VBox):
    """What a tree shows, in widgets that every notebook has. All topics are open.

    Args:
        tree: whose entities; what is chosen in one is chosen in the other.
    """

    def __init__(self, tree: EntityTree) -> None:
        self._tree = tree
        self._paths: list[str] = []
        self._is_filling = False
        self.select = widgets.Select(rows=_ROWS, layout={"width": "100%"})
        self.select.tooltip = "Queues, topics and subscriptions"
        self._status = text("", "quiet")
        refresh = button("Refresh", "Ask for the counts", tree.refresh)
        super().__init__([row(refresh, self._status), self.select])
        tree.observe(self._fill, _WATCHED)
        self.select.observe(self._chosen, "index")
        self._fill()

    def close(self) -> None:
        """Take it from the screen; the tree stays."""
        self._tree.unobserve(self._fill, _WATCHED)
        super().close()

    def _fill(self, _change: object = None) -> None:
        tree = self._tree
        when = f"as of {datetime.fromtimestamp(tree.as_of / 1000, UTC):%H:%M:%S} UTC" if tree.as_of else "Asking…"
        self._status.value = tree.problem or when
        lines = [line for counts in tree.counts for line in _lines_of(counts)]
        self._is_filling = True
        try:
            self._paths = [path for path, _ in lines]
            self.select.options = [(words, place) for place, (_, words) in enumerate(lines)]
            self.select.index = self._paths.index(tree.chosen) if tree.chosen in self._paths else None
        finally:
            self._is_filling = False
        closed = [str(each.address) for each in tree.counts if each.kind == "topic"]
        closed = [path for path in closed if path not in tree.expanded]
        if closed:
            tree.expanded = [*tree.expanded, *closed]

    def _chosen(self, change: Any) -> None:
        if change["new"] is not None and not self._is_filling:
            self._tree.chosen = self._paths[change["new"]]


def _lines_of(counts: EntityCounts) -> Iterator[tuple[str, str]]:
    """The address and the words of an entity, and of its sub-queues."""
    path, level = str(counts.address), 1 if counts.address.subscription else 0
    name = counts.address.subscription or counts.address.name
    yield path, _line(level, name, (counts.active, "active"), (counts.scheduled, "later"))
    if counts.kind != "topic":
        yield f"{path}/$dlq", _line(level + 1, "dead letters", (counts.dead_letter, ""))
        yield f"{path}/$transfer", _line(level + 1, "transfer dead letters", (counts.transfer_dead_letter, ""))


def _line(level: int, name: str, *counts: tuple[int, str]) -> str:
    said = ", ".join(f"{count:,} {what}".rstrip() for count, what in counts if count)
    return f"{_INDENT * level}{name}{f': {said}' if said else ''}"
