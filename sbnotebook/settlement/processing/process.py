"""Consuming an entity with a function, settling each message by how the function ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.lowlevel
import anyio.to_thread

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, Report
from sbnotebook.settlement.locking.renewal import Clock, SystemClock
from sbnotebook.settlement.processing.calls import AnyFunction, Calls
from sbnotebook.settlement.processing.finish import Finish
from sbnotebook.settlement.processing.lease import ProcessState, ProcessStatus
from sbnotebook.settlement.processing.process_run import Options, Run
from sbnotebook.settlement.watch import reporting

if TYPE_CHECKING:
    from sbnotebook.settlement.memory.seen import Seen
    from sbnotebook.settlement.sending.send import SenderPool

__all__ = ["Processing", "Workers"]


class Workers(Protocol):
    """Those who take messages, have the function called, and settle."""

    async def work(self) -> None:
        """Work until there is no more to do, or the run is stopped; then settle what has ended."""
        ...

    @property
    def waiting(self) -> int:
        """Messages that are locked and wait for a worker."""
        ...

    @property
    def unsettled(self) -> int:
        """Messages whose function has ended and that are not settled yet."""
        ...


class Processing:
    """One run of ``process``: can be watched and stopped while it goes on, from any thread.

    Made by :meth:`sbnotebook.settlement.entity.AsyncEntity.processing`.

    Args:
        entity: what is consumed.
        function: the work.
        options: how.
        make_workers: gives those who work.
        pools: senders to the entities that envelopes go to.
        host: the namespace's.
        clock: where the time comes from.
        seen: knows what is done, None for no memory.

    Raises:
        DecisionError: the policy cannot be carried out there.
    """

    def __init__(
        self,
        entity: EntityAddress,
        function: AnyFunction,
        options: Options,
        *,
        make_workers: MakeWorkers,
        pools: Mapping[EntityAddress, SenderPool],
        host: str,
        clock: Clock | None = None,
        seen: Seen | None = None,
    ) -> None:
        options.policy.check(entity, comes_again=options.comes_again)
        clock = clock or SystemClock()
        calls = Calls(function, clock, at_once=options.max_in_flight, seen=seen)
        finish = Finish(options.policy, host, pools, abandons=options.comes_again, seen=seen)
        self._run = Run(entity, options, calls, finish, clock)
        self._workers = make_workers(self._run)
        self._entity = entity
        self._pools = pools
        self._seen = seen
        self._state = ProcessState.WAITING
        self._since: datetime | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def status(self) -> ProcessStatus:
        """Who consumes what, since when, and how far, at this moment."""
        run = self._run
        stopping = self._state is ProcessState.RUNNING and run.is_stopping
        error = f"{type(run.error).__name__} ended it." if run.error is not None else run.trouble
        return ProcessStatus(
            self._entity,
            ProcessState.STOPPING if stopping else self._state,
            self._since,
            run.leases.now(),
            run.leases.ends,
            repeated=run.repeated,
            waiting=self._workers.waiting,
            unsettled=self._workers.unsettled,
            not_settled=run.not_settled,
            error=error,
        )

    @property
    def report(self) -> Report:
        """The outcomes that are known now."""
        return self._run.tally.report()

    def stop(self) -> None:
        """Begin no more messages. What is worked on is settled when its function has ended, the rest is released."""
        self._run.is_stopping = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended
                self._loop.call_soon_threadsafe(self._run.stop)

    async def run(self) -> Report:
        """Work until it is done or stopped; a cancellation stops it, and waits for the functions that run.

        Returns:
            An outcome for each message that the function ended for, or whose work was done before. Where the function
            did not return, its description says how it ended.

        Raises:
            Exception: the function's own, where the policy says so. A note on it says how the messages ended.
            ServiceBusError: the entity cannot be opened, or no messages can be had any more.
        """
        if self._state is not ProcessState.WAITING:
            raise ConfigurationError("It has run already: make another one.")
        self._loop = asyncio.get_running_loop()
        self._since, self._state = self._run.clock.now(), ProcessState.RUNNING
        try:
            with reporting(self._run.tally.report):
                await self._work_until_stopped()
        finally:
            self._state = ProcessState.ENDED
        await anyio.lowlevel.checkpoint_if_cancelled()
        self._raise_error()
        return self.report

    async def _work_until_stopped(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stop_when_cancelled)
            # A cancellation from outside only stops it: what is done has still to be settled, under renewed locks.
            with anyio.CancelScope(shield=True):
                try:
                    await self._prepare()
                    await self._workers.work()
                except Exception as error:  # noqa: BLE001 (raised when the task group has ended, and not in a group)
                    self._run.fail(error)
            tasks.cancel_scope.cancel()

    async def _stop_when_cancelled(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self._run.stop()

    async def _prepare(self) -> None:
        """Find out what would fail later before anything is locked."""
        with self._run.until_stopped():
            for pool in self._pools.values():
                await pool.warm(1)
            if self._seen is not None:
                await anyio.to_thread.run_sync(self._seen.forget_old)

    def _raise_error(self) -> None:
        error = self._run.error
        if error is None:
            return
        note = f"The messages until then: {self.report}."
        if not isinstance(error, Exception):  # it would end the loop, and not only this run
            error_of_run = RuntimeError(f"The function raised {type(error).__name__}.")
            error_of_run.add_note(note)
            raise error_of_run from error
        error.add_note(note)
        raise error


class MakeWorkers(Protocol):
    """Gives the workers of a run."""

    def __call__(self, run: Run) -> Workers:
        """Make them; nothing is opened yet."""
        ...
