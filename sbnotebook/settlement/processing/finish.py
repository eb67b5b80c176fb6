"""Finish messages whose function has ended: send their envelopes, remember the work, then settle, with retries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Abandon,
    Complete,
    Decision,
    EntityAddress,
    LockedMessage,
    Message,
    Outcome,
    OutcomeStatus,
    Release,
)
from sbnotebook.model.decision import AUTO
from sbnotebook.settlement.connecting.connection import scrub
from sbnotebook.settlement.connecting.failures import Failure
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.locking.sessions import SessionBatch
from sbnotebook.settlement.memory.namespace_tables import NamespaceTables
from sbnotebook.settlement.processing.calls import EndedCall
from sbnotebook.settlement.processing.envelopes import envelope_of
from sbnotebook.settlement.processing.policy import End, Policy, PolicyRow
from sbnotebook.settlement.sending.delivery import SEND, send_many
from sbnotebook.settlement.sending.sender_pool import SenderPool
from sbnotebook.settlement.terms import outcome_for

_IN_SESSION: Final = 50
"""Settlements of a session that wait for their answer at once. It ends too soon to learn what the network bears."""
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


@dataclass(slots=True, eq=False)
class Finisher:
    policy: Policy
    namespace: str
    pools: Mapping[EntityAddress, SenderPool]
    abandons: bool
    tables: NamespaceTables | None = None
    """What remembers finished work; None where nothing does."""
    error: Exception | None = None
    """A local error that ends the run, such as a full disk."""

    async def settle(self, batch: LockedBatch, ends: Sequence[EndedCall]) -> list[Outcome]:
        # A message whose envelope was not confirmed is not settled: the refusal is its outcome.
        outcomes = await self._send_envelopes(batch, ends)
        refused = [ended for ended in ends if ended in outcomes]
        decisions = {ended: self.decision(ended) for ended in ends if ended not in outcomes}
        # With its envelope sent, the work of a message that is completed now is done.
        enveloped = [ended for ended, decision in decisions.items() if isinstance(decision, Complete)]
        await self._write_down([ended.message for ended in enveloped if ended.is_enveloped])
        outcomes |= await self._settle_all(batch, decisions)
        if self.abandons:
            await self._settle_all(batch, dict.fromkeys(refused, Abandon()))
        return [_explained(outcomes[ended], ended) for ended in ends]

    def decision(self, ended: EndedCall) -> Decision:
        """Return the decision for a message. One whose work was done before is completed."""
        return Complete() if ended.done_at is not None else self._row(ended).decision_for(ended.fault)

    def returns(self, ended: EndedCall) -> bool:
        return isinstance(self.decision(ended), (Abandon, Release))

    def _row(self, ended: EndedCall) -> PolicyRow:
        return self.policy.row(ended.end)

    # ---------------------------------------------------------------- envelopes

    async def _send_envelopes(self, batch: LockedBatch, ends: Sequence[EndedCall]) -> dict[EndedCall, Outcome]:
        """Send the envelopes that have not been confirmed before, and return how those ended that are not now."""
        by_destination: defaultdict[EntityAddress, list[tuple[EndedCall, Message]]] = defaultdict(list)
        for ended in ends:
            destination = self._row(ended).destination
            if destination is not None and ended.fault is not None and not ended.is_enveloped:
                envelope = envelope_of(ended.message, ended.fault, namespace=self.namespace, now=batch.clock.now())
                by_destination[destination].append((ended, envelope))
        refused: dict[EndedCall, Outcome] = {}
        for destination, pairs in by_destination.items():
            try:
                envelopes, withhold = [envelope for _, envelope in pairs], partial(_withheld, batch, pairs)
                sent = await send_many(self.pools[destination], envelopes, replace(SEND, withhold=withhold))
            except (ServiceBusError, OSError) as error:
                # No sender could be opened: nothing was sent.
                failure = Failure.of(error)
                sent = [replace(failure.outcome("send", e.message), status=OutcomeStatus.FAILED) for e, _ in pairs]
            for (ended, _), outcome in zip(pairs, sent, strict=True):
                ended.is_enveloped = outcome.ok
                if not outcome.ok:
                    refused[ended] = _refused(ended.message, destination, outcome)
        return refused

    # ---------------------------------------------------------------- the memory of finished work

    async def remember(self, ends: Sequence[EndedCall]) -> None:
        """Remember messages whose work is done, before :meth:`settle`, which remembers those with an envelope."""
        done = self.policy.done
        await self._write_down([ended.message for ended in ends if ended.end in done and ended.done_at is None])

    async def _write_down(self, done: Sequence[LockedMessage]) -> None:
        if self.tables is not None and done:
            try:
                await anyio.to_thread.run_sync(self.tables.remember_done, done)
            except Exception as error:  # noqa: BLE001 (a full disk, a deleted file)
                # The error ends the run. The work is done nevertheless, and a completed message is not delivered again.
                self.error = self.error or error

    # ---------------------------------------------------------------- settling

    async def _settle_all(
        self, batch: LockedBatch, decisions: Mapping[EndedCall, Decision]
    ) -> dict[EndedCall, Outcome]:
        outcomes: dict[EndedCall, Outcome] = {}
        left = dict(decisions)
        for pause in _PAUSES:
            await anyio.sleep(pause)
            by_decision: defaultdict[Decision, list[EndedCall]] = defaultdict(list)
            for ended, decision in left.items():
                by_decision[decision].append(ended)
            for decision, group in by_decision.items():
                settled = await self._settle_group(batch, decision, [ended.message for ended in group])
                outcomes |= zip(group, settled, strict=True)
            left = {ended: decision for ended, decision in left.items() if can_retry(outcomes[ended])}
            if not left or self.error is not None:
                break
        return outcomes

    async def _settle_group(
        self, batch: LockedBatch, decision: Decision, messages: Sequence[LockedMessage]
    ) -> Sequence[Outcome]:
        try:
            # The user's max_in_flight limits the functions, and not this.
            in_flight = _IN_SESSION if isinstance(batch, SessionBatch) else AUTO
            return await batch.settle(decision, messages, max_in_flight=in_flight)
        except DecisionError as error:
            if not all(map(batch.holds, messages)):
                return await self._settle_held(batch, decision, messages)
            # A message that is rejected in a dead-letter queue stays there.
            return [outcome_for(m, decision, OutcomeStatus.FAILED, str(error)) for m in messages]
        except Exception as error:  # noqa: BLE001 (the journal or archive failed before anything was settled)
            if not isinstance(error, ServiceBusError):
                self.error = self.error or error
            why = f"Not attempted: {type(error).__name__}: {error}"
            return [outcome_for(m, decision, OutcomeStatus.SKIPPED, scrub(why, _MAX_DESCRIPTION)) for m in messages]

    async def _settle_held(
        self, batch: LockedBatch, decision: Decision, messages: Sequence[LockedMessage]
    ) -> Sequence[Outcome]:
        """Settle those that are held: the batch refuses all if one lock ended so long ago that it has forgotten it."""
        held = {message.lock_token: message for message in messages if batch.holds(message)}
        settled = await self._settle_group(batch, decision, [*held.values()])
        known = dict(zip(held, settled, strict=True))
        return [known.get(m.lock_token) or outcome_for(m, decision, OutcomeStatus.LOCK_LOST, _LOST) for m in messages]


def can_retry(outcome: Outcome) -> bool:
    """Return whether a settlement that ended so may succeed when it is tried again."""
    if outcome.status in (OutcomeStatus.UNCONFIRMED, OutcomeStatus.SKIPPED):
        return True
    return outcome.status is OutcomeStatus.FAILED and outcome.retryable is True


def _withheld(
    batch: LockedBatch, pairs: Sequence[tuple[EndedCall, Message]], index: int
) -> tuple[OutcomeStatus, str] | None:
    """Withhold the envelope of a message whose lock has ended: another consumer may have it, and send its own."""
    return (
        None
        if batch.holds(pairs[index][0].message)
        else (OutcomeStatus.LOCK_LOST, "The lock had ended before it was sent.")
    )


def _refused(message: LockedMessage, destination: EntityAddress, sent: Outcome) -> Outcome:
    return replace(
        sent,
        verb="dead-letter",
        entity=message.entity,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
        description=f"The envelope to {destination} was not confirmed: {sent.description or sent.status}",
    )


def _explained(outcome: Outcome, ended: EndedCall) -> Outcome:
    explanation = _explanation(ended)
    if explanation is None:
        return outcome
    text = explanation if outcome.ok else f"{explanation} {outcome.description or ''}"
    return replace(outcome, description=scrub(text.strip(), _MAX_DESCRIPTION))


def _explanation(ended: EndedCall) -> str | None:
    if ended.done_at is not None:
        return f"Its work was done before, at {ended.done_at:%Y-%m-%d %H:%M:%S} UTC: the function was not called."
    if ended.fault is None:
        return None
    fault = ended.fault
    words = [fault.type] if ended.end is End.FAILED else [fault.reason] if ended.end is End.REJECTED else []
    words += [fault.text] if fault.text else []
    return ": ".join([f"The function {_HOW_IT_ENDED[ended.end]}", *words])
