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

from sbnotebook.model import EntityAddress, Outcome, OutcomeStatus, PeekedMessage, Resubmit
from sbnotebook.settlement import administration
from sbnotebook.settlement.actions.clone_search import searches_in
from sbnotebook.settlement.actions.reach import is_locked_elsewhere
from sbnotebook.settlement.actions.recall import Recall, Recalled, Verdict
from sbnotebook.settlement.actions.resubmit import resubmit
from sbnotebook.settlement.connecting.failures import explained
from sbnotebook.settlement.costs import Cost
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.memory.journal import ResubmitEntry, ResubmitState
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import EditChange, Plan, Preview
from sbnotebook.settlement.resources import Resources

_FINISHED: Final = "nothing to send or complete: the clone was sent, and the original is gone already"
_GONE: Final = "nothing: the original is gone, and its clone is not to be found"
_UNSEEN: Final = "nothing: the original is gone, and its clone could not be looked for"
_WHAT: Final = {
    Verdict.SENT: "complete the original, whose clone was sent",
    Verdict.AGAIN: "send the clone again, then complete the original",
    Verdict.UNKNOWN: "keep the original: its clone may have been sent or not",
    Verdict.NEW: "nothing: it was finished meanwhile",
}
_LOCKED: Final = (
    "It exists but could not be locked: the interrupted run, or another receiver, still has its lock. Resume again "
    "after the lock has ended, or wait for it with max_wait."
)
_CLONE_GONE: Final = (
    "The original is gone, and its clone is not to be found: others have settled them, or they expired."
)
_CLONE_UNSEEN: Final = "The original is gone, and its clone could not be looked for"

_PAUSE: Final = 5.0
"""Seconds between two looks for originals that are locked."""


@dataclass(frozen=True, slots=True)
class _Finding:
    entry: ResubmitEntry
    original: PeekedMessage | None
    recalled: Recalled
    unreachable: str | None = None

    @property
    def what(self) -> str:
        if self.unreachable is not None:
            return "nothing: the original could not be looked at"
        if self.original is None and self.recalled.verdict is Verdict.SENT:
            return _FINISHED
        if self.original is None:
            return _UNSEEN if self.recalled.unseen else _GONE
        return _WHAT[self.recalled.verdict]

    @property
    def message(self) -> PeekedMessage:
        """Return the original; where it is gone, a placeholder with its number and id."""
        entry = self.entry
        return self.original or PeekedMessage(
            entity=EntityAddress.parse(entry.source),
            sequence_number=entry.sequence_number,
            message_id=entry.message_id,
        )


async def plan_resume(
    place: Place, *, resend_unknown: bool = False, max_wait: float = 0.0, others: Iterable[Resources] = ()
) -> Plan:
    """Return a plan to finish interrupted resubmits of messages of one entity.

    An original is completed if its clone is confirmed, or is in its destination. If the clone is missing, it is sent
    again, provided that the destination's duplicate detection would still drop a second one. Otherwise the original
    stays, with the outcome UNCONFIRMED. If the original is gone and its clone could not be looked for, the resubmit
    stays unfinished.
    """
    namespace, decision = place.namespace, Resubmit(resend_unknown=resend_unknown)
    identity = await anyio.to_thread.run_sync(namespace.identity)
    entries = await anyio.to_thread.run_sync(namespace.journal.unfinished, identity, place.address.path)
    there = {await anyio.to_thread.run_sync(other.identity): other for other in others}
    findings = await _survey(place, there, list({entry.key: entry for entry in entries}.values()), decision)
    return place.new_plan(
        decision,
        (finding.message for finding in findings),
        partial(_resume, place, there, findings, max_wait, resend_unknown),
        described=_preview(place.in_plans, findings),
        cost=Cost(transfers=2),
    )


# ---------------------------------------------------------------- looking


async def _survey(
    place: Place, others: Mapping[str, Resources], entries: Sequence[ResubmitEntry], decision: Resubmit
) -> list[_Finding]:
    found, unreachable = await _originals(place, [entry.sequence_number for entry in entries])
    findings: list[_Finding] = []
    search_in = searches_in(place.namespace, others)
    for destination, those in _by_destination(entries).items():
        recall = Recall(place.namespace.journal, search_in, destination, decision, place.namespace.clock)
        known = await recall.of(those[0].namespace, [entry.key for entry in those], can_make_edited=False)
        for entry, recalled in zip(those, known, strict=True):
            message = found.get(entry.sequence_number)
            original = message if message is not None and entry.is_of(message) else None
            findings.append(_Finding(entry, original, recalled, unreachable))
    return findings


def _by_destination(entries: Iterable[ResubmitEntry]) -> dict[tuple[str, EntityAddress], list[ResubmitEntry]]:
    grouped: dict[tuple[str, EntityAddress], list[ResubmitEntry]] = {}
    for entry in entries:
        grouped.setdefault(entry.place, []).append(entry)
    return grouped


async def _originals(place: Place, numbers: Iterable[int]) -> tuple[dict[int, PeekedMessage], str | None]:
    """Return the messages of an entity, by number; or the reason why they could not be peeked at."""
    try:
        return await place.peeker.messages_of(numbers), None
    except (AzureError, OSError) as error:
        if await _is_missing(place):
            return {}, None
        return {}, f"{place.address} could not be looked into: {explained(error)}"


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
    max_wait: float,
    resend_unknown: bool,
    run: Run,
) -> None:
    message_of = {finding.entry.id: message for finding, message in zip(planned, run.messages, strict=True)}
    findings = await _look_again(place, planned)
    there = [finding for finding in findings if finding.original is not None]
    until = anyio.current_time() + max_wait
    while there:
        for (name, destination), entries in _by_destination(finding.entry for finding in there).items():
            decision = Resubmit(to=destination, resend_unknown=resend_unknown)
            messages = [message_of[entry.id] for entry in entries]
            await resubmit(place, run, messages, decision, only_begun=True, to_namespace=others.get(name))
        there = [finding for finding in there if is_locked_elsewhere(run.outcome_of(message_of[finding.entry.id]))]
        left = until - anyio.current_time()
        if left <= 0:
            break
        if there:
            await anyio.sleep(min(_PAUSE, left))
            run.forget([message_of[finding.entry.id] for finding in there])
    run.end([message_of[finding.entry.id] for finding in there], OutcomeStatus.SKIPPED, _LOCKED)
    # If the run stopped before it attempted an existing original, that original is not gone.
    gone = [f for f in findings if f.original is None or _is_gone(run.outcome_of(message_of[f.entry.id]))]
    for finding, (status, why) in (await anyio.to_thread.run_sync(_close, place, gone)).items():
        run.end([message_of[finding]], status, why)


async def _look_again(place: Place, findings: Sequence[_Finding]) -> list[_Finding]:
    """Look once more for originals that were missing when the plan was made: a peek may miss existing messages."""
    absent = [finding.entry.sequence_number for finding in findings if finding.original is None]
    found, unreachable = await _originals(place, absent)
    looked: list[_Finding] = []
    for finding in findings:
        message = found.get(finding.entry.sequence_number)
        original = message if message is not None and finding.entry.is_of(message) else None
        is_new = finding.original is None
        looked.append(replace(finding, original=original, unreachable=unreachable) if is_new else finding)
    return looked


def _is_gone(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.status is OutcomeStatus.NOT_FOUND


def _close(place: Place, gone: Sequence[_Finding]) -> dict[int, tuple[OutcomeStatus, str]]:
    """End the entries whose originals are gone; the outcome of each by the entry's id.

    Those whose clone could not be looked for stay as they are: the next resume looks again.
    """
    ends: dict[int, tuple[OutcomeStatus, str]] = {}
    for finding in gone:
        unseen = finding.recalled.unseen
        if finding.unreachable:
            ends[finding.entry.id] = OutcomeStatus.FAILED, finding.unreachable
        elif finding.recalled.verdict is Verdict.SENT:
            ends[finding.entry.id] = OutcomeStatus.SETTLED, "The clone was sent, and the original is gone already."
        elif unseen:
            ends[finding.entry.id] = OutcomeStatus.UNCONFIRMED, f"{_CLONE_UNSEEN}: {unseen}"
        else:
            ends[finding.entry.id] = OutcomeStatus.NOT_FOUND, _CLONE_GONE
    journal = place.namespace.journal
    journal.mark([entry for entry, end in ends.items() if end[0] is OutcomeStatus.SETTLED], ResubmitState.DONE)
    journal.mark([entry for entry, end in ends.items() if end[0] is OutcomeStatus.NOT_FOUND], ResubmitState.GONE)
    return ends
