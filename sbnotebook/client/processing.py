"""Consume an entity in the background.

Do not edit: ``make format`` writes this file from async_processing.py.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from sbnotebook.analysis.shown import Shown, Table
from sbnotebook.client.async_processing import AsyncProcessing
from sbnotebook.client.portal import on_loop, run
from sbnotebook.client.verbs import Twin
from sbnotebook.model import Report
from sbnotebook.settlement import ProcessStatus


class Processing(Shown, Twin):
    """A function that consumes an entity in the background. Made by ``entity.start_processing(…)``.

    Shown as its workers, their messages and their progress. As a context manager it stops when the block ends.
    """

    def __init__(self, asynchronous: AsyncProcessing) -> None:
        self._processing = asynchronous

    @property
    def asynchronous(self) -> AsyncProcessing:
        """Return the asynchronous twin."""
        return self._processing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._processing.__aexit__, kind, error, trace)

    @property
    def status(self) -> ProcessStatus:
        """Return the messages and sessions that its workers have now, and how the finished messages ended."""
        return self._processing.status

    @property
    def report(self) -> Report:
        """Return the outcomes that are known now."""
        return on_loop(lambda: self._processing.report)

    def stop(self) -> Report:
        """Begin no more messages, wait for the functions that run, settle their messages, and release the rest.

        Returns:
            An outcome for each message.

        Raises:
            Exception: what ended the run before.
        """
        return run(self._processing.stop)

    def wait(self, seconds: float | None = None) -> Report | None:
        """Wait until it has ended.

        Args:
            seconds: how long at most, None for no limit.

        Returns:
            An outcome for each message; None when it has not ended.

        Raises:
            Exception: what ended the run.
        """
        return run(self._processing.wait, seconds)

    def _table(self, most: int) -> Table:
        return self._processing._table(most)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
