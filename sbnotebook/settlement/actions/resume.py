"""Finishing resubmits that were cut off: by the journal, by what stands where they come from, and where they go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
from azure.core.exceptions import AzureError, ResourceNotFoundError

from sbnotebook.model import EntityAddress, Outcome, OutcomeStatus, PeekedMessage, Report, Resubmit
from sbnotebook.settlement import administration
from sbnotebook.settlement.actions.destination import destinations_of
from sbnotebook.settlement.actions.recall import Recall, Recalled, Verdict
from sbnotebook.settlement.actions.resubmit import LOCKED, Resubmitter
from sbnotebook.settlement.connecting.failures import explained
from sbnotebook.settlement.memory.journal import ResubmitEntry, ResubmitState
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Change, Limits, Plan, Preview
from sbnotebook.settlement.terms import Progress, outcome_for

__all__ = ["plan_resume"]

_GONE: Final = "the original is gone"
_WHAT: Final = {
    Verdict.SENT: "complete the original, whose clone was sent",
    Verdict.AGAIN: "send the clone again, then complete the original",
    Verdict.UNKNOWN: "leave the original: nobody knows whether its clone was sent",
    Verdict.NEW: "nothing: it was finished meanwhile",
}
_LOCKED: Final = (
    "It is there and could not be locked, because the run that was cut off, or somebody else, still has its lock: "
    "resume again when that has ended, or wait for it with max_wait."
)
_CLONE_GONE: Final = (
    "The original is gone, and its clone is not to be found: others have settled them, or they expired."
)


_PAUSE: Final = 5.0
"""Seconds between two looks for originals that are locked."""


@dataclass(frozen=True, slots=True)
class _Finding:
    """An unfinished resubmit, and what is known of it.

    Args:
        entry: the journal's.
        original: as it was peeked, None when it is gone.
        recalled: what became of its clone.
        unreachable: why the original could not be looked at.
    """

    entry: ResubmitEntry
    original: PeekedMessage | None
    recalled: Recalled
    unreachable: str | None = None

    @property
    def what(self) -> str:
        """What is done with it."""
        if self.unreachable is not None:
            return "nothing: the original could not be looked at"
        return _WHAT[self.recalled.verdict] if self.original else f"nothing: {_GONE}"

    @property
    def message(self) -> PeekedMessage:
        """The original; where it is gone, a stand-in with its number and id."""
        entry = self.entry
        return self.original or PeekedMessage(
            entity=EntityAddress.parse(entry.source),
            sequence_number=entry.sequence_number,
            message_id=entry.message_id,
        )


async def plan_resume(entity: Place, *, resend_unknown: bool = False, max_wait: float = 0.0) -> Plan:
    """A plan to finish the resubmits of messages of one entity that were cut off.

    An original whose clone is confirmed, or stands where it was sent to, is completed. Where the clone is not to be
    found, it is sent again if the destination's duplicate detection would still drop it in case it had arrived;
    otherwise the original is left as it is, with the outcome UNCONFIRMED.

    Args:
        entity: where the originals stand.
        resend_unknown: send again also what may have arrived and been consumed, unless it was edited.
        max_wait: seconds to wait for originals that are still locked.
    """
    namespace, decision = entity.namespace, Resubmit(resend_unknown=resend_unknown)
    entries = await anyio.to_thread.run_sync(namespace.journal.unfinished, namespace.host, entity.address.path)
    findings = await _survey(entity, list({entry.key: entry for entry in entries}.values()), decision)
    return Plan(
        entity.address,
        decision,
        tuple(finding.message for finding in findings),
        partial(_carry_out, entity, findings, max_wait, resend_unknown),
        describe=partial(_preview, entity.address, findings),
    )


# ---------------------------------------------------------------- looking


async def _survey(entity: Place, entries: Sequence[ResubmitEntry], decision: Resubmit) -> list[_Finding]:
    found, unreachable = await _standing(entity, [entry.sequence_number for entry in entries])
    findings: list[_Finding] = []
    destinations = destinations_of(entity.namespace)
    for destination, those in _by_destination(entries).items():
        recall = Recall(entity.namespace.journal, destinations, destination, decision)
        known = await recall.of(those, can_make_edited=False)
        for entry, recalled in zip(those, known, strict=True):
            message = found.get(entry.sequence_number)
            original = message if message is not None and entry.is_of(message) else None
            findings.append(_Finding(entry, original, recalled, unreachable))
    return findings


def _by_destination(entries: Iterable[ResubmitEntry]) -> dict[EntityAddress, list[ResubmitEntry]]:
    grouped: dict[EntityAddress, list[ResubmitEntry]] = {}
    for entry in entries:
        grouped.setdefault(EntityAddress.parse(entry.destination), []).append(entry)
    return grouped


async def _standing(entity: Place, numbers: Iterable[int]) -> tuple[dict[int, PeekedMessage], str | None]:
    """Which of some messages stand in an entity, by number; and why that could not be found out."""
    try:
        return await entity.namespace.peeker(entity.address).messages_of(numbers), None
    except (AzureError, OSError) as error:
        if await _is_missing(entity):
            return {}, None
        return {}, f"{entity.address} could not be looked into: {explained(error)}"


async def _is_missing(entity: Place) -> bool:
    try:
        described = await administration.describe(entity.namespace.connection, entity.address.name)
    except ResourceNotFoundError:
        return True
    except (AzureError, OSError):
        return False
    return entity.address.entity not in described.places


def _preview(entity: EntityAddress, findings: Sequence[_Finding], rows: int) -> Preview:
    shown = findings[:rows]
    counts: dict[str, int] = {}
    for finding in findings:
        counts[finding.what] = counts.get(finding.what, 0) + 1
    details = "; ".join(f"{what} ({count:,})" for what, count in counts.items())
    count = f"{len(findings):,} resubmit{'' if len(findings) == 1 else 's'}"
    sentence = f"finish {count} of {entity} that {'was' if len(findings) == 1 else 'were'} cut off: {details}."
    return Preview(
        sentence if findings else f"no resubmit of {entity} was cut off.",
        tuple(finding.message for finding in shown),
        tuple(Change(f.entry.sequence_number, "resubmit", str(f.entry.state), f.what) for f in shown),
    )


# ---------------------------------------------------------------- doing


async def _carry_out(
    entity: Place,
    findings: Sequence[_Finding],
    max_wait: float,
    resend_unknown: bool,
    plan: Plan,
    limits: Limits,
    progress: Progress | None,
) -> Report:
    there = [finding for finding in findings if finding.original is not None]
    outcomes: dict[int, Outcome] = {}
    until = anyio.current_time() + max_wait
    while there:
        for destination, entries in _by_destination(finding.entry for finding in there).items():
            those = [finding for finding in there if finding.entry in entries]
            part = replace(plan, messages=tuple(finding.message for finding in those))
            decision = Resubmit(to=destination, resend_unknown=resend_unknown)
            report = await Resubmitter(entity, decision, only_begun=True).run(part, limits, progress)
            outcomes |= {finding.entry.id: outcome for finding, outcome in zip(those, report, strict=True)}
        there = [finding for finding in there if outcomes[finding.entry.id].description == LOCKED]
        left = until - anyio.current_time()
        if left <= 0:
            break
        if there:
            await anyio.sleep(min(_PAUSE, left))
    for finding in there:
        outcomes[finding.entry.id] = replace(outcomes[finding.entry.id], description=_LOCKED)
    kept = {number for number, outcome in outcomes.items() if outcome.status is not OutcomeStatus.NOT_FOUND}
    gone = [finding for finding in findings if finding.entry.id not in kept]
    outcomes |= await anyio.to_thread.run_sync(_close, entity, gone, plan)
    if progress is not None:
        progress(len(gone))
    return Report(outcomes[finding.entry.id] for finding in findings)


def _close(entity: Place, gone: Sequence[_Finding], plan: Plan) -> dict[int, Outcome]:
    """End the entries whose originals are gone."""
    journal = entity.namespace.journal
    sent = [finding for finding in gone if finding.recalled.verdict is Verdict.SENT and not finding.unreachable]
    lost = [finding for finding in gone if finding.recalled.verdict is not Verdict.SENT and not finding.unreachable]
    journal.mark([finding.entry.id for finding in sent], ResubmitState.DONE)
    journal.mark([finding.entry.id for finding in lost], ResubmitState.GONE)
    outcomes: dict[int, Outcome] = {}
    for finding in gone:
        if finding.unreachable is not None:
            status, why = OutcomeStatus.FAILED, finding.unreachable
        elif finding in sent:
            status, why = OutcomeStatus.SETTLED, "The clone was sent, and the original is gone already."
        else:
            status, why = OutcomeStatus.NOT_FOUND, _CLONE_GONE
        outcomes[finding.entry.id] = outcome_for(finding.message, plan.decision, status, why)
    return outcomes
