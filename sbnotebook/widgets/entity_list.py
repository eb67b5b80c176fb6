"""The entities of a tree as a plain list, for where the tree is not displayed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import ipywidgets as widgets

from sbnotebook.widgets.entity_tree import EntityTree
from sbnotebook.widgets.panel_parts import button, row, text

__all__ = ["EntityList"]

_ROWS: Final = 16
_INDENT: Final = "\u2003"  # an ordinary space at the beginning would not be seen
_COUNTS: Final = (("active", "active"), ("scheduled", "later"), ("dead", "dead"))


class EntityList(widgets.VBox):
    """What a tree shows, in widgets that every notebook has. All topics are open.

    Args:
        tree: whose entities; what is chosen in one is chosen in the other.
    """

    def __init__(self, tree: EntityTree) -> None:
        self._tree = tree
        self._is_filling = False
        self.select = widgets.Select(rows=_ROWS, layout={"width": "100%"})
        self.select.tooltip = "Queues, topics and subscriptions"
        self._status = text("", "quiet")
        refresh = button("Refresh", "Ask for the counts", tree.refresh)
        super().__init__([row(refresh, self._status), self.select])
        tree.observe(self._fill, ["rows", "as_of", "problem", "chosen"])
        self.select.observe(self._chosen, "index")
        self._fill()

    def close(self) -> None:
        """Take it from the screen; the tree stays."""
        self._tree.unobserve(self._fill, ["rows", "as_of", "problem", "chosen"])
        super().close()

    def _fill(self, _change: object = None) -> None:
        tree = self._tree
        rows: list[dict[str, Any]] = tree.rows
        paths = [each["path"] for each in rows]
        when = f"as of {datetime.fromtimestamp(tree.as_of / 1000, UTC):%H:%M:%S} UTC" if tree.as_of else "Asking…"
        self._status.value = tree.problem or when
        self._is_filling = True
        try:
            self.select.options = [(_line(each), place) for place, each in enumerate(rows)]
            self.select.index = paths.index(tree.chosen) if tree.chosen in paths else None
        finally:
            self._is_filling = False
        topics = [each["path"] for each in rows if each["kind"] == "topic"]
        if not set(topics) <= set(tree.expanded):
            tree.expanded = [*tree.expanded, *(path for path in topics if path not in tree.expanded)]

    def _chosen(self, change: Any) -> None:
        if change["new"] is not None and not self._is_filling:
            self._tree.chosen = self._tree.rows[change["new"]]["path"]


def _line(entity: Mapping[str, Any]) -> str:
    level = 1 if "/subscriptions/" in entity["path"] else 0
    level += 1 if entity["kind"] == "sub-queue" else 0
    counts = ", ".join(f"{entity[key]:,} {name}" for key, name in _COUNTS if entity[key])
    return f"{_INDENT * level}{entity['name']}{f': {counts}' if counts else ''}"
