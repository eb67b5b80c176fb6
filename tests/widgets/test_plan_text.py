from __future__ import annotations

import json
from typing import Any

import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.entity import Entity
from sbnotebook.client.targets import Target
from sbnotebook.model import EntityAddress, Message, Outcome, OutcomeStatus, Report
from sbnotebook.model.edits import EditChange
from sbnotebook.settlement import Connection
from sbnotebook.widgets.blocks import Block, Table
from sbnotebook.widgets.plan_text import (
    can_undo,
    changes_table,
    failure_groups,
    plan_blocks,
    report_blocks,
)

AZURE = "Endpoint=sb://somewhere.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0"
ORDERS = EntityAddress("orders")


def report_of(verb: str, *statuses: OutcomeStatus) -> Report:
    outcomes = [Outcome(status, verb, ORDERS, number + 1, "m") for number, status in enumerate(statuses)]
    return Report(outcomes)


def words(blocks: list[Block]) -> str:
    texts = (getattr(block, "text", "") for block in blocks if not isinstance(block, Table))
    return "\n".join(filter(None, texts))


def rows_of(block: Block) -> Any:
    assert isinstance(block, Table)
    return block.rows


@pytest.fixture
def queue(namespace: Namespace, request: pytest.FixtureRequest) -> Entity:
    name = request.node.name.replace("_", "-")[:50]
    namespace.create_queue(name)
    queue = namespace.entity(name)
    queue.send([Message(message_id=f"m{n}", subject="<b>$x$</b>") for n in range(7)])
    return queue


def test_a_table_of_messages_leaves_out_what_they_share(namespace: Namespace, queue: Entity) -> None:
    plan = queue.purge()
    (table,) = [block for block in plan_blocks(plan, plan.preview(5), namespace) if isinstance(block, Table)]
    assert table.caption == "The first 5 of 7 messages. Each of these 5 has subject <b>$x$</b>."
    assert table.columns == ["sequence", "enqueued", "message id"]


def test_plan_names_the_host_and_says_what_cannot_be_undone() -> None:
    with Namespace(Target(Connection(AZURE), "a test"), archive=None) as azure:
        azure_plan: Any = azure.entity("orders").cancel_scheduled([1])
        said = words(plan_blocks(azure_plan, azure_plan.preview(), azure))
        assert "carried out in somewhere.servicebus.windows.net, which is not an emulator" in said
        assert "cannot be undone" in said
        assert not can_undo(report_of("complete", OutcomeStatus.SETTLED), azure)
        assert "c2VjcmV0" not in said


def test_a_report_says_what_is_not_done_and_what_to_do_about_it(queue: Entity) -> None:
    plan = queue.purge()
    settled = OutcomeStatus.SETTLED
    assert words(report_blocks(report_of("purge", settled), plan)) == (
        f"Purge is done\nPurged 1 message of {queue.address}."
    )
    blocks = report_blocks(
        report_of("purge", OutcomeStatus.SKIPPED, settled, OutcomeStatus.UNCONFIRMED), plan, cancelled=True
    )
    said = words(blocks)
    assert said.startswith("Purge was cancelled\nPurged 1 of 3 messages")
    assert "Of 1 message it is unknown whether it happened. Load them again" in said
    assert ["skipped", 1, "It was not attempted: nothing was done, and you can plan it again."] in rows_of(blocks[3])
    failures = rows_of(blocks[-1])
    assert [row[3] for row in failures] == ["3", "1"], "what is unknown stands before what was not attempted"
    assert words(report_blocks(Report(), plan, cancelled=True)) == "Purge was cancelled\nNothing was done yet."
    timed = report_of("purge", *[settled] * 500).timed(4.0, 40)
    assert words(report_blocks(timed, plan)).endswith("in 4s, 125 messages a second, at most 40 in flight.")
    sent = queue.plan_send(["a"])
    assert f"Sent 1 message to {queue.address}." in words(report_blocks(sent.apply(), sent))
    resubmitted = words(report_blocks(report_of("resubmit", OutcomeStatus.UNCONFIRMED), plan))
    assert "it is unknown whether the clone was sent. Resume looks" in resubmitted
    assert resubmitted.startswith("Purge has ended\nPurged 0 of 1"), "it is not done"
    sent_once = words(report_blocks(report_of("send", OutcomeStatus.UNCONFIRMED, OutcomeStatus.SKIPPED), sent))
    assert sent_once.startswith("Send has ended\nSent 0 of 2 messages to")
    assert "Look for it before you send it again" in sent_once
    assert "Load them again" not in sent_once, "it is in no table, and what is not there was not sent"
    many = report_blocks(report_of("purge", *[OutcomeStatus.FAILED] * 200), plan)
    assert rows_of(many[-1]) == [[200, "failed", "", "1, 2, 3, 4, 5, …"]]
    assert getattr(many[-1], "caption", "") == "Not settled: 200 messages, by reason"
    assert rows_of(many[3]) == [["failed", 200, "Nothing was done; the list below says why."]]


def test_failures_are_grouped_by_reason() -> None:
    def failed(number: int, why: str, status: OutcomeStatus = OutcomeStatus.FAILED) -> Outcome:
        return Outcome(status, "purge", ORDERS, number, "m", description=why)

    skipped = [failed(number, "It was cancelled.", OutcomeStatus.SKIPPED) for number in range(90, 99)]
    refused = [failed(number, f"Server busy, tracking {number}23") for number in range(1, 5)]
    groups = failure_groups(Report([*skipped, failed(7, "Too large"), *refused]))
    assert [(group.why, len(group.outcomes)) for group in groups] == [
        ("Server busy, tracking <n>", 4),
        ("Too large", 1),
        ("It was cancelled.", 9),
    ]
    distinct = Report([failed(number, chr(0x4E00 + number)) for number in range(5_000)])
    assert len(failure_groups(distinct)) == 5_000


def test_what_changes_is_shown_line_by_line() -> None:
    before = '{"code": "??", "legs": [{"to": "IAH"}], "a": 1, "b": 2, "c": 3, "fare": 1.10}'
    rows = rows_of(changes_table([EditChange(7, "body", before, before.replace("IAH", "EWR"))]))
    ((number, field, lines),) = rows
    assert (number, field) == (7, "body")
    assert ("-", '      "to": "IAH"') in lines
    assert ("+", '      "to": "EWR"') in lines
    assert ("+", '  "fare": 1.10') not in lines
    assert len(lines) < 10, "what stays is left out but for a few lines"
    ((_, _, short),) = rows_of(changes_table([EditChange(7, "subject", "a", "b\u202e")]))
    assert short == [("-", "a"), ("+", "b⟨U+202E⟩")]
    ((_, _, spaces),) = rows_of(changes_table([EditChange(7, "body", '{"a":1}', '{ "a":1}')]))
    assert spaces == [("-", '{"a":1}'), ("+", '{ "a":1}')]
    many = [EditChange(7, f"property {n}", "\u202e" * 2_000, "x") for n in range(5_000)]
    rows = rows_of(changes_table(many))
    assert len(json.dumps(rows, ensure_ascii=False).encode()) < 500_000
    assert rows[-1][2] == [(" ", f"{5_001 - len(rows):,} more changes")]
    long = "\n".join(map(str, range(400)))
    ((_, _, lines),) = rows_of(changes_table([EditChange(7, "body", "", long)]))
    assert len(lines) == 41
    assert "more lines" in lines[-1][1]
