"""Looking into the entities of a namespace, without locking or changing anything, and sending to them."""

from __future__ import annotations

from typing import Final

from sbnotebook.client import Namespace
from sbnotebook.client.dead_letters import DeadLetters
from sbnotebook.errors import DecisionError, SbNotebookError
from sbnotebook.model import EntityAddress
from sbnotebook.widgets import background
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.blocks import Block, Button, Column, Row, Table, Text, Title
from sbnotebook.widgets.entity_messages import EntityMessages
from sbnotebook.widgets.entity_tree import EntityTree
from sbnotebook.widgets.forms.message_actions import Finding
from sbnotebook.widgets.forms.send_form import SendForm
from sbnotebook.widgets.panel import Panel
from sbnotebook.widgets.table.message_table import MessageTable

_CHOOSE: Final = "Choose a queue, a subscription or its dead letters at the left."
_TOPIC: Final = "A topic keeps no messages of its own: choose one of its subscriptions, or send a message to it."
_OPEN, _CLOSE = "Send a message…", "Close the form"
_SEND: Final = "Open a form for a message to send or schedule"
_LETTERS: Final = "Show all dead-letter queues with their growth and causes"
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
        self._problem = ""
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
            Text(self._problem, "error"),
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
        self._problem = ""

    def _fill_form(self) -> None:
        selected = self.table.selected
        self._problem = ""
        try:
            if len(selected) != 1:
                raise DecisionError("Select one message in the table first.")
            self.form.fill(selected[0])
        except SbNotebookError as error:
            self._problem = background.sentence(error)
