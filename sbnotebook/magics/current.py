"""The state of one shell: its connection, locked messages and settings, and how it shows results."""

from __future__ import annotations

import atexit
import weakref
from typing import TYPE_CHECKING, Any

from traitlets import CaselessStrEnum, Int
from traitlets.config import Configurable

from sbnotebook.analysis import tables
from sbnotebook.client import LockedBatch, Messages, Namespace
from sbnotebook.client.assistant import Sharing
from sbnotebook.client.targets import About, resolve
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Report
from sbnotebook.model.connection_strings import Hidden, hidden
from sbnotebook.settlement import Connection

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from sbnotebook.widgets.lock_board import LockBoard


class SbMagics(Configurable):
    """The defaults of the magics of one shell, set by ``%config SbMagics.NAME = VALUE`` or in a configuration file."""

    max_rows = Int(
        None, min=1, allow_none=True, help="Rows of messages that are shown; None is 50 in notebooks, 20 in terminals."
    ).tag(config=True)
    peek_count = Int(1_000, min=1, help="Messages that %sb_peek looks at where neither -n nor --where is given.").tag(
        config=True
    )
    lock_count = Int(10, min=1, help="Messages that %sb_lock locks where -n is not given.").tag(config=True)
    max_in_flight = Int(
        None,
        min=1,
        allow_none=True,
        help="Maximum number of operations in progress without --max-in-flight; None adapts to the network.",
    ).tag(config=True)
    confirm = CaselessStrEnum(
        ["always", "outside_emulator", "never"],
        "outside_emulator",
        help="When to ask for confirmation before a plan runs. --yes answers beforehand.",
    ).tag(config=True)

    def asks(self, *, is_emulator: bool) -> bool:
        return self.confirm == "always" or (self.confirm == "outside_emulator" and not is_emulator)


class Current:
    """The one connection and the one batch of locked messages of a shell, and its settings.

    When the shell ends, its locked messages are released.
    """

    def __init__(self, settings: SbMagics | None = None, shell: Any = None) -> None:
        self.settings = settings or SbMagics()
        self.shell = shell
        self.sharing: Sharing | None = None
        self.about: About | None = None
        self._target: Hidden | None = None
        self._namespace: Namespace | None = None
        self._connections: list[Connection] = []
        self._batch: LockedBatch | None = None
        self._board: LockBoard | None = None
        atexit.register(_close, weakref.ref(self))

    @property
    def is_connected(self) -> bool:
        return self._namespace is not None

    @property
    def namespace(self) -> Namespace:
        if self._namespace is None:
            raise ConfigurationError("There is no connection: run %sb_connect first.")
        return self._namespace

    @property
    def batch(self) -> LockedBatch:
        if self._batch is None:
            raise ConfigurationError("No messages are held: run %sb_lock ENTITY -n 10 first.")
        return self._batch

    def connect(self, target: str | Hidden | None, *, write: bool | None = None) -> Namespace:
        """Close the connection, make another and sign in; when that fails, there is none."""
        target = hidden(target)
        self.close()
        return self._take(target, *_signed_in(target, write))

    def reconnect(self, *, write: bool) -> Namespace:
        """Make the same connection again, with writing on or off; when that fails, the one before stays.

        Locked messages are released.
        """
        opened = _signed_in(self._target, write)
        self.close()
        return self._take(self._target, *opened)

    def _take(self, target: Hidden | None, connection: Connection, namespace: Namespace, about: About) -> Namespace:
        self._connections.append(connection)
        for each in self._connections:  # panels of earlier connections are still on the screen
            if each.host == connection.host:
                each.read_only = connection.read_only
        self._target, self._namespace, self.about = target, namespace, about
        return namespace

    def hold(self, batch: LockedBatch) -> LockedBatch:
        self.release()
        self._batch = batch
        return batch

    def holds(self, batch: object) -> bool:
        return batch is self._batch

    def board(self) -> LockBoard:
        """Return the board of the locked messages, which is made once, however often it is shown."""
        if self._board is None:
            from sbnotebook.widgets.lock_board import LockBoard  # it loads the widgets

            self._board = LockBoard(self.namespace, self.batch)
        return self._board

    def release(self) -> int:
        """Release the locked messages, and return how many there were; their board stays on the screen."""
        batch, self._batch = self._batch, None
        self._board = None
        if batch is None:
            return 0
        count = len(batch)
        batch.close()
        return count

    def release_and_say(self) -> None:
        if released := self.release():
            say(f"Released {released:,} of the messages that were held before.")

    def close(self) -> None:
        try:
            self.release()
        finally:
            namespace, self._namespace = self._namespace, None
            if namespace is not None:
                namespace.close()


def _signed_in(target: Hidden | None, write: bool | None) -> tuple[Connection, Namespace, About]:
    found = resolve(target)
    if write is not None:
        found.connection.read_only = not write
    namespace = Namespace(found)
    try:
        return found.connection, namespace, namespace.about()
    except BaseException:
        namespace.close()
        raise


def _close(current: weakref.ref[Current]) -> None:
    held = current()
    if held is not None:
        held.close()


# ---------------------------------------------------------------- the results of magics


def say(text: str) -> None:
    print(text)  # noqa: T201


def has_widgets(shell: Any) -> bool:
    """Return True for the shell of a notebook, which can show widgets; a terminal has text."""
    return getattr(shell, "kernel", None) is not None


def show_results(shell: InteractiveShell, current: Current) -> None:
    """Have a shell show reports and messages as tables, and locked messages as a board."""
    formatters: Any = shell.display_formatter
    html, plain = formatters.formatters["text/html"], formatters.formatters["text/plain"]

    def messages_html(messages: Messages) -> str | None:
        rows = current.settings.max_rows
        return messages.as_html() if rows is None else messages.as_html(rows)

    def report_text(report: Report, printer: Any, _cycle: bool) -> None:
        printer.text(tables.report_text(report))

    def messages_text(messages: Messages, printer: Any, _cycle: bool) -> None:
        rows = current.settings.max_rows
        printer.text(messages.as_text() if rows is None else messages.as_text(rows))

    # Reports and messages are tables in notebooks and terminals; a locked batch is a board in notebooks.
    html.for_type(Report, tables.report_html)
    plain.for_type(Report, report_text)
    html.for_type(Messages, messages_html)
    plain.for_type(Messages, messages_text)
    if has_widgets(shell):
        formatters.mimebundle_formatter.for_type(LockedBatch, _board(current))


def _board(current: Current) -> Any:
    def board(batch: LockedBatch, include: Any = None, exclude: Any = None) -> Any:
        if not (batch.is_open and current.holds(batch)):
            return None  # a table shows its last state
        shown: Any = current.board()
        return shown._repr_mimebundle_(include=include, exclude=exclude)

    return board
