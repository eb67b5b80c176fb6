"""Settling messages by how their functions ended: envelopes first, then the settlement, tried again where it can be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import UUID

import anyio
import anyio.to_thread
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.errors import DecisionError
from sbnotebook.model import Abandon, Complete, Decision, EntityAddress, LockedMessage, Message, Outcome, OutcomeStatus
from sbnotebook.settlement.connecting.connection import scrub
from sbnotebook.settlement.connecting.failures import outcome_of_error
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.locking.settle import outcome_for
from sbnotebook.settlement.memory.seen import Seen
from sbnotebook.settlement.processing.calls import Ended
from sbnotebook.settlement.processing.envelope import envelope_of
from sbnotebook.settlement.processing.policy import End, Policy, PolicyRow
from sbnotebook.settlement.sending.send import SenderPool, send_many

__all__ = ["Finish"]

_IN_FLIGHT: Final = 50
"""Settlements that wait for their answer at once: what is settled is done already, and has no need to wait in turn."""
_PAUSES: Final = (0.0, 1.0, 5.0)
"""Seconds before each further attempt to settle what has no answer, was not attempted, or may work the next time."""
_MAX_DESCRIPTION: Final = 1_000
_ENDED_HOW: Final = {
    End.SKIPPED: "skipped it",
    End.REJECTED: "rejected it",
    End.STOPPED: "stopped the run",
    End.FAILED: "failed",
}


class Finish:
    """Carries a policy out on messages whose functions have ended.

    Args:
        policy: the table.
        namespace: the host, for envelopes.
        pools: senders to the entities that envelopes go to.
        abandons: whether a message whose envelope is not confirmed is abandoned, to be delivered again; otherwise it
            is left as it is, to be released.
        seen: where messages that are completed after their envelope are remembered, None for no memory.
    """

    def __init__(
        self,
        policy: Policy,
        namespace: str,
        pools: Mapping[EntityAddress, SenderPool],
        *,
        abandons: bool,
        seen: Seen | None = None,
    ) -> None:
        self._policy = policy
        self._namespace = namespace
        self._pools = pools
        self._abandons = abandons
        self._seen = seen
        self._enveloped: dict[tuple[EntityAddress, int, datetime | None], Outcome] = {}
        """Confirmed envelopes of messages that are not settled: when these come again, no second one is sent."""
        self.error: Exception | None = None
        """Why nothing could be settled, where that is no matter of one message: a disk that is full."""

    async def settle(self, batch: LockedBatch, ends: Sequence[Ended]) -> list[Outcome]:
        """Settle some messages.

        Args:
            batch: which holds them.
            ends: how their functions ended.

        Returns:
            An outcome for each, in the same order. It says how the function ended where it did not return.
        """
        envelopes = await self._send_envelopes(batch, ends)
        found = {token: outcome for token, outcome in envelopes.items() if not outcome.ok}
        decisions: dict[UUID, Decision] = {}
        for ended in ends:
            token = ended.message.lock_token
            if token not in found:
                decisions[token] = self.decision(ended)
        messages = {ended.message.lock_token: ended.message for ended in ends}
        await self._write_down([messages[token] for token in envelopes if isinstance(decisions.get(token), Complete)])
        found |= await self._settle_all(batch, messages, decisions)
        for ended in ends:
            envelope, destination = envelopes.get(ended.message.lock_token), self._row(ended).destination
            if envelope and destination and envelope.ok and not found[ended.message.lock_token].ok:
                self._enveloped[_place(destination, ended.message)] = envelope
        if self._abandons:
            refused = {token: messages[token] for token in messages if token not in decisions}
            await self._settle_all(batch, refused, dict.fromkeys(refused, Abandon()))
        return [_explained(found[ended.message.lock_token], ended) for ended in ends]

    def decision(self, ended: Ended) -> Decision:
        """What becomes of a message; one whose work was done before is only completed."""
        return Complete() if ended.done_at is not None else self._row(ended).decision_for(ended.fault)

    def _row(self, ended: Ended) -> PolicyRow:
        return self._policy.row(ended.end)

    async def _send_envelopes(self, batch: LockedBatch, ends: Sequence[Ended]) -> dict[UUID, Outcome]:
        """Send what is to be sent before its message is settled; the outcomes by lock token."""
        by_destination: defaultdict[EntityAddress, list[tuple[LockedMessage, Message]]] = defaultdict(list)
        found: dict[UUID, Outcome] = {}
        for ended in ends:
            message, destination = ended.message, self._row(ended).destination
            if destination is None or ended.fault is None or ended.done_at is not None:
                continue
            sent_before = self._enveloped.pop(_place(destination, message), None)
            if sent_before is not None:
                found[message.lock_token] = sent_before
            else:
                envelope = envelope_of(message, ended.fault, namespace=self._namespace, now=batch.clock.now())
                by_destination[destination].append((message, envelope))
        for destination, pairs in by_destination.items():
            try:
                sent = await send_many(self._pools[destination], [envelope for _, envelope in pairs])
            except (ServiceBusError, OSError) as error:
                # It could not even be opened: nothing was sent.
                sent = [replace(_failure(message, error), status=OutcomeStatus.FAILED) for message, _ in pairs]
            for (message, _), outcome in zip(pairs, sent, strict=True):
                found[message.lock_token] = _of_envelope(message, destination, outcome)
        return found

    async def remember(self, ends: Sequence[Ended]) -> None:
        """Write down whose work is done, before they are settled; where an envelope comes first, that is not yet so."""
        done = self._policy.done
        await self._write_down([ended.message for ended in ends if ended.end in done and ended.done_at is None])

    async def _write_down(self, done: Sequence[LockedMessage]) -> None:
        if self._seen is not None and done:
            try:
                await anyio.to_thread.run_sync(self._seen.remember, done)
            except Exception as error:  # noqa: BLE001 (a disk that is full, a file that is gone)
                # The run ends with it; but the work is done, and what is completed now is not delivered again.
                self.error = self.error or error

    async def _settle_all(
        self, batch: LockedBatch, messages: Mapping[UUID, LockedMessage], decisions: Mapping[UUID, Decision]
    ) -> dict[UUID, Outcome]:
        found: dict[UUID, Outcome] = {}
        left = dict(decisions)
        for pause in _PAUSES:
            await anyio.sleep(pause)
            by_decision: defaultdict[Decision, list[LockedMessage]] = defaultdict(list)
            for token, decision in left.items():
                by_decision[decision].append(messages[token])
            for decision, group in by_decision.items():
                outcomes = await self._settle_some(batch, decision, group)
                found |= {message.lock_token: o for message, o in zip(group, outcomes, strict=True)}
            left = {token: decision for token, decision in left.items() if _may_work_now(found[token])}
            if not left or self.error is not None:
                break
        return found

    async def _settle_some(
        self, batch: LockedBatch, decision: Decision, messages: Sequence[LockedMessage]
    ) -> Sequence[Outcome]:
        try:
            return await batch.settle(decision, messages, max_in_flight=_IN_FLIGHT)
        except DecisionError as error:  # a message that is rejected in a dead-letter queue: it stays there
            return [outcome_for(m, decision, OutcomeStatus.FAILED, str(error)) for m in messages]
        except Exception as error:  # noqa: BLE001 (it could not be written down, so it was not done; others are settled)
            if not isinstance(error, ServiceBusError):
                self.error = self.error or error
            why = f"Not attempted: {type(error).__name__}: {error}"
            return [outcome_for(m, decision, OutcomeStatus.SKIPPED, scrub(why)) for m in messages]


def _place(destination: EntityAddress, message: LockedMessage) -> tuple[EntityAddress, int, datetime | None]:
    return destination, message.sequence_number, message.enqueued_time


def _may_work_now(outcome: Outcome) -> bool:
    if outcome.status in (OutcomeStatus.UNCONFIRMED, OutcomeStatus.SKIPPED):
        return True
    return outcome.status is OutcomeStatus.FAILED and outcome.retryable is True


def _failure(message: LockedMessage, error: Exception) -> Outcome:
    return outcome_of_error(
        error,
        verb="send",
        entity=message.entity,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
    )


def _of_envelope(message: LockedMessage, destination: EntityAddress, sent: Outcome) -> Outcome:
    why = None if sent.ok else f"The envelope to {destination} was not confirmed: {sent.description or sent.status}"
    return replace(
        sent,
        verb="dead-letter",
        entity=message.entity,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
        description=why,
    )


def _explained(outcome: Outcome, ended: Ended) -> Outcome:
    """The outcome with what is to be said of the function, where there is something."""
    said = _said(ended)
    if said is None:
        return outcome
    text = said if outcome.ok else f"{said} {outcome.description or ''}"
    return replace(outcome, description=scrub(text.strip())[:_MAX_DESCRIPTION])


def _said(ended: Ended) -> str | None:
    if ended.done_at is not None:
        return f"Its work was done before, at {ended.done_at:%Y-%m-%d %H:%M:%S} UTC: the function was not called."
    if ended.fault is None:
        return None
    fault = ended.fault
    words = [fault.type] if ended.end is End.FAILED else [fault.reason] if ended.end is End.REJECTED else []
    words += [fault.text] if fault.text else []
    return ": ".join([f"The function {_ENDED_HOW[ended.end]}", *words])
