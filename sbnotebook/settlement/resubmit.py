"""Sending a clone of a message and completing the original, so that nothing is lost and nothing is sent twice.

The order is: journal the intent, send the clone, wait for its confirmation, complete the original, journal the end.
A crash leaves either the original alone, or a clone whose id tells that it is one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sbnotebook.model import (
    Complete,
    LockedMessage,
    Message,
    Outcome,
    OutcomeStatus,
    ReceivedMessage,
    Report,
    Resubmit,
)
from sbnotebook.model.message import DEAD_LETTER_ERROR_DESCRIPTION, DEAD_LETTER_REASON, RESUBMIT_COUNT
from sbnotebook.settlement.journal import Journal, ResubmitEntry, ResubmitState
from sbnotebook.settlement.lock import LockedBatch
from sbnotebook.settlement.plan import Edit, Limits, Plan
from sbnotebook.settlement.send import SenderPool, send_many
from sbnotebook.settlement.settle import Progress, outcome_for

__all__ = ["ORIGINAL_MESSAGE_ID", "Resubmitter", "clone_of"]

ORIGINAL_MESSAGE_ID: Final = "OriginalMessageId"
"""The application property of a clone that holds the first original's message id."""
_MAX_MESSAGE_ID: Final = 128
_WINDOW: Final = 500
"""Messages locked between two rounds of sending."""


def clone_of(message: ReceivedMessage, decision: Resubmit, edit: Edit | None, now: datetime) -> Message:
    """The message that a resubmit sends in place of one.

    It keeps body and typed properties, drops the reasons of the dead-letter queue, counts in ``ResubmitCount``,
    names the original in ``OriginalMessageId``, and has a message id that is derived from the original's: the same
    each time that the same resubmit is tried.

    Args:
        message: the original.
        decision: carries the delay.
        edit: changes the original first, None for nothing.
        now: what the delay is counted from.
    """
    edited = edit(message) if edit else message
    count = message.resubmit_count + 1
    properties = dict(edited.application_properties)
    properties.pop(DEAD_LETTER_REASON, None)
    properties.pop(DEAD_LETTER_ERROR_DESCRIPTION, None)
    properties[RESUBMIT_COUNT] = count
    if message.message_id is not None:
        properties.setdefault(ORIGINAL_MESSAGE_ID, message.message_id)
    fields = {name: getattr(edited, name) for name in Message.__dataclass_fields__}
    fields["application_properties"] = properties
    fields["message_id"] = _clone_id(message, count)
    fields["scheduled_enqueue_time"] = now + decision.delay if decision.delay else None
    return Message(**fields)


def _clone_id(message: ReceivedMessage, count: int) -> str:
    original = message.application_properties.get(ORIGINAL_MESSAGE_ID) or message.message_id
    base = str(original) if original else f"{message.entity}#{message.sequence_number}"
    derived = f"{base}~{count}"
    if len(derived) <= _MAX_MESSAGE_ID:
        return derived
    return f"{hashlib.sha256(base.encode()).hexdigest()}~{count}"


@dataclass(slots=True)
class Resubmitter:
    """Carries resubmit plans out.

    Args:
        namespace: the host, for the journal.
        journal: where intents are written before anything is sent.
        decision: the plan's.
        batch: on the plan's entity, not open yet.
        pool: senders to the entity that the clones go to.
    """

    namespace: str
    journal: Journal
    decision: Resubmit
    batch: LockedBatch
    pool: SenderPool

    async def run(self, plan: Plan, limits: Limits, progress: Progress | None) -> Report:
        """Lock ahead, resubmit what is in the plan, and give the rest back as it was."""
        wanted = {message.sequence_number for message in plan.messages}
        outcomes: dict[int, Outcome] = {}
        async with self.batch:
            while wanted - outcomes.keys():
                locked = await self.batch.receive(_WINDOW, max_wait=2.0)
                if not locked:
                    break
                chosen = [message for message in locked if message.sequence_number in wanted]
                for outcome in await self._resubmit(chosen, plan, limits):
                    outcomes[outcome.sequence_number or 0] = outcome
                    if progress is not None:
                        progress(1)
        return Report(outcomes.get(message.sequence_number) or _not_found(message, plan) for message in plan.messages)

    async def _resubmit(self, locked: Sequence[LockedMessage], plan: Plan, limits: Limits) -> list[Outcome]:
        decision, limit = self.decision, self.decision.max_resubmits
        capped = [message for message in locked if limit is not None and message.resubmit_count >= limit]
        why = f"It was resubmitted {limit} times already and stays where it is."
        outcomes = [outcome_for(message, decision, OutcomeStatus.SKIPPED, why) for message in capped]
        messages = [message for message in locked if message not in capped]
        if not messages:
            return outcomes
        now = datetime.now(UTC)
        clones = [clone_of(message, decision, plan.edit, now) for message in messages]
        ids = self.journal.intend([self._entry(m, clone) for m, clone in zip(messages, clones, strict=True)])
        sent = await send_many(self.pool, clones, max_in_flight=limits.max_in_flight, rate=limits.rate)
        confirmed = [index for index, outcome in enumerate(sent) if outcome.ok]
        self.journal.mark((ids[index] for index in confirmed), ResubmitState.SENT)
        refused = [index for index, o in enumerate(sent) if o.status is OutcomeStatus.FAILED]
        self.journal.mark((ids[index] for index in refused), ResubmitState.NOT_SENT)
        completed = await self.batch.settle(
            Complete(), [messages[index] for index in confirmed], max_in_flight=limits.max_in_flight
        )
        done = [index for index, outcome in zip(confirmed, completed, strict=True) if outcome.ok]
        self.journal.mark((ids[index] for index in done), ResubmitState.DONE)
        ends = dict(enumerate(sent)) | dict(zip(confirmed, completed, strict=True))
        # What was not sent stays held until the batch closes: released now, it would come again in the next window.
        return outcomes + [_as_resubmit(messages[index], ends[index], decision) for index in range(len(messages))]

    def _entry(self, message: LockedMessage, clone: Message) -> ResubmitEntry:
        return ResubmitEntry(
            namespace=self.namespace,
            source=message.entity.path,
            sequence_number=message.sequence_number,
            message_id=message.message_id,
            destination=self.pool.address.path,
            clone_id=clone.message_id or "",
        )


def _as_resubmit(message: LockedMessage, end: Outcome, decision: Resubmit) -> Outcome:
    step = "The clone was sent, completing the original: " if end.verb == "complete" else "Sending the clone: "
    return Outcome(
        status=end.status,
        verb=decision.verb,
        entity=message.entity,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
        condition=end.condition,
        description=None if end.ok else f"{step}{end.description}",
        tracking_id=end.tracking_id,
        retryable=end.retryable,
    )


def _not_found(message: ReceivedMessage, plan: Plan) -> Outcome:
    why = "The entity gave no such message: it was settled, is deferred, or is locked by another receiver."
    return outcome_for(message, plan.decision, OutcomeStatus.NOT_FOUND, why)
