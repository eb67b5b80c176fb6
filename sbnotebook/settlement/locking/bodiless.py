"""A batch of many messages whose content does not matter: it keeps their locks, their numbers and their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from sbnotebook.model import Complete, LockedMessage, Outcome
from sbnotebook.model.partition import partition_of
from sbnotebook.settlement.engine import BESIDE, GROUP
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.locking.lock_table import Hold
from sbnotebook.settlement.locking.settle import Settling
from sbnotebook.settlement.parallel import in_parallel
from sbnotebook.settlement.sdk import receivers

if TYPE_CHECKING:
    from datetime import datetime

    from azure.servicebus import ServiceBusReceivedMessage


class BodilessBatch(LockedBatch):
    """A batch that reads what Service Bus wrote into each message, and drops the rest. It records nothing."""

    _sections = ()

    def size_of(self, message: LockedMessage) -> int:
        """Return the bytes of a message that is held, as it came; 0 when it is not held any more."""
        hold = self._held.of(message)
        return 0 if hold is None else hold.size

    def forget_ended(self) -> None:
        """Forget how messages ended that are not held any more: do not settle these again."""
        self._held.forget_ended()

    async def complete(self, messages: Sequence[LockedMessage]) -> dict[int, Outcome]:
        """Complete messages of this batch, many by one request, and four requests at once.

        Where Service Bus refuses a request because of one lost lock, other outcomes may stay unknown. After a
        settlement that has no answer the rest is skipped, and stays held: complete it by another call.
        """
        self._open_receiver()
        run, decision = object(), Complete()
        stopped: list[str] = []

        async def complete_group(group: Sequence[LockedMessage]) -> dict[int, Outcome]:
            act = Settling(
                self._receivers,
                decision,
                self._held,
                window=self._window,
                together=True,
                peeker=self._peeker,
                opening=self._busy,
                now=self.clock.now,
            )
            async with self._settling.turn_of(run):
                holds = [hold for hold in map(self._held.of, group) if hold is not None]
                if holds and not stopped and self.is_open:
                    await act.run(holds)
            if act.stopped is not None:
                stopped.append(act.stopped)
            return {message.sequence_number: act.outcome_of(message) for message in group}

        # A request completes messages of one partition.
        ordered = sorted(messages, key=lambda message: partition_of(message.sequence_number))
        groups = [ordered[start : start + GROUP] for start in range(0, len(ordered), GROUP)]
        try:
            outcomes = await in_parallel(complete_group, groups, BESIDE)
        finally:
            self._renewal.tell_lost()
        await self._close_emptied()
        return dict(chain.from_iterable(each.items() for each in outcomes))

    def _hold_lock(self, lock: ServiceBusReceivedMessage, asked: datetime, *, is_read: bool) -> Hold:
        hold = super()._hold_lock(lock, asked, is_read=is_read)
        hold.size = len(receivers.payload_of_received(lock) or b"")
        receivers.drop_payload(lock)
        return hold
