"""The event loop that an emulator runs in."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


def run_loop(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine as ``asyncio.run`` does, in uvloop's event loop where there is one.

    In uvloop an emulator needs less CPU time for each read and write. There is no uvloop for Windows.
    """
    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        return runner.run(main)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
