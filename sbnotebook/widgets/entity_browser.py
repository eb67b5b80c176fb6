"""Looking into the entities of a namespace, without locking or changing anything, and sending to them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from threading import Event
from time import monotonic
from typing import Any, Final

from sbnotebook.client import Entity, Namespace
from sbnotebook.client.batch import DeferredMessages
from sbnotebook.client.dead_letters import DeadLetters
from sbnotebook.client.messages import Messages
from sbnotebook.errors import ConfigurationError, DecisionError, SbNotebookError
from sbnotebook.model import EntityAddress
from sbnotebook.model.report import counted
from sbnotebook.settlement import EntityCounts
from sbnotebook.widgets import panel
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.blocks import Block, Button, Column, Field, Row, Table, Text, Title, Tree
from sbnotebook.widgets.fields import Entry, number_entry, watch
from sbnotebook.widgets.forms.message_actions import Finding, deferred_actions, scheduled_actions
from sbnotebook.widgets.forms.send_form import SendForm
from sbnotebook.widgets.panel import Panel
from sbnotebook.widgets.peek_steps import PeekProgress, PeekRequest, peek_in_steps
from sbnotebook.widgets.pretty import visible
from sbnotebook.widgets.renderers.browser import is_in_marimo
from sbnotebook.widgets.renderers.words import text_of
from sbnotebook.widgets.selection_bar import SelectionBar
from sbnotebook.widgets.table.message_table import MessageTable

_DEFAULT_COUNT: Final = 250
_MOST: Final = 100_000
_FEW_SESSIONS: Final = 6
_LISTED_SESSIONS: Final = 500
_COUNTED: Final = 10_000
"""Messages that are peeked at to count those of each session: Service Bus has no such counts."""
_LOOKING: Final = "Looking"
_NO_SESSION: Final = "Choose a session to see its messages; looking does not lock it."
_DIGITS: Final = re.compile(r"(\d+)")
_WHERE: Final = "subject = 'UA' and body_json->>'$.flight' = '1545'"
_ONWARD: Final = "Load the messages after the last one shown"


class View(StrEnum):
    ALL = "All"
    ACTIVE = "Active"
    SCHEDULED = "Scheduled"
    DEFERRED = "Deferred"
    SESSIONS = "Sessions"
    DEAD_LETTERS = "Dead letters"


_STATES: Final = {View.ACTIVE: "active", View.SCHEDULED: "scheduled"}


_ORPHANS: Final = "(not in this journal: deferred by another program, or before the journal was lost)"


class EntityMessages(Panel):
    """The messages of an entity, which are peeked at: nothing is locked or changed by looking."""

    def __init__(self, actions: ActionPanel, table: MessageTable, go: Callable[[EntityAddress], object]) -> None:
        self.selection = SelectionBar(table, {}, actions)
        """The actions on selected messages, where there are any."""
        super().__init__(self.selection)
        self._go = go
        self._entity: Entity | None = None
        self._asked: tuple[View, PeekRequest] | None = None
        """What the last look was for."""
        self.looked = PeekProgress()
        """The progress of the last look."""
        self.table = table
        self._ids: list[str] = []
        self._counts: Mapping[str, int] = {}
        self._counted_all = self._follows = False
        self._said = self.problem = self._hint = ""
        self._doing = _LOOKING
        self.session: str | None = None
        """The chosen session, None for none."""
        self._view, self._views = View.ALL, [View.ALL]
        self.where = Entry("Where", str, hint=_WHERE, size="wide")
        self.first = Entry("From #", str, "1", size="short")
        self.count = number_entry("At most", _DEFAULT_COUNT, _MOST)
        self.find = Entry("Find", str, hint="Find in sessions")
        watch([self.where], self.peek)

    def blocks(self) -> list[Block]:
        buttons = [
            Button("Peek", self.peek, "Look at messages; none is locked or changed", "primary"),
            Button("Load more", self.peek_onward, _ONWARD, is_enabled=not self.is_looking and self._follows),
            *([Button("Stop", self.halt, "Look no further")] if self.is_looking else []),
        ]
        return [
            Field("Which messages are shown", self._view, self._switch, "toggles", self._views),
            *self._session_fields(),
            self.where.block(),
            Text(self.problem, "error"),
            Row([self.first.block(), self.count.block(), *buttons], key="peek"),
            Text(self.status, "quiet"),
            self.selection.grid,
            Text(self._hint, "quiet", key="hint"),
            *self.selection.blocks(),
        ]

    def look_into(self, entity: Entity) -> None:
        with self.lock:
            self.halt()
            self._entity = entity
            triage = f'Triage(namespace, "{entity.address}")' if is_in_marimo() else f"%sb_triage {entity.address}"
            self._hint = f"Looking changes nothing. To repair, move or remove messages: {triage}"
            self.table.show(Messages())
            self._show_views(entity.address)
            self._begin(self._read())

    def peek(self) -> None:
        """Look at the messages that are asked for, in the background, in place of those that are shown."""
        with self.lock:
            if self._entity is None:
                return
            if self._view is View.DEAD_LETTERS:
                self._go(self._entity.address.dead_letter)
                return
            try:
                ask = self._read()
            except SbNotebookError as error:
                self.problem = panel.sentence(error)
                return
            # To leave the field of the expression for the button asks for the same twice.
            if not self.is_looking or self._asked != (self._view, ask):
                self._begin(ask)

    def peek_onward(self) -> None:
        with self.lock:
            if self._asked is not None and not self.is_looking:
                _, ask = self._asked
                self._begin(replace(ask, from_sequence_number=self.looked.next_number), is_onward=True)

    @property
    def status(self) -> str:
        """Return how far the look is, or what it has found."""
        if not self.is_looking:
            return self._said
        return f"{self._doing}: {_found(self.looked)}…" if self.looked.looked_at else f"{self._doing}…"

    # ------------------------------------------------------------ which messages

    def _session_fields(self) -> list[Block]:
        if self._view is not View.SESSIONS or not self._ids:
            return []
        names = self.sessions
        chosen = next((name for name, session in names.items() if session == self.session), "")

        def choose(name: str) -> None:
            self.session = names[name]
            self.peek()

        listed = Field("Session", chosen, choose, "list", list(names), size="wide")
        return [*(self.find.blocks() if len(self._ids) > _FEW_SESSIONS else []), listed]

    @property
    def sessions(self) -> dict[str, str]:
        """Return the sessions that the search finds, by their names in the list; the chosen one stays."""
        words = self.find.value.lower()
        found = [each for each in self._ids if words in each.lower() or each == self.session][:_LISTED_SESSIONS]
        named: dict[str, str] = {}
        for each in found:
            name = self._name_of(each)
            named[name if name not in named else f"{name} ({len(named) + 1:,})"] = each
        return named

    def _read(self) -> PeekRequest:
        first = self.first.value.strip() or "1"
        if not first.isdecimal():
            raise ConfigurationError("From # is a sequence number, such as 1.")
        session = self.session if self._view is View.SESSIONS else None
        return PeekRequest(self.count.read(), int(first), _STATES.get(self._view), self.where.read() or None, session)

    def _show_views(self, address: EntityAddress) -> None:
        self._views = list(View)
        if address.subscription is not None:
            self._views.remove(View.SCHEDULED)  # which are in the topic
        if address.sub_queue is not None:
            self._views = [View.ALL, View.ACTIVE, View.DEFERRED]
        self._view, self.first.value = View.ALL, "1"
        self._show_sessions([])

    def _show_sessions(self, ids: Sequence[str]) -> None:
        self._ids = sorted(ids, key=_by_number)
        self._counts, self._counted_all, self.session = {}, False, None
        self.find.value = ""
        if self._view is View.SESSIONS:
            self._say(_NO_SESSION if ids else "No session has active messages or a state.")

    def _name_of(self, session: str) -> str:
        name = visible(session) or "(empty)"
        count = self._counts.get(session, 0)
        if not count and not self._counted_all:
            return name
        least = "" if self._counted_all else "at least "
        return f"{name} · {least}{counted(count)}"

    def _say(self, words: str, *, follows: bool = False) -> None:
        self._said, self._follows = words, follows

    def _switch(self, name: str) -> None:
        self._view, self.session = View(name), None
        self.peek()

    # ------------------------------------------------------------ questions and answers

    def _begin(self, ask: PeekRequest, *, is_onward: bool = False) -> None:
        entity, view = self._entity, self._view
        if entity is None:
            return
        self._asked, self._doing, self.problem = (view, ask), _LOOKING, ""
        self.looked = PeekProgress(next_number=ask.from_sequence_number)
        if not is_onward:
            self.selection.offer({})
        if view is View.DEFERRED:
            self.look(partial(self._see_deferred, entity, ask))
        elif view is View.SESSIONS and ask.session_id is None:
            self.look(partial(self._see_sessions, entity))
        else:
            self.look(partial(self._see_page, entity, view, ask, is_onward))

    def ended(self, problem: str) -> None:
        self.problem = problem
        if problem:
            self._say("")

    def _see_page(self, entity: Entity, view: View, ask: PeekRequest, is_onward: bool, stop: Event) -> None:
        show = self.table.append if is_onward else self.table.show
        for messages, looked in peek_in_steps(entity, ask, stop):
            with self.showing(stop):
                self.looked = looked
                if messages:
                    show(messages)
                    show = self.table.append
        with self.showing(stop):
            if not self.looked.found and not is_onward:
                self.table.show(Messages())
            self._say(_words(self.looked, self.table.count), follows=not self.looked.is_end)
            if view is View.SCHEDULED and self.table.count:
                self.selection.offer(scheduled_actions(entity))

    def _see_deferred(self, entity: Entity, ask: PeekRequest, stop: Event) -> None:
        Messages().where(ask.where)  # a wrong expression fails before anything is peeked at
        found = entity.deferred(show_progress=False)
        wanted = found.where(ask.where)
        numbers = set(found.orphans.to_arrow().column("sequence_number").to_pylist())
        with self.showing(stop):
            of_whom = ["orphan" if message.sequence_number in numbers else "in the journal" for message in wanted]
            self.table.show(wanted, {"deferred": of_whom})
            self._say(_deferred_words(found, len(wanted)))
            self.selection.offer(deferred_actions(entity, found) if found else {})

    def _see_sessions(self, entity: Entity, stop: Event) -> None:
        found = entity.sessions()
        with self.showing(stop):
            self.table.show(Messages())
            self._show_sessions(found)
            self._doing = f"{_NO_SESSION} Counting"
        if not found:
            return
        counts: Counter[str] = Counter()
        for messages, looked in peek_in_steps(entity, PeekRequest(_COUNTED), stop):
            ids: Any = messages.to_arrow().column("session_id").drop_null()
            counts.update(ids.to_pylist())
            with self.showing(stop):
                self.looked = looked
        with self.showing(stop):
            # Only now: a list that changes under the pointer could lose a click.
            self._counts, self._counted_all = counts, self.looked.is_end
            some = "" if self.looked.is_end else f" The counts are of the first {self.looked.looked_at:,} messages."
            self._say(f"{_NO_SESSION}{some}")


def _by_number(session: str) -> list[tuple[int, str]]:
    """Order session 10 behind session 9."""
    return [(len(part), part) if part.isdecimal() else (0, part) for part in _DIGITS.split(session)]


def _found(looked: PeekProgress) -> str:
    others = f" among {looked.looked_at:,}" if looked.looked_at != looked.found else ""
    return f"{counted(looked.found)}{others}"


def _words(looked: PeekProgress, shown: int) -> str:
    if not shown:
        return "There are no such messages." if looked.looked_at else "There are no messages here."
    more = "" if shown == looked.found else f", {shown:,} in all"
    return f"{_found(looked)}{more}. {'That is the end.' if looked.is_end else 'More may follow.'}"


def _deferred_words(found: DeferredMessages, shown: int) -> str:
    orphans, gone = len(found.orphans), len(found.gone)
    if not found and not gone:
        return "Nothing is deferred here."
    parts = [f"{shown:,} of {len(found):,} deferred {'message' if len(found) == 1 else 'messages'}"]
    if orphans:
        parts.append(f"{orphans:,} of them {'is an orphan' if orphans == 1 else 'are orphans'} {_ORPHANS}")
    if gone:
        parts.append(f"{gone:,} more {'is' if gone == 1 else 'are'} in the journal only: settled elsewhere, or expired")
    return "; ".join(parts) + "."


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
_MOST_ENTITIES: Final = 2_500
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
            self.counts, self.rows = counts, [_row_of(each) for each in counts[:_MOST_ENTITIES]]
            self._as_of = f"as of {datetime.now(UTC):%H:%M:%S} UTC"
            self._listed = topics

    def ended(self, problem: str) -> None:
        count = len(self.counts)
        more = "" if count <= _MOST_ENTITIES else f"The first {_MOST_ENTITIES:,} of {count:,} entities are shown."
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
