from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, cast
from uuid import uuid4

import anyio
import pytest

from sbnotebook.errors import ArchiveError, ConfigurationError, DecisionError
from sbnotebook.model import (
    Abandon,
    CancelScheduled,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    EntityAddress,
    LockedMessage,
    Message,
    MessageState,
    Outcome,
    OutcomeStatus,
    PeekedMessage,
    ReceivedMessage,
    Release,
    Report,
    Resubmit,
    Send,
    Undo,
)
from sbnotebook.model.edits import Edit, EditChange, edit_json
from sbnotebook.settlement import AsyncNamespace, Connection
from sbnotebook.settlement.interrupts import reporting
from sbnotebook.settlement.pace import Pause, transfers_in_flight
from sbnotebook.settlement.plan import ApplyOnce, Limits, Plan, Progress, Ramp

ORDERS = EntityAddress("orders")


def peeked(number: int = 1, **fields: Any) -> PeekedMessage:
    return PeekedMessage(entity=ORDERS, sequence_number=number, **fields)


async def settle_all(plan: Plan, limits: Limits, progress: Progress | None) -> Report:
    if progress is not None:
        progress(transfers_in_flight(limits.max_in_flight))
    return Report(Outcome(OutcomeStatus.SETTLED, plan.decision.verb, plan.entity) for _ in plan.messages)


def plan_of(decision: Decision, count: int = 1, edit: Edit | None = None) -> Plan:
    return Plan(ORDERS, decision, tuple(peeked(number) for number in range(count)), settle_all, edit)


def anew(plan: Plan, **changes: Any) -> Plan:
    """Return a plan like another one that may have been applied."""
    return replace(plan, once=ApplyOnce(), **changes)


@pytest.mark.parametrize(
    ("decision", "sentence"),
    [
        (Complete(), "complete 2 messages of orders."),
        (Defer(), "defer 2 messages of orders."),
        (
            Defer(timedelta(hours=1)),
            "defer 2 messages of orders, and send a wake-up message for each to orders, active 1h later.",
        ),
        (
            Defer(timedelta(hours=1), EntityAddress("parts")),
            "defer 2 messages of orders, and send a wake-up message for each to parts, active 1h later.",
        ),
        (Release(), "release 2 messages of orders."),
        (Abandon(), "abandon 2 messages of orders; this raises their delivery counts."),
        (
            Abandon(timedelta(minutes=1)),
            "abandon 2 messages of orders, 1m later; this raises their delivery counts.",
        ),
        (DeadLetter(), "dead-letter 2 messages of orders."),
        (DeadLetter("Bad", "why"), "dead-letter 2 messages of orders with the reason 'Bad' and the description 'why'."),
        (Resubmit(), "resubmit 2 messages of orders."),
        (
            Resubmit(EntityAddress("parts"), timedelta(minutes=5), 3),
            "resubmit 2 messages of orders to parts, 5m later, at most 3 times each (then dead-lettered).",
        ),
    ],
    ids=str,
)
def test_a_plan_says_what_it_would_do(decision: Decision, sentence: str) -> None:
    assert str(plan_of(decision, 2).preview()) == sentence


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("contoso-prod.servicebus.windows.net", "contoso-prod"),
        ("contoso.servicebus.chinacloudapi.cn", "contoso.servicebus.chinacloudapi.cn"),
    ],
)
def test_plan_and_question_name_action_count_and_namespace(host: str, place: str) -> None:
    connection = Connection(f"Endpoint=sb://{host}/;SharedAccessKeyName=n;SharedAccessKey=a2V5")
    namespace = AsyncNamespace(connection, archive=None)
    letters = namespace.entity("orders/$dlq")
    found = [PeekedMessage(entity=letters.address, sequence_number=number) for number in range(1, 144)]
    plan = letters.plan_resubmit(found)
    assert plan.question == f"Resubmit 143 messages of orders/$dlq on {place}?"
    assert str(plan.preview()).startswith(f"resubmit 143 messages of orders/$dlq on {place} to orders.")
    moved = letters.plan_resubmit(found[:1], Resubmit(EntityAddress("parts")))
    assert moved.question == f"Resubmit 1 message of orders/$dlq on {place} to parts?"
    sent = namespace.entity("orders").plan_send(list, total=2)
    assert sent.question == f"Send 2 messages to orders on {place}?"
    assert str(sent.preview()).startswith(f"send 2 messages to orders on {place}.")


def test_a_question_about_an_emulator_has_no_namespace() -> None:
    assert plan_of(Complete(), 2).question == "Complete 2 messages of orders?"
    assert plan_of(DeadLetter(), 1).question == "Dead-letter 1 message of orders?"


def test_a_resubmit_from_a_subscription_says_who_gets_it() -> None:
    letters, topic = EntityAddress.parse("events/subscriptions/audit/$dlq"), EntityAddress("events")
    message = PeekedMessage(entity=letters, sequence_number=1)
    said = [
        str(Plan(letters, Resubmit(to), (message,), settle_all).preview()) for to in (topic, EntityAddress("orders"))
    ]
    assert said[0].endswith(" to events (which copies them into each subscription whose rules take them).")
    assert said[1].endswith(" to orders.")


def test_an_edit_is_tried_on_all_messages_and_shown_for_the_first() -> None:
    tried: list[int] = []

    def edit(message: ReceivedMessage) -> Message:
        tried.append(message.sequence_number)
        return message.with_changes(subject="fixed")

    preview = plan_of(Resubmit(), 9, edit).preview(2)
    assert tried == [*range(9)]
    assert preview.changes == (EditChange(0, "subject", "None", "fixed"), EditChange(1, "subject", "None", "fixed"))
    assert str(preview) == (
        "resubmit 9 messages of orders, edited.\n  #0 subject: 'None' -> 'fixed'\n  #1 subject: 'None' -> 'fixed'"
    )


def test_a_preview_counts_unchanged_and_refused_messages() -> None:
    def repair(order: dict[str, Any]) -> None:
        order["carrier"] = order["carrier"].upper()

    bodies = (b'{"carrier": "ups"}', b'{"carrier": "UPS"}', b"{}", b"no JSON", b"\xff")
    messages = tuple(peeked(number, body=body) for number, body in enumerate(bodies))
    sentence = Plan(ORDERS, Resubmit(), messages, settle_all, edit_json(repair)).preview(2).sentence
    line = repair.__code__.co_firstlineno + 1
    assert sentence.startswith(
        "resubmit 5 messages of orders, edited. It changes nothing in 1 of the first 2. It is refused for 3 of 5, "
        f"which stay where they are: The edit failed for message #2, line {line} of repair: KeyError: 'carrier'"
        " The edit failed for message #3: The body cannot be read as JSON: Expecting value"
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ramp((0,)),
        lambda: Ramp((1, -1)),
        lambda: Ramp((cast("int", 1.0),)),
        lambda: Ramp((2,), stop_at=-0.1),
        lambda: Ramp((2,), stop_at=1.1),
        lambda: Ramp((1,), timedelta(0)),
        lambda: Ramp((1,), timedelta(seconds=-1)),
    ],
    ids=range(7),
)
def test_a_ramp_that_cannot_be_is_refused(make: Callable[[], Ramp]) -> None:
    with pytest.raises(ConfigurationError):
        make()


def test_hostile_bodies_and_names_do_no_harm_in_a_preview() -> None:
    deep = peeked(body=b"[" * 200_000)
    (change,) = Plan(ORDERS, Resubmit(), (deep,), settle_all, lambda m: m.with_changes(body=b"x")).preview().changes
    assert len(change.before) == 2_000
    name = "\x1b[31m" + "n" * 10_000
    hostile = peeked(application_properties={name: "\x1b[0m"}, body=b'{"\\u001b[2J": "\\u001b[0m"}')
    text = str(
        Plan(
            ORDERS, Resubmit(), (hostile,), settle_all, lambda m: m.with_changes(body=b"{}", application_properties={})
        ).preview()
    )
    assert text.replace("\n", "").isprintable()
    assert len(text) < 500


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Limits(max_in_flight=0), "max_in_flight is 1 or more"),
        (lambda: Limits(max_in_flight=-1), "max_in_flight is 1 or more"),
        (lambda: Limits(max_in_flight=cast("int", "many")), 'or "auto"'),
        (lambda: Limits(rate=0), "rate is a number above 0"),
        (lambda: Limits(rate=float("nan")), "rate is a number above 0"),
        (lambda: Limits(rate=-0.5), "rate is a number above 0"),
        (lambda: Limits(rate=cast("Any", "5")), "rate is a number above 0"),
    ],
    ids=range(7),
)
def test_limits_that_cannot_be_are_refused(make: Callable[[], Limits], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        make()


async def fail_all(plan: Plan, _limits: Limits, _progress: Progress | None) -> Report:
    return Report(Outcome(OutcomeStatus.FAILED, plan.decision.verb, plan.entity) for _ in plan.messages)


async def settle_200(plan: Plan, _limits: Limits, _progress: Progress | None) -> Report:
    return Report(Outcome(OutcomeStatus.SETTLED, plan.decision.verb, plan.entity) for _ in range(200))


@pytest.mark.anyio
async def test_a_preview_estimates_the_time_from_the_last_run() -> None:
    speeds: dict[str, float] = {}
    plan = replace(plan_of(Complete(), 500), speeds=speeds)
    alone = plan.preview().sentence
    # Runs that say nothing about the next one: held back, failed, and short.
    await anew(plan).apply(Limits(rate=1_000_000))
    pause = Pause()
    pause.begin()
    await anew(plan).apply(Limits(pause=pause))
    await anew(plan, carry_out=fail_all).apply()
    await replace(plan_of(Complete(), 99), speeds=speeds).apply()
    assert plan.preview().sentence == alone
    await plan.apply()
    estimated = plan.preview().sentence
    assert estimated.startswith("complete 500 messages of orders. This takes less than a second at ")
    # A pause that was not used held nothing back.
    await replace(plan_of(Release(), 500), speeds=speeds).apply(Limits(pause=Pause()))
    assert "This takes" in replace(plan_of(Release(), 500), speeds=speeds).preview().sentence
    assert "This takes" not in replace(plan_of(Defer(), 500), speeds=speeds).preview().sentence
    # Of a plan that finds its messages, the report says how many there were.
    await replace(plan_of(Defer(), 0), speeds=speeds, carry_out=settle_200).apply()
    assert "This takes" in replace(plan_of(Defer(), 500), speeds=speeds).preview().sentence


@pytest.mark.parametrize(
    ("decision", "operations"),
    [(Complete(), 200), (CancelScheduled(), 100), (Resubmit(), 300), (Send(), 100), (Undo(), 100)],
    ids=lambda value: getattr(value, "verb", None),
)
def test_a_preview_tells_the_operations_of_many_messages(decision: Decision, operations: int) -> None:
    assert "operations" not in replace(plan_of(decision, 99), speeds={}).preview().sentence
    said = replace(plan_of(decision, 100), speeds={}, others=10).preview().sentence
    assert said.endswith(f"It costs a Standard namespace about {operations + 20} operations.")
    locked = [LockedMessage(entity=ORDERS, sequence_number=n, lock_token=uuid4()) for n in range(100)]
    said = replace(plan_of(Complete()), messages=tuple(locked), speeds={}).preview().sentence
    assert said.endswith("about 100 operations."), "they are not received any more"


@pytest.mark.anyio
async def test_a_plan_is_applied_once_and_so_are_its_copies() -> None:
    plan = replace(plan_of(Resubmit(), 2), sends_clones=True)
    copy = replace(plan, speeds=None)
    assert (await plan.apply()).settled == 2
    limits = Limits(ramp=Ramp())
    for again in (plan.apply, copy.apply, partial(plan.apply, limits), partial(copy.apply, limits)):
        with pytest.raises(DecisionError, match="applied already, and a plan is applied once: make a new one"):
            await again()


@pytest.mark.anyio
async def test_a_plan_that_is_being_applied_is_not_applied_beside_it() -> None:
    go_on, sent = anyio.Event(), list[int]()

    async def slowly(plan: Plan, limits: Limits, progress: Progress | None) -> Report:
        await go_on.wait()
        sent.append(1)
        return await settle_all(plan, limits, progress)

    plan = replace(plan_of(Complete()), carry_out=slowly)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(plan.apply)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(DecisionError, match="applied already"):
            await plan.apply()
        go_on.set()
    assert sent == [1]


@pytest.mark.anyio
@pytest.mark.parametrize("status", [OutcomeStatus.SKIPPED, OutcomeStatus.UNCONFIRMED])
async def test_a_plan_that_did_nothing_is_applied_again(status: OutcomeStatus) -> None:
    is_full = True

    async def refuse(plan: Plan, limits: Limits, progress: Progress | None) -> Report:
        if not is_full:
            return await settle_all(plan, limits, progress)
        with reporting(lambda: Report([Outcome(status, plan.decision.verb, plan.entity)])):
            raise ArchiveError("It is full.")

    plan = replace(plan_of(Complete()), carry_out=refuse)
    with pytest.raises(ArchiveError):
        await plan.apply()
    is_full = False
    if status is OutcomeStatus.SKIPPED:
        assert (await plan.apply()).settled == 1
    else:
        with pytest.raises(DecisionError, match="applied already"):
            await plan.apply()


def test_a_plan_has_each_message_once() -> None:
    one = peeked(1)
    plan = Plan(ORDERS, Complete(), (one, peeked(2), one), settle_all)
    assert [message.sequence_number for message in plan.messages] == [1, 2]
    assert plan.preview().sentence == "complete 2 messages of orders."


def test_a_preview_says_that_a_text_was_shortened() -> None:
    sentence = plan_of(DeadLetter("Bad", "x" * 5_000)).preview().sentence
    assert "which sbnotebook shortened to 4,096 characters" in sentence


@pytest.mark.parametrize(("count", "are"), [(1, "1 of them is"), (2, "2 of them are")])
def test_a_resubmit_of_deferred_ones_says_they_may_stay_locked(count: int, are: str) -> None:
    deferred = tuple(peeked(number, state=MessageState.DEFERRED) for number in range(count))
    plan = Plan(ORDERS, Resubmit(), (peeked(9), *deferred), settle_all)
    note = f"{are} deferred: if its clone fails, a deferred message stays locked until its lock ends"
    assert note in plan.preview().sentence
    assert note not in replace(plan, decision=Complete()).preview().sentence
