"""Looking into the entities of a namespace, without locking or changing anything, and sending to them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import starmap
from threading import Event
from time import monotonic
from typing import Any, Final, Literal, get_args

from sbnotebook.amqp import AmqpValue, encode, type_name
from sbnotebook.amqp.encoding import type_names
from sbnotebook.client import Entity, Messages, Namespace
from sbnotebook.client.dead_letters import DeadLetters
from sbnotebook.client.targets import duration
from sbnotebook.errors import ConfigurationError, DecisionError, SbNotebookError
from sbnotebook.model import EntityAddress, Message
from sbnotebook.model.body import BodyType, Marks, body_of_text, read_form
from sbnotebook.model.property_text import from_text, text_and_type
from sbnotebook.model.report import counted
from sbnotebook.settlement import EntityCounts
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.blocks import Block, Button, Column, Field, Row, Table, Text, Title, Tree
from sbnotebook.widgets.fields import FORM_CHANGED, Entry, have_faults, number_entry, optional, queue_or_topic, watch
from sbnotebook.widgets.panel import Panel, sentence
from sbnotebook.widgets.peek_steps import PeekProgress, PeekRequest, peek_in_steps
from sbnotebook.widgets.pretty import visible
from sbnotebook.widgets.renderers.browser import is_in_marimo
from sbnotebook.widgets.renderers.words import text_of
from sbnotebook.widgets.selection_bar import Finding, SelectionBar, deferred_actions, scheduled_actions
from sbnotebook.widgets.table.message_table import MessageTable

_FEW_SESSIONS: Final = 6
_COUNTED: Final = 10_000
"""Messages that are peeked at to count those of each session: Service Bus has no such counts."""
_NO_SESSION: Final = "Choose a session to see its messages; looking does not lock it."
_DIGITS: Final = re.compile(r"(\d+)")


View = Literal["All", "Active", "Scheduled", "Deferred", "Sessions", "Dead letters"]
_VIEWS: Final[tuple[View, ...]] = get_args(View)
_ORPHANS: Final = " Orphans are not in this journal: another program deferred them, or it was lost."


class EntityMessages(Panel):
    def __init__(self, actions: ActionPanel, table: MessageTable, go: Callable[[EntityAddress], object]) -> None:
        self.selection = SelectionBar(table, {}, actions)
        super().__init__(self.selection)
        self._go = go
        self._asked: tuple[View, PeekRequest] = "All", PeekRequest()
        self.looked = PeekProgress(is_end=True)
        self.table = table
        self._sessions: dict[str, str] = {}
        """The sessions by their names in the list."""
        self._said = self.problem = self._hint = ""
        self.session: str | None = None
        self._view: View = "All"
        self._views: Sequence[View] = _VIEWS
        self.where = Entry("Where", str, hint="subject = 'UA' and body_json->>'$.flight' = '1545'", size="wide")
        self.first = Entry("From #", str, "1", size="short")
        self.count = number_entry("At most", 250, 100_000)
        self.find = Entry("Find", str, hint="Find in sessions")
        watch([self.where], self.peek)

    def blocks(self) -> list[Block]:
        buttons = [
            Button("Peek", self.peek, "Look at messages; none is locked or changed", "primary"),
            Button(
                "Load more",
                self.peek_onward,
                "Load the messages after the last one shown",
                is_enabled=not self.is_looking and not self.looked.is_end,
            ),
            *([Button("Stop", self.halt, "Look no further")] if self.is_looking else []),
        ]
        return [
            Field("Which messages are shown", self._view, self._switch, "toggles", self._views),
            *(self._session_fields() if self._view == "Sessions" and self._sessions else []),
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
            self._entity, address = entity, entity.address
            triage = f'Triage(namespace, "{address}")' if is_in_marimo() else f"%sb_triage {address}"
            self._hint = f"Looking changes nothing. To repair, move or remove messages: {triage}"
            self._views = [each for each in _VIEWS if each != "Scheduled" or not address.subscription]
            if address.sub_queue is not None:
                self._views = ["All", "Active", "Deferred"]
            self._view, self.session, self.first.value, self._sessions = "All", None, "1", {}
            self.table.show(Messages())
            self._begin(self._read())

    def peek(self) -> None:
        """Look at the messages that are asked for, in the background, in place of those that are shown."""
        with self.lock:
            try:
                ask = self._read()
            except SbNotebookError as error:
                self.problem = sentence(error)
                return
            # To leave the field of the expression for the button asks for the same twice.
            if not self.is_looking or self._asked != (self._view, ask):
                self._begin(ask)

    def peek_onward(self) -> None:
        with self.lock:
            self._begin(replace(self._asked[1], from_sequence_number=self.looked.next_number), is_onward=True)

    @property
    def status(self) -> str:
        if not self.is_looking:
            return self._said
        return f"{self._said}: {_found(self.looked)}…" if self.looked.looked_at else f"{self._said}…"

    # ------------------------------------------------------------ which messages

    def _session_fields(self) -> list[Field]:
        sessions, words = self._sessions, self.find.value.lower()
        found = [name for name, each in sessions.items() if words in each.lower() or each == self.session]
        chosen = next((name for name in found if sessions[name] == self.session), "")

        def choose(name: str) -> None:
            self.session = sessions[name]
            self.peek()

        listed = Field("Session", chosen, choose, "list", found[:500], size="wide")
        return [*(self.find.blocks() if len(sessions) > _FEW_SESSIONS else []), listed]

    def _read(self) -> PeekRequest:
        first = self.first.value.strip() or "1"
        if not first.isdecimal():
            raise ConfigurationError("From # is a sequence number, such as 1.")
        session = self.session if self._view == "Sessions" else None
        state = self._view.lower() if self._view in ("Active", "Scheduled") else None
        return PeekRequest(self.count.read(), int(first), state, self.where.read() or None, session)

    def _switch(self, view: View) -> None:
        if view == "Dead letters":
            self._go(self._entity.address.dead_letter)
        else:
            self._view, self.session = view, None
            self.peek()

    # ------------------------------------------------------------ questions and answers

    def _begin(self, ask: PeekRequest, *, is_onward: bool = False) -> None:
        self._asked = self._view, ask
        self._said, self.problem = "Looking", ""
        self.looked = PeekProgress(next_number=ask.from_sequence_number, is_end=True)
        if not is_onward:
            self.selection.offer({})
        if self._view == "Deferred":
            self.look(partial(self._see_deferred, self._entity, ask))
        elif self._view == "Sessions" and ask.session_id is None:
            self.look(partial(self._see_sessions, self._entity))
        else:
            self.look(partial(self._see_page, self._entity, self._view, ask, is_onward))

    def ended(self, problem: str) -> None:
        self.problem = problem
        if problem:
            self._said = ""

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
            self._said = _words(self.looked, self.table.count)
            if view == "Scheduled" and self.table.count:
                self.selection.offer(scheduled_actions(entity))

    def _see_deferred(self, entity: Entity, ask: PeekRequest, stop: Event) -> None:
        Messages().where(ask.where)  # a wrong expression fails before anything is peeked at
        found = entity.deferred(show_progress=False)
        wanted = found.where(ask.where)
        numbers = set(found.orphans.to_arrow().column("sequence_number").to_pylist())
        with self.showing(stop):
            of_whom = ["orphan" if message.sequence_number in numbers else "in the journal" for message in wanted]
            self.table.show(wanted, {"deferred": of_whom})
            self._said = f"{len(wanted):,} of {found.where_from}.{_ORPHANS if numbers else ''}"
            self.selection.offer(deferred_actions(entity, found) if found else {})

    def _see_sessions(self, entity: Entity, stop: Event) -> None:
        found = sorted(entity.sessions(), key=_by_number)
        counts: Counter[str] = Counter()
        with self.showing(stop):
            self.table.show(Messages())
            self._sessions, self.find.value = _named(found, counts, is_all=False), ""
            self._said = f"{_NO_SESSION} Counting"
        looked = PeekProgress(is_end=True)
        for messages, looked in peek_in_steps(entity, PeekRequest(_COUNTED if found else 0), stop):
            ids: Any = messages.to_arrow().column("session_id").drop_null()
            counts.update(ids.to_pylist())
            with self.showing(stop):
                self.looked = replace(looked, is_end=True)
        with self.showing(stop):
            # Only now: a list that changes under the pointer could lose a click.
            self._sessions = _named(found, counts, is_all=looked.is_end)
            self._said = _NO_SESSION if found else "No session has active messages or a state."
            if not looked.is_end:
                self._said = f"{_NO_SESSION} The counts are of the first {looked.looked_at:,} messages."


def _named(sessions: Sequence[str], counts: Counter[str], *, is_all: bool) -> dict[str, str]:
    """Return sessions by their names, with counts; ``is_all`` tells whether these are exact."""
    named: dict[str, str] = {}
    for each in sessions:
        count = f" · {'' if is_all else 'at least '}{counted(counts[each])}" if is_all or counts[each] else ""
        name = f"{visible(each) or '(empty)'}{count}"
        named[name if name not in named else f"{name} ({len(named) + 1:,})"] = each
    return named


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


_TOPIC: Final = "A topic keeps no messages of its own: choose one of its subscriptions, or send a message to it."
_EVERY: Final = 25.0
"""Seconds between two questions for the counts, which are management operations.

A page says each 30 seconds that it is there.
"""
_SHARE: Final = 20
"""The pause before the next request, in times of the last answer: it spares a slow service."""
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
        self._letters: Finding | None = None
        super().__init__(self.actions, self.messages, self.form, self.tree)
        self.actions.on_report(lambda _: self.tree.refresh())
        self._opened()

    def blocks(self) -> list[Block]:
        chosen, is_topic, letters = self.tree.chosen, self.tree.is_topic, self._letters
        switch = Button(
            "Hide dead letters" if letters else "All dead letters",
            self._switch_letters,
            "Show all dead-letter queues with their growth and causes",
            icon="list",
            key="switch",
        )
        send = [
            Button(
                "Close the form" if self._is_sending else "Send a message…",
                partial(setattr, self, "_is_sending", not self._is_sending),
                "Open a form for a message to send or schedule",
                icon="envelope",
                key="send",
            )
        ]
        if self._is_sending:
            send.append(
                Button(
                    "Copy the selected one",
                    self._fill_form,
                    "Put the selected message into the form",
                    is_enabled=len(self.table.selection) == 1,
                )
            )
        right = [
            Column([Row([switch]), *(letters.blocks() if letters else [])], key="dead-letters"),
            Title(chosen or "Choose a queue, a subscription or its dead letters at the left.", key="title"),
            Text(_TOPIC if is_topic else "", "quiet"),
            *(self.messages.blocks() if chosen and not is_topic else []),
            Row(send, key="sending"),
            *(self.form.blocks() if self._is_sending else []),
            *self.actions.blocks(),
        ]
        return [Row([Column(self.tree.blocks(), look="left", key="left"), Column(right, key="right")], key="sides")]

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

    def _switch_letters(self) -> None:
        def find() -> list[Block]:
            found = self.letters = self._namespace.dead_letters()
            return [Table(*found.cells(), found.summary)]

        self.letters = None
        self._letters = None if self._letters else Finding("Looking at all dead-letter queues…", find, self)

    def _opened(self) -> None:
        if not self.tree.chosen:
            return
        address = EntityAddress.parse(self.tree.chosen)
        self.form.to.value = str(address.sends_to)
        if self.tree.is_topic:
            self.messages.halt()
        else:
            self.messages.look_into(self._namespace.entity(address))
        self.redraw()

    def _fill_form(self) -> None:
        self.form.fill(self.table.selected[0])


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
        # The nodes that have to be open for it to be visible.
        self.expanded = [
            *([address.name] if address and address.subscription else []),
            *([str(address.entity)] if address and address.sub_queue else []),
        ]
        self.counts: list[EntityCounts] = []
        self.rows: list[dict[str, object]] = []
        self.problem = ""
        self.next_at = 0.0
        """When a page in sight asks for new counts, by the monotonic clock."""
        self.refresh()

    def blocks(self) -> list[Block]:
        refresh = Button("Refresh", self.refresh, "Ask for the counts", is_enabled=not self.is_looking)
        foot = [
            Row(
                [refresh, Text("Asking for the counts…" if self.is_looking else self._as_of, "quiet", key="as-of")],
                key="foot",
            ),
            Text(self.problem, "error"),
        ]
        nothing = "There are no entities in this namespace." if self._as_of else "Asking…"
        return [Tree(foot, self.rows, self.chosen, self.expanded, self.choose, self._plain, nothing)]

    def refresh(self) -> None:
        with self.lock:
            if not self.is_looking:
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

    @property
    def is_topic(self) -> bool:
        """Return whether a topic is chosen, as far as the counts tell."""
        chosen = EntityAddress.parse(self.chosen) if self.chosen else None
        return any(each.kind == "topic" and each.address == chosen for each in self.counts)

    def choose(self, path: str, expanded: Iterable[str] | None = None) -> None:
        before = self.chosen
        self.chosen, self.expanded = path, [*(self.expanded if expanded is None else expanded)]
        if path != before:
            self._opened()
        if set(self._topics()) - self._listed:
            self.refresh()

    def _plain(self) -> list[Block]:
        """Return the entities as a plain list, with all topics open."""
        topics = [str(each.address) for each in self.counts if each.kind == "topic"]
        self.choose(self.chosen, dict.fromkeys([*self.expanded, *topics]))
        paths = {words: path for counts in self.counts for path, words in _lines_of(counts)}
        chosen = next((words for words, path in paths.items() if path == self.chosen), "")
        return [Field("Entities", chosen, lambda words: self.choose(paths[words]), "list", list(paths))]

    def _topics(self) -> list[str]:
        """Return the open nodes that are topics, or may be as long as the counts are unknown."""
        others = {str(counts.address) for counts in self.counts if counts.kind != "topic"}
        return [path for path in self.expanded if path not in others]


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


_JSON: Final = "application/json"
_MAX_BODY: Final = 100_000
"""The most characters of a body in the form: a browser's text area is slow with more."""
_PROPERTIES: Final = "one a line, such as carrier = UA or stops = 2 (long)"


class SendForm(Panel):
    def __init__(self, namespace: Namespace, panel: ActionPanel, to: str = "") -> None:
        super().__init__()
        self._namespace = namespace
        self._panel = panel
        self._take_back: Callable[[str], object] = lambda _: None
        self.problem = ""
        self.to = Entry("Send to", queue_or_topic, to, hint="a queue or a topic")
        self.body = Entry("Body", str, type="area", hint='{"flight": 1545}', size="wide")
        self.content_type = Entry("Content type", str, type="suggest", options=(_JSON, "text/plain", "application/xml"))
        self.texts = {
            "subject": Entry("Subject", str, hint="what it is about"),
            "message_id": Entry("Message id", str, hint="for duplicate detection"),
            "session_id": Entry("Session id", str, hint="where there are sessions"),
            "correlation_id": Entry("Correlation id", str),
        }
        self.properties = Entry("Properties", _properties_of, type="area", hint=_PROPERTIES, size="wide")
        self.delay = Entry("Delay", optional(duration), hint="such as 90s, 5m or 1h30m; empty for none")
        self.at = Entry("Time", optional(_time), hint="2030-01-31 07:30+00:00; empty for now")
        self._fields = (
            *(self.to, self.content_type, self.body),
            *(*self.texts.values(), self.properties, self.delay, self.at),
        )
        watch(self._fields, lambda: self._take_back(FORM_CHANGED))

    def blocks(self) -> list[Block]:
        show = Button("Show what will be sent", self.submit, "Show the plan; nothing is sent yet", "primary")
        fields = [field.block() for field in self._fields]
        return [Column([*fields, Row([show]), Text(self.problem, "error")], "Message", "form")]

    # ------------------------------------------------------------ content

    def fill(self, message: Message) -> None:
        """Put a message into the form; what the form has no field for is left out, and so is its id."""
        body = message.body_text
        if body is None or len(body) > _MAX_BODY:
            raise DecisionError("Only a message whose body is text, and not very long, can be put into the form.")
        properties = "\n".join(starmap(_line_of, message.application_properties.items()))
        form = str(read_form(message.body, message.marks)[1])
        marks = Marks(BodyType.DATA, message.content_type, None, message.application_properties)
        try:
            sent = str(read_form(body_of_text(body, marks), marks)[1])
        except ValueError:
            sent = ""
        if sent != form:
            raise DecisionError(f"The form sends a plain text, and its body is {form}: resubmit it with an edit.")
        self.body.value, self.content_type.value = body, message.content_type or ""
        for name, field in self.texts.items():
            field.value = "" if name == "message_id" else getattr(message, name) or ""
        self.properties.value = properties

    def message(self) -> Message:
        texts: dict[str, Any] = {name: field.value or None for name, field in self.texts.items()}
        body, content_type = self.body.value, self.content_type.value.strip() or None
        if content_type is None and body.lstrip()[:1] in ("{", "[") and _is_json(body):
            content_type = _JSON
        properties = self.properties.read()
        data = body_of_text(body, Marks(content_type=content_type, properties=properties))
        return Message(body=data, content_type=content_type, application_properties=properties, **texts)

    # ------------------------------------------------------------ the plan

    def submit(self) -> None:
        self.problem = ""
        if have_faults(self._fields):
            return
        at, delay, message = self.at.read(), self.delay.read(), self.message()
        if message.content_type == _JSON and not _is_json(self.body.value):
            self.problem = "The body is not JSON, although its content type says so."
        make = partial(self._namespace.entity(self.to.read()).plan_send, [message], at=at, delay=delay)
        self._take_back = self._panel.propose(make, title="Send")


def _time(value: str) -> datetime:
    """Return a time with its offset; UTC by default."""
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise ConfigurationError("Write the time as 2030-01-31 07:30+00:00.") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _properties_of(text: str) -> dict[str, AmqpValue]:
    found: dict[str, AmqpValue] = {}
    for line in filter(str.strip, text.splitlines()):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not name or not equals or name in found:
            raise ConfigurationError(f"Each property has a name, and no two have the same: {_PROPERTIES}.")
        found[name] = _value_of(name, value)
    return found


def _value_of(name: str, text: str) -> AmqpValue:
    """Return the value of a text, of the type that is named behind it; JSON has its own types."""
    value, opening, kind = text.removesuffix(")").rpartition(" (")
    if not opening or not text.endswith(")") or kind not in frozenset(type_names.values()):
        try:
            typed = json.loads(text)
        except (ValueError, RecursionError):
            return text
        if not isinstance(typed, (bool, int, float)):
            return typed if isinstance(typed, str) else text
        value, kind = text, type_name(typed)
    try:
        return from_text(value, None if kind == "string" else kind)
    except ConfigurationError:
        raise ConfigurationError(f"The value of {name[:40]!r} is not of the type {kind}.") from None


def _line_of(name: str, value: AmqpValue) -> str:
    text, kind = text_and_type(value)
    for said in (text, json.dumps(value) if isinstance(value, str) else f"{text} ({kind})"):
        with suppress(ConfigurationError):
            if encode(_properties_of(f"{name} = {said}")) == encode({name: value}):
                return f"{name} = {said}"
    raise DecisionError("It has a property that the form cannot hold.")


def _is_json(body: str) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True
