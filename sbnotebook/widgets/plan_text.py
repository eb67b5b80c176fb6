"""A plan as text and as code before it is carried out, and its report as text afterwards."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sbnotebook.amqp import AmqpValue
from sbnotebook.analysis.descriptions import masked
from sbnotebook.client import Namespace, Plan
from sbnotebook.model import Message, Outcome, OutcomeStatus, Report, Resubmit, Send, Undo
from sbnotebook.model.body import json_letters
from sbnotebook.model.durations import duration_text
from sbnotebook.model.edits import EditChange
from sbnotebook.model.property_text import text_and_type
from sbnotebook.model.report import PAST, counted
from sbnotebook.settlement import Preview
from sbnotebook.widgets.blocks import Block, Table, Text, Title
from sbnotebook.widgets.pretty import cell, json_layout, weight
from sbnotebook.widgets.table.row_packing import title_of

REMOVING: Final = frozenset({"cancel", "complete", "dead-letter", "purge", "resubmit"})
"""Verbs after which a message has left its entity."""
_SENDING: Final = frozenset({Send.verb, Undo.verb})
"""Verbs for which you find an unconfirmed message in its destination, and not in its source."""
_ARCHIVED: Final = REMOVING - {"dead-letter"}
_COLUMNS: Final = (
    "sequence_number",
    "enqueued_time",
    "subject",
    "message_id",
    "dead_letter_reason",
    "dead_letter_error_description",
    "body_text",
)
_SENT_COLUMNS: Final = (
    "subject",
    "message_id",
    "session_id",
    "correlation_id",
    "content_type",
    "application_properties",
    "body_text",
)
"""Columns of new messages, which are in no table yet."""
_MAX_SHARED: Final = 40
"""Characters of a value that all messages have, which the caption says in place of a column."""
_MAX_CELL: Final = 80
_MAX_FAILURES: Final = 50
_MAX_NAMED: Final = 5
_MAX_REASONS: Final = 1_000
_MAX_LINES: Final = 40
_MAX_CHANGES: Final = 200_000
"""Bytes of all changes, of the megabyte that a message to the browser may have."""
_READ_ONLY: Final = (
    "It cannot be carried out: writing is off on the connection to {}. Turn it on with "
    "%sb_connect --write, or connect(…, write=True)."
)
_MEANING: Final = {
    OutcomeStatus.SETTLED: "The service confirmed it.",
    OutcomeStatus.LOCK_LOST: "The lock had ended: nothing was done, and the message is delivered again.",
    OutcomeStatus.ALREADY_SETTLED: "It was settled before.",
    OutcomeStatus.NOT_FOUND: "It is not there any more.",
    OutcomeStatus.UNCONFIRMED: "No answer came: it may have happened or not.",
    OutcomeStatus.FAILED: "Nothing was done; the list below says why.",
    OutcomeStatus.SKIPPED: "It was not attempted: nothing was done, and you can plan it again.",
}


def can_undo(report: Report, namespace: Namespace) -> bool:
    return namespace.archive is not None and any(each.ok and each.verb in _ARCHIVED for each in report)


def can_resume(report: Report) -> bool:
    failures = (each.status for each in report.failures if each.verb == Resubmit.verb)
    return any(status in (OutcomeStatus.UNCONFIRMED, OutcomeStatus.LOCK_LOST) for status in failures)


# ------------------------------------------------------------ before


def plan_blocks(
    plan: Plan, preview: Preview, namespace: Namespace, *, hidden: int = 0, title: str = "", rate: float | None = None
) -> list[Block]:
    pace = ""
    if rate is not None:
        least = duration_text(len(plan) / rate, rounded=True)
        pace = f"At most {rate:,g} messages a second, so it takes {least} or longer."
    real = f"It is carried out in {namespace.host}, which is not an emulator."
    unseen = f"{hidden:,} of them {'is' if hidden == 1 else 'are'} hidden by the filter, and not seen in the table."
    blocks: list[Block] = [
        *([Title(title, is_small=True)] if title else []),
        Text(f"{preview.sentence[:1].upper()}{preview.sentence[1:]}", is_strong=True),
        Text(pace),
        Text("" if namespace.is_emulator else real, "warning"),
        Text(unseen if hidden else "", "warning"),
        *_of_return(plan.verb, namespace),
        Text(_READ_ONLY.format(namespace.host) if namespace.read_only else "", "warning"),
    ]
    if preview.changes:
        blocks.append(changes_table(preview.changes, f"What changes in the first {len(preview.messages):,}"))
    if preview.messages:
        shown, total = len(preview.messages), len(plan)
        caption = f"The first {shown:,} of {total:,} messages" if shown < total else counted(total)
        columns = _SENT_COLUMNS if plan.verb == Send.verb else _COLUMNS
        blocks.append(_messages(preview.messages, columns, caption, is_open=not preview.changes))
    return blocks


def _of_return(verb: str, namespace: Namespace) -> list[Block]:
    if verb not in _ARCHIVED:
        return []
    if namespace.archive is None:
        return [Text("There is no archive, so this cannot be undone.", "warning")]
    undo = ". The clones cannot be taken back." if verb == Resubmit.verb else ", so that it can be undone."
    return [Text(f"Their originals are kept for {namespace.archive.retention.days:,} days{undo}", "quiet")]


def _messages(messages: Sequence[Message], columns: Sequence[str], caption: str, *, is_open: bool) -> Block:
    values = [[_value_of(message, name) for name in columns] for message in messages]
    used = [place for place in range(len(columns)) if any(row[place] not in (None, "", {}) for row in values)]
    told = [place for place in used if not _is_one_short_text([row[place] for row in values])] or used
    same = [f"{title_of(columns[at])} {_short(values[0][at])}" for at in used if at not in told]
    if same:
        caption += f". Each of these {len(values):,} has {', '.join(same).removesuffix('.')}."
    return Table(
        [title_of(columns[place]) for place in told],
        [[_short(row[place]) for place in told] for row in values],
        caption,
        is_open=is_open,
    )


def _is_one_short_text(values: Sequence[object]) -> bool:
    first = values[0]
    return len(values) > 1 and isinstance(first, str) and len(first) <= _MAX_SHARED and len(set(values)) == 1


def _value_of(message: Message, name: str) -> object:
    value = getattr(message, name, None)
    return json_letters(value) if name == "body_text" and value else value


def _short(value: object) -> object:
    if isinstance(value, Mapping):  # application properties
        properties: Mapping[str, AmqpValue] = value
        told = ((name, *text_and_type(each)) for name, each in properties.items())
        value = ", ".join(f"{name} = {text} ({kind})" for name, text, kind in told)
    if isinstance(value, str):
        value = " ".join(value.split())  # a stack trace would take the place of the other rows, and of the buttons
    return value if isinstance(value, int) else cell(value, _MAX_CELL)


def changes_table(changes: Sequence[EditChange], caption: str = "") -> Block:
    rows: list[list[object]] = []
    room = _MAX_CHANGES
    for change in changes:
        lines = _lines(change.before, change.after)
        room -= weight(change.field) + sum(weight(text) for _, text in lines)
        if room < 0:
            rows.append(["", "…", [(" ", f"{len(changes) - len(rows):,} more changes")]])
            break
        rows.append([change.sequence_number, change.field, lines])
    return Table(["message", "field", "change"], rows, caption)


def _lines(before: str, after: str) -> list[tuple[str, str]]:
    old, new = _laid_out(before), _laid_out(after)
    if max(len(old), len(new)) == 1 or old == new:  # only spaces that the layout does not have
        return [("-", cell(before)), ("+", cell(after))]
    hunks = list(difflib.unified_diff(old, new, n=2, lineterm=""))[2:]
    # The first of them says only where the change begins.
    lines = [(" ", "…") if line.startswith("@@") else (line[:1], cell(line[1:])) for line in hunks[1:]]
    more = len(lines) - _MAX_LINES
    return [*lines[:_MAX_LINES], *([(" ", f"… {more:,} more lines")] if more > 0 else [])]


def _laid_out(text: str) -> list[str]:
    """Return the lines of a text, and of JSON a line for each value."""
    layout = json_layout(text, 20_000).text if text[:1] in ("{", "[") else ""
    return (layout or text).splitlines() or [text]


# ------------------------------------------------------------ afterwards


def report_blocks(report: Report, plan: Plan, *, cancelled: bool = False) -> list[Block]:
    verb = plan.verb.capitalize()
    if cancelled and not report:
        return [Title(f"{verb} was cancelled", is_small=True), Text("Nothing was done yet.")]
    ended = "is done" if report.ok else "was cancelled" if cancelled else "has ended"
    blocks: list[Block] = [
        Title(f"{verb} {ended}", is_small=True),
        Text(_done(plan, report), "good" if report.ok else "warning"),
        Text("" if report.speed is None else f"It ended {report.speed}.", "quiet"),
    ]
    if not report.ok:
        counts = [[str(status), count, _MEANING[status]] for status, count in report.counts.items()]
        blocks += [
            Table(["status", "messages", "what it means"], counts),
            Text(_advice(report, plan.verb), "warning"),
            _failures(failure_groups(report)),
        ]
    return blocks


def _done(plan: Plan, report: Report) -> str:
    done, total = report.settled, len(report)
    count = counted(total) if done == total else f"{done:,} of {counted(total)}"
    place = {Send.verb: f" to {plan.entity}", Undo.verb: ""}.get(plan.verb, f" of {plan.entity}")
    if isinstance(plan.decision, Resubmit) and plan.inner.described is None:
        place = f" to {plan.decision.to or plan.entity.sends_to}"
    return f"{PAST.get(plan.verb, 'settled').capitalize()} {count}{place}."


def _advice(report: Report, verb: str) -> str:
    unknown = report.counts.get(OutcomeStatus.UNCONFIRMED, 0)
    if not unknown:
        return ""
    of = f"Of {counted(unknown)} it is unknown whether"
    if can_resume(report):
        return (
            f"{of} the clone was sent. Resume looks in the source and the destination, and finishes all "
            "resubmits that it can without sending a message twice."
        )
    if verb in _SENDING:
        return f"{of} Service Bus has it. Look for it before you send it again: otherwise it may be there twice."
    return (
        f"{of} it happened. Load them again: missing messages are done, and you can choose the others "
        f"to {verb} once more."
    )


class FailureGroup(NamedTuple):
    status: OutcomeStatus
    why: str
    outcomes: list[Outcome]


def failure_groups(report: Report) -> list[FailureGroup]:
    """Group the messages that were not settled, the largest group first, and skipped ones last."""
    reasons: dict[str, str] = {}
    groups: dict[tuple[OutcomeStatus, str], FailureGroup] = {}
    for each in report.failures:
        said = each.description or str(each.condition or "")
        if said not in reasons and len(reasons) < _MAX_REASONS:
            reasons[said] = masked(said)
        why = reasons.get(said, said)
        groups.setdefault((each.status, why), FailureGroup(each.status, why, [])).outcomes.append(each)
    # Skipped messages are mentioned already, and would hide the others.
    return sorted(groups.values(), key=lambda group: (group.status is OutcomeStatus.SKIPPED, -len(group.outcomes)))


def _failures(groups: Sequence[FailureGroup]) -> Block:
    more = f", the first {_MAX_FAILURES} reasons shown" if len(groups) > _MAX_FAILURES else ""
    is_numbered = any(each.sequence_number is not None for group in groups for each in group.outcomes)
    name = "sequence_number" if is_numbered else "message_id"
    rows = [
        [len(group.outcomes), str(group.status), group.why, _first(group, name)] for group in groups[:_MAX_FAILURES]
    ]
    total = sum(len(group.outcomes) for group in groups)
    is_open = groups[0].status is not OutcomeStatus.SKIPPED
    caption = f"Not settled: {counted(total)}, by reason{more}"
    return Table(["messages", "status", "why", title_of(name)], rows, caption, is_open=is_open)


def _first(group: FailureGroup, name: str) -> str:
    found = [cell(getattr(each, name), _MAX_CELL) for each in group.outcomes[:_MAX_NAMED]]
    return ", ".join(found) + (", …" if len(group.outcomes) > _MAX_NAMED else "")
