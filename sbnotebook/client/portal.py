"""Run the library's work on one background event loop, and show its progress.

A notebook's own loop is busy with the notebook, so the library's work runs in one daemon thread with its own loop.
The thread starts on first use, and again after a fork (Spark's Python workers fork) or after its loop has ended.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import inspect
import os
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Generic, ParamSpec, Self, TypeVar
from weakref import WeakSet

import anyio.to_thread
from anyio.from_thread import BlockingPortal

from sbnotebook.errors import in_one_frame
from sbnotebook.model import Outcome, Report
from sbnotebook.settlement import LockedBatch, Progress, Watch, in_flight

P = ParamSpec("P")
T = TypeVar("T")

_CLEAN_UP: Final = 60.0
"""Seconds that interrupted work may take to release its messages."""
_COLLECT_EVERY: Final = 20_000
"""New objects after which Python looks for cycles. Messages have none, and the search takes a seventh of the time."""
_OURS: Final = str(Path(__file__).parents[1]) + os.sep
_SHOW_AFTER: Final = 1.0
"""Seconds before a progress bar appears."""


class _Loop:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.portal: BlockingPortal | None = None
        self.thread: threading.Thread | None = None

    def forget(self) -> None:
        # The child of a fork has the objects but not the thread.
        self.__init__()

    def end(self) -> None:
        """Have the next call start another loop: the one of this thread ends."""
        with self.lock:
            if self.thread is threading.current_thread():
                self.portal = None

    @contextmanager
    def ending(self) -> Generator[None]:
        """Notice an error of the block that ends the loop, before the block's caller does and may call again."""
        try:
            yield
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException:  # such as SystemExit
            self.end()
            raise


_LOOP: Final = _Loop()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LOOP.forget)


def portal() -> BlockingPortal:
    with _LOOP.lock:
        if _LOOP.portal is None:
            _LOOP.portal, _LOOP.thread = _start()
        return _LOOP.portal


@contextmanager
def collecting_seldom() -> Generator[None]:
    """Have Python look for cycles of objects less often in the block, as it does in calls of :func:`run`."""
    with _LOOP.lock:
        often, *others = usual = gc.get_threshold()
        seldom = (max(_COLLECT_EVERY, often) if often else 0, *others)  # 0: it never looks
        gc.set_threshold(*seldom)
    try:
        yield
    finally:
        with _LOOP.lock:
            # Other code that has set it meanwhile, such as a user's function or a block around, keeps what it set.
            if gc.get_threshold() == seldom:
                gc.set_threshold(*usual)


def _start() -> tuple[BlockingPortal, threading.Thread]:
    # Not anyio's start_blocking_portal: its result must be closed, and closing it in the child of a fork waits for a
    # thread that the child does not have.
    started: Future[BlockingPortal] = Future()

    async def serve() -> None:
        try:
            async with BlockingPortal() as portal:
                started.set_result(portal)
                await portal.sleep_until_stopped()
        finally:
            _LOOP.end()

    thread = threading.Thread(target=anyio.run, args=(serve,), name="sbnotebook", daemon=True)
    thread.start()
    return started.result(), thread


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


class _Caller:
    """The thread that waits in :func:`run`: it makes the calls of the work that block, or that warn the user."""

    def __init__(self) -> None:
        self.context = copy_context()
        self.waits = True
        self.notes: list[Callable[[BaseException], None]] = []
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()

    def wait_for(self, future: Future[T]) -> T:
        future.add_done_callback(lambda _: self._calls.put(None))
        try:
            while (call := self._calls.get()) is not None:
                call()
        finally:
            self.waits = False
        return future.result()

    async def make(self, call: Callable[[], T]) -> T:
        done: Future[T] = Future()
        self._calls.put(partial(_make, done, call))
        return await asyncio.wrap_future(done)


_CALLER: Final[ContextVar[_Caller | None]] = ContextVar("_CALLER", default=None)


def _make(done: Future[T], call: Callable[[], T]) -> None:
    if done.set_running_or_notify_cancel():
        try:
            done.set_result(call())
        except Exception as error:  # noqa: BLE001 (the work raises it again)
            done.set_exception(error)


def is_synchronous() -> bool:
    """Return whether a thread waits in :func:`run` for this work."""
    caller = _CALLER.get()
    return caller is not None and caller.waits


def if_interrupted(note: Callable[[BaseException], None]) -> None:
    """Let a function add to the KeyboardInterrupt that ends this work what the user needs of it."""
    if (caller := _CALLER.get()) is not None:
        caller.notes.append(note)


async def blocking(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that blocks, such as one of the user: on the thread that waits in :func:`run`, or in a worker."""
    caller, call = _CALLER.get(), partial(function, *args, **kwargs)
    if caller is not None and caller.waits:
        return await caller.make(call)
    return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)


async def warn(said: str) -> None:
    """Warn the user, at the line of their code that calls sbnotebook."""
    await blocking(_warn, said) if is_synchronous() else _warn(said)


def _warn(said: str) -> None:
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        level, frame = level + 1, frame.f_back
    warnings.warn(said, stacklevel=level)


def in_background(function: Callable[[], Awaitable[T]]) -> asyncio.Task[T]:
    """Start work on this loop that does not end with the call that starts it."""
    caller = _CALLER.get()
    context = copy_context() if caller is None else caller.context.copy()
    context.run(_CALLER.set, None)  # which does not wait until the end
    task = asyncio.get_running_loop().create_task(_only_frames_of_the_user(function), context=context)
    _BACKGROUND.add(task)
    task.add_done_callback(_BACKGROUND.discard)
    # asyncio logs an error that is not read; the caller that waits gets it.
    task.add_done_callback(lambda ended: None if ended.cancelled() else ended.exception())
    return task


_BACKGROUND: Final[set[asyncio.Task[Any]]] = set()
"""Tasks that no one else may refer to."""


async def _only_frames_of_the_user(function: Callable[[], Awaitable[T]]) -> T:
    with only_frames_of_the_user():
        return await function()


def in_turn(items: AsyncIterator[T]) -> Iterator[T]:
    """Yield the items of an asynchronous iterator, which runs on the background loop."""
    end: Any = object()
    while (item := run(anext, items, end)) is not end:
        yield item


def on_loop(function: Callable[[], T]) -> T:
    """Call a function on the background loop, which alone may touch what it touches."""
    return portal().call(function)


class Work(Generic[T]):
    def __init__(
        self,
        function: Callable[..., Awaitable[T]],
        *args: object,
        told: Callable[[Iterable[Outcome]], object] | None = None,
    ) -> None:
        self._function = function
        self._args = args
        self.watch = Watch(told)
        self._scope: anyio.CancelScope | None = None
        self._ended = threading.Event()
        self._is_stopped = False

    def start(self) -> Future[T]:
        """Start it on the background loop.

        Separate from making it, so that an interrupt that comes meanwhile has something to cancel.
        """
        return portal().start_task_soon(self.until_the_end)

    async def until_the_end(self) -> T:
        scope = anyio.CancelScope()
        try:
            with only_frames_of_the_user(), _LOOP.ending(), collecting_seldom(), self.watch, scope as self._scope:
                if self._is_stopped:
                    self._scope.cancel()
                return await self._function(*self._args)
            raise InterruptedError("It was interrupted.")
        finally:
            self._ended.set()

    def cancel(self) -> None:
        """Cancel it from another thread; :meth:`wait` until it has released its messages."""
        on_loop(self.stop)

    def stop(self) -> None:
        self._is_stopped = True
        if self._scope is None:
            self._ended.set()
        else:
            self._scope.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        return self._ended.wait(timeout)


def run(function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a coroutine function on the background loop and wait for it.

    Interrupting (Ctrl-C, or the notebook's stop button) cancels it, waits until it has cleaned up, and raises
    KeyboardInterrupt. Its attribute ``report`` has the outcomes of messages sent or settled so far, and a note
    summarises them: see :mod:`sbnotebook.settlement.interrupts`. Other exceptions that end work also have a report when
    anything was sent or settled.
    """
    work, caller = Work(partial(function, *args, **kwargs)), _Caller()
    token = _CALLER.set(caller)
    try:
        return caller.wait_for(work.start())
    except KeyboardInterrupt as interrupt:
        try:
            work.cancel()
            work.wait(_CLEAN_UP)
        finally:  # also after a second interrupt
            for note in caller.notes:
                note(interrupt)
            report = on_loop(lambda: work.watch.report)
            if "report" not in interrupt.__dict__:  # a call of this thread has its own
                interrupt.__dict__["report"] = report
                if report:
                    interrupt.add_note(
                        f"Until then: {report}. Unconfirmed actions may have happened, skipped ones did not; "
                        "the exception's attribute report has an outcome for each."
                    )
        raise
    except Exception as error:
        if report := on_loop(lambda: work.watch.report):
            error.__dict__.setdefault("report", report)
        raise
    finally:
        _CALLER.reset(token)


@contextmanager
def progress_bar(what: str, total: int | None, *, shown: bool = True) -> Generator[Progress | None]:
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


# ---------------------------------------------------------------- batches that stay open


class Keeper:
    """A task that holds a batch open, for callers that open and close it in different tasks."""

    def __init__(self, batch: LockedBatch) -> None:
        self._batch = batch
        self.loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self.loop.create_future()
        self._close = asyncio.Event()
        self._process = os.getpid()
        self._task = in_background(self._hold)

    @classmethod
    async def opened(cls, batch: LockedBatch) -> Self:
        keeper = cls(batch)
        try:
            await asyncio.shield(keeper._opened)
        except BaseException:  # also an interrupt: the batch must not stay open unseen
            keeper._close.set()
            raise
        return keeper

    async def close(self, within: float | None = None) -> None:
        self._close.set()
        async with asyncio.timeout(within):
            await asyncio.shield(self._task)

    def abandon(self) -> None:
        """Close a batch that has no references any more, and warn. Any thread may call this; it does not wait."""
        if os.getpid() != self._process:  # the child of a fork: the batch is the parent's
            return
        with suppress(RuntimeError):  # the loop has ended, and the batch with it
            self.loop.call_soon_threadsafe(self._close.set)
        warnings.warn(
            f"A batch of {self._batch.address} was forgotten while it was open: its {len(self._batch.messages):,} "
            "messages are released. Close it, or lock messages in a with statement.",
            ResourceWarning,
            stacklevel=2,
        )

    async def _hold(self) -> None:
        try:
            async with self._batch:
                if not self._opened.done():
                    self._opened.set_result(None)
                await self._close.wait()
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)
                return
            raise


# ---------------------------------------------------------------- unread reports

R = TypeVar("R", bound=Report)

_MOST: Final = 100
"""Reports of which is known whether the user looked at them; a program may have any number."""
_unread: Final[list[tuple[Report.Look, str]]] = []
_shells: Final[WeakSet[Any]] = WeakSet()
"""Those that warn after each cell."""


def watched(report: R) -> R:
    """Return a report, and let the end of the cell warn of its failures if the user has not looked at it by then.

    In a script, the end of the program warns.
    """
    if not report.ok:
        said = str(report)
        _unread.append((report.watch(), said))
        del _unread[:-_MOST]
        if "IPython" in sys.modules:  # a script does not need the time that the import takes
            from IPython.core.getipython import get_ipython

            warn_after_cells(get_ipython())
    return report


def warn_after_cells(shell: Any) -> None:
    if shell is not None and shell not in _shells:
        _shells.add(shell)
        shell.events.register("post_run_cell", warn_of_unread)


def warn_of_unread(_result: object = None) -> None:
    """Warn of the reports that were not looked at until now, once."""
    left, _unread[:] = [said for look, said in _unread if not look.is_done], []
    for said in left:
        # Not by warn: it shows the same sentence at the same place only once.
        warnings.warn_explicit(f"{said}. report.failures has the others.", UserWarning, "sbnotebook", 1)


atexit.register(warn_of_unread)
