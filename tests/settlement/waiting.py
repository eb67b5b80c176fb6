"""Waiting where there is no event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

__all__ = ["append_to", "until"]

T = TypeVar("T")


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is so, for a minute at most."""
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110 (there is no event to wait for)
            await anyio.sleep(0.01)


async def append_to(results: list[T], act: Callable[[], Awaitable[T]]) -> None:
    """Keep the result of what a task group runs in the background."""
    results.append(await act())
