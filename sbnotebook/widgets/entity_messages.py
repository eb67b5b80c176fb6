"""The messages of one entity: by state, session or expression, page by page, with actions on some of them."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any, Final

from sbnotebook.client import Entity
from sbnotebook.client.batch import DeferredMessages
from sbnotebook.client.messages import Messages
from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import EntityAddress
from sbnotebook.model.outcome import counted
from sbnotebook.widgets import background
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.blocks import Block, Button, Field, Grid, Row, Text
from sbnotebook.widgets.fields import Entry, choice_entry, number_entry, watch
from sbnotebook.widgets.forms.message_actions import Actions, deferred_actions, scheduled_actions
from sbnotebook.widgets.front_end import is_in_marimo
from sbnotebook.widgets.panel import Panel
from sbnotebook.widgets.peek_steps import PeekProgress, PeekRequest, peek_in_steps
from sbnotebook.widgets.pretty import visible
from sbnotebook.widgets.selection_bar import SelectionBar
from sbnotebook.widgets.table.message_table import MessageTable
from sbnotebook.widgets.table.plain_table import PlainTable

_DEFAULT_COUNT: Final = 250
_MOST: Final = 100_000
_MAX_SESSION: Final = 80
_FEW_SESSIONS: Final = 6
_LISTED_SESSIONS: Final = 500
_COUNTED: Final = 10_000
"""Messages that are peeked at to count those of each session: Service Bus has no such counts."""
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


@dataclass(eq=False, frozen=True, slots=True)
class _Question:
    """One question for messages; only the answer to the latest one is shown."""

    entity: Entity
    view: View
    ask: PeekRequest
    is_onward: bool = False
    stop: threading.Event = field(default_factory=threading.Event)

    def is_same(self, view: View, ask: PeekRequest) -> bool:
        return (view, ask) == (self.view, self.ask)


class EntityMessages(Panel):
    """The messages of an entity, which are peeked at: nothing is locked or changed by looking."""

    def __init__(self, actions: ActionPanel, table: MessageTable, go: Callable[[EntityAddress], object]) -> None:
        super().__init__()
        self._actions = actions
        self._go = go
        self._lock = threading.RLock()
        self._entity: Entity | None = None
        self._question: _Question | None = None
        self._looked = PeekProgress()
        self._thread: threading.Thread | None = None
        self.table = table
        self._plain = PlainTable(table, self.redraw)
        self._ids: list[str] = []
        self._counts: Mapping[str, int] = {}
        self._counted_all = self._is_busy = self._follows = False
        self.status = self.problem = self._hint = ""
        self.session: str | None = None
        """The chosen session, None for none."""
        self.views = choice_entry("Which messages are shown", [View.ALL.value], "toggles")
        self._views = [View.ALL.value]
        self.where = Entry("Where", str, hint=_WHERE, size="wide")
        self.first = Entry("From #", str, "1", size="short")
        self.count = number_entry("At most", _DEFAULT_COUNT, _MOST)
        self.find = Entry("Find", str, hint="Find in sessions")
        watch([self.views], self._switched)
        watch([self.where], self.peek)
        self.selection: SelectionBar | None = None
        """The actions on selected messages; None where there are none."""

    def blocks(self) -> list[Block]:
        actions = self.selection.blocks() if self.selection is not None else []
        table = Grid(self.table, self._plain.blocks)
        buttons = [
            Button("Peek", self.peek, "Look at messages; none is locked or changed", "primary"),
            Button("Load more", self.peek_onward, _ONWARD, is_enabled=not self._is_busy and self._follows),
            *([Button("Stop", self.stop, "Look no further")] if self._is_busy else []),
        ]
        return [
            self.views.block(options=self._views),
            *self._session_fields(),
            self.where.block(),
            *([Text(self.problem, "error", key="problem")] if self.problem else []),
            Row([self.first.block(), self.count.block(), *buttons], key="peek"),
            *([Text(self.status, "quiet", key="status")] if self.status else []),
            table,
            Text(self._hint, "quiet", key="hint"),
            *actions,
        ]

    def look_into(self, entity: Entity) -> None:
        with self._lock:
            self.stop()
            self._entity = entity
            triage = f'Triage(namespace, "{entity.address}")' if is_in_marimo() else f"%sb_triage {entity.address}"
            self._hint = f"Looking changes nothing. To repair, move or remove messages: {triage}"
            self.table.show(Messages())
            self._show_views(entity.address)
            self._begin(self._read())

    def peek(self) -> None:
        """Look at the messages that are asked for, in the background, in place of those that are shown."""
        with self._lock:
            if self._entity is None:
                return
            if self._view is View.DEAD_LETTERS:
                self._go(self._entity.address.dead_letter)
                return
            try:
                ask = self._read()
            except SbNotebookError as error:
                self._say(self.status, background.sentence(error))
                return
            # To leave the field of the expression for the button asks for the same twice.
            if not self._is_looking or self._question is None or not self._question.is_same(self._view, ask):
                self._begin(ask)

    def peek_onward(self) -> None:
        with self._lock:
            if self._question is not None and not self._is_looking:
                ask = replace(self._question.ask, from_sequence_number=self._looked.next_number)
                self._begin(ask, is_onward=True)

    def stop(self) -> None:
        if self._question is not None:
            self._question.stop.set()

    def wait(self, seconds: float = 60.0) -> bool:
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return not self._is_looking

    @property
    def words(self) -> str:
        return "\n".join(filter(None, (self.status, self.problem)))

    def close(self) -> None:
        with self._lock:
            self.stop()
            self._question = None
        self._offer({})
        super().close()

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

    @property
    def _view(self) -> View:
        return View(self.views.value)

    def _read(self) -> PeekRequest:
        first = self.first.value.strip() or "1"
        if not first.isdecimal():
            raise ConfigurationError("From # is a sequence number, such as 1.")
        session = self.session if self._view is View.SESSIONS else None
        return PeekRequest(self.count.read(), int(first), _STATES.get(self._view), self.where.read() or None, session)

    def _show_views(self, address: EntityAddress) -> None:
        views = list(View)
        if address.subscription is not None:
            views.remove(View.SCHEDULED)  # which are in the topic
        if address.sub_queue is not None:
            views = [View.ALL, View.ACTIVE, View.DEFERRED]
        self._views = [view.value for view in views]
        watch([self.views], lambda: None)
        self.views.value, self.first.value = View.ALL.value, "1"
        watch([self.views], self._switched)
        self._show_sessions([])

    def _show_sessions(self, ids: Sequence[str]) -> None:
        self._ids = sorted(ids, key=_by_number)
        self._counts, self._counted_all, self.session = {}, False, None
        self.find.value = ""
        if self._view is View.SESSIONS:
            self._say(_NO_SESSION if ids else "No session has active messages or a state.")

    def _name_of(self, session: str) -> str:
        name = visible(session if len(session) <= _MAX_SESSION else f"{session[:_MAX_SESSION]}…") or "(empty)"
        count = self._counts.get(session, 0)
        if not count and not self._counted_all:
            return name
        least = "" if self._counted_all else "at least "
        return f"{name} · {least}{counted(count)}"

    def _say(self, words: str, problem: str = "", *, is_busy: bool = False, follows: bool = False) -> None:
        self.status, self.problem = words, problem
        self._is_busy, self._follows = is_busy, follows

    def _switched(self) -> None:
        self.session = None
        self.peek()

    # ------------------------------------------------------------ questions and answers

    @property
    def _is_looking(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _begin(self, ask: PeekRequest, *, is_onward: bool = False) -> None:
        entity = self._entity
        if entity is None:
            return
        self.stop()  # earlier requests are no longer needed
        question = self._question = _Question(entity, self._view, ask, is_onward)
        self._say("Looking…", is_busy=True)
        if not is_onward:
            self._offer({})
        answer = self._answer_to(question)
        self._thread = self.in_background(
            partial(answer, question), done=lambda _: None, failed=partial(self._failed, question)
        )

    def _answer_to(self, question: _Question) -> Callable[[_Question], None]:
        if question.view is View.DEFERRED:
            return self._see_deferred
        if question.view is View.SESSIONS and question.ask.session_id is None:
            return self._see_sessions
        return self._see_page

    def _see_page(self, question: _Question) -> None:
        show = self.table.append if question.is_onward else self.table.show

        def part(messages: Messages) -> None:
            nonlocal show
            with self._lock:
                if question is self._question:
                    show(messages)
                    show = self.table.append

        def advance(looked: PeekProgress) -> None:
            with self._lock:
                if question is self._question:
                    self._say(f"Looking: {_found(looked)}…", is_busy=True)
                    self.redraw()

        looked = peek_in_steps(question.entity, question.ask, part, advance=advance, stop=question.stop)
        with self._lock:
            if question is not self._question:
                return
            self._looked = looked
            if not looked.found and not question.is_onward:
                self.table.show(Messages())
            self._say(_words(looked, self.table.count), follows=not looked.is_end)
            if question.view is View.SCHEDULED and self.table.count:
                self._offer(scheduled_actions(question.entity))

    def _see_deferred(self, question: _Question) -> None:
        Messages().where(question.ask.where)  # a wrong expression fails before anything is peeked at
        found = question.entity.deferred(show_progress=False)
        wanted = found.where(question.ask.where)
        numbers = set(found.orphans.to_arrow().column("sequence_number").to_pylist())
        with self._lock:
            if question is not self._question:
                return
            of_whom = ["orphan" if message.sequence_number in numbers else "in the journal" for message in wanted]
            self.table.show(wanted, {"deferred": of_whom})
            self._say(_deferred_words(found, len(wanted)))
            self._offer(deferred_actions(question.entity, found) if found else {})

    def _see_sessions(self, question: _Question) -> None:
        found = question.entity.sessions()
        with self._lock:
            if question is not self._question:
                return
            self.table.show(Messages())
            self._show_sessions(found)
        if found:
            self._count_sessions(question)

    def _count_sessions(self, question: _Question) -> None:
        counts: Counter[str] = Counter()

        def part(messages: Messages) -> None:
            found: Any = messages.to_arrow().column("session_id").drop_null()
            counts.update(found.to_pylist())

        def show(looked: PeekProgress) -> None:
            with self._lock:
                if question is self._question:
                    self._say(f"{_NO_SESSION} Counting: {_found(looked)}…", is_busy=True)
                    self.redraw()

        ask = PeekRequest(_COUNTED)
        looked = peek_in_steps(question.entity, ask, part, advance=show, stop=question.stop)
        with self._lock:
            if question is self._question:
                # Only now: a list that changes under the pointer could lose a click.
                self._counts, self._counted_all = counts, looked.is_end
                some = "" if looked.is_end else f" The counts are of the first {looked.looked_at:,} messages."
                self._say(f"{_NO_SESSION}{some}")

    def _failed(self, question: _Question, why: str) -> None:
        with self._lock:
            if question is self._question:
                self._say("", why, follows=False)

    def _offer(self, actions: Actions) -> None:
        old, self.selection = self.selection, None
        if old is not None:
            old.close()
        if actions:
            self.selection = SelectionBar(self.table, actions, self._actions)
            self.selection.outer = self
        self.redraw()


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
    return f"{_found(looked)}{more}. {'That is the end.' if looked.is_end else 'More may follow: peek onward.'}"


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
