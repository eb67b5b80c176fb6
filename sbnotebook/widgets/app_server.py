"""The triage panel as an app with a page, served by Voilà: on this machine, to anyone with the tokenized URL.

Voilà asks for no password of its own, and other users of the machine reach its port, so there is a token in the
address. The kernels listen on sockets in a folder of the user's own: over TCP, a kernel sends what it shows to each
process that connects. A message that smuggles a script into the page gains nothing by it: the page may reach no other
host.
"""

from __future__ import annotations

import atexit
import html
import json
import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
import webbrowser
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from nbformat import v4
from tornado.web import HTTPError
from traitlets import List
from traitlets.config import Config
from voila.app import Voila
from voila.tornado.kernel_websocket_handler import VoilaKernelWebsocketHandler

from sbnotebook.client.namespace import Namespace
from sbnotebook.client.targets import resolve
from sbnotebook.widgets.triage import Triage

VARIABLE: Final = "SBNOTEBOOK_TRIAGE"
"""The environment variable that tells a kernel what to show: the notebook and the list of processes say nothing."""
_CLEAN_UP: Final = 15.0
"""Seconds for a plan in progress to release its messages."""


@dataclass(frozen=True, slots=True)
class TriageRequest:
    entity: str
    target: str | None = None
    write: bool | None = None
    max_messages: int | None = None
    folder: str = "."

    def namespace(self) -> Namespace:
        found = resolve(self.target)
        if self.write is not None:
            found.connection.read_only = not self.write
        return Namespace(found)

    def keep(self) -> None:
        """Write it into the environment, for the kernels that this process starts."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def kept(cls) -> Self:
        return cls(**json.loads(os.environ[VARIABLE]))


def show() -> Triage:
    """Return the panel of the page. What it holds is given back when the kernel ends."""
    wanted = TriageRequest.kept()
    os.chdir(wanted.folder)
    namespace = wanted.namespace()
    # The user of a read-only page may differ from the user who started it.
    panel = Triage(namespace, wanted.entity, max_messages=wanted.max_messages, is_editing=not namespace.read_only)
    atexit.register(_leave, panel, namespace)
    return panel


def _leave(panel: Triage, namespace: Namespace) -> None:
    panel.halt()
    panel.actions.cancel()
    panel.actions.wait(_CLEAN_UP)
    namespace.close()


_HOST: Final = "127.0.0.1"
_HAS_SOCKET_FILES: Final = sys.platform != "win32"
_PROTOCOL: Final = "v1.kernel.websocket.jupyter.org"
_TEMPLATE: Final = """\
{% extends "voila/templates/lab/index.html.j2" %}
{% block notebook_css %}
{{ super() }}
<meta name="color-scheme" content="light dark">
<link rel="stylesheet" media="(prefers-color-scheme: dark)" href="{{ resources.include_url("static/theme-dark.css") }}">
{% endblock %}
"""
_OPEN_TO_OTHERS: Final = (
    "On Windows, the page's kernel listens on TCP: other users of this machine can read what the page shows. "
    "Use it only where you are the only user."
)
_POLICY: Final = {
    "default-src": "'self'",
    # Voilà's page and ipywidgets need it so; a widget's own script is a blob.
    "script-src": "'self' 'unsafe-inline' 'unsafe-eval' blob:",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "connect-src": "'self' data: blob: ws://{host}:{port}",
    "form-action": "'self'",
    "base-uri": "'self'",
    "frame-ancestors": "'none'",
}


class _OwnPython(KernelSpecManager):
    """Knows only the Python that runs the server, and no other installed kernel."""

    kernel_dirs: Any = List()

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return the only kernel, without its warnings on the terminal."""
        spec = super().get_kernel_spec(kernel_name)
        # Modules come from no current folder: neither when the kernel starts, nor when it goes to that of the exports.
        spec.argv = [
            spec.argv[0],
            "-P",
            *spec.argv[1:],
            "--IPKernelApp.log_level=ERROR",
            "--IPKernelApp.ignore_cwd=True",
        ]
        return spec


_CONFIG: Final = {
    # Seconds until a kernel that is giving back what it holds is killed.
    "KernelManager": {"shutdown_wait_time": 20.0, "transport": "ipc" if _HAS_SOCKET_FILES else "tcp"},
    # Seconds after which a kernel ends whose page is closed and that has nothing more to do.
    "MappingKernelManager": {"cull_idle_timeout": 300, "cull_interval": 60},
    "VoilaConfiguration": {
        "allow_template_override": "NO",
        "file_allowlist": [],
        "kernel_spec_manager_class": _OwnPython,
        "extension_allowlist": [
            "@jupyter-widgets/jupyterlab-manager",
            "@voila-dashboards/widgets-manager8",
            "anywidget",
        ],
    },
}


class _Channels(VoilaKernelWebsocketHandler):
    """The page's way to its kernel, for the protocol alone that Voilà reads.

    Of a message with buffers in the older protocol, Voilà takes the first bytes for a number of parts, and makes a list
    of as many, for hours and without a limit.
    """

    async def get(self, kernel_id: str) -> None:
        if _PROTOCOL not in self.request.headers.get("Sec-WebSocket-Protocol", ""):
            raise HTTPError(HTTPStatus.BAD_REQUEST, reason=f"Ask for the protocol {_PROTOCOL}.")
        await super().get(kernel_id)


class _App(Voila):
    is_opened: bool = True
    home: Path

    def setup_template_dirs(self) -> None:
        """Let the page follow the browser to a dark theme: Voilà's own is light or dark for all."""
        super().setup_template_dirs()
        own = self.home / "templates"
        own.mkdir()
        own.joinpath("index.html.j2").write_text(_TEMPLATE)
        self.template_paths = [str(own), *self.template_paths]

    def init_handlers(self) -> Any:
        own = {VoilaKernelWebsocketHandler: _Channels}
        handlers: Any = super().init_handlers()
        return [(path, own.get(handler, handler), *options) for path, handler, *options in handlers]

    def launch_browser(self) -> None:
        """Tell the address, and open it: Voilà's own way says nothing of the token."""
        self.app.settings["headers"] = {
            "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in _POLICY.items()).format(
                host=_HOST, port=self.port
            ),
            "Referrer-Policy": "no-referrer",
        }
        address = f"http://{_HOST}:{self.port}/?token={self.token}"
        print(f"The triage is at {address}\nCtrl-C ends it, and gives back what it holds.", flush=True)  # noqa: T201
        if not _HAS_SOCKET_FILES:
            print(_OPEN_TO_OTHERS, file=sys.stderr)  # noqa: T201
        if self.is_opened:
            # By a file that is the user's own: the command line of a browser is visible to all users of the machine.
            file = self.home / "open.html"
            file.write_text(f'<meta http-equiv="refresh" content="0; url={html.escape(address)}">')
            webbrowser.open(file.as_uri())


def serve(wanted: TriageRequest, *, port: int = 0, is_opened: bool = True) -> None:
    with wanted.namespace() as namespace:  # report errors here, and not in the page
        namespace.entity(wanted.entity).peek(1, show_progress=False)
    wanted.keep()
    logging.getLogger("tornado").setLevel(logging.ERROR)
    # Of the name of a socket file, macOS takes 103 bytes at most (``sun_path`` in its ``sys/un.h``): other folders for
    # temporary files have longer names. Only its owner can open the new folder.
    folder = "/tmp" if _HAS_SOCKET_FILES else None  # noqa: S108
    with tempfile.TemporaryDirectory(prefix="sbnotebook-triage-", dir=folder) as home:
        notebook = Path(home, "pages", "triage.ipynb")
        notebook.parent.mkdir()
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        about = {"kernelspec": kernel, "title": f"Triage of {wanted.entity}"}
        cell = v4.new_code_cell("from sbnotebook.widgets.app_server import show\nshow()")
        notebook.write_text(v4.writes(v4.new_notebook(cells=[cell], metadata=about)))
        app = _App(
            config=Config(_CONFIG),
            config_file_paths=[],
            connection_dir_root=home,
            ip=_HOST,
            log_level=logging.ERROR,
            notebook_path=str(notebook),
            open_browser=True,
            port=port or _free_port(),
            port_retries=0 if port else 10,
            token=secrets.token_urlsafe(32),
            # A page whose name leads to this machine has another name.
            tornado_settings={"allow_remote_access": False},
        )
        app.home, app.is_opened = Path(home), is_opened
        app.initialize([])
        if hasattr(signal, "SIGHUP"):  # the terminal was closed
            signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))
        app.start()


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as probe:
        return probe.getsockname()[1]
