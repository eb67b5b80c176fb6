"""Consume an entity in the background, for synchronous code."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from datetime import timedelta
from types import TracebackType
from typing import Self

from sbnotebook.analysis.shown import Shown, Table
from sbnotebook.client.coercions import duration
from sbnotebook.client.portal import only_frames_of_the_user, portal
from sbnotebook.client.unread import watched
from sbnotebook.client.verbs import mirrors
from sbnotebook.model import Report
from sbnotebook.settlement import Policy, ProcessOptions, ProcessStatus
from sbnotebook.settlement import Processing as AsyncProcessing

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


class Processing(Shown):
    """A function that consumes an entity in the background. Made by ``entity.start_processing(…)``.

    Shown as its workers, their messages and their progress. As a context manager it stops when the block ends.

    Args:
        processing: the asynchronous run, not started yet.
    """

    def __init__(self, processing: AsyncProcessing) -> None:
        self._processing = processing
        self._future: Future[Report] = portal().start_task_soon(processing.run)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processing.stop()
        if error is None:
            self.stop()

    @property
    @mirrors(AsyncProcessing.status)
    def status(self) -> ProcessStatus:
        return self._processing.status

    @property
    @mirrors(AsyncProcessing.report)
    def report(self) -> Report:
        # Read on the loop, which writes it.
        return portal().call(lambda: self._processing.report)

    def stop(self) -> Report:
        """Begin no more messages, wait for the functions that run, settle their messages, and release the rest.

        Returns:
            An outcome for each message.

        Raises:
            Exception: what ended the run before.
        """
        self._processing.stop()
        with only_frames_of_the_user():
            return watched(self._future.result())

    def wait(self, seconds: float | None = None) -> Report | None:
        """Wait until it has ended.

        Args:
            seconds: how long at most, None for no limit.

        Returns:
            An outcome for each message; None when it has not ended.

        Raises:
            Exception: what ended the run.
        """
        try:
            with only_frames_of_the_user():
                return watched(self._future.result(seconds))
        except NotYet:
            if self._future.done():  # it is the function's own
                raise
            return None

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
) -> ProcessOptions:
    """Return the options of a run, as :meth:`sbnotebook.client.Entity.process` takes them."""
    wait = duration(max_wait)
    return ProcessOptions(
        policy=policy or Policy(),
        max_in_flight=max_in_flight,
        rate=rate,
        max_messages=max_messages,
        max_wait=None if wait is None else wait.total_seconds(),
        by_session=by_session,
        archived=archived,
    )
