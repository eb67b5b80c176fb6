"""Sending removed messages back to their entities, from the archive.

Each is marked on disk before it is sent, and again when it is confirmed. So an undo that is interrupted or repeated
sends nothing twice, unless you ask for it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.errors import ArchiveError, ConfigurationError, DecisionError
from sbnotebook.model import (
    DeadLetter,
    EntityAddress,
    Outcome,
    OutcomeStatus,
    PeekedMessage,
    ReceivedMessage,
    Report,
    Resubmit,
    Undo,
)
from sbnotebook.model.clones import marked_id
from sbnotebook.model.message import ORIGINAL_MESSAGE_ID
from sbnotebook.model.report import counted
from sbnotebook.settlement import administration
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.memory.archive import Archive, ArchivedMessage, ArchiveState
from sbnotebook.settlement.place import Place, Resources
from sbnotebook.settlement.plan import Limits, Plan, Preview, moment_of, outcome_for
from sbnotebook.settlement.requests import alike
from sbnotebook.settlement.sending.delivery import SenderPool, send_many
from sbnotebook.settlement.wire.decoding import peeked_from_payload

_GROUP: Final = 500
"""Messages that are marked and sent together, and not interrupted: each group takes at least a round trip. So many are
also read at once."""
_GROUP_BYTES: Final = 4 * 1024 * 1024
"""Bytes of bodies in a group, if all are as large as the largest one. A group has 100 messages in any case."""
_LEAST: Final = 100
_NOT_REMOVING: Final = frozenset({"abandon", "defer", "release", "schedule", "send", "undo"})
"""What a report may tell of beside removals. To dead-letter is none either, unless a copy was sent elsewhere."""
_MAY_BE_GONE: Final = (OutcomeStatus.SETTLED, OutcomeStatus.UNCONFIRMED)
_TELLING: Final = (ArchiveState.REMOVING, ArchiveState.REMOVED, ArchiveState.RETURNING, ArchiveState.RETURNED)
"""The states of a message's rows, the most telling last."""
_UNKNOWN: Final = (ArchiveState.REMOVING, ArchiveState.RETURNING)
_TAKEN: Final = "Another undo has sent it back meanwhile or is about to, or its time in the archive is over."


_LEFT_OUT: Final = {
    "unknown": "Left out: {:,} in doubt. They may still be in the entity, or an interrupted undo may have sent them "
    "back. Peek at the entity, then include them with include_unknown=True.",
    "resubmitted": "Left out: {:,} resubmitted. Their clones exist, and sending the originals back would double them; "
    "to do so, use include_resubmitted=True, or %sb_undo --include-resubmitted.",
    "returned": "Left out: {:,} sent back before.",
    "namesakes": "Left out: {:,} with the same numbers and ids, removed when the entity was deleted and made anew. To "
    "send them back, use their own report, or entity=… and since=….",
    "missing": "Left out: {:,} not in the archive, which keeps messages removed on this machine for a limited time.",
}
"""The sentence of a plan about the messages that it leaves out, by the reason."""


async def plan_undo(
    namespace: Resources,
    report: Iterable[Outcome] | None = None,
    *,
    entity: str | EntityAddress | None = None,
    since: datetime | timedelta | None = None,
    to: str | EntityAddress | None = None,
    include_unknown: bool = False,
    include_resubmitted: bool = False,
    new_ids: bool | None = None,
) -> Plan:
    """Return a plan to send removed messages back: the same bodies and typed properties, with new sequence numbers.

    They are those of a report, or those that were removed from an entity, or since a time.
    """
    if (report, entity, since) == (None, None, None):
        raise DecisionError("Choose what to undo: a report, the messages removed from an entity=…, or since=….")
    if report is not None and (entity, since) != (None, None):
        raise DecisionError("A report says by itself what it removed: leave entity and since out.")
    destination = EntityAddress.parse(to) if to is not None else None
    decision = Undo(destination, include_unknown, include_resubmitted, new_ids)
    archive = namespace.archive
    if archive is None:
        raise ConfigurationError(
            "This namespace has no archive, so nothing that was removed can be sent back: "
            "it was turned off with archive=False or SBNOTEBOOK_ARCHIVE=off."
        )
    choice = report, EntityAddress.parse(entity) if entity is not None else None, moment_of(since)
    found, left = await anyio.to_thread.run_sync(_find, archive, namespace.identity, decision, *choice)
    if not found:
        raise DecisionError(" ".join(["There is nothing to send back.", *_left_out(left)]))
    places = _destinations(found, destination)
    renamed = {each for each in set(places.values()) if await _needs_new_ids(namespace, each, new_ids)}
    messages = await anyio.to_thread.run_sync(_messages, archive, found, places, renamed)
    rows = [row for row in found if row.row in messages]
    left["missing"] += len(found) - len(rows)  # pruned just now
    described = Preview(_sentence(rows, left, places, renamed, namespace.in_plans), tuple(messages.values()))
    work = partial(_send_back, namespace, archive, rows, places)
    return Place(namespace, found[0].address).new_plan(decision, messages.values(), work, described=described)


# ------------------------------------------------------------------ messages to send


def _find(
    archive: Archive,
    identity: Callable[[], str],
    decision: Undo,
    report: Iterable[Outcome] | None,
    entity: EntityAddress | None,
    since: datetime | None,
) -> tuple[list[ArchivedMessage], Counter[str]]:
    """Return the rows of messages to send back, and count the others."""
    found, left, namespace = list[ArchivedMessage](), Counter[str](), identity()
    if report is None:
        rows = archive.find(namespace, entity, since=since)
    else:
        rows = _of_report(archive, namespace, report, left)
    for row in _judged(rows):
        if row.state is ArchiveState.RETURNED:
            left["returned"] += 1
        elif row.verb == Resubmit.verb and not decision.include_resubmitted:
            left["resubmitted"] += 1
        elif row.state in _UNKNOWN and not decision.include_unknown:
            left["unknown"] += 1
        else:
            found.append(row)
    # As they came, and not as they were removed: in a session it matters.
    found.sort(key=lambda row: (row.enqueued_time, row.sequence_number))
    return found, left


def _removals(report: Iterable[Outcome]) -> Mapping[EntityAddress, dict[int, Outcome]]:
    """Return the last outcome of each message that the report says is, or may be, removed."""
    removals: defaultdict[EntityAddress, dict[int, Outcome]] = defaultdict(dict)
    for outcome in report:
        if outcome.sequence_number and outcome.status in _MAY_BE_GONE and outcome.verb not in _NOT_REMOVING:
            removals[outcome.entity][outcome.sequence_number] = outcome
    return removals


def _of_report(archive: Archive, host: str, report: Iterable[Outcome], left: Counter[str]) -> list[ArchivedMessage]:
    found: list[ArchivedMessage] = []
    made = report.made if isinstance(report, Report) else datetime.now(UTC)
    for entity, outcomes in _removals(report).items():
        rows = [
            row
            for row in archive.find(host, entity, numbers=list(outcomes))
            if outcomes[row.sequence_number].message_id in (None, row.message_id)
        ]
        # A queue that was created again counts from 1: take the message removed last before the report was made.
        in_order = sorted(rows, key=lambda row: (row.archived <= made.timestamp(), row.row))
        last = {row.sequence_number: row.place for row in in_order}
        found += [row for row in rows if row.place == last[row.sequence_number]]
        left["missing"] += sum(end.verb != DeadLetter.verb for number, end in outcomes.items() if number not in last)
        left["namesakes"] += len({row.place for row in rows}) - len(last)
    return found


def _judged(rows: Iterable[ArchivedMessage]) -> list[ArchivedMessage]:
    """Return the row that says most of each message, which has a row for each attempt to remove it."""
    telling = sorted((row for row in rows if row.state in _TELLING), key=lambda row: _TELLING.index(row.state))
    return list({row.place: row for row in telling}.values())


def _destinations(rows: Sequence[ArchivedMessage], to: EntityAddress | None) -> dict[int, EntityAddress]:
    stood = Counter(row.address for row in rows if row.address.subscription is not None)
    if stood and to is None:
        address = next(iter(stood))
        raise DecisionError(
            f"{stood.total():,} of the messages were in subscriptions, such as {address}: sent to the topic, they "
            "would go to all of its subscriptions. Choose a destination with to=…."
        )
    return {row.row: to or row.address.sends_to for row in rows}


async def _needs_new_ids(namespace: Resources, to: EntityAddress, new_ids: bool | None) -> bool:
    if new_ids is not None:
        return new_ids
    try:
        return bool((await administration.properties_of(namespace.connection, to)).requires_duplicate_detection)
    except ResourceNotFoundError:
        raise DecisionError(f"There is no queue or topic {to} any more: say where to send them, with to=….") from None
    except (AzureError, OSError) as error:
        raise DecisionError(
            f"It cannot be asked whether {to} drops duplicates, which needs the right Manage ({type(error).__name__}). "
            "If it does, messages with the ids that they had would be dropped: say new_ids=True, or else new_ids=False."
        ) from error


def _messages(
    archive: Archive, rows: Sequence[ArchivedMessage], places: Mapping[int, EntityAddress], renamed: set[EntityAddress]
) -> dict[int, PeekedMessage]:
    now = datetime.now(UTC)
    messages: dict[int, PeekedMessage] = {}
    for start in range(0, len(rows), _GROUP):
        part = rows[start : start + _GROUP]
        payloads = archive.payloads([row.row for row in part])
        for row in part:
            if row.row in payloads:
                messages[row.row] = _returned(payloads[row.row], row, now, new_id=places[row.row] in renamed)
    return messages


def _returned(payload: bytes, row: ArchivedMessage, now: datetime, *, new_id: bool) -> PeekedMessage:
    message = peeked_from_payload(payload, row.address)
    scheduled = message.scheduled_enqueue_time
    if scheduled is not None and scheduled <= now:
        message = message.with_changes(scheduled_enqueue_time=None)
    if message.sequence_number != row.sequence_number:
        message = message.with_changes(sequence_number=row.sequence_number)
    if not new_id:
        return message
    properties = dict(message.application_properties)
    if message.message_id is not None:
        properties.setdefault(ORIGINAL_MESSAGE_ID, message.message_id)
    # The same id each time: if an interrupted undo is repeated, duplicate detection helps.
    mark = hashlib.sha256(repr(row.place).encode()).hexdigest()[:16]
    new = marked_id(message.message_id or "", f"~undo-{mark}")
    return message.with_changes(message_id=new, application_properties=properties)


def _left_out(left: Counter[str]) -> list[str]:
    return [sentence.format(left[reason]) for reason, sentence in _LEFT_OUT.items() if left[reason]]


def _sentence(
    rows: Sequence[ArchivedMessage],
    left: Counter[str],
    places: Mapping[int, EntityAddress],
    renamed: set[EntityAddress],
    on: str,
) -> str:
    ways = Counter((row.address, places[row.row]) for row in rows)
    said = [f"{count:,} of {source} to {to}" for (source, to), count in ways.items()]
    clones = sum(row.verb == Resubmit.verb for row in rows)
    what = "restore the originals of" if clones == len(rows) else "send back"
    unknown = sum(row.state in _UNKNOWN for row in rows)
    names = ", ".join(sorted(map(str, renamed)))
    sentences = {
        f"{what} {counted(len(rows))}{on}: {', '.join(said)}.": True,
        "Service Bus accepts no messages into a dead-letter queue, so they go to its entity.": any(
            source.sub_queue is not None and source.sends_to == to for source, to in ways
        ),
        f"{clones:,} of them were resubmitted: this restores the originals and does not remove their clones, so there "
        "will be both.": clones,
        f"{unknown:,} of them may have arrived already, so there may be duplicates.": unknown,
        f"They get new message ids, so that {names} does not drop them as duplicates.": renamed,
    }
    return " ".join([*(sentence for sentence, is_said in sentences.items() if is_said), *_left_out(left)])


# ------------------------------------------------------------------ sending


async def _send_back(
    namespace: Resources,
    archive: Archive,
    rows: Sequence[ArchivedMessage],
    places: Mapping[int, EntityAddress],
    run: Run,
) -> None:
    row_of = {id(message): row for row, message in zip(rows, run.messages, strict=True)}

    async def send(pool: SenderPool, messages: Sequence[ReceivedMessage]) -> None:
        sent = {row_of[id(message)]: message for message in messages}
        run.expect(messages, await _send_group(archive, pool, sent, run.limits))

    for messages in alike(run.messages, lambda message: places[row_of[id(message)].row]):
        largest = max(len(message.body) for message in messages)
        size = max(_LEAST, min(_GROUP, _GROUP_BYTES // max(largest, 1)))
        pool = namespace.pool(places[row_of[id(messages[0])].row])
        await run.take(messages, partial(send, pool), size=size)


async def _send_group(
    archive: Archive, pool: SenderPool, messages: Mapping[ArchivedMessage, ReceivedMessage], limits: Limits
) -> list[Outcome]:
    async with pool.slot():
        pass  # a wrong destination raises before anything is marked
    # Mark the messages to send; another undo may have been quicker.
    expected = {row.row: row.state for row in messages}
    claimed = await anyio.to_thread.run_sync(archive.claim, expected)
    ours = {row.row: message for row, message in messages.items() if row.row in claimed}
    # Send, and record the outcomes.
    try:
        sent = await send_many(pool, ours.values(), max_in_flight=limits.max_in_flight)
    except ServiceBusError:  # nothing was sent
        await anyio.to_thread.run_sync(archive.note, {row: expected[row] for row in ours})
        raise
    ends = dict(zip(ours, sent, strict=True))
    states = {row: _state_after(end, expected[row]) for row, end in ends.items()}
    # Without this record they count as unknown. That must not hide the outcome.
    with contextlib.suppress(ArchiveError):
        await anyio.to_thread.run_sync(archive.note, states)
    return [
        ends.get(row.row) or outcome_for(message, Undo(), OutcomeStatus.SKIPPED, _TAKEN)
        for row, message in messages.items()
    ]


def _state_after(outcome: Outcome, before: ArchiveState) -> ArchiveState:
    known = {OutcomeStatus.SETTLED: ArchiveState.RETURNED, OutcomeStatus.UNCONFIRMED: ArchiveState.RETURNING}
    return known.get(outcome.status, before)
