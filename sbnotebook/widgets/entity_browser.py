"""Looking into the entities of a namespace, without locking or changing anything, and sending to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from threading import Event
from time import monotonic
from typing import Final

from sbnotebook.client import Namespace
from sbnotebook.client.dead_letters import DeadLetters
from sbnotebook.errors import DecisionError
from sbnotebook.model import EntityAddress
from sbnotebook.settlement import EntityCounts
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.blocks import Block, Button, Column, Field, Row, Table, Text, Title, Tree
from sbnotebook.widgets.entity_messages import EntityMessages
from sbnotebook.widgets.forms.message_actions import Finding
from sbnotebook.widgets.forms.send_form import SendForm
from sbnotebook.widgets.panel import Panel
from sbnotebook.widgets.renderers.words import text_of
from sbnotebook.widgets.table.message_table import MessageTable

_CHOOSE: Final = "Choose a queue, a subscription or its dead letters at the left."
_TOPIC: Final = "A topic keeps no messages of its own: choose one of its subscriptions, or send a message to it."
_OPEN, _CLOSE = "Send a message…", "Close the form"
_SEND: Final = "Open a form for a message to send or schedule"
_LETTERS: Final = "Show all dead-letter queues with their growth and causes"
_SHOW, _HIDE = "All dead letters", "Hide dead letters"
_EVERY: Final = 25.0
"""Seconds between two questions for the counts, which are management operations. A page says each 30 seconds that it is
there."""
_SHARE: Final = 20
"""The counts are asked for once in so many times as long as the answer takes: a slow service is asked less often."""
_MOST: Final = 2_500
"""Entities in the tree: so many stay under a megabyte, also with the longest names."""


class Browser(Panel):
    """Entities with their counts, and the messages of the one that is chosen.

    It peeks, so nothing is locked or changed by looking. What it sends, cancels or settles is a plan first, which is
    shown and asks.

    Args:
        namespace: whose entities.
        entity: the address that is chosen at first, None for none.

    Raises:
        InvalidEntityAddressError: the text is not an address.

    Example:
        >>> browser = Browser(connect("emulator"), "orders/$dlq")  # doctest: +SKIP
        >>> browser.table.selected  # doctest: +SKIP
    """

    def __init__(self, namespace: Namespace, entity: str | EntityAddress | None = None) -> None:
        self._namespace = namespace
        self._is_sending = False
        self.tree = EntityTree(namespace, str(entity or ""), self._opened)
        self.table = MessageTable(label="Messages", facets=())
        self.actions = ActionPanel(namespace, table=self.table)
        self.messages = EntityMessages(self.actions, self.table, self.choose)
        self.form = SendForm(namespace, self.actions)
        self.letters: DeadLetters | None = None
        """All dead-letter queues, in a table; None where there is none."""
        self._finding: Finding | None = None
        super().__init__(self.actions, self.messages, self.form, self.tree)
        self.actions.on_report(lambda _: self.tree.refresh())
        self._opened()

    def blocks(self) -> list[Block]:
        chosen = self.tree.chosen
        is_topic = bool(chosen) and self._is_topic(EntityAddress.parse(chosen))
        send = [Button(_CLOSE if self._is_sending else _OPEN, self._switch_form, _SEND, icon="envelope", key="send")]
        if self._is_sending:
            send.append(Button("Copy the selected one", self._fill_form, "Put the selected message into the form"))
        right = [
            Column(self._dead_letters(), key="dead-letters"),
            Title(chosen or _CHOOSE, key="title"),
            Text(_TOPIC if is_topic else "", "quiet"),
            *(self.messages.blocks() if chosen and not is_topic else []),
            Row(send, key="sending"),
            *(self.form.blocks() if self._is_sending else []),
            *self.actions.blocks(),
        ]
        left = Column(self.tree.blocks(), look="left", key="left")
        return [Row([left, Column(right, key="right")], key="sides")]

    def choose(self, entity: str | EntityAddress) -> None:
        """Choose an entity, and peek at its first messages in the background.

        Raises:
            InvalidEntityAddressError: the text is not an address.
        """
        self.tree.choose(str(EntityAddress.parse(entity)))

    def wait(self, seconds: float = 60.0) -> bool:
        """Wait until counts and messages are there, for scripts and terminals; tells whether they are."""
        return self.tree.wait(seconds) and self.messages.wait(seconds)

    def __repr__(self) -> str:
        chosen, messages = self.tree.chosen, self.messages
        if not chosen:
            return repr(self.tree)
        return text_of([Title(chosen), messages.selection.grid, Text(messages.status), Text(messages.problem)])

    def _dead_letters(self) -> list[Block]:
        if self._finding is None:
            return [Row([Button(_SHOW, self._show_letters, _LETTERS, icon="list", key="switch")])]
        hide = Button(_HIDE, self._hide_letters, _LETTERS, icon="list", key="switch")
        return [Row([hide]), *self._finding.blocks()]

    def _show_letters(self) -> None:
        def find() -> list[Block]:
            found = self.letters = self._namespace.dead_letters()
            return [Table(*found.cells(), found.summary)]

        self._finding = Finding("Looking at all dead-letter queues…", find)
        self._finding.outer = self

    def _hide_letters(self) -> None:
        self._finding = self.letters = None

    def _is_topic(self, address: EntityAddress) -> bool:
        return any(each.kind == "topic" and each.address == address for each in self.tree.counts)

    def _opened(self) -> None:
        if not self.tree.chosen:
            return
        address = EntityAddress.parse(self.tree.chosen)
        self.form.to.value = str(address.sends_to)
        if self._is_topic(address):
            self.messages.halt()
        else:
            self.messages.look_into(self._namespace.entity(address))
        self.redraw()

    def _switch_form(self) -> None:
        self._is_sending = not self._is_sending

    def _fill_form(self) -> None:
        selected = self.table.selected
        if len(selected) != 1:
            raise DecisionError("Select one message in the table first.")
        self.form.fill(selected[0])


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
        paths = {words: path for counts in self.counts for path, words in _lines_of(counts)}
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
    path = str(counts.address)
    lines = {path: [(counts.active, "active"), (counts.scheduled, "later")]}
    if counts.kind != "topic":
        lines[f"{path}/$dlq"] = [(counts.dead_letter, "")]
        lines[f"{path}/$transfer"] = [(counts.transfer_dead_letter, "")]
    for each, found in lines.items():
        said = ", ".join(f"{count:,} {what}".rstrip() for count, what in found if count)
        yield each, f"{each}{f': {said}' if said else ''}"
