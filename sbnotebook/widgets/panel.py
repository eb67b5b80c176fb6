"""The base of all panels: it draws their blocks, answers clicks, works in the background, and shows them as text.

A panel keeps its state as it likes and makes its blocks from it. After each click and each change of a field it is
drawn again; work in the background says ``redraw`` when it has changed something. ``blocks`` takes no lock, so that
any thread may draw.

What a callback prints or raises appears in no cell, and all callbacks share one thread: so callbacks only start work
here, and the work says how it ended.

What the browser sends to a panel goes to a subshell of the kernel. A kernel handles the messages of one shell in their
order, so a click would wait for the cell that runs. A subshell is one more shell of the same kernel, with a thread of
its own: https://jupyter.org/enhancement-proposals/91-kernel-subshells.
Which shell gets a comm's messages depends on the front end, and in ipykernel 7.4 on the shell that last published on
the comm: with widgets that a cell made, that is the main one. So sbnotebook asks the kernel for one subshell, with the
public ``create_subshell_request``, and sends the messages of all its widgets there, in the order of the clicks.
Until the kernel has made it, they go where the front end sends them.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import uuid
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import accumulate
from threading import Event
from time import monotonic, sleep
from typing import Any, Final

import ipywidgets as widgets
from IPython.display import DisplayHandle, display

from sbnotebook.errors import SbNotebookError
from sbnotebook.model.connection_strings import scrub
from sbnotebook.settlement import explained
from sbnotebook.widgets.blocks import Block, Text, answer
from sbnotebook.widgets.renderers.browser import BrowserView, is_in_marimo, marimo
from sbnotebook.widgets.renderers.plain import PlainView, close_all
from sbnotebook.widgets.renderers.words import html_of, text_of

_ROUTE: Final = "_reply_subshell_for"
"""The attribute of a comm that ipykernel reads for the subshell of a message."""
_TIMEOUT: Final = 10.0
"""Seconds for the kernel's control thread, which also answers while a cell runs."""


class Callbacks:
    """Functions to call, each until it is taken away again. One that fails keeps no other from being called."""

    def __init__(self, failed: Callable[[str], object]) -> None:
        self._failed = failed
        self._functions: list[Callable[..., object]] = []

    def __call__(self, function: Callable[..., object]) -> Callable[[], None]:
        """Call a function from now on, until the function that is returned is called."""
        self._functions.append(function)
        return partial(self._functions.remove, function)

    def tell(self, *details: object) -> None:
        for function in tuple(self._functions):
            try:
                function(*details)
            except Exception as error:  # noqa: BLE001 (it would be seen nowhere else)
                self._failed(sentence(error))


def start(
    work: Callable[[], object], *, failed: Callable[[str], object], after: Callable[[], object] = lambda: None
) -> threading.Thread:
    """Do work in a thread of its own, and something after it, in any case."""

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 (it would be seen nowhere else)
            failed(sentence(error))
        after()

    # The threads of marimo know the page to which they belong, and so may change widgets.
    kind = threading.Thread if marimo() is None else marimo().Thread
    thread = kind(target=run, name="sbnotebook panel", daemon=True)
    thread.start()
    return thread


def sentence(error: BaseException) -> str:
    """Return what went wrong, in one sentence without secrets."""
    if isinstance(error, SbNotebookError):
        return scrub(str(error))
    return f"{type(error).__name__}: {explained(error)}" if isinstance(error, Exception) else type(error).__name__


def answer_at_once(widget: widgets.Widget) -> None:
    """Have the kernel answer a widget also while a cell runs.

    Without a kernel, or in one without subshells, this does nothing: see :func:`must_wait`.
    """
    if _kernel() is not None and hasattr(widget.comm, _ROUTE):
        subshell = _subshell()
        setattr(widget.comm, _ROUTE, lambda _data, default: (subshell.done() and subshell.result()) or default)


@cache
def must_wait() -> bool:
    """Tell whether what a user clicks waits for the cell that runs.

    That is so in kernels without subshells, such as ipykernel 6. Of ipykernel 7.0 to 7.3 it is said, too: there it
    depends on the front end.
    """
    return _kernel() is not None and _subshell().result() is None


def _kernel() -> Any:
    kernelbase = sys.modules.get("ipykernel.kernelbase")
    return kernelbase.Kernel.instance() if kernelbase and kernelbase.Kernel.initialized() else None


@cache
def _subshell() -> Future[str | None]:
    """Ask the kernel for a subshell, in a thread of its own; the result is None where it has none."""
    return ThreadPoolExecutor(1).submit(_create_subshell)


def _create_subshell() -> str | None:
    from ipykernel.comm.comm import BaseComm
    from ipykernel.connect import get_connection_file
    from jupyter_client.blocking.client import BlockingKernelClient

    if not hasattr(BaseComm, _ROUTE) or "kernel subshells" not in _kernel().kernel_info.get("supported_features", ()):
        return None
    with suppress(Exception):  # an embedded kernel may have no connection file: its panels wait, and say so
        client = BlockingKernelClient(connection_file=get_connection_file())
        client.load_connection_file()
        try:
            client.control_channel.send(client.session.msg("create_subshell_request", {}))
            return client.control_channel.get_msg(timeout=_TIMEOUT)["content"].get("subshell_id")
        finally:
            client.stop_channels()
    return None


_PLAIN_AFTER: Final = 15.0
"""Seconds of an idle kernel, in which nothing is seen where the front end loads no scripts of ours."""
_TICK: Final = 0.5
"""Seconds."""
_PLAIN: Final = Text("This is the plain panel: the browser did not load the other one.", "quiet")


class Panel:
    """A panel that a notebook shows in its browser and a terminal as text.

    Its buttons and fields are answered while a cell runs, where the kernel has subshells. ``SBNOTEBOOK_WIDGETS=plain``
    in the environment uses plain ipywidgets from the start; they also come where a browser does not say that it has
    loaded the panel.
    """

    def __init__(self, *parts: Panel) -> None:
        self.outer: Panel | None = None
        self.on_change: Callable[[], object] = lambda: None
        """Called when the user has written something into a panel that is a part of a form."""
        self._parts = parts
        for part in parts:
            part.outer = self
        self._front: PanelWidget | None = None
        self._fault = ""
        self.lock = threading.RLock()
        self.is_looking = False
        self._stop = Event()

    def blocks(self) -> Sequence[Block]:
        """Return what the panel is now. It takes no lock, and changes nothing."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw the changes; any thread may."""
        if self._front is not None:
            self._front.draw()
        if self.outer is not None:
            self.outer.redraw()

    # ------------------------------------------------------------ work

    def in_background(
        self, work: Callable[[], object], failed: Callable[[str], object] | None = None
    ) -> threading.Thread:
        """Do work in a thread of its own, and draw what it has changed; faults are shown below the panel."""
        return start(work, failed=failed or self.fail, after=self.redraw)

    def fail(self, sentence: str) -> None:
        """Show a fault below the panel, until the next click."""
        if self.outer is None:
            self._fault = sentence
        else:
            self.outer.fail(sentence)

    def look(self, work: Callable[[Event], object]) -> None:
        """Begin a look: work of which there is one at a time. A new one ends the one before.

        The event is set when the look is to end, and tells :meth:`showing` which look it is.
        """

        def run() -> None:
            work(stop)
            end("")

        def end(problem: str) -> None:
            with self.lock:
                if stop is self._stop:
                    self.is_looking = False
                    self.ended(problem)

        with self.lock:
            self.abandon()
            stop, self.is_looking = self._stop, True
            self.in_background(run, end)

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

    def halt(self) -> None:
        """Look no further; the panel keeps all that it has found."""
        self._stop.set()

    def abandon(self) -> None:
        """Begin no more with what the look in progress finds."""
        with self.lock:
            self.halt()
            self._stop, self.is_looking = Event(), False

    def wait(self, seconds: float = 60.0) -> bool:
        """Wait until looking has ended, and return whether it has."""
        deadline = monotonic() + seconds
        while self.is_looking and monotonic() < deadline:
            sleep(0.01)
        return not self.is_looking

    # ------------------------------------------------------------ in a page

    def act(self, block: Block, value: object = None) -> None:
        """Do what a click on a button means, or take the value of a field, and draw the panel again."""
        self._fault = ""
        try:
            answer(block, value)
        except Exception as error:  # noqa: BLE001 (it would be seen nowhere else)
            self._fault = sentence(error)
        self.redraw()

    def seen(self, page: str, how: str) -> None:
        """Note that the panel is ``here``, ``still`` here or ``gone`` in a page; its parts hear it, too."""
        for part in self._parts:
            part.seen(page, how)

    @property
    def shown_blocks(self) -> list[Block]:
        return [*self.blocks(), Text(self._fault, "error")]

    @property
    def widget(self) -> PanelWidget:
        """Return what a front end with widgets shows; to put the panel into other widgets."""
        if self._front is None:
            self._front = PanelWidget(self)
            self._front.begin()
        return self._front

    @property
    def view(self) -> BrowserView:
        """Return the anywidget that draws the panel, for ``mo.ui.anywidget`` in marimo."""
        return self.widget.view

    @property
    def is_plain(self) -> bool:
        return self._front is not None and self._front.plain is not None

    def use_plain(self, plain: bool = True) -> None:
        """Show plain ipywidgets, or the view in the browser."""
        self.widget.use_plain(plain)

    def close(self) -> None:
        """Remove it from the screen, and stop what it looks for and the plan in progress."""
        self.abandon()
        front, self._front = self._front, None
        if front is not None:
            front.close()
        for part in self._parts:
            part.close()

    def to_text(self) -> str:
        """Return the panel as text, when it has loaded; its ``repr`` does not wait."""
        self.wait()
        return repr(self)

    def __repr__(self) -> str:
        return text_of(self.shown_blocks)

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, Any]:
        # Where there is a kernel, there may be a browser, and the text stands for the panel in a saved notebook only.
        if "ipykernel" not in sys.modules:
            return {"text/plain": self.to_text()}
        drawn: Any = self.widget._repr_mimebundle_(**kwargs)  # pyright: ignore[reportPrivateUsage]
        return drawn | {"text/plain": repr(self)}

    def _display_(self) -> object:
        # marimo asks for it: https://docs.marimo.io/guides/integrating_with_marimo/displaying_objects/
        return marimo().ui.anywidget(self.view)


class PanelWidget(widgets.VBox):
    """A panel in a page: the view of ours, or plain ipywidgets."""

    def __init__(self, panel: Panel) -> None:
        super().__init__(_dom_classes=("sbn-shown",), layout={"min_width": "0"})
        self.panel = panel
        self._drawing = threading.Lock()
        self._switching = threading.RLock()
        self._is_due = False
        self.plain: PlainView | None = None
        self._is_always_plain = os.environ.get("SBNOTEBOOK_WIDGETS") == "plain"
        self.view = BrowserView(panel.shown_blocks, panel.act, panel.seen, self._loaded)

    def begin(self) -> None:
        self.panel.use_plain(self._is_always_plain)
        answer_at_once(self.view)
        if not self._is_always_plain and not is_in_marimo():
            call_unless(self.view.is_ready, _PLAIN_AFTER, self.panel.use_plain)

    def use_plain(self, plain: bool) -> None:
        # The page answers on a thread of its own, perhaps while a cell shows the plain view for the first time.
        with self._switching:
            before, self.plain = self.plain, (self.plain or PlainView(self.panel.act)) if plain else None
            self.draw()
            self.children = [self.plain or self.view]
            if before not in (None, self.plain):
                close_all(before)

    def draw(self) -> None:
        """Draw the changes. While another thread draws, it does so once more."""
        self._is_due = True
        while self._is_due and self._drawing.acquire(blocking=False):
            try:
                self._is_due = False
                blocks = self.panel.shown_blocks
                self.view.draw(blocks)
                if plain := self.plain:
                    plain.draw([_PLAIN, *blocks])
                    for part in plain.parts.values():
                        answer_at_once(part)
            finally:
                self._drawing.release()

    def _loaded(self) -> None:
        if self.plain is None:
            self.send_state("children")  # a page that was being loaded may have missed the change
        elif not self._is_always_plain:
            self.panel.use_plain(False)

    def close(self) -> None:
        self.view.is_ready.set()
        for part in filter(None, (self.plain, self.view, self.layout)):
            close_all(part)
        super().close()


def call_unless(answered: threading.Event, seconds: float, over: Callable[[], object]) -> None:
    """Call a function after a time in which an answer could have been taken; without a loop, never."""

    def tick(left: int, due: float) -> None:
        loop = asyncio.get_running_loop()
        left -= loop.time() < due  # else the loop was busy
        if not answered.is_set() and left > 0:
            loop.call_later(_TICK, tick, left, loop.time() + 2 * _TICK)
        elif not answered.is_set():
            over()

    with suppress(RuntimeError):
        tick(round(seconds / _TICK), 0.0)


_MAX_CHARACTERS: Final = 300_000
"""Of the whole record: the notebook has to stay small enough for GitHub to show it."""
_CUT: Final = "The record is cut here. The journal and the archive have the rest: see %sb_journal."
_NO_KERNEL: Final = (
    "This panel needs a running kernel: run the cell to open it. If it had loaded its messages, its record is below."
)


class Record:
    """The record of a panel: static HTML in the saved notebook, for readers without a kernel.

    A front end that has no kernel cannot draw widgets. GitHub, nbconvert and a reopened notebook show the HTML of an
    output instead. The record is an output of its own below the panel, because an update of the panel's own output
    would make the browser draw the panel again. A style in it hides it while the panel above it is alive.
    It is a part of ``panel`` for front ends whose pages keep widgets and no later outputs, such as marimo.
    """

    def __init__(self, panel: Panel | None = None) -> None:
        self._id = uuid.uuid4().hex
        self._html = ""
        self._output: DisplayHandle | None = None
        self._panel = panel
        self._lock = threading.Lock()

    def as_html(self) -> str:
        """Return the record. It loads nothing, runs nothing and has no text that is not escaped."""
        # The grid of a living panel has its rows from the kernel. The copy of a panel in an exported page has none.
        is_alive = f".sbn-owner-{self._id}:not(.jupyter-widgets-disconnected) .sbn-alive"
        style = f"<style>body:has({is_alive}) .sbn-record-{self._id} {{ display: none }}</style>"
        return f'<div class="sbn-record-{self._id} mathjax_ignore tex2jax_ignore">{style}{self._html}</div>'

    def display_below(self, panel: Panel) -> None:
        if "ipykernel" not in sys.modules:
            raise NotImplementedError
        panel.widget.add_class(f"sbn-owner-{self._id}")
        bundle: Any = panel._repr_mimebundle_()  # pyright: ignore[reportPrivateUsage]
        display(bundle | {"text/plain": _NO_KERNEL}, raw=True)
        with self._lock:
            self._output = display(self._bundle(), raw=True, display_id=f"sbn-record-{self._id}")

    def show(self, blocks: Sequence[Block]) -> None:
        parts = [html_of([block]) for block in blocks]
        fitting = sum(size <= _MAX_CHARACTERS for size in accumulate(map(len, parts)))
        shown = "".join(parts[:fitting]) + (html_of([Text(_CUT)]) if fitting < len(parts) else "")
        with self._lock:
            is_new, self._html = shown != self._html, shown
            if is_new and self._panel is not None:
                self._panel.view.record = self.as_html()
            elif is_new and self._output is not None:
                self._output.update(self._bundle(), raw=True)

    def _bundle(self) -> dict[str, str]:
        return {"text/html": self.as_html(), "text/plain": "The record of the panel, as HTML"}
