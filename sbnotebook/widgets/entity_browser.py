"""Looking into the entities of a namespace, without locking or changing anything, and sending to them."""

from __future__ import annotations

import threading
from typing import Final

import ipywidgets as widgets

from sbnotebook.analysis import tables
from sbnotebook.client import Namespace
from sbnotebook.client.dead_letters import DeadLetters
from sbnotebook.errors import DecisionError, SbNotebookError
from sbnotebook.model import EntityAddress
from sbnotebook.widgets import background
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.box_panel import NO_MATHEMATICS, Panel, button, panel_style, row, set_shown, text
from sbnotebook.widgets.entity_messages import EntityMessages
from sbnotebook.widgets.entity_tree import EntityList, EntityTree
from sbnotebook.widgets.forms.send_form import SendForm
from sbnotebook.widgets.table.message_view import MessageView

_CHOOSE: Final = "Choose a queue, a subscription or its dead letters at the left."
_TOPIC: Final = "A topic keeps no messages of its own: choose one of its subscriptions, or send a message to it."
_OPEN, _CLOSE = "Send a message…", "Close the form"
_SHOW, _HIDE = "All dead letters", "Hide dead letters"


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
        self.tree = EntityTree(namespace, str(entity or ""))
        self.table = MessageView(label="Messages", facets=())
        self.actions = ActionPanel(namespace, table=self.table)
        self.messages = EntityMessages(self.actions, self.table, self.choose)
        self.form = SendForm(namespace, self.actions)
        self.dead_letters = DeadLetterView(namespace)
        self._title = text(_CHOOSE, "title")
        self._note = text("", "quiet")
        self._problem = text("", "problem")
        self.sending = button(
            _OPEN, "Open a form for a message to send or schedule", self._switch_form, icon="envelope"
        )
        self.template = button("Copy the selected one", "Put the selected message into the form", self._fill_form)
        self._left = widgets.VBox([self.tree], layout={"flex": "0 1 310px", "min_width": "0", "margin": "0 12px 0 0"})
        super().__init__([panel_style(), self._laid_out()])
        self.add_class("sbn-panel")
        self._ends = [self.tree.on_choose(self._opened), self.actions.on_report(lambda _: self.tree.refresh())]
        # What the browser does not load of the table it does not load of the tree.
        self._ends.append(self.table.on_swap(self._use_plain))
        self._use_plain(self.table.is_plain)
        self.tree.observe(self._counted, "as_of")
        self._show_form(shown=False)
        set_shown(self.messages, shown=False)
        if self.tree.chosen:
            self._opened(self.tree.chosen)

    def _laid_out(self) -> widgets.Widget:
        send_row = row(self.sending, self.template, self._problem)
        parts = [self.dead_letters, self._title, self._note, self.messages, send_row, self.form, self.actions]
        right = widgets.VBox(parts, layout={"flex": "1 1 560px", "min_width": "0"})
        # Below each other where there is no room for both.
        return widgets.HBox([self._left, right], layout={"flex_flow": "row wrap"})

    def choose(self, entity: str | EntityAddress) -> None:
        """Choose an entity, and peek at its first messages in the background.

        Raises:
            InvalidEntityAddressError: the text is not an address.
        """
        self.tree.chosen = str(EntityAddress.parse(entity))

    def wait(self, seconds: float = 60.0) -> bool:
        """Wait until counts and messages are there, for scripts and terminals; tells whether they are."""
        return self.tree.wait(seconds) and self.messages.wait(seconds)

    def to_text(self) -> str:
        """Return the entities as a table, or the messages of the chosen one, when they have come."""
        self.wait()
        return repr(self)

    def __repr__(self) -> str:
        if not self.tree.chosen:
            return repr(self.tree)
        return "\n".join([tables.messages_text(self.table.messages, self.tree.chosen), self.messages.words])

    def close(self) -> None:
        """Remove it from the screen, and stop peeking and the plan in progress."""
        for end in self._ends:
            end()
        self._use_plain(False)
        for part in (self.messages, self.form, self.dead_letters, self.actions, self.table, self.tree):
            part.close()
        super().close()

    def _use_plain(self, plain: bool) -> None:
        old = self._left.children
        self._left.children = (EntityList(self.tree) if plain else self.tree,)
        for each in old:
            if each not in (self.tree, *self._left.children):
                each.close()

    def _is_topic(self, address: EntityAddress) -> bool:
        return any(each.kind == "topic" and each.address == address for each in self.tree.counts)

    def _counted(self, _change: object) -> None:
        # An entity chosen before its kind was known may be a topic.
        if self.tree.chosen and not self._note.value and self._is_topic(EntityAddress.parse(self.tree.chosen)):
            self._opened(self.tree.chosen)

    def _opened(self, path: str) -> None:
        address = EntityAddress.parse(path)
        is_topic = self._is_topic(address)
        self._title.value, self._note.value = path, _TOPIC if is_topic else ""
        self.form.to.value = str(address.sends_to)
        set_shown(self.messages, shown=not is_topic)
        if is_topic:
            self.messages.stop()
        else:
            self.messages.look_into(self._namespace.entity(address))

    def _switch_form(self) -> None:
        self._show_form(shown=self.sending.description == _OPEN)

    def _show_form(self, *, shown: bool) -> None:
        for part in (self.form, self.template):
            set_shown(part, shown=shown)
        self.sending.description = _CLOSE if shown else _OPEN
        self._problem.value = ""

    def _fill_form(self) -> None:
        selected = self.table.selected
        self._problem.value = ""
        try:
            if len(selected) != 1:
                raise DecisionError("Select one message in the table first.")
            self.form.fill(selected[0])
        except SbNotebookError as error:
            self._problem.value = background.sentence(error)


class DeadLetterView(widgets.VBox):
    """A button that shows the table of :meth:`sbnotebook.client.Namespace.dead_letters`, and hides it again.

    Args:
        namespace: whose queues.

    Example:
        >>> view = DeadLetterView(namespace)  # doctest: +SKIP
        >>> view.look()  # doctest: +SKIP
    """

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._ended = threading.Event()
        self.letters: DeadLetters | None = None
        self.switch = button(
            _SHOW, "Show all dead-letter queues with their growth and causes", self._switch, icon="list"
        )
        self.status = text("", "quiet")
        self.problem = text("", "problem")
        self.table = widgets.HTML(layout={"max_height": "420px", "overflow": "auto"})
        for name in NO_MATHEMATICS:
            self.table.add_class(name)
        super().__init__([row(self.switch, self.status), self.problem, self.table])
        set_shown(self.table, shown=False)

    def look(self) -> None:
        """Look at the queues in the background, and show them."""
        self._ended.clear()
        self.switch.disabled = True
        self.status.value, self.problem.value = "Looking at all dead-letter queues…", ""
        background.start(self._namespace.dead_letters, done=self._show, failed=self._fail)

    def wait(self, seconds: float = 60.0) -> bool:
        """Wait until a look has ended; tells whether that is so."""
        return self._ended.wait(seconds)

    def _switch(self) -> None:
        if self.switch.description == _SHOW:
            self.look()
            return
        self.switch.description, self.table.value, self.status.value = _SHOW, "", ""
        set_shown(self.table, shown=False)

    def _show(self, letters: DeadLetters) -> None:
        self.letters = letters
        self.table.value = letters.as_html()
        set_shown(self.table, shown=True)
        self.switch.description = _HIDE
        self._end()

    def _fail(self, problem: str) -> None:
        self.problem.value = problem
        self._end()

    def _end(self) -> None:
        self.status.value, self.switch.disabled = "", False
        self._ended.set()
