"""Share the assistant of a notebook with a process of the same user, over a socket that no other user can reach.

A client of MCP starts ``sbnotebook mcp --notebook``, which speaks MCP and hands each call to the kernel over a Unix
socket. It is in a folder that only its owner can open, so it needs no token, and nothing listens on the network. A
request and its answer are a line of JSON each.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import platformdirs

from sbnotebook.client.assistant import Assistant, in_words
from sbnotebook.errors import ConfigurationError, DecisionError

_SHARED: Final = ("tools", "call", "question", "confirm")
_MOST_REQUEST: Final = 1_000_000
_LONGEST_PATH: Final = 100
"""Bytes; the path of a Unix socket has 103 at most on macOS, and 107 on Linux."""


class Sharing:
    """Serves an assistant until it is closed. Clients reach the notebook that began to share last."""

    def __init__(self, assistant: Assistant) -> None:
        self.assistant, path = assistant, _path()
        for folder in (path.parent.parent, path.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)  # fails where another user owns it
        self._listener = socket.socket(socket.AF_UNIX)
        own = path.with_name(f"{os.getpid()}")
        own.unlink(missing_ok=True)
        self._listener.bind(str(own))
        self._listener.listen()
        own.replace(path)
        threading.Thread(target=self._serve, name="sbnotebook assistant", daemon=True).start()

    def close(self) -> None:
        """Stop sharing; calls that run end."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):  # closed
            while True:
                line, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def _answer(self, line: socket.socket) -> None:
        with suppress(OSError), line:  # the client may be killed
            try:
                method, *arguments = json.loads(line.makefile("rb").readline(_MOST_REQUEST))
                found = getattr(self.assistant, _SHARED[_SHARED.index(method)])
                answer = {"result": found(*arguments) if callable(found) else found}
            except Exception as error:  # noqa: BLE001 (the other process gets each)
                answer = {"error": in_words(error)}
            line.sendall(json.dumps(answer).encode() + b"\n")


class RemoteAssistant:
    """The assistant that a notebook shares, with the methods of :class:`Assistant`."""

    def __init__(self) -> None:
        self.tools: Sequence[str] = self._ask("tools")

    def call(self, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Run a tool, and return its result, and whether it failed."""
        text, failed = self._ask("call", tool, arguments)
        return text, failed

    def question(self, digest: str) -> str | None:
        """Return what to ask a person about a plan."""
        return self._ask("question", digest)

    def confirm(self, digest: str) -> str:
        """Note that a person has confirmed a plan."""
        return self._ask("confirm", digest)

    def _ask(self, *request: object) -> Any:
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(str(_path()))
                line.sendall(json.dumps(request).encode() + b"\n")
                answer = line.makefile("rb").readline()
        except OSError:
            raise ConfigurationError("No notebook shares its connection: run %sb_assistant in one.") from None
        if not answer:
            raise DecisionError("The notebook ended meanwhile: %sb_journal has the messages of a plan that ran.")
        found = json.loads(answer)
        if "error" in found:
            raise DecisionError(found["error"])
        return found["result"]


def _path() -> Path:
    path = platformdirs.user_data_path("sbnotebook") / "assistant" / "socket"
    if not hasattr(socket, "AF_UNIX"):
        raise ConfigurationError("On Windows a notebook cannot share its connection: use sbnotebook mcp TARGET.")
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise ConfigurationError(f"{path} is too long for a socket: set XDG_DATA_HOME to a shorter folder.")
    return path
