"""Work beside the kernel's own thread: a panel never blocks a cell, and is answered while a cell runs.

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

import sys
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import ipywidgets as widgets

from sbnotebook.errors import SbNotebookError
from sbnotebook.model.secret_texts import scrub
from sbnotebook.settlement import explained
from sbnotebook.widgets.front_end import thread_class

if TYPE_CHECKING:
    import threading

_ROUTE: Final = "_reply_subshell_for"
"""The attribute of a comm that ipykernel reads for the subshell of a message."""
_FEATURE: Final = "kernel subshells"
_TIMEOUT: Final = 10.0
"""Seconds for the kernel's control thread, which also answers while a cell runs."""
_answered: Final[WeakSet[widgets.Widget]] = WeakSet()


class Callbacks:
    """Functions to call, each until it is taken away again. One that fails keeps no other from being called."""

    def __init__(self, failed: Callable[[str], object]) -> None:
        self._failed = failed
        self._functions: list[Callable[..., object]] = []

    def __call__(self, function: Callable[..., object]) -> Callable[[], None]:
        """Call a function from now on, until the function that is returned is called."""
        self._functions.append(function)

        def end() -> None:
            if function in self._functions:
                self._functions.remove(function)

        return end

    def tell(self, *details: object) -> None:
        for function in tuple(self._functions):
            try:
                function(*details)
            except Exception as error:  # noqa: BLE001 (it would be seen nowhere else)
                self._failed(sentence(error))


def start(work: Callable[[], object], *, failed: Callable[[str], object]) -> threading.Thread:
    """Do work in a thread of its own."""

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 (it would be seen nowhere else)
            failed(sentence(error))

    thread = thread_class()(target=run, name="sbnotebook panel", daemon=True)
    thread.start()
    return thread


def sentence(error: BaseException) -> str:
    """Return what went wrong, in one sentence without secrets."""
    if isinstance(error, SbNotebookError):
        return scrub(str(error))
    return f"{type(error).__name__}: {explained(error)}" if isinstance(error, Exception) else type(error).__name__


def answer_at_once(widget: widgets.Widget) -> None:
    """Have the kernel answer a widget, and all that is or comes into it, also while a cell runs.

    Without a kernel, or in one without subshells, this does nothing: see :func:`must_wait`.
    """
    if _kernel() is not None:
        _send_to(_subshell(), widget)


@cache
def must_wait() -> bool:
    """Tell whether what a user clicks waits for the cell that runs.

    That is so in kernels without subshells, such as ipykernel 6. Of ipykernel 7.0 to 7.3 it is said, too: there it
    depends on the front end.
    """
    return _kernel() is not None and _subshell().result() is None


def _send_to(subshell: Future[str | None], widget: widgets.Widget) -> None:
    if widget in _answered:
        return
    _answered.add(widget)
    if hasattr(widget.comm, _ROUTE):
        setattr(widget.comm, _ROUTE, lambda _data, default: (subshell.done() and subshell.result()) or default)
    if isinstance(widget, widgets.Box):

        def follow(change: Any) -> None:
            for child in change["new"]:
                _send_to(subshell, child)

        widget.observe(follow, "children")
        follow({"new": widget.children})


def _kernel() -> Any:
    kernelbase = sys.modules.get("ipykernel.kernelbase")
    return kernelbase.Kernel.instance() if kernelbase and kernelbase.Kernel.initialized() else None


@cache
def _subshell() -> Future[str | None]:
    """Ask the kernel for a subshell, in a thread of its own; the result is None where it has none."""
    found: Future[str | None] = Future()
    kernel = _kernel()
    if kernel is None or _FEATURE not in kernel.kernel_info.get("supported_features", ()):
        found.set_result(None)
    else:
        # An embedded kernel may have no connection file: its panels wait, and say so.
        start(lambda: found.set_result(_create_subshell()), failed=lambda _: found.set_result(None))
    return found


def _create_subshell() -> str | None:
    from ipykernel.comm.comm import BaseComm
    from ipykernel.connect import get_connection_file
    from jupyter_client.blocking.client import BlockingKernelClient

    if not hasattr(BaseComm, _ROUTE):
        return None
    client = BlockingKernelClient(connection_file=get_connection_file())
    client.load_connection_file()
    try:
        client.control_channel.send(client.session.msg("create_subshell_request", {}))
        return client.control_channel.get_msg(timeout=_TIMEOUT)["content"].get("subshell_id")
    finally:
        client.stop_channels()
