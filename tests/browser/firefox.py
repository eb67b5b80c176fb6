"""The system's Firefox for Playwright, which speaks WebDriver BiDi with it.

Playwright's own Firefox is a changed one. Playwright 1.65 can drive an unchanged one, but sends each new page the
command ``emulation.setMediaFeaturesOverride``, which Firefox 153 does not know, and gives up. So this program starts
Firefox as Playwright would, answers that command itself, and passes everything else on.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, sync_playwright
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application
from tornado.websocket import WebSocketHandler, websocket_connect

NAMES: Final = ("firefox-esr", "firefox")
LISTENING: Final = re.compile(rb"WebDriver BiDi listening on (ws://\S+)")
UNKNOWN: Final = "emulation.setMediaFeaturesOverride"
LARGEST: Final = 1 << 30  # bytes of a message, such as a screenshot


def executable() -> str | None:
    """Return the system's Firefox; None where it has none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def firefox() -> Generator[Browser]:
    """A Firefox without a window; where there is none, the test is skipped."""
    if executable() is None:
        pytest.skip(f"Nothing was tested in Firefox: install one of {', '.join(NAMES)}.")
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        launcher = Path(folder) / "firefox"
        launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$@"\n')
        launcher.chmod(0o755)
        browser = playwright.firefox.launch(channel="moz-firefox", executable_path=launcher)
        browser.new_context()  # for pages of JupyterLab, which share one: a page that comes first would own it
        yield browser
        browser.close()


class Between(WebSocketHandler):
    """A connection of Playwright, and one to Firefox for it."""

    address: str

    def initialize(self, address: str) -> None:
        self.address = address

    async def open(self, *_: str, **__: str) -> None:
        self.firefox = await websocket_connect(self.address, max_message_size=LARGEST)
        self.answers = asyncio.ensure_future(self.pass_back())

    async def pass_back(self) -> None:
        while (answer := await self.firefox.read_message()) is not None:
            await self.write_message(answer)
        self.close()

    async def on_message(self, message: str | bytes) -> None:
        command: dict[str, Any] = json.loads(message)
        if command["method"] == UNKNOWN:
            await self.write_message({"type": "success", "id": command["id"], "result": {}})
        else:
            await self.firefox.write_message(message)

    def on_close(self) -> None:
        self.firefox.close()


async def run(arguments: list[str]) -> int:
    """Start Firefox, and pass messages between it and Playwright until it ends."""
    process = await asyncio.create_subprocess_exec(executable() or NAMES[0], *arguments, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    async for line in process.stderr:
        found = LISTENING.search(line)
        if found is not None:
            routes = [("/session", Between, {"address": f"{found[1].decode()}/session"})]
            sockets = bind_sockets(0, "127.0.0.1")
            HTTPServer(Application(routes, websocket_max_message_size=LARGEST)).add_sockets(sockets)
            sys.stderr.write(f"WebDriver BiDi listening on ws://127.0.0.1:{sockets[0].getsockname()[1]}\n")
            sys.stderr.flush()
    return await process.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[1:])))
