"""The messages that a user wants to see, peeked in steps that can be watched and stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from time import monotonic
from typing import Final

from sbnotebook.client import Entity
from sbnotebook.client.messages import Messages
from sbnotebook.model.budget import UNPACKED_BYTES_OF_TABLE, Allowance
from sbnotebook.widgets.panel import Panel

_FIRST_STEP: Final = 250
_LARGEST_STEP: Final = 8_000


@dataclass(frozen=True, slots=True)
class PeekRequest:
    count: int = _FIRST_STEP
    from_sequence_number: int = 1
    state: str | None = None
    where: str | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class PeekProgress:
    found: int = 0
    looked_at: int = 0
    next_number: int = 1
    is_end: bool = False


def peek_in_steps(
    entity: Entity,
    ask: PeekRequest,
    part: Callable[[Messages], object],
    *,
    advance: Callable[[PeekProgress], object] = lambda _: None,
    stop: Event | None = None,
) -> PeekProgress:
    Messages().where(ask.where)  # a wrong expression fails before anything is peeked at
    takes_all = ask.state is None and ask.where is None
    unpacking = Allowance(UNPACKED_BYTES_OF_TABLE)
    looked, step = PeekProgress(next_number=ask.from_sequence_number), _FIRST_STEP
    while looked.found < ask.count and not looked.is_end and not (stop is not None and stop.is_set()):
        wanted = min(step, ask.count - looked.found) if takes_all else step
        page = entity.peek(
            wanted,
            from_sequence_number=looked.next_number,
            session_id=ask.session_id,
            show_progress=False,
            unpacking=unpacking,
        )
        kept = (page if ask.state is None else page.where(f"state = '{ask.state}'")).where(ask.where)
        is_cut = len(kept) > ask.count - looked.found
        kept = kept[: ask.count - looked.found]
        last = kept[-1] if is_cut else page[-1] if page else None
        looked = PeekProgress(
            looked.found + len(kept),
            looked.looked_at + len(page),
            last.sequence_number + 1 if last is not None else looked.next_number,
            is_end=len(page) < wanted and not is_cut,
        )
        if kept:
            part(kept)
        advance(looked)
        step = min(2 * step, _LARGEST_STEP)
    return looked


class LookingPanel(Panel):
    """A panel that looks for messages in the background: one look at a time, and a new one ends the one before."""

    def __init__(self, *parts: Panel) -> None:
        super().__init__(*parts)
        self.lock = threading.RLock()
        self.is_looking = False
        self.looked = PeekProgress()
        """How far the last look has come."""
        self._stop = Event()
        self._thread: threading.Thread | None = None

    def halt(self) -> None:
        """Look no further; the messages that were found stay."""
        self._stop.set()

    def wait(self, timeout: float = 60.0) -> bool:
        """Wait until looking has ended, and return whether it has."""
        deadline = monotonic() + timeout
        while self.is_looking and (left := deadline - monotonic()) > 0:
            if (thread := self._thread) is not None:
                thread.join(left)
        return not self.is_looking

    def look(self, work: Callable[[Event], object]) -> None:
        """Begin a look; the event is set when it is to end, and tells :meth:`showing` which look it is."""

        def end(problem: str) -> None:
            with self.lock:
                if stop is self._stop:
                    self.is_looking = False
                    self.ended(problem)

        with self.lock:
            self.halt()
            stop = self._stop = Event()
            self.is_looking, self.looked = True, PeekProgress()
            self._thread = self.in_background(lambda: work(stop), done=lambda _: end(""), failed=end)

    def ended(self, problem: str) -> None:
        """Show that a look has ended, and what went wrong with it."""
        raise NotImplementedError

    @contextmanager
    def showing(self, stop: Event) -> Generator[None]:
        """Show what a look has found; a look that another has followed ends here."""
        with self.lock:
            if stop is not self._stop:
                raise InterruptedError
            yield
        self.redraw()

    def peek_and_show(
        self, entity: Entity, ask: PeekRequest, part: Callable[[Messages], object], stop: Event
    ) -> PeekProgress:
        def show(messages: Messages) -> None:
            with self.showing(stop):
                part(messages)

        def advance(looked: PeekProgress) -> None:
            with self.showing(stop):
                self.looked = looked

        return peek_in_steps(entity, ask, show, advance=advance, stop=stop)

    def abandon(self) -> None:
        """Begin no more with what the look in progress finds."""
        with self.lock:
            self.halt()
            self._stop, self.is_looking = Event(), False

    def close(self) -> None:
        self.abandon()
        super().close()
