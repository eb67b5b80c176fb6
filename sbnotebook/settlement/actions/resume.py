"""Finishing interrupted resubmits: by the journal, and by the messages in their source and destination."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
from azure.core.exceptions import AzureError, ResourceNotFoundError

from sbnotebook.model import EntityAddress, OutcomeStatus, PeekedMessage, Resubmit
from sbnotebook.model.edits import EditChange
from sbnotebook.settlement import administration
from sbnotebook.settlement.actions.reach import is_locked_elsewhere
from sbnotebook.settlement.actions.resubmit import Recall, Recalled, resubmit
from sbnotebook.settlement.connecting.failures import explained
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.memory.journal import ResubmitEntry, ResubmitState
from sbnotebook.settlement.place import Place, Resources
from sbnotebook.settlement.plan import Plan, Preview
from sbnotebook.settlement.requests import alike

_WHAT: Final = {
    "sent": "complete the original, whose clone was sent",
    "again": "send the clone again, then complete the original",
    "unknown": "keep the original: its clone may have been sent or not",
    "new": "nothing: it was finished meanwhile",
}
_LOCKED: Final = (
    "It exists but could not be locked: the interrupted run, or another receiver, still has its lock. Resume again "
    "after the lock has ended, or wait for it with max_wait."
)
_STATES: Final = {OutcomeStatus.SETTLED: ResubmitState.DONE, OutcomeStatus.NOT_FOUND: ResubmitState.GONE}
"""The state that the journal records for a resubmit, by the outcome of its original."""


@dataclass(frozen=True, slots=True)
class _Finding:
    entry: ResubmitEntry
    recalled: Recalled
    original: PeekedMessage | None = None
    unreachable: str | None = None

    @property
    def what(self) -> str:
        return _WHAT[self.recalled.verdict] if self.original else self.end[2]

    @property
    def message(self) -> PeekedMessage:
        """Return the original; where it is gone, a placeholder with its number and id."""
        entry = self.entry
        return self.original or PeekedMessage(
            entity=EntityAddress.parse(entry.source),
            sequence_number=entry.sequence_number,
            message_id=entry.message_id,
        )

    @property
    def end(self) -> tuple[OutcomeStatus, str, str]:
        """Return the outcome of one whose original is gone, and what its preview says."""
        if self.unreachable:
            return OutcomeStatus.FAILED, self.unreachable, "nothing: the original could not be looked at"
        if self.recalled.verdict == "sent":
            what = "nothing to send or complete: the clone was sent, and the original is gone already"
            return OutcomeStatus.SETTLED, "The clone was sent, and the original is gone already.", what
        if self.recalled.unseen:
            why = "the original is gone, and its clone could not be looked for"
            return OutcomeStatus.UNCONFIRMED, f"{why.capitalize()}: {self.recalled.unseen}", f"nothing: {why}"
        why = "the original is gone, and its clone is not to be found"
        return (
            OutcomeStatus.NOT_FOUND,
            f"{why.capitalize()}: others have settled them, or they expired.",
            f"nothing: {why}",
        )


async def plan_resume(
    place: Place,
    unfinished: Iterable[ResubmitEntry],
    others: Mapping[str, Resources],
    *,
    resend_unknown: bool = False,
    max_wait: float = 0.0,
) -> Plan:
    """Return a plan to finish interrupted resubmits of one entity, by the journal's entries of them.

    An original is completed if its clone is confirmed, or is in its destination. If the clone is missing, it is sent
    again, provided that the destination's duplicate detection would still drop a second one. Otherwise the original
    stays, with the outcome UNCONFIRMED. If the original is gone and its clone could not be looked for, the resubmit
    stays unfinished.
    """
    decision = Resubmit(resend_unknown=resend_unknown)
    findings = await _look(place, unfinished, Recall(place.namespace, decision, others))
    return place.new_plan(
        decision,
        (finding.message for finding in findings),
        partial(_resume, place, others, findings, decision, max_wait),
        described=_preview(place.in_plans, findings),
    )


# ---------------------------------------------------------------- looking


async def _look(place: Place, unfinished: Iterable[ResubmitEntry], recall: Recall) -> list[_Finding]:
    entries = list({each.key: each for each in unfinished}.values())
    # The originals first: of one that is gone by then, the clone was sent before.
    originals, unreachable = await _originals(place, entries)
    findings: list[_Finding] = []
    for those in alike(entries, lambda entry: entry.place):
        known = await recall.of(those[0].place, [entry.key for entry in those], can_make_edited=False)
        found = zip(those, known, strict=True)
        findings += [_Finding(entry, recalled, originals.get(entry.id), unreachable) for entry, recalled in found]
    return findings


async def _originals(place: Place, entries: Sequence[ResubmitEntry]) -> tuple[dict[int, PeekedMessage], str | None]:
    """Return the originals of entries, by the entry's id; or the reason why they could not be peeked at."""
    try:
        found = await place.peeker.messages_of([entry.sequence_number for entry in entries])
    except (AzureError, OSError) as error:
        unseen = f"{place.address} could not be looked into: {explained(error)}"
        return {}, None if await _is_missing(place) else unseen
    originals = [(entry, found.get(entry.sequence_number)) for entry in entries]
    return {entry.id: message for entry, message in originals if message is not None and entry.is_of(message)}, None


async def _is_missing(place: Place) -> bool:
    try:
        described = await administration.describe(place.namespace.connection, place.address.name)
    except ResourceNotFoundError:
        return True
    except (AzureError, OSError):
        return False
    return place.address.entity not in described.places


def _preview(entity: str, findings: Sequence[_Finding]) -> Preview:
    counts = Counter(finding.what for finding in findings)
    details = "; ".join(f"{what} ({count:,})" for what, count in counts.items())
    count = f"{len(findings):,} resubmit{'' if len(findings) == 1 else 's'}"
    sentence = f"finish {count} of {entity} that {'was' if len(findings) == 1 else 'were'} interrupted: {details}."
    return Preview(
        sentence if findings else f"no resubmit of {entity} was interrupted.",
        tuple(finding.message for finding in findings),
        tuple(EditChange(f.entry.sequence_number, "resubmit", str(f.entry.state), f.what) for f in findings),
    )


# ---------------------------------------------------------------- doing


async def _resume(
    place: Place,
    others: Mapping[str, Resources],
    planned: Sequence[_Finding],
    resubmitting: Resubmit,
    max_wait: float,
    run: Run,
) -> None:
    message_of = {finding.entry.id: message for finding, message in zip(planned, run.messages, strict=True)}
    # A peek may miss existing messages.
    found, unreachable = await _originals(place, [finding.entry for finding in planned if finding.original is None])
    findings = [
        each if each.original else replace(each, original=found.get(each.entry.id), unreachable=unreachable)
        for each in planned
    ]
    there = [finding.entry for finding in findings if finding.original is not None]
    until = anyio.current_time() + max_wait
    for entries in alike(there, lambda entry: entry.place):
        name, to = entries[0].place
        await resubmit(
            place,
            run,
            [message_of[entry.id] for entry in entries],
            decision=replace(resubmitting, to=to),
            resume_within=max(until - anyio.current_time(), 0.0),
            to_namespace=others.get(name),
        )
    held = [message for entry in there if is_locked_elsewhere(run.outcome_of(message := message_of[entry.id]))]
    run.end(held, OutcomeStatus.SKIPPED, _LOCKED)
    # If the run stopped before it attempted an existing original, that original is not gone.
    ends = {entry: run.outcome_of(message) for entry, message in message_of.items()}
    missed = {entry for entry, end in ends.items() if end is not None and end.status is OutcomeStatus.NOT_FOUND}
    gone = [finding for finding in findings if finding.original is None or finding.entry.id in missed]
    # A resubmit whose clone could not be looked for stays unfinished: the next resume looks again.
    for status, state in _STATES.items():
        ended = [finding.entry.id for finding in gone if finding.end[0] is status]
        await anyio.to_thread.run_sync(place.namespace.journal.mark, ended, state)
    for finding in gone:
        run.end([message_of[finding.entry.id]], *finding.end[:2])
