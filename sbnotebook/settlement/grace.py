"""Work that is cancelled and may still finish what it is in the middle of, for some seconds."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from anyio.abc import TaskGroup


class Grace:
    """Lets blocks of a piece of work continue for some seconds after the work was cancelled."""

    def __init__(self, on_cancel: Callable[[], object] | None = None) -> None:
        self._on_cancel = on_cancel
        self._periods: dict[anyio.CancelScope, float] = {}
        self._is_over = False

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[TaskGroup]:
        """Notice that the work of this block is cancelled; give the task group that it may start tasks in."""
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._notice)
            try:
                yield tasks
                self._on_cancel = None  # it has come to its end
            except Exception as error:  # noqa: BLE001 (raised again, and not in a group)
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    @contextmanager
    def period(self, seconds: float, at_most: float = math.inf) -> Generator[anyio.CancelScope]:
        """Run a block that continues for some seconds after a cancellation, which shows behind it, and then ends."""
        # One scope for both: a second one around each transfer takes as long as packing its messages.
        now = anyio.current_time()
        with anyio.CancelScope(
            deadline=now + min(at_most, seconds if self._is_over else math.inf), shield=True
        ) as scope:
            self._periods[scope] = seconds
            try:
                yield scope
            finally:
                del self._periods[scope]

    async def _notice(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self._is_over = True
            if self._on_cancel is not None:
                self._on_cancel()
            for scope, seconds in self._periods.items():
                scope.deadline = min(scope.deadline, anyio.current_time() + seconds)
