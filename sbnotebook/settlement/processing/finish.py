"""Finish messages whose function has ended: send their envelopes, remember the work, then settle, with retries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

import anyio
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Decision,
    EntityAddress,
    LockedMessage,
    Message,
    Outcome,
    OutcomeStatus,
)
from sbnotebook.model.connection_strings import scrub
from sbnotebook.settlement.connecting.failures import Failure
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.plan import outcome_for
from sbnotebook.settlement.processing.calls import EndedCall
from sbnotebook.settlement.processing.envelopes import envelope_of
from sbnotebook.settlement.processing.policy import End, Policy
from sbnotebook.settlement.requests import alike
from sbnotebook.settlement.sending.delivery import SEND, SenderPool, send_many

_PAUSES: Final = (0.0, 1.0, 5.0)
"""Seconds before each attempt to settle. Unanswered, skipped and retryable settlements are attempted again."""
_MAX_DESCRIPTION: Final = 1_000
_LOST: Final = "The lock had ended before: nothing was done, and the message is delivered again."
_HOW_IT_ENDED: Final = {
    End.SKIPPED: "skipped it",
    End.REJECTED: "rejected it",
    End.STOPPED: "stopped the run",
    End.FAILED: "failed",
}


_Enveloped: TypeAlias = tuple[EndedCall, Message]
"""An ended call, and the envelope of its message."""


async def send_envelopes(
    policy: Policy,
    pools: Mapping[EntityAddress, SenderPool],
    namespace: str,
    batch: LockedBatch,
    ends: Iterable[EndedCall],
) -> dict[EndedCall, Outcome]:
    """Send the envelopes that have not been confirmed before, and return the outcomes of those that are not now."""
    by_destination: defaultdict[EntityAddress, list[_Enveloped]] = defaultdict(list)
    for ended in ends:
        destination = policy.row(ended.end).destination
        if destination is not None and ended.fault is not None and not ended.is_enveloped:
            envelope = envelope_of(ended.message, ended.fault, namespace=namespace, now=batch.clock.now())
            by_destination[destination].append((ended, envelope))
    refused: dict[EndedCall, Outcome] = {}
    for destination, pairs in by_destination.items():
        refused |= await _send_to(destination, pools[destination], batch, pairs)
    return refused


async def _send_to(
    destination: EntityAddress, pool: SenderPool, batch: LockedBatch, pairs: Sequence[_Enveloped]
) -> dict[EndedCall, Outcome]:
    try:
        envelopes, withhold = [envelope for _, envelope in pairs], partial(_withheld, batch, pairs)
        sent: Iterable[Outcome] = await send_many(pool, envelopes, replace(SEND, withhold=withhold))
    except (ServiceBusError, OSError) as error:
        # No sender could be opened: nothing was sent.
        said = [Failure.of(error).outcome("send", ended.message) for ended, _ in pairs]
        sent = [replace(outcome, status=OutcomeStatus.FAILED) for outcome in said]
    refused: dict[EndedCall, Outcome] = {}
    for (ended, _), outcome in zip(pairs, sent, strict=True):
        ended.is_enveloped = outcome.ok
        if not outcome.ok:
            refused[ended] = _refused(ended.message, destination, outcome)
    return refused


async def settle_all(
    batch: LockedBatch, decisions: Mapping[EndedCall, Decision], broken: list[Exception]
) -> dict[EndedCall, Outcome]:
    """Settle messages, with further attempts; local errors that end the run, such as a full disk, go to ``broken``."""
    outcomes: dict[EndedCall, Outcome] = {}
    left = dict(decisions)
    for pause in _PAUSES:
        await anyio.sleep(pause)
        for group in alike(left, left.__getitem__):
            settled = await _settle_group(batch, left[group[0]], [ended.message for ended in group], broken)
            outcomes |= zip(group, settled, strict=True)
        left = {ended: decision for ended, decision in left.items() if can_retry(outcomes[ended])}
        if not left or broken:
            break
    return outcomes


async def _settle_group(
    batch: LockedBatch, decision: Decision, messages: Sequence[LockedMessage], broken: list[Exception]
) -> Sequence[Outcome]:
    try:
        return await batch.settle(decision, messages)
    except DecisionError as error:
        if all(map(batch.holds, messages)):  # a message that is rejected in a dead-letter queue stays there
            return [outcome_for(m, decision, OutcomeStatus.FAILED, str(error)) for m in messages]
        # The batch refuses all if one lock ended so long ago that it has forgotten it: settle those that are held.
        held = {message.lock_token: message for message in messages if batch.holds(message)}
        settled = await _settle_group(batch, decision, [*held.values()], broken)
        known = dict(zip(held, settled, strict=True))
        return [known.get(m.lock_token) or outcome_for(m, decision, OutcomeStatus.LOCK_LOST, _LOST) for m in messages]
    except Exception as error:  # noqa: BLE001 (the journal or archive failed before anything was settled)
        if not isinstance(error, ServiceBusError):
            broken.append(error)
        why = f"Not attempted: {type(error).__name__}: {error}"
        return [outcome_for(m, decision, OutcomeStatus.SKIPPED, scrub(why, _MAX_DESCRIPTION)) for m in messages]


def can_retry(outcome: Outcome) -> bool:
    """Return whether a settlement that ended so may succeed when it is tried again."""
    is_open = outcome.status in (OutcomeStatus.UNCONFIRMED, OutcomeStatus.SKIPPED)
    return is_open or (outcome.status is OutcomeStatus.FAILED and outcome.retryable is True)


def _withheld(batch: LockedBatch, pairs: Sequence[_Enveloped], index: int) -> tuple[OutcomeStatus, str] | None:
    """Withhold the envelope of a message whose lock has ended: another consumer may have it, and send its own."""
    if batch.holds(pairs[index][0].message):
        return None
    return OutcomeStatus.LOCK_LOST, "The lock had ended before it was sent."


def _refused(message: LockedMessage, destination: EntityAddress, sent: Outcome) -> Outcome:
    return replace(
        sent,
        verb="dead-letter",
        entity=message.entity,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
        description=f"The envelope to {destination} was not confirmed: {sent.description or sent.status}",
    )


def explained_end(outcome: Outcome, ended: EndedCall) -> Outcome:
    if ended.done_at is not None:
        why = f"Its work was done before, at {ended.done_at:%Y-%m-%d %H:%M:%S} UTC: the function was not called."
    elif ended.fault is None:
        return outcome
    else:
        name = {End.FAILED: ended.fault.type, End.REJECTED: ended.fault.reason}.get(ended.end)
        why = ": ".join(filter(None, [f"The function {_HOW_IT_ENDED[ended.end]}", name, ended.fault.text]))
    said = why if outcome.ok else f"{why} {outcome.description or ''}".strip()
    return replace(outcome, description=scrub(said, _MAX_DESCRIPTION))
