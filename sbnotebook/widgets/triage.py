"""Triage: the causes of the messages in a dead-letter queue, and actions on them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from threading import Event
from time import monotonic
from typing import Final

import pyarrow as pa

from sbnotebook.client import Messages, Namespace
from sbnotebook.errors import DecisionError
from sbnotebook.model import Report, Resubmit, SubQueue
from sbnotebook.model.report import counted
from sbnotebook.widgets.action_panel import ActionPanel, key_of, removed_by
from sbnotebook.widgets.blocks import Block, Button, Column, Progress, Row, Text, Title
from sbnotebook.widgets.panel import Panel, Record
from sbnotebook.widgets.peek_steps import PeekProgress, PeekRequest, peek_in_steps
from sbnotebook.widgets.renderers.browser import is_in_marimo
from sbnotebook.widgets.renderers.words import text_of
from sbnotebook.widgets.selection_bar import SelectionBar, triage_actions
from sbnotebook.widgets.table.message_table import MessageTable, causes_block
from sbnotebook.widgets.table.row_packing import MessageKey

_READ_ONLY: Final = (
    "Writing is off: you can make plans, but not carry them out. To act, turn it on with "
    "%sb_connect --write, with sbnotebook triage --write, or in Python with connect(…, write=True)."
)
_COLUMNS: Final = (
    "sequence_number",
    "enqueued_time",
    "dead_letter_reason",
    "dead_letter_error_description",
    "subject",
    "body_text",
)


class Triage(Panel):
    """The messages of an entity by cause, and actions on selected ones.

    It peeks, so nothing is locked or changed by looking. Each action shows its plan first, and asks.

    Args:
        namespace: where the entity is.
        entity: its address, such as ``orders/$dlq``; any queue, subscription or sub-queue will do.
        max_messages: how many are peeked at first, None for all.
        is_editing: whether messages can be edited before they are resubmitted, also by Python code that is typed; then
            who uses the panel can run code.

    Raises:
        InvalidEntityAddressError: the text is not an address.

    Example:
        >>> triage = Triage(connect("emulator"), "orders/$dlq")  # doctest: +SKIP
    """

    def __init__(
        self, namespace: Namespace, entity: str, *, max_messages: int | None = None, is_editing: bool = True
    ) -> None:
        self._namespace = namespace
        self._entity = namespace.entity(entity)
        self._limit = max_messages
        # How far the last look has come, and how far the messages that are shown go.
        self.looked = self._reached = PeekProgress()
        self._gone: list[MessageKey] = []
        self._about = 0
        self._peeked_at = self._problem = self._unfinished = ""
        self.record = Record(self if is_in_marimo() else None)
        address = self._entity.address
        self.table = MessageTable(
            columns=_COLUMNS, timeline=True, causes=True, label=f"Messages of {address}", cause_action="Resubmit…"
        )
        self.actions = ActionPanel(namespace, table=self.table, is_editing=is_editing)
        forms = triage_actions(self._entity, namespace.entity(address.entity), self.table, is_editing=is_editing)
        self.bar = SelectionBar(self.table, forms, self.actions)
        super().__init__(self.actions, self.bar)
        if is_in_marimo():
            self.table.find_causes()
        self.actions.on_report(self._reported)
        self.table.on_causes(self._write_record)
        self.table.on_act(self.bar.begin)
        self.table.on_note(self._write_note)
        self.in_background(self._read_notes)
        self.refresh()

    def blocks(self) -> list[Block]:
        return [
            *self._found_blocks(),
            *([] if self._is_empty else self.bar.blocks()),
            *(self.actions.blocks() if self.actions.is_open or not self._is_empty else []),
        ]

    def _found_blocks(self) -> list[Block]:
        """Return the blocks of looking, without those of acting."""
        address, namespace = self._entity.address, self._namespace
        place = f"on {namespace.host}{' (the emulator)' if namespace.is_emulator else ''}"
        nothing = "There are no messages here."
        if address.sub_queue is SubQueue.DEAD_LETTER:
            nothing = "Nothing is dead-lettered here: the queue is empty, and there is nothing to do."
        tip, onward = "Peek at all messages again; the selection stays", "Load the messages after the last one shown"
        is_free = not self.actions.is_looking
        buttons = [
            Button("Refresh", self.refresh, tip, icon="refresh", is_enabled=is_free),
            Button("Load more", self.peek_onward, onward, icon="forward", is_enabled=is_free),
        ]
        if self.is_looking:
            buttons = [Button("Stop", self.halt, "Peek no further; the messages that are here stay", icon="stop")]
        about = self._about if self.is_looking else 0
        bar = [Progress(min(1.0, self.looked.looked_at / about))] if about else []
        finish = Button(
            "Look at the plan",
            partial(self.actions.resume, address, "Finish interrupted resubmits"),
            "Shows what became of each of them, and what would be done; nothing is done yet",
            "warning",
            "eye",
        )
        unfinished = [Text(self._unfinished), Row([finish])]
        return [
            Row([Title(f"Triage of {address}"), Text(place, "quiet")], key="head"),
            *([Column([Text(_READ_ONLY)], look="notice", key="read-only")] if namespace.read_only else []),
            Row([Text(self._count_words, key="count"), *bar, *buttons], key="peeking"),
            Text(self._problem, "error"),
            *([Column(unfinished, look="notice", key="unfinished")] if self._unfinished else []),
            Text(nothing if self._is_empty and self._reached.is_end else ""),
            *([] if self._is_empty else [self.bar.grid]),
        ]

    @property
    def _is_empty(self) -> bool:
        return not self.is_looking and self.table.count == 0

    # ------------------------------------------------------------ looking

    def refresh(self) -> None:
        """Peek at all messages again; the selection stays. Returns at once."""
        self.in_background(self._show_unfinished)
        self._look(1)
        self.in_background(self._expect, failed=lambda _: None)

    def peek_onward(self) -> None:
        self._look(self._reached.next_number)

    def wait(self, seconds: float = 60.0) -> bool:
        """Wait until peeking has ended, and the causes for the record are found."""
        deadline = monotonic() + seconds
        return super().wait(seconds) and self.table.wait_for_causes(max(0.0, deadline - monotonic()))

    def _look(self, first: int) -> None:
        with self.lock:
            if self.is_looking:
                return
            if self.actions.is_looking:
                raise DecisionError("Something is being carried out: wait until it has ended, or cancel it.")
            self._about, self._gone, self._problem, self.looked = 0, [], "", PeekProgress(next_number=first)
            ask = PeekRequest(self._limit or sys.maxsize, first)
            self.look(partial(self._peek, ask, first == 1 and self.table.count > 0))

    def _peek(self, ask: PeekRequest, replaces: bool, stop: Event) -> None:
        """Show each part as it comes, or all of them in place of the earlier messages."""
        parts: list[pa.Table] = [Messages().to_arrow()]
        for messages, looked in peek_in_steps(self._entity, ask, stop):
            with self.showing(stop):
                self.looked = looked
                if replaces:
                    parts.append(messages.to_arrow())
                elif messages:
                    self.table.append(messages)
        with self.showing(stop):
            if replaces:
                if stop.is_set():  # the earlier messages stay
                    return
                self.table.show(Messages(pa.concat_tables(parts)))
                self.table.remove(self._gone)  # messages removed after they were peeked at
            self._reached, self._peeked_at = self.looked, f"{datetime.now(UTC):%H:%M:%S}"

    def ended(self, problem: str) -> None:
        if problem:
            self._reached = replace(self._reached, is_end=False)
            self._problem = f"Peeking did not come to its end: {problem}"
        self._write_record()

    def _expect(self) -> None:
        """Ask about how many messages there are, by counts that some may not ask for."""
        address = self._entity.address
        (counts,) = self._namespace.counts([address.entity])
        about = counts.count_in(address.sub_queue) + (0 if address.sub_queue else counts.scheduled)
        self._about = min(about, self._limit or sys.maxsize)

    @property
    def _count_words(self) -> str:
        if self.is_looking:
            count = self.looked.looked_at
            of = f"of about {self._about:,} " if self._about and self._about >= count else ""
            return f"Peeking… {count:,} {of}messages"
        more = "" if self._reached.is_end else " (there may be more)"
        when = f", peeked at {self._peeked_at} UTC" if self._peeked_at else ""
        return f"{counted(self.table.count)}{more}{when}"

    # ------------------------------------------------------------ interrupted resubmits

    def _show_unfinished(self) -> None:
        entries = self._namespace.unfinished(self._entity.address)
        self._unfinished = ""
        if entries and entries[0].changed is not None:
            count = len({entry.key for entry in entries})
            self._unfinished = (
                f"{count:,} {'resubmit' if count == 1 else 'resubmits'} from here, begun on "
                f"{entries[0].changed:%Y-%m-%d at %H:%M} UTC, did not end: they were interrupted, or still "
                "run elsewhere. You can finish them, and nothing is sent twice."
            )

    # ------------------------------------------------------------ acting

    def _reported(self, report: Report) -> None:
        self._gone += removed_by(report)
        resubmitted = [key_of(each) for each in report if each.ok and each.verb == Resubmit.verb]
        if counts := self.table.count_causes(resubmitted):
            change = partial(self._namespace.count_resubmits, self._entity.address, counts)
            self.in_background(partial(self._read_notes, change))
        self.table.remove(self._gone)  # looking may have shown them again just now
        self.in_background(self._show_unfinished)
        self.redraw()
        self._write_record()

    # ------------------------------------------------------------ notes

    def _read_notes(self, change: Callable[[], object] = lambda: None) -> None:
        """Read the notes and the counts of resubmits after a change of them, and show them."""
        change()
        self.table.set_notes(self._namespace.notes(), self._namespace.counted_resubmits(self._entity.address))
        self._write_record()

    def _write_note(self, fingerprint: str, note: str) -> None:
        self.in_background(partial(self._read_notes, partial(self._namespace.note, fingerprint, note)))

    # ------------------------------------------------------------ the record

    def _ipython_display_(self) -> None:
        self.record.display_below(self)
        self.table.find_causes()  # also where no browser asks for them

    def _write_record(self) -> None:
        """Bring the record up to date, unless messages are still coming."""
        if self.is_looking:
            return
        place = f"Triage of {self._entity.address} on {self._namespace.host}, {datetime.now(UTC):%Y-%m-%d}"
        blocks: list[Block] = [Title(place), Text(self._count_words), Text(self._problem)]
        if self.table.count and (causes := causes_block(self.table)):
            blocks.append(causes)
        self.record.show([*blocks, *self.actions.record])

    def to_text(self) -> str:
        """Return the causes as text, when peeking has ended, and how to continue without buttons."""
        self.wait()
        onward = Text(
            f"Continue with %sb_resubmit {self._entity.address} --where …, or with %sb_pick to settle "
            "them; both show a plan first."
        )
        return text_of([*self._found_blocks(), *([onward] if self.table.count else [])])
