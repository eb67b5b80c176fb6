"""Consume an entity with a function, and settle each message by how the function ended."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime, timedelta
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Report
from sbnotebook.settlement.memory.seen import DEFAULT_RETENTION, Seen
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.processing.calls import AnyFunction, FunctionCaller
from sbnotebook.settlement.processing.finish import Finisher
from sbnotebook.settlement.processing.run import ConsumerRun, Options
from sbnotebook.settlement.processing.status import ProcessState, ProcessStatus
from sbnotebook.settlement.processing.workers import SessionWorkers, SharedWorkers
from sbnotebook.settlement.watch import reporting

_RENEW_FOR: Final = timedelta(days=3650)
"""How long locks are renewed: until the function has ended, however long it takes."""


class Processing:
    """One run of ``process``. Any thread can watch and stop it.

    Made by :meth:`sbnotebook.settlement.entity.AsyncEntity.processing`.

    Args:
        place: the entity that is consumed.
        function: the work for one message.
        options: the options of the run.

    Raises:
        DecisionError: the policy cannot be carried out on this entity.
        ReadOnlyError: the policy sends envelopes, and the connection is read-only.
    """

    def __init__(self, place: Place, function: AnyFunction, options: Options) -> None:
        self._entity = place.address
        options.policy.check(self._entity, redelivers=options.redelivers)
        namespace, clock = place.namespace, place.namespace.clock
        self._seen: Seen | None = None
        if options.seen is not False:
            retention = DEFAULT_RETENTION if options.seen is True else options.seen
            self._seen = Seen(namespace.journal.database, namespace.identity, retention)
        self._pools = {address: namespace.pool(address) for address in options.policy.destinations}
        last = options.policy.last
        caller = FunctionCaller(function, clock, workers=options.max_in_flight, seen=self._seen, last=last)
        finisher = Finisher(options.policy, namespace.host, self._pools, abandons=options.redelivers, seen=self._seen)
        self._run = ConsumerRun(self._entity, options, caller, finisher, clock)
        self._workers = _workers(place, self._run)
        self._state = ProcessState.WAITING
        self._since: datetime | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def status(self) -> ProcessStatus:
        """Return the leases, counts and errors of the run at this moment."""
        run = self._run
        stopping = self._state is ProcessState.RUNNING and run.is_stopping
        error = f"{type(run.error).__name__} ended it." if run.error is not None else run.problem
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
        """Return the outcomes that are known now."""
        return self._run.tally.report()

    def stop(self) -> None:
        """Begin no more messages. Messages in work are settled when their function has ended; the rest is released."""
        self._run.is_stopping = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the run has ended
                self._loop.call_soon_threadsafe(self._run.stop)

    async def run(self) -> Report:
        """Work until there is no more to do, or until the run is stopped or cancelled.

        It waits for the functions that are running. The report has an outcome for each message that the function
        ended for, or whose work was done before. If the function did not return, the outcome's description says how
        it ended. If the policy says so, the function's own exception is raised, with a note on how the messages
        ended.
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
            tasks.start_soon(self._work, tasks.cancel_scope)
            # A cancellation from outside, also one by asyncio alone, only stops the work: that has a task of its own.
            try:
                await anyio.sleep_forever()
            finally:
                self._run.stop()

    async def _work(self, over: anyio.CancelScope) -> None:
        # Finished messages are not settled yet, so renew their locks.
        with anyio.CancelScope(shield=True):
            try:
                await self._prepare()
                await self._workers.work()
            except BaseException as error:  # noqa: BLE001 (raised when the task group has ended, and not in a group)
                self._run.fail(error)
        over.cancel()

    async def _prepare(self) -> None:
        """Find errors that would otherwise come later, before anything is locked."""
        with self._run.until_stopped():
            for pool in self._pools.values():
                await pool.warm(1)
            if self._seen is not None:
                await anyio.to_thread.run_sync(self._seen.forget_old)

    def _raise_error(self) -> None:
        error = self._run.error
        if error is None:
            return
        note = f"Until then: {self.report}."
        if not isinstance(error, Exception):  # it would end the loop, and not only this run
            error_of_run = RuntimeError(f"{type(error).__name__} ended the run.")
            error_of_run.add_note(note)
            raise error_of_run from error
        error.add_note(note)
        raise error


def _workers(place: Place, run: ConsumerRun) -> SharedWorkers | SessionWorkers:
    archived = run.options.archived
    if run.options.by_session:
        return SessionWorkers(
            run,
            lambda wait: place.session(None, max_wait=wait, renew_for=_RENEW_FOR, archived=archived),
            place.namespace.waits.idle_session,
        )
    return SharedWorkers(run, place.batch(renew_for=_RENEW_FOR, archived=archived))
