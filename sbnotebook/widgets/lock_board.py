"""The held messages, with the state and the remaining time of their locks, and actions on them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Event
from typing import Any, Final

from sbnotebook.client import LockedBatch, LockedSession, Messages, Namespace, Plan
from sbnotebook.client.targets import duration
from sbnotebook.errors import DecisionError
from sbnotebook.model import Decision, LockedMessage, Release, Report
from sbnotebook.model.durations import duration_text
from sbnotebook.settlement import LockEventKind, number_list
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.blocks import Block, Button, Row, Text, Title
from sbnotebook.widgets.fields import Entry, have_faults, number_entry
from sbnotebook.widgets.panel import Panel, sentence
from sbnotebook.widgets.selection_bar import SelectionBar, lock_actions
from sbnotebook.widgets.table.message_table import MessageTable
from sbnotebook.widgets.table.row_packing import keys_of

HELD: Final = "held"
LOST: Final = "lost"
ENDED: Final = "no longer held"
_AT_RISK: Final = {LockEventKind.FAILING: "renewing fails", LockEventKind.LATE: "may be lost"}
_COLUMNS: Final = (
    "lock",
    "locked_until",
    "sequence_number",
    "subject",
    "message_id",
    "delivery_count",
    "enqueued_time",
    "body_text",
)
_LOOK: Final = 1.0
"""Seconds between two looks at the batch; what it tells is seen at once."""
_PAUSE: Final = 0.1
"""Seconds between two changes of the screen at least."""


class LockBoard(Panel):
    """Messages that are held under locks, with the remaining time of each lock, and actions on them.

    The time that is left runs on in the browser, and the locks are renewed, also while a cell runs. An action
    that settles shows its plan first, and asks. Closing the board closes the batch, which releases what it still holds.

    Args:
        namespace: where the batch was locked.
        batch: the messages; one of a session will do.

    Example:
        >>> namespace = connect("emulator")  # doctest: +SKIP
        >>> LockBoard(namespace, namespace.entity("orders").lock(20))  # doctest: +SKIP
    """

    def __init__(self, namespace: Namespace, batch: LockedBatch) -> None:
        self._namespace = namespace
        self.batch = batch
        """The messages that are held."""
        self._messages: dict[int, LockedMessage] = {}
        self._locks: dict[int, tuple[str, datetime | None]] = {}
        """The state of each lock, and when it ends, as they were at the last look."""
        self._said = ""
        self._news = Event()
        self._closed = Event()
        self.table = MessageTable(
            columns=_COLUMNS, facets=(), countdown=True, label=f"Messages held in {batch.address}"
        )
        self.actions = ActionPanel(namespace, table=self.table)
        self.actions.on_report(self._reported)
        self.bar = SelectionBar(self.table, lock_actions(batch.address, self._plan), self.actions)
        self._count = number_entry("More messages", 10, 10_000)
        self._for = Entry("Renew for", duration, "30m", size="short")
        super().__init__(self.actions, self.bar)
        self._end_watch = batch.watch(lambda _: self._news.set())
        self.refresh()
        self.in_background(self._follow)

    def blocks(self) -> list[Block]:
        place = f"on {self._namespace.host}{' (the emulator)' if self._namespace.is_emulator else ''}"
        return [
            Row([Title(f"Held in {self.batch.address}"), Text(place, "quiet")], key="head"),
            Text(self._words(), is_strong=True, key="state"),
            Text(self._trouble_words(), "error"),
            Row(self._controls(), key="controls"),
            Text(self._said),
            *([self.bar.grid, *self.bar.blocks()] if self._messages else []),
            *self.actions.blocks(),
        ]

    def _controls(self) -> list[Block]:
        usable = self.batch.is_open and not self._is_lost
        more, renew = "Lock and hold this number of further messages", "Renew the locks for so long from now"
        found: list[Block] = [
            self._count.block(is_enabled=usable),
            Button("Lock more", self._lock_more, more, icon="lock", is_enabled=usable and not self.is_looking),
            self._for.block(is_enabled=usable),
            Button("Renew", self._renew_longer, renew, icon="refresh", is_enabled=usable),
            Button(
                "Release all",
                partial(self.actions.propose, partial(self.batch.plan, Release()), title="Release all"),
                "Give back all that is held",
                icon="unlock",
                is_enabled=bool(self.batch.messages),
            ),
        ]
        if self._numbers(LOST, ENDED):
            name, away = "Remove rows of messages that are not held", "Take these rows out of the table"
            found.append(Button(name, lambda: self._put_away(self._numbers(LOST, ENDED)), away))
        return found

    # ------------------------------------------------------------ following the batch

    def _follow(self) -> None:
        while not self._closed.is_set():
            self._news.wait(_LOOK)
            self._news.clear()
            try:
                self.refresh()
            except Exception as error:  # noqa: BLE001 (it would be seen nowhere else)
                self.fail(sentence(error))
                self.redraw()
            if not self.batch.is_open:
                return
            self._closed.wait(_PAUSE)

    def refresh(self) -> None:
        """Show the state of the batch, as is done each second and when something happens to a lock."""
        with self.lock:
            if self._closed.is_set():
                return
            known = {number: message.lock_token for number, message in self._messages.items()}
            new = [each for each in self.batch.messages if known.get(each.sequence_number) != each.lock_token]
            self._messages |= {message.sequence_number: message for message in new}
            locks = self._locks_now()
            if new:
                self.table.remove(keys_of(new))  # the rows of those that are locked once more
                # The first rows say which columns there are, and in which order.
                add = self.table.append if self.table.count else self.table.show
                seen = [locks[message.sequence_number] for message in new]
                add(new, {"lock": [lock for lock, _ in seen], "locked_until": [end for _, end in seen]})
            self.table.patch({
                (str(self.batch.address), number): {"lock": lock, "locked_until": end}
                for number, (lock, end) in locks.items()
            })  # fmt: skip
            self._locks = locks
        self.redraw()

    def _locks_now(self) -> dict[int, Any]:
        ends, lost, status = self.batch.lock_ends, set(self.batch.lost), self.batch.status
        risk, at_risk = _AT_RISK.get(status.kind, HELD), set(status.sequence_numbers) or ends.keys()
        locks: dict[int, Any] = {n: (LOST if n in lost else ENDED, None) for n in self._messages}
        return locks | {n: (risk if n in at_risk else HELD, end) for n, end in ends.items() if n in locks}

    def _numbers(self, *states: str) -> list[int]:
        return [number for number, (lock, _) in self._locks.items() if lock in states and number in self._messages]

    @property
    def _is_lost(self) -> bool:
        return isinstance(self.batch, LockedSession) and self.batch.is_lost

    def _words(self) -> str:
        if not self.batch.is_open:
            return "The batch is closed, and its messages were released. Lock messages again to continue."
        if self._is_lost:
            return "The session is lost: lock it again to continue."
        count, until = len(self.batch.messages), self.batch.renew_until
        left, at = until - datetime.now(UTC), f"{until:%H:%M:%S} UTC"
        held = f"{_counted(count)} held." if count else "No message is held. Lock some."
        session = [f"Session {self.batch.session_id!r}."] if isinstance(self.batch, LockedSession) else []
        renewed = f"Locks are renewed until {at}, {duration_text(left, rounded=True)} from now."
        if left <= timedelta():
            renewed = f"Locks are no longer renewed since {at}."
        return " ".join([held, *session, *([renewed] if count or session else [])])

    def _trouble_words(self) -> str:
        lost, status, told = self._numbers(LOST), self.batch.status, ""
        if lost:
            are = "1 lock is" if len(lost) == 1 else f"{len(lost):,} locks are"
            told = f"{are} lost: {number_list(lost)}. Leave these messages: they are delivered again. "
        if self._is_lost:
            return f"{told}{status.description}"
        if status.is_trouble and status.kind is not LockEventKind.LOST and self.batch.messages:
            return f"{told}Since {status.since:%H:%M:%S} UTC: {status.description}"
        return told.strip()

    # ------------------------------------------------------------ acting

    def _plan(self, decision: Decision, messages: Messages) -> Plan:
        """Return a plan for selected messages; those with lost locks are part of it, and of its report."""
        with self.lock:
            # Each with its last lock, which may have ended.
            chosen = [self._messages[number] for _, number in keys_of(messages) if number in self._messages]
        held = {message.lock_token for message in self.batch.messages}
        if not any(message.lock_token in held for message in chosen):
            raise DecisionError("None of the selected messages is held any more: select others, or lock them again.")
        return self.batch.plan(decision, chosen)

    def _lock_more(self) -> None:
        if not self.is_looking and not have_faults([self._for]):  # or it is the second click of a double click
            self._said = "Locking…"
            self.look(partial(self._lock, self._count.read(), self._for.read()))

    def _lock(self, count: int, renew_for: timedelta, stop: Event) -> None:
        if self.batch.renew_until <= datetime.now(UTC):
            self.batch.extend(renew_for)
        taken = len(self.batch.receive(count, max_wait=2.0))
        with self.showing(stop):
            self._said = f"{_counted(taken)} locked." if taken else "There is no more to lock now."

    def ended(self, problem: str) -> None:
        self._said = problem or self._said
        self._news.set()

    def _renew_longer(self) -> None:
        if not have_faults([self._for]):
            self.in_background(partial(self._renew, self._for.read()), partial(setattr, self, "_said"))

    def _renew(self, renew_for: timedelta) -> None:
        until = self.batch.extend(renew_for)
        self._said = f"Locks are renewed until {until:%H:%M:%S} UTC."

    def _reported(self, report: Report) -> None:
        self.refresh()
        settled = {each.sequence_number for each in report if each.ok}
        self._put_away([number for number in self._numbers(ENDED) if number in settled])

    def _put_away(self, numbers: list[int]) -> None:
        with self.lock:
            for number in numbers:
                self._messages.pop(number, None)
            self.table.remove([(str(self.batch.address), number) for number in numbers])
        self.redraw()

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Remove it from the screen and close the batch.

        This stops the plan in progress, and releases the other messages.
        """
        self._closed.set()
        self._news.set()
        self._end_watch()
        super().close()  # which stops the plan in progress
        if self.batch.is_open:
            self.batch.close()


def _counted(count: int) -> str:
    return "1 message is" if count == 1 else f"{count:,} messages are"
