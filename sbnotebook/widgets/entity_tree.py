"""Entities and their counts as a tree in the browser, or as a plain list where it is not loaded."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import anywidget
import traitlets

from sbnotebook.analysis import tables
from sbnotebook.client import Namespace
from sbnotebook.model import EntityAddress
from sbnotebook.settlement import EntityCounts
from sbnotebook.widgets import background
from sbnotebook.widgets.blocks import Block, Button, Field, Row, Text
from sbnotebook.widgets.front_end import module, style

_EVERY: Final = 30.0
"""Seconds between two questions for the counts, which are management operations, while the tree is visible."""
_SHARE: Final = 20
"""The counts are asked for once in so many times as long as the answer takes: a slow service is asked less often."""
_MOST: Final = 2_500
"""Entities in the tree: so many stay under a megabyte, also with the longest names."""
_INDENT: Final = "\u2003"  # an ordinary space at the beginning would not be seen
_TOLD_APART: Final = " "
_HEADERS: Final = ("entity", "kind", "active", "scheduled", "dead_letter", "transfer_dead_letter")


class EntityTree(anywidget.AnyWidget):
    """Queues, topics and subscriptions with their counts, and their sub-queues below them."""

    _esm = module("entity_tree.js")
    _css = style("look.css", "entity_tree.css")

    rows = traitlets.List(traitlets.Dict()).tag(sync=True)
    expanded = traitlets.List(traitlets.Unicode()).tag(sync=True)
    chosen = traitlets.Unicode("").tag(sync=True)
    busy = traitlets.Bool(default_value=False).tag(sync=True)
    problem = traitlets.Unicode("").tag(sync=True)
    as_of = traitlets.Float(0.0).tag(sync=True)  # milliseconds since the epoch
    every = traitlets.Float(_EVERY).tag(sync=True)  # seconds

    def __init__(self, namespace: Namespace, chosen: str = "") -> None:
        address = EntityAddress.parse(chosen) if chosen else None
        super().__init__(chosen=str(address or ""), expanded=_above(address) if address else [])
        self._namespace = namespace
        self._asking = threading.Lock()
        self._loaded = threading.Event()
        self._listed: set[str] = set()
        self.counts: list[EntityCounts] = []
        background.answer_at_once(self)
        self.on_msg(self._told)
        self.observe(self._opened, "expanded")
        self.refresh()

    def refresh(self) -> None:
        """Ask for the counts in the background, unless they are being asked for."""
        if not self._asking.acquire(blocking=False):
            return
        self.busy = True
        topics = set(self._topics())
        begin = time.monotonic()

        def done(counts: list[EntityCounts]) -> None:
            self.every = max(_EVERY, _SHARE * (time.monotonic() - begin))
            self._show(counts)
            self._listed = topics
            self._end("" if len(counts) <= _MOST else f"The first {_MOST:,} of {len(counts):,} entities are shown.")

        background.start(lambda: self._namespace.entities(topics=topics), done=done, failed=self._end)

    def wait(self, seconds: float = 30.0) -> bool:
        return self._loaded.wait(seconds)

    def blocks(self) -> list[Block]:
        """Return the entities as a plain list, with all topics open, for where the tree is not loaded."""
        closed = [str(each.address) for each in self.counts if each.kind == "topic"]
        closed = [path for path in closed if path not in self.expanded]
        if closed:
            self.expanded = [*self.expanded, *closed]
        lines = [line for counts in self.counts for line in _lines_of(counts)]
        # Sub-queues of two entities have the same words.
        paths = {f"{words}{_TOLD_APART * place}": path for place, (path, words) in enumerate(lines)}
        chosen = next((words for words, path in paths.items() if path == self.chosen), "")
        when = f"as of {datetime.fromtimestamp(self.as_of / 1000, UTC):%H:%M:%S} UTC" if self.as_of else "Asking…"
        return [
            Row([Button("Refresh", self.refresh, "Ask for the counts"), Text(self.problem or when, "quiet")]),
            Field("Entities", chosen, lambda words: self.set_trait("chosen", paths[words]), "list", list(paths)),
        ]

    def __repr__(self) -> str:
        if self.problem and not self.counts:
            return self.problem
        rows = [[each.address, *(getattr(each, name) for name in _HEADERS[1:])] for each in self.counts]
        when = datetime.fromtimestamp(self.as_of / 1000, UTC)
        return tables.text_table(_HEADERS, rows, f"{self._namespace.host}, as of {when:%H:%M:%S} UTC")

    def _topics(self) -> list[str]:
        """Return the open nodes that are topics, or may be as long as the counts are unknown."""
        others = {str(counts.address) for counts in self.counts if counts.kind != "topic"}
        return [path for path in self.expanded if path not in others]

    def _show(self, counts: Sequence[EntityCounts]) -> None:
        self.counts = list(counts)
        self.rows = [_row_of(each) for each in counts[:_MOST]]
        self.as_of = time.time() * 1000

    def _end(self, problem: str) -> None:
        self.problem = problem
        self.busy = False
        self._asking.release()
        self._loaded.set()
        if set(self._topics()) - self._listed and not problem:  # opened meanwhile
            self.refresh()

    def _told(self, _widget: object, content: Any, _buffers: object) -> None:
        if isinstance(content, dict) and content.get("kind") == "refresh":  # pyright: ignore[reportUnknownMemberType]
            self.refresh()

    def _opened(self, _change: object) -> None:
        if set(self._topics()) - self._listed:
            self.refresh()


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
