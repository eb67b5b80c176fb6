"""Workers of which each holds a session: the messages of one are done in their order, several sessions at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import anyio
from azure.servicebus.exceptions import OperationTimeoutError, SessionLockLostError

from sbnotebook.model import Abandon, LockedMessage, Release
from sbnotebook.settlement.locking.sessions import SessionBatch
from sbnotebook.settlement.processing.calls import Ended, Go
from sbnotebook.settlement.processing.process_run import PASSING_TROUBLE, Run

__all__ = ["SessionWorkers"]

_AHEAD: Final = 50
"""Messages of one session that are locked at once; nobody else could have them anyway."""
_IDLE: Final = 1.0
"""Seconds without a message after which a worker gives its session back and takes another."""
_WAIT: Final = 30.0
"""Seconds that one request for a session waits where the run goes on until it is stopped."""


class SessionWorkers:
    """Each worker takes the next session, does its messages one after the other, and goes on to another session.

    A message is settled before the next one of its session is begun. Where one is not removed, because its function
    failed or its settlement was not confirmed, what follows in the session is released, and the session goes on with
    that message, as often as the service delivers it.

    Args:
        run: what they share.
        next_session: gives a batch for the next session, not open yet; takes the seconds to wait for one.
    """

    def __init__(self, run: Run, next_session: Callable[[float], SessionBatch]) -> None:
        self._run = run
        self._next_session = next_session
        self._waiting: dict[int, int] = {}
        self._lost: dict[int, tuple[Ended, int]] = {}
        """Messages that ended and whose settlement did not get through: they come again, and are only settled."""
        self._at_work: dict[int, anyio.Event] = {}
        """For each message that a worker is at: set when it is known what came of it."""
        self._settling = 0

    @property
    def waiting(self) -> int:
        """Messages that are locked and wait for a worker."""
        return sum(self._waiting.copy().values())

    @property
    def unsettled(self) -> int:
        """Messages whose function has ended and that are not settled yet."""
        return self._settling

    async def work(self) -> None:
        """Work until there is no more to do, or the run is stopped; then settle what has ended."""
        async with anyio.create_task_group() as tasks:
            for worker in range(self._run.options.max_in_flight):
                tasks.start_soon(self._work, worker)

    async def _work(self, worker: int) -> None:
        try:
            while not self._run.is_stopping and self._run.left != 0:
                if not await self._work_on_next(worker):
                    break
        except Exception as error:  # noqa: BLE001 (the others settle what has ended; then it is raised)
            self._run.fail(error)

    async def _work_on_next(self, worker: int) -> bool:
        """Work on the next session; False when there is none within the time."""
        run, max_wait = self._run, self._run.options.max_wait
        with run.until_stopped() as opening:
            try:
                async with self._next_session(_WAIT if max_wait is None else max_wait) as batch:
                    run.keep(opening)
                    run.all_well()
                    await self._work_on(worker, batch)
            except OperationTimeoutError:
                return max_wait is None
            except SessionLockLostError:
                run.trouble = "A session's lock was lost: what is left of it is delivered again."
            except PASSING_TROUBLE as error:
                if max_wait is not None:
                    raise
                await run.wait_out(error)
        return True

    async def _work_on(self, worker: int, batch: SessionBatch) -> None:
        run = self._run
        run.leases.begin(worker, run.clock.now(), batch.session_id)
        try:
            while not run.is_stopping and run.left != 0:
                wanted = _AHEAD if run.left is None else min(_AHEAD, run.left)
                locked: Sequence[LockedMessage] = ()
                with run.until_stopped():
                    locked = await batch.receive(wanted, max_wait=_IDLE)
                if not locked:
                    break
                await self._work_through(worker, batch, locked)
        finally:
            self._waiting.pop(worker, None)
            run.leases.end(worker, run.clock.now())

    async def _work_through(self, worker: int, batch: SessionBatch, locked: Sequence[LockedMessage]) -> None:
        for done, message in enumerate(locked):
            if self._run.is_stopping or self._run.left == 0:
                return  # closing the batch releases what is left
            self._waiting[worker] = len(locked) - done - 1
            if not batch.holds(message):
                return
            if not await self._work_on_message(worker, batch, message):
                await batch.settle(Release(), [later for later in locked[done:] if batch.holds(later)])
                return

    async def _work_on_message(self, worker: int, batch: SessionBatch, message: LockedMessage) -> bool:
        """Have the function called and settle; False when the message stands in the session still."""
        number = message.sequence_number
        while number in self._at_work:  # its session was lost while another worker was at it
            await self._at_work[number].wait()
        over = self._at_work[number] = anyio.Event()
        try:
            return await self._work_alone(worker, batch, message)
        finally:
            del self._at_work[number]
            over.set()

    async def _work_alone(self, worker: int, batch: SessionBatch, message: LockedMessage) -> bool:
        run = self._run
        if not await run.wait_for_pace(1):
            return False
        ended, index = self._lost.pop(message.sequence_number, (None, None))
        if ended is not None and ended.message.enqueued_time == message.enqueued_time:
            ended = replace(ended, message=message)
        else:
            run.taken += 1
            run.leases.work_on(worker, message.sequence_number, run.clock.now())
            go = Go(deque([message]))
            await run.calls.run(go)
            if not go.ends:  # it was stopped before it began
                return False
            ended, index = go.ends.popleft(), None
            run.ended(worker, ended)
        self._settling += 1
        try:
            await run.finish.remember([ended])
            (outcome,) = await run.finish.settle(batch, [ended])
        finally:
            self._settling -= 1
        index = run.note(outcome, index)
        is_removed = not isinstance(run.finish.decision(ended), (Abandon, Release))
        if is_removed and not outcome.ok:
            self._lost[message.sequence_number] = (ended, index)
        return outcome.ok and is_removed
