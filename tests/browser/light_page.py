"""A notebook in this process: IPython runs its cells here, and a page of our own shows what they display.

The page has the models of the widgets and the interface of anywidget's hosts, https://anywidget.dev/en/afm/, as marimo
has. Widgets reach it over a websocket, by comms, as in Jupyter. It costs a tenth of a page of JupyterLab with its
kernel, and has all of a panel but what JupyterLab adds: see ``run`` in ``conftest.py``.
"""

from __future__ import annotations

import asyncio
import io
import json
import struct
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import comm
from comm.base_comm import BaseComm
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from ipywidgets.widgets import widget as widgets
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketClosedError, WebSocketHandler
from traitlets.config import Config

from sbnotebook.widgets.panel import PanelWidget

_untyped: Any = widgets
_instances: dict[str, Any] = _untyped._instances  # noqa: SLF001 (the widgets of this process)

_FILES: Final = {
    "/": ("text/html", lambda: Path(__file__).with_suffix(".html").read_text()),
}
_WIDGET: Final = "application/vnd.jupyter.widget-view+json"


class Kernel:
    """The widgets and outputs of a notebook, and the pages that show them.

    What a page sends is handled in one thread, in its order, as by the subshell of a kernel.
    """

    def __init__(self) -> None:
        self.address = ""
        self.errors: list[str] = []
        self.largest = 0
        self._loop = asyncio.new_event_loop()
        self._clicks = ThreadPoolExecutor(1, "clicks")
        self._comms: dict[str, BaseComm] = {}
        self._outputs: dict[str, dict[str, Any]] = {}
        self._pages: set[_Socket] = set()

    def make_comm(self, **options: Any) -> BaseComm:
        """Make the comm of a widget."""
        kernel = self

        class PageComm(BaseComm):
            def publish_msg(self, msg_type: str, data: Any = None, *_: Any, **named: Any) -> None:
                if msg_type == "comm_open":
                    kernel.send({"id": self.comm_id, "method": "open", "state": data["state"]})
                elif msg_type == "comm_msg" and data["method"] != "echo_update":  # of what the only page has set
                    kernel.send({"id": self.comm_id} | data, named.get("buffers") or ())

        made = PageComm(**options)
        self._comms[str(made.comm_id)] = made
        return made

    def show(self, data: dict[str, Any], number: str | None) -> None:
        """Show an output, in the place of an earlier one of its number."""
        output: dict[str, Any] = {"number": number or str(len(self._outputs))}
        if _WIDGET in data:
            output["widget"] = data[_WIDGET]["model_id"]
        else:
            output |= {"html": data.get("text/html"), "text": data.get("text/plain")}
        self._outputs[output["number"]] = output
        self.send({"method": "output", "output": output})

    def send(self, head: dict[str, Any], buffers: Any = ()) -> None:
        """Send something to all pages; any thread may."""
        frame = _frame(head, buffers)
        self.largest = max(self.largest, len(frame))
        self._loop.call_soon_threadsafe(self._write, frame)

    def opened(self, page: _Socket) -> None:
        """Tell a new page the widgets and the outputs."""
        self._pages.add(page)  # changes meanwhile follow
        for number in tuple(self._comms):
            widget = _instances.get(number)
            if widget is not None:
                page.push(_frame({"id": number, "method": "open", "state": widget.get_state()}))
        for output in tuple(self._outputs.values()):
            page.push(_frame({"method": "output", "output": output}))

    def hang_up(self) -> None:
        """Close all pages' connections."""
        for page in tuple(self._pages):
            self._loop.call_soon_threadsafe(page.close)

    def closed(self, page: _Socket) -> None:
        self._pages.discard(page)

    def receive(self, frame: bytes) -> None:
        """Hand a message of a page to its widget."""
        self._clicks.submit(self._handle, *_unframed(frame))

    @contextmanager
    def served(self) -> Generator[None]:
        """Serve the page until the end of the block, which closes the widgets."""
        thread = threading.Thread(target=self._serve, name="light page", daemon=True)
        listening = bind_sockets(0, "127.0.0.1")
        self.address = f"http://127.0.0.1:{listening[0].getsockname()[1]}"
        self._loop.call_soon(self._listen, listening)
        thread.start()
        try:
            yield
        finally:
            for widget in [each for each in map(_instances.get, self._comms) if isinstance(each, PanelWidget)]:
                widget.panel.close()
            self._clicks.shutdown()
            for widget in filter(None, map(_instances.get, self._comms)):
                widget.close()
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())

    async def _end(self) -> None:
        """End all messages to pages: a coroutine that never ran would be an error of the next test."""
        self._server.stop()
        await self._server.close_all_connections()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _listen(self, listening: Any) -> None:
        routes = [(path, _File, {"kind": kind, "read": read}) for path, (kind, read) in _FILES.items()]
        pages = Application([*routes, ("/comms", _Socket, {"kernel": self})], websocket_max_message_size=1 << 30)
        self._server = HTTPServer(pages)
        self._server.add_sockets(listening)

    def _write(self, frame: bytes) -> None:
        for page in tuple(self._pages):
            page.push(frame)

    def _handle(self, head: dict[str, Any], buffers: list[memoryview]) -> None:
        if not head["id"]:
            return self.send({"method": "heard"})
        try:
            self._comms[head["id"]].handle_msg({"content": {"data": head["data"]}, "buffers": buffers})
        except Exception as error:  # noqa: BLE001 (it would be seen nowhere else)
            self.errors.append(repr(error))


class _File(RequestHandler):
    def initialize(self, kind: str, read: Any) -> None:
        self.set_header("Content-Type", f"{kind}; charset=utf-8")
        self.read = read

    def get(self) -> None:
        untyped: Any = self
        untyped.write(self.read())


class _Socket(WebSocketHandler):
    def initialize(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def open(self, *_: str, **__: str) -> None:
        self.kernel.opened(self)

    def on_message(self, message: str | bytes) -> None:
        self.kernel.receive(cast("bytes", message))

    def on_close(self) -> None:
        self.kernel.closed(self)

    def push(self, frame: bytes) -> None:
        try:
            self.write_message(frame, binary=True)
        except WebSocketClosedError:
            self.kernel.closed(self)


def _frame(head: dict[str, Any], buffers: Any = ()) -> bytes:
    """Write a message; the page's ``opened`` reads it."""
    parts = [bytes(buffer) for buffer in buffers]
    text = json.dumps(head | {"lengths": [len(part) for part in parts]}).encode()
    return b"".join((struct.pack("<I", len(text)), text, *parts))


def _unframed(frame: bytes) -> tuple[dict[str, Any], list[memoryview]]:
    (length,) = struct.unpack_from("<I", frame)
    head, place, buffers = json.loads(frame[4 : 4 + length]), 4 + length, list[memoryview]()
    for size in head["lengths"]:
        buffers.append(memoryview(frame)[place : place + size])
        place += size
    return head, buffers


class _Hook(DisplayHook):
    """Shows the value of a cell as ``display`` does."""

    def write_output_prompt(self) -> None:
        """Write none."""

    def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
        hook: Any = self
        hook.shell.display_pub.publish(format_dict, md_dict)


class _Publisher(DisplayPublisher):
    show: Any = None

    def publish(self, data: Any, *_: Any, transient: dict[str, str] | None = None, **__: Any) -> None:
        self.show(data, transient.get("display_id") if transient else None)


class _Shell(InteractiveShell):
    """The shell of a notebook: magics show widgets in one with a kernel."""

    kernel = True
    displayhook_class: Any = _Hook
    display_pub_class: Any = _Publisher


class Cells:
    """Runs the cells of a notebook, and other code beside them.

    Args:
        kernel: shows what they display.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._shell: Any = _Shell.instance(config=Config({"HistoryManager": {"hist_file": ":memory:"}}))
        self._shell.display_pub.show = kernel.show

    @property
    def variables(self) -> dict[str, Any]:
        """What the cells have bound."""
        return self._shell.user_ns

    def run(self, code: str) -> None:
        """Run a cell, which must not fail."""
        self._shell.run_cell(code).raise_error()

    def evaluate(self, code: str) -> str:
        """Run code; gives what it prints."""
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(code, self._shell.user_ns)  # noqa: S102
        return printed.getvalue().strip()


@contextmanager
def light_notebook() -> Generator[tuple[Kernel, Cells]]:
    """Begin a notebook; its widgets are closed at the end."""
    import_module("ipykernel")  # panels are texts where it is not loaded
    kernel, before = Kernel(), comm.create_comm
    comm.create_comm = kernel.make_comm
    try:
        with kernel.served():
            yield kernel, Cells(kernel)
    finally:
        comm.create_comm = before
        _Shell.clear_instance()
