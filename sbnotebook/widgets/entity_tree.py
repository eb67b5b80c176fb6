"""Entities and their counts as a tree in the browser, or as a plain list where it is not loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from threading import Event
from time import monotonic
from typing import Final

from sbnotebook.client import Namespace
from sbnotebook.model import EntityAddress
from sbnotebook.settlement import EntityCounts
from sbnotebook.widgets.blocks import Block, Button, Field, Row, Text, Tree
from sbnotebook.widgets.panel import Panel

_EVERY: Final = 25.0
"""Seconds between two questions for the counts, which are management operations. A page says each 30 seconds that it is
there."""
_SHARE: Final = 20
"""The counts are asked for once in so many times as long as the answer takes: a slow service is asked less often."""
_MOST: Final = 2_500
"""Entities in the tree: so many stay under a megabyte, also with the longest names."""
_INDENT: Final = "\u2003"  # an ordinary space at the beginning would not be seen
_TOLD_APART: Final = " "


class EntityTree(Panel):
    """Queues, topics and subscriptions with their counts, and their sub-queues below them."""

    def __init__(self, namespace: Namespace, chosen: str = "", opened: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        address = EntityAddress.parse(chosen) if chosen else None
        self._namespace = namespace
        self._opened = opened
        self._listed: set[str] = set()
        self._as_of = ""
        self.chosen = str(address or "")
        self.expanded = _above(address) if address else []
        self.counts: list[EntityCounts] = []
        self.rows: list[dict[str, object]] = []
        self.problem = ""
        self.next_at = 0.0
        """When a page in sight asks for new counts, by the monotonic clock."""
        self.refresh()

    def blocks(self) -> list[Block]:
        said = "Asking for the counts…" if self.is_looking else self._as_of
        refresh = Button("Refresh", self.refresh, "Ask for the counts", is_enabled=not self.is_looking)
        foot = [
            Row([refresh, Text(said, "quiet", key="as-of")], key="foot"),
            Text(self.problem, "error"),
        ]
        nothing = "There are no entities in this namespace." if self._as_of else "Asking…"
        return [Tree(foot, self.rows, self.chosen, self.expanded, self._take, self._plain, nothing)]

    def refresh(self) -> None:
        """Ask for the counts in the background, unless they are being asked for."""
        with self.lock:
            if self.is_looking:
                return
            self.look(self._ask)
        self.redraw()

    def _ask(self, stop: Event) -> None:
        topics, begin = set(self._topics()), monotonic()
        counts = self._namespace.entities(topics=topics)
        with self.showing(stop):
            self.next_at = monotonic() + max(_EVERY, _SHARE * (monotonic() - begin))
            self.counts, self.rows = counts, [_row_of(each) for each in counts[:_MOST]]
            self._as_of = f"as of {datetime.now(UTC):%H:%M:%S} UTC"
            self._listed = topics

    def ended(self, problem: str) -> None:
        count = len(self.counts)
        more = "" if count <= _MOST else f"The first {_MOST:,} of {count:,} entities are shown."
        self.problem = problem or more
        if set(self._topics()) - self._listed and not problem:  # opened meanwhile
            self.refresh()

    def seen(self, page: str, how: str) -> None:
        super().seen(page, how)
        if how != "gone" and monotonic() >= self.next_at:
            self.refresh()

    def choose(self, path: str) -> None:
        self._take(path, self.expanded)

    def _plain(self) -> list[Block]:
        """Return the entities as a plain list, with all topics open."""
        topics = [str(each.address) for each in self.counts if each.kind == "topic"]
        self._take(self.chosen, [*self.expanded, *(path for path in topics if path not in self.expanded)])
        lines = [line for counts in self.counts for line in _lines_of(counts)]
        # Sub-queues of two entities have the same words.
        paths = {f"{words}{_TOLD_APART * place}": path for place, (path, words) in enumerate(lines)}
        chosen = next((words for words, path in paths.items() if path == self.chosen), "")
        return [Field("Entities", chosen, lambda words: self.choose(paths[words]), "list", list(paths))]

    def _take(self, chosen: str, expanded: Sequence[str]) -> None:
        before = self.chosen, self.expanded
        self.chosen, self.expanded = chosen, list(expanded)
        if self.chosen != before[0]:
            self._opened()
        if self.expanded != before[1] and set(self._topics()) - self._listed:
            self.refresh()

    def _topics(self) -> list[str]:
        """Return the open nodes that are topics, or may be as long as the counts are unknown."""
        others = {str(counts.address) for counts in self.counts if counts.kind != "topic"}
        return [path for path in self.expanded if path not in others]


def _above(address: EntityAddress) -> list[str]:
    """Return the nodes that have to be open for an address to be visible."""
    topic = [address.name] if address.subscription else []
    return [*topic, *([str(address.entity)] if address.sub_queue else [])]


def _row_of(counts: EntityCounts) -> dict[str, object]:
    """Return what the browser makes the nodes of an entity from; a count that it cannot have is None."""
    is_topic = counts.kind == "topic"
    return {
        "path": str(counts.address),
        "kind": counts.kind,
        "active": None if is_topic else counts.active,
        "scheduled": None if counts.kind == "subscription" else counts.scheduled,
        "dead": None if is_topic else counts.dead_letter,
        "transfer": None if is_topic else counts.transfer_dead_letter,
    }


def _lines_of(counts: EntityCounts) -> Iterator[tuple[str, str]]:
    path, level = str(counts.address), 1 if counts.address.subscription else 0
    name = counts.address.subscription or counts.address.name
    yield path, _line(level, name, (counts.active, "active"), (counts.scheduled, "later"))
    if counts.kind != "topic":
        yield f"{path}/$dlq", _line(level + 1, "dead letters", (counts.dead_letter, ""))
        yield f"{path}/$transfer", _line(level + 1, "transfer dead letters", (counts.transfer_dead_letter, ""))


def _line(level: int, name: str, *counts: tuple[int, str]) -> str:
    said = ", ".join(f"{count:,} {what}".rstrip() for count, what in counts if count)
    return f"{_INDENT * level}{name}{f': {said}' if said else ''}"
