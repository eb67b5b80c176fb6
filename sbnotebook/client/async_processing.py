"""Consume an entity in the background."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from sbnotebook.analysis.shown import Shown, Table
from sbnotebook.client.coercions import duration
from sbnotebook.client.portal import in_background
from sbnotebook.client.unread import watched
from sbnotebook.model import Report
from sbnotebook.settlement import Policy, ProcessStatus
from sbnotebook.settlement import Processing as InnerProcessing

_COLUMNS = (
    "worker",
    "session_id",
    "since",
    "count",
    "last_sequence_number",
    "working_on",
    "working_since",
    "ended",
)


class AsyncProcessing(Shown):
    """A function that consumes an entity in the background. Made by ``await entity.start_processing(…)``.

    Shown as its workers, their messages and their progress. As a context manager it stops when the block ends.

    Args:
        processing: the run of the settlement library, not started yet.
    """

    def __init__(self, processing: InnerProcessing) -> None:
        self._processing = processing
        self._task = in_background(processing.run)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processing.stop()
        if error is None:
            await self.stop()

    @property
    def status(self) -> ProcessStatus:
        """Return the messages and sessions that its workers have now, and how the finished messages ended."""
        return self._processing.status

    @property
    def report(self) -> Report:
        """Return the outcomes that are known now."""
        return self._processing.report

    async def stop(self) -> Report:
        """Begin no more messages, wait for the functions that run, settle their messages, and release the rest.

        Returns:
            An outcome for each message.

        Raises:
            Exception: what ended the run before.
        """
        self._processing.stop()
        return watched(await asyncio.shield(self._task))

    async def wait(self, seconds: float | None = None) -> Report | None:
        """Wait until it has ended.

        Args:
            seconds: how long at most, None for no limit.

        Returns:
            An outcome for each message; None when it has not ended.

        Raises:
            Exception: what ended the run.
        """
        done, _ = await asyncio.wait({self._task}, timeout=seconds)
        return watched(self._task.result()) if done else None

    def _table(self, most: int) -> Table:  # noqa: ARG002 (all rows)
        status = self.status
        return _COLUMNS, [[getattr(lease, name) for name in _COLUMNS] for lease in status.leases], str(status)


def process_options(
    policy: Policy | None,
    max_in_flight: int,
    rate: float | None,
    max_messages: int | None,
    max_wait: float | str | timedelta | None,
    *,
    by_session: bool,
    archived: bool,
) -> dict[str, Any]:
    """Return the options of a run, as ``entity.process`` takes them."""
    wait = duration(max_wait)
    return {
        "policy": policy or Policy(),
        "max_in_flight": max_in_flight,
        "rate": rate,
        "max_messages": max_messages,
        "max_wait": None if wait is None else wait.total_seconds(),
        "by_session": by_session,
        "archived": archived,
    }
