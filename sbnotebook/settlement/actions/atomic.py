"""Resubmits in transactions: the clone is sent and the original completed, or neither.

Untested on Azure. What a lost connection leaves unknown is found out once Service Bus must have ended the transaction.
The destination has the clone if it was committed, and the source has the original if it was rolled back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from azure.core.exceptions import AzureError

from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Complete,
    EntityAddress,
    LockedMessage,
    Message,
    Outcome,
    OutcomeStatus,
    ReceivedMessage,
    Resubmit,
    SubQueue,
)
from sbnotebook.model.message import partition_of
from sbnotebook.settlement.actions.clone_search import CloneSearch
from sbnotebook.settlement.connecting.failures import Failure, explained
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.locking.lock_table import Hold
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import is_same, outcome_for
from sbnotebook.settlement.sdk import connections
from sbnotebook.settlement.sdk.transactions import DischargeUnansweredError, TransactionLine
from sbnotebook.settlement.wire.encoding import payload_of

_OVER_AFTER: Final = timedelta(seconds=130)
"""From when a commit was not answered. Service Bus rolls a transaction back two minutes after its first operation
(documentation, "Overview of transaction processing"), which was before that."""
_MAX_IDLE: Final = timedelta(minutes=1)
_PAUSE: Final = 2.0
"""Seconds between two looks at an original."""
_LOOKS: Final = 3
"""Peeks without an original before it counts as gone: a peek may miss existing messages."""
_NO_TRANSACTIONS: Final = ("amqp:not-allowed", "amqp:not-implemented")
_NOT_HERE: Final = "Resubmit without atomic."
_TOO_LATE: Final = "The lock had ended before its transaction began: nothing was sent."
_ROLLED_BACK: Final = "The connection was lost during the commit, which was not done: the original is unchanged."
_TAKEN: Final = (
    "The connection was lost during the commit, and sbnotebook found neither the original nor its clone. Either "
    "the transaction was committed and the clone consumed, or another receiver took the original after its lock "
    "had ended. If the original appears later, resubmit it again."
)
_NOT_SEEN: Final = "The connection was lost during the commit, and the original could not be looked at since: "


def check_atomic(address: EntityAddress, decision: Resubmit, messages: Sequence[ReceivedMessage]) -> None:
    """Refuse a resubmit that cannot be done in transactions."""
    own, is_elsewhere = address.sends_to, decision.to != address.sends_to
    refusals = {
        f"atomic is for messages of a dead-letter queue, and {address} is none. {_NOT_HERE}": (
            address.sub_queue is not SubQueue.DEAD_LETTER
        ),
        f"atomic=True sends to {own} only, to which {address} belongs. With atomic='forward' a commit means that {own} "
        f"has stored the clone, and forwards it to {decision.to} later.": (
            is_elsewhere and decision.atomic != "forward"
        ),
        f"It is unknown whether a delay survives when {own} forwards the clone. {_NOT_HERE}": (
            is_elsewhere and decision.delay is not None
        ),
        f"{own} is partitioned, and a transaction is for one partition. {_NOT_HERE}": (
            any(partition_of(message.sequence_number) for message in messages)
        ),
    }
    for refusal, applies in refusals.items():
        if applies:
            raise DecisionError(refusal)


class Atomic:
    """Sends clones and completes their originals, one pair in each transaction, over one connection."""

    def __init__(self, place: Place, decision: Resubmit) -> None:
        self._place = place
        self._search = CloneSearch(place.namespace, decision.to or place.address.sends_to)
        self._clock = place.namespace.clock
        self._decision = decision
        self._line: TransactionLine | None = None
        self._used = self._clock.now()

    async def open(self) -> TransactionLine:
        if self._line is None:
            connection, address = self._place.namespace.connection, self._place.address
            to = self._decision.to or address.sends_to
            via = None if to == address.sends_to else connection.sender(address.sends_to)
            line = TransactionLine(connection.browser(address), connection.sender(to), via)
            try:
                await line.open()
            except BaseException as error:
                await connections.close(line)
                if Failure.of(error).condition in _NO_TRANSACTIONS:
                    text = f"Service Bus refuses transactions for {address}: {explained(error)}. {_NOT_HERE}"
                    raise DecisionError(text) from error
                raise
            self._line = line
        return self._line

    async def close(self) -> None:
        """Close the connection. A transaction that is open is rolled back."""
        line, self._line = self._line, None
        if line is not None:
            await connections.close(line)

    async def move(
        self, run: Run, holder: LockedBatch, pairs: Sequence[tuple[LockedMessage, Message]]
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for original, clone in pairs:
            if run.stopped is not None:
                outcome = outcome_for(original, self._decision, OutcomeStatus.SKIPPED, run.stopped)
            else:
                act = partial(self._move, run, original, clone)
                outcome = await holder.settle_elsewhere(Complete(), original, act)
            outcomes.append(replace(outcome, verb=self._decision.verb))
            run.expect([original], [outcomes[-1]])
        return outcomes

    async def _move(self, run: Run, original: LockedMessage, clone: Message, hold: Hold) -> Outcome:
        is_idle = self._clock.now() - self._used > _MAX_IDLE  # Service Bus may have ended it
        if is_idle or (self._line is not None and time.time() >= self._line.renew_at):
            await self.close()
        try:
            line = await self.open()
        except (AzureError, OSError, DecisionError) as error:
            run.stop("Not attempted: the connection for transactions could not be opened again.")
            return self._nothing_done(original, error)
        self._used = self._clock.now()
        if hold.ends <= self._used:  # opening may take long
            return outcome_for(original, self._decision, OutcomeStatus.LOCK_LOST, _TOO_LATE)
        try:
            await line.move(payload_of(clone), original.lock_token)
        except DischargeUnansweredError:
            is_over_at = self._clock.now() + _OVER_AFTER
            await self.close()
            return await self._look(original, clone, is_over_at)
        except Exception as error:  # noqa: BLE001 (the SDK raises many kinds; without a commit nothing is done)
            await self.close()
            return self._nothing_done(original, error)
        return outcome_for(original, self._decision, OutcomeStatus.SETTLED)

    def _nothing_done(self, original: LockedMessage, error: Exception) -> Outcome:
        outcome = Failure.of(error).outcome(self._decision.verb, original)
        is_lost = outcome.status is OutcomeStatus.LOCK_LOST
        text = f"Nothing was done, there was no commit: {outcome.description}"
        return replace(outcome, status=outcome.status if is_lost else OutcomeStatus.FAILED, description=text)

    async def _look(self, original: LockedMessage, clone: Message, is_over_at: datetime) -> Outcome:
        """Find out from the original how a transaction ended whose commit was not answered."""
        outcome, number = partial(outcome_for, original, self._decision), original.sequence_number
        # Before, its absence proves nothing: a peek may leave out messages that are completed in an open transaction.
        await self._clock.sleep((is_over_at - self._clock.now()).total_seconds())
        for _ in range(_LOOKS):
            try:
                found = (await self._place.peeker.messages_of([number], ())).get(number)
            except (AzureError, OSError) as error:
                return outcome(OutcomeStatus.UNCONFIRMED, f"{_NOT_SEEN}{explained(error)}")
            if found is not None and is_same(found, original):
                return outcome(OutcomeStatus.FAILED, _ROLLED_BACK)
            if found is not None:
                return outcome(OutcomeStatus.UNCONFIRMED, f"{_NOT_SEEN}another message has its number now.")
            await self._clock.sleep(_PAUSE)
        # Peeks may miss existing messages. The clone proves the commit, if it is not consumed yet.
        if clone.message_id and await self._search.find({clone.message_id}):
            return outcome(
                OutcomeStatus.SETTLED,
                "The connection was lost during the commit, which was done: the clone arrived, and the original is "
                "gone.",
            )
        return outcome(OutcomeStatus.UNCONFIRMED, _TAKEN)
