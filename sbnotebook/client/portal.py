"""Run the library's work on one background event loop, and show its progress.

A notebook's own loop is busy with the notebook, so the library's work runs in one daemon thread with its own loop.
The thread starts on first use, and again after a fork (Spark's Python workers fork).
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from functools import cache, partial
from types import TracebackType
from typing import Any, Final, Generic, ParamSpec, Self, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

from sbnotebook.errors import in_one_frame
from sbnotebook.model import Outcome, Report
from sbnotebook.settlement import Progress, Watch, in_flight

P = ParamSpec("P")
T = TypeVar("T")

_CLEAN_UP: Final = 60.0
"""Seconds that interrupted work may take to release its messages."""
_COLLECT_EVERY: Final = 20_000
"""New objects after which Python looks for cycles. Messages have none, and the search takes a seventh of the time."""
_SHOW_AFTER: Final = 1.0
"""Seconds before a progress bar appears."""
_INTERRUPTED: Final = "It was interrupted."
_HOW_TO_READ: Final = (
    "Unconfirmed actions may have happened, skipped ones did not; the exception's attribute report has an outcome "
    "for each."
)


class _Loop:
    """The portal of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.portal: BlockingPortal | None = None
        self.usual_collection = self.seldom_collection = gc.get_threshold()
        self.collects_seldom = 0

    def forget(self) -> None:
        # The child of a fork has the objects but not the thread.
        self.__init__()


_LOOP: Final = _Loop()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LOOP.forget)


def portal() -> BlockingPortal:
    """Return the portal into the background loop, which starts on first use."""
    with _LOOP.lock:
        if _LOOP.portal is None:
            _LOOP.portal = _start()
        return _LOOP.portal


@contextmanager
def collecting_seldom() -> Generator[None]:
    """Have Python look for cycles of objects less often in the block, as it does in calls of :func:`run`."""
    with _LOOP.lock:
        if not _LOOP.collects_seldom:
            often, *others = _LOOP.usual_collection = gc.get_threshold()
            if often:  # 0: it never looks
                gc.set_threshold(max(_COLLECT_EVERY, often), *others)
            _LOOP.seldom_collection = gc.get_threshold()
        _LOOP.collects_seldom += 1
    try:
        yield
    finally:
        with _LOOP.lock:
            _LOOP.collects_seldom -= 1
            # Other code that has set it meanwhile, such as a user's function, keeps what it set.
            if not _LOOP.collects_seldom and gc.get_threshold() == _LOOP.seldom_collection:
                gc.set_threshold(*_LOOP.usual_collection)


def _start() -> BlockingPortal:
    # Not anyio's start_blocking_portal: its result must be closed, and closing it in the child of a fork waits for a
    # thread that the child does not have.
    started: Future[BlockingPortal] = Future()

    async def serve() -> None:
        async with BlockingPortal() as portal:
            started.set_result(portal)
            await portal.sleep_until_stopped()

    threading.Thread(target=anyio.run, args=(serve,), name="sbnotebook", daemon=True).start()
    return started.result()


@contextmanager
def only_frames_of_the_user() -> Generator[None]:
    """Have a notebook show an error of the block, such as the SDK's, with the user's own frames only.

    IPython asks an error for it. sbnotebook's own errors answer by themselves.
    """
    try:
        yield
    except Exception as error:
        in_one_frame(error)
        raise


class Work(Generic[T]):
    """A coroutine function that runs on the background loop, is watched, and can be cancelled."""

    def __init__(
        self,
        function: Callable[..., Awaitable[T]],
        *args: object,
        told: Callable[[Iterable[Outcome]], object] | None = None,
    ) -> None:
        self._function = function
        self._args = args
        self._watch = Watch(told)
        self._scope: anyio.CancelScope | None = None
        self._ended = threading.Event()
        self._portal = portal()

    def start(self) -> Future[T]:
        """Start it; separate from making it, so that an interrupt that comes meanwhile has something to cancel."""
        return self._portal.start_task_soon(self.until_the_end)

    async def until_the_end(self) -> T:
        """Await the function on the background loop, watched."""
        try:
            with only_frames_of_the_user(), collecting_seldom(), self._watch, anyio.CancelScope() as self._scope:
                return await self._function(*self._args)
            raise InterruptedError(_INTERRUPTED)
        finally:
            self._ended.set()

    def cancel(self) -> None:
        """Cancel it; :meth:`wait` until it has released its messages."""
        self._portal.call(self._stop)

    def _stop(self) -> None:
        # The loop runs its tasks in order: one that has not begun before this never will.
        if self._scope is None:
            self._ended.set()
        else:
            self._scope.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended, and return whether it has."""
        return self._ended.wait(timeout)

    @property
    def in_flight(self) -> int:
        """Return how many messages wait for an answer of Service Bus, as of the last that began to."""
        return self._watch.flight.latest

    @property
    def report(self) -> Report:
        """Return the outcomes that are known now."""
        return self._portal.call(lambda: self._watch.report)


class Interrupts:
    """Interrupts the calls of :func:`run` in a block from another thread, as Ctrl-C does in the kernel's own.

    Example:
        >>> interrupts = Interrupts()
        >>> interrupts.interrupt()
        >>> with interrupts:
        ...     run(anyio.sleep, 60)
        Traceback (most recent call last):
        InterruptedError: It was interrupted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._work: Work[Any] | None = None
        self._is_due = False
        self._token: Token[Interrupts | None] | None = None

    def interrupt(self) -> None:
        """Cancel the work that is waited for, or the next one; its call raises InterruptedError."""
        with self._lock:
            work = self._work
            self._is_due = work is None or work.wait(0)
        if work is not None and not self._is_due:
            work.cancel()

    def start(self, work: Work[T]) -> Future[T]:
        """Start work that :meth:`interrupt` then cancels."""
        with self._lock:
            is_due, self._is_due = self._is_due, False
            if is_due:
                raise InterruptedError(_INTERRUPTED)
            self._work = work
            return work.start()

    def __enter__(self) -> Self:
        self._token = _INTERRUPTS.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _INTERRUPTS.reset(self._token)


_INTERRUPTS: Final[ContextVar[Interrupts | None]] = ContextVar("_INTERRUPTS", default=None)


def run(function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a coroutine function on the background loop and wait for it.

    Interrupting (Ctrl-C, or the notebook's stop button) cancels it, waits until it has cleaned up, and raises
    KeyboardInterrupt. Its attribute ``report`` has the outcomes of messages sent or settled so far, and a note
    summarises them: see :mod:`sbnotebook.settlement.watch`. Other exceptions that end work also have a report when
    anything was sent or settled.
    """
    work, interrupts = Work(partial(function, *args, **kwargs)), _INTERRUPTS.get()
    try:
        if interrupts is not None:
            return interrupts.start(work).result()
        return portal().start_task_soon(work.until_the_end).result()
    except KeyboardInterrupt as interrupt:
        try:
            work.cancel()
            work.wait(_CLEAN_UP)
        finally:  # also after a second interrupt
            report = work.report
            interrupt.__dict__["report"] = report
            if report:
                interrupt.add_note(f"Until the interrupt - {report}. {_HOW_TO_READ}")
        raise
    except Exception as error:
        if report := work.report:
            error.__dict__.setdefault("report", report)
        raise


@contextmanager
def progress_bar(what: str, total: int | None, *, shown: bool = True) -> Generator[Progress | None]:
    """Show a progress bar when the work of a block takes longer than a second."""
    # In a file a bar would only be many lines; a notebook's kernel draws one although it has no terminal.
    if not shown or not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        yield None
        return
    with _bar_class()(total=total, desc=what, unit=" messages", delay=_SHOW_AFTER, leave=False) as line:

        def advance(count: int, said: str = "") -> None:
            if said:
                line.set_postfix_str(said, refresh=False)
            elif waiting := in_flight().latest:
                line.set_postfix_str(f"{waiting:,} in flight", refresh=False)
            line.update(count)

        yield advance


@cache
def _bar_class() -> Any:
    """Return the class of progress bars: one, because tqdm would start a thread for each class, which never ends."""
    from tqdm.auto import tqdm

    class Bar(tqdm):
        monitor_interval = 0

        def __del__(self) -> None:
            # One that an interrupt left half made has nothing to close, and would complain in a later cell.
            with suppress(AttributeError):
                super().__del__()

    return Bar
