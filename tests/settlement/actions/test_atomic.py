"""Resubmits in transactions, and their state after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from azure.servicebus._pyamqp.aio._cbs_async import CBSAuthenticator
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.amqp import Long
from sbnotebook.emulator import RunningEmulator, Tier, running
from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    EntityAddress,
    Message,
    OutcomeStatus,
    PeekedMessage,
    ReceivedMessage,
    Report,
    Resubmit,
)
from sbnotebook.model.message import ORIGINAL_MESSAGE_ID
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.locking.renewal import Clock
from sbnotebook.settlement.sdk.private import CbsAuthState
from sbnotebook.settlement.sdk.transactions import TransactionLine
from tests.settlement.actions.dead_letters import dead_letters
from tests.settlement.namespaces import namespace_of
from tests.settlement.waiting import append_to, until

pytestmark = pytest.mark.anyio

SETTLED, FAILED, UNCONFIRMED = OutcomeStatus.SETTLED, OutcomeStatus.FAILED, OutcomeStatus.UNCONFIRMED
COORDINATOR = "$coordinator"


class FastClock(Clock):
    """A clock on which waiting takes no time: the time that was waited for is over at once."""

    def __init__(self) -> None:
        self.waited = timedelta()

    def now(self) -> Any:
        return super().now() + self.waited

    async def sleep(self, seconds: float) -> None:
        if seconds > 1:
            self.waited += timedelta(seconds=seconds)
        await super().sleep(min(seconds, 0.01))


@pytest.fixture
def clock() -> FastClock:
    return FastClock()


@pytest.fixture
async def fast(emulator: RunningEmulator, tmp_path: Path, clock: FastClock) -> AsyncIterator[AsyncNamespace]:
    """A namespace of :func:`emulator` on :func:`clock`."""
    async with namespace_of(emulator, tmp_path, clock=clock) as namespace:
        yield namespace


def atomic(to: str | None = None, **options: Any) -> Resubmit:
    given: dict[str, Any] = {"atomic": True} | options
    return Resubmit(to=None if to is None else EntityAddress(to), **given)


async def counted(namespace: AsyncNamespace, *paths: str) -> list[int]:
    return [len(await namespace.entity(path).peek()) for path in paths]


async def test_atomic_sends_the_clone_and_completes_the_original(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "own", 25)
    plan = namespace.entity("own/$dlq").plan_resubmit(letters[:20], atomic(), edit=lambda m: m.with_changes(body=b"x"))
    assert "to own, each in one transaction (experimental), edited" in plan.preview().sentence

    report = await plan.apply()

    assert report.ok, report.failures
    assert {outcome.verb for outcome in report} == {"resubmit"}
    assert [letter.message_id for letter in await namespace.entity("own/$dlq").peek()] == [
        f"m{n}" for n in range(20, 25)
    ]
    clones = await namespace.entity("own").peek()
    assert [clone.application_properties[ORIGINAL_MESSAGE_ID] for clone in clones] == [f"m{n}" for n in range(20)]
    assert {(clone.body, clone.resubmit_count, clone.application_properties["n"]) for clone in clones} == {
        (b"x", 1, Long(7))
    }
    # There is nothing to resume.
    assert namespace.journal.unfinished(namespace.identity()) == []
    assert not await namespace.resume()


async def test_atomic_forward_sends_to_another_entity(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "near", 3)
    await namespace.create_queue("far")
    plan = namespace.entity("near/$dlq").plan_resubmit(letters, atomic("far", atomic="forward"))
    assert "to far, each in one transaction, which near stores and forwards later" in plan.preview().sentence

    report = await plan.apply()

    assert report.ok, report.failures
    assert await counted(namespace, "near", "near/$dlq", "far") == [0, 0, 3]


async def test_atomic_sends_large_messages_and_later_ones(namespace: AsyncNamespace) -> None:
    letters = await dead_letters(namespace, "large", 1)

    def enlarge(message: ReceivedMessage) -> Message:
        return message.with_changes(body=b"x" * 400_000)  # in several frames

    decision = atomic(delay=timedelta(hours=1))
    report = await namespace.entity("large/$dlq").plan_resubmit(letters, decision, edit=enlarge).apply()
    assert report.ok, report.failures
    (clone,) = await namespace.entity("large").peek()
    assert (len(clone.body), clone.scheduled_enqueue_time is not None) == (400_000, True)


@pytest.mark.parametrize(
    ("path", "decision", "why"),
    [
        ("q", atomic(), "q is none"),
        ("q/$transfer", atomic(), "is none"),
        ("q/$dlq", atomic("p"), "With atomic='forward' a commit means that q has stored the clone"),
        ("q/$dlq", atomic("r"), "With atomic='forward' a commit means that q has stored the clone"),
        ("q/$dlq", atomic("p", atomic="forward", delay=timedelta(1)), "whether a delay survives"),
        ("q/$dlq", atomic("r", atomic="forward", delay=timedelta(1)), "whether a delay survives"),
        ("q/$dlq", atomic(), "q is partitioned"),
    ],
)
async def test_atomic_is_refused_where_it_cannot_be(
    namespace: AsyncNamespace, path: str, decision: Resubmit, why: str
) -> None:
    entity = namespace.entity(path)
    number = 3 << 48 | 1 if "partitioned" in why else 1
    message = PeekedMessage(entity=EntityAddress.parse(path), sequence_number=number)
    with pytest.raises(DecisionError, match=why.replace("(", r"\(")):
        entity.plan_resubmit([message], decision)


async def test_atomic_is_refused_in_the_basic_tier(tmp_path: Path) -> None:
    with running(tier=Tier.BASIC) as emulator:
        async with namespace_of(emulator, tmp_path) as namespace:
            letters = await dead_letters(namespace, "basic", 1)
            with pytest.raises(DecisionError, match=r"refuses transactions for basic/\$dlq: .*Basic"):
                await namespace.entity("basic/$dlq").plan_resubmit(letters, atomic()).apply()
            assert await counted(namespace, "basic", "basic/$dlq") == [0, 1]


# -------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("answer", ["rejected", "in_state", "detach"])
@pytest.mark.parametrize("forwards", [True, False])
async def test_a_refused_clone_leaves_its_original_alone(
    own: AsyncNamespace, emulator: RunningEmulator, answer: Any, forwards: bool
) -> None:
    letters = await dead_letters(own, "some", 4)
    await own.create_queue("other")
    emulator.faults.transaction_refusal = answer
    to = "other" if forwards else "some"
    emulator.faults.entity(to).reject_nth = 2

    decision = atomic(to, atomic="forward" if forwards else True)
    report = await own.entity("some/$dlq").plan_resubmit(letters, decision).apply()

    assert [outcome.status for outcome in report] == [SETTLED, FAILED, SETTLED, SETTLED]
    why = "Nothing was done, there was no commit: The message was rejected on demand."
    assert (report[1].description or "").startswith(why)
    assert [letter.message_id for letter in await own.entity("some/$dlq").peek()] == ["m1"]
    assert await counted(own, to) == [3]
    # Once more, and all are there once.
    again = await own.entity("some/$dlq").peek()
    assert (await own.entity("some/$dlq").plan_resubmit(again, decision).apply()).ok
    assert await counted(own, to, "some/$dlq") == [4, 0]


@pytest.mark.parametrize("to", ["cut", "other"])
@pytest.mark.parametrize(
    ("fault", "status", "words", "left"),
    [
        ("drop_after_nth", SETTLED, "during the commit, which was done", [1, 0]),
        ("drop_before_nth", FAILED, "during the commit, which was not done", [0, 1]),
    ],
)
async def test_a_connection_lost_during_the_commit(
    fast: AsyncNamespace,
    clock: FastClock,
    emulator: RunningEmulator,
    to: str,
    fault: str,
    status: OutcomeStatus,
    words: str,
    left: list[int],
) -> None:
    letters = await dead_letters(fast, "cut", 1)
    await fast.create_queue("other")
    setattr(emulator.faults.entity(COORDINATOR), fault, 2)  # the first is the declaration

    decision = atomic(to, atomic="forward")
    report = await fast.entity("cut/$dlq").plan_resubmit(letters, decision).apply()

    assert [outcome.status for outcome in report] == [status]
    assert words in (report[0].description or "")
    assert await counted(fast, to, "cut/$dlq") == left
    # Neither is believed before the transaction must be over.
    assert clock.waited > timedelta(seconds=120)


@pytest.mark.parametrize(
    ("peeks", "status", "words"),
    [(5, FAILED, "which was not done"), (30, UNCONFIRMED, "found neither the original nor its clone")],
)
async def test_an_original_that_peeks_left_out_is_not_lost(
    fast: AsyncNamespace, emulator: RunningEmulator, peeks: int, status: OutcomeStatus, words: str
) -> None:
    letters = await dead_letters(fast, "hidden", 1)
    emulator.faults.entity(COORDINATOR).drop_before_nth = 2  # the commit
    emulator.faults.entity("hidden/$DeadLetterQueue").empty_peeks = peeks

    report = await fast.entity("hidden/$dlq").plan_resubmit(letters, atomic()).apply()

    assert [outcome.status for outcome in report] == [status]
    assert words in (report[0].description or "")
    emulator.faults.entity("hidden/$DeadLetterQueue").empty_peeks = 0
    emulator.lose_locks("hidden/$dlq")
    assert await counted(fast, "hidden", "hidden/$dlq") == [0, 1]
    # It is there, so nothing was committed: it is sent, and not merely completed.
    again = await fast.entity("hidden/$dlq").peek()
    assert (await fast.entity("hidden/$dlq").plan_resubmit(again, atomic()).apply()).ok
    assert await counted(fast, "hidden", "hidden/$dlq") == [1, 0]


async def test_a_commit_is_looked_at_only_when_the_service_has_ended_it(
    fast: AsyncNamespace, clock: FastClock, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost_at = list[datetime]()
    opened, moved = TransactionLine.open, TransactionLine.move

    async def open_slowly(line: TransactionLine) -> None:
        await opened(line)
        clock.waited += timedelta(seconds=25)

    async def note_when(line: TransactionLine, *given: Any) -> None:
        try:
            await moved(line, *given)
        except Exception:
            lost_at.append(clock.now())
            raise

    monkeypatch.setattr(TransactionLine, "open", open_slowly)
    monkeypatch.setattr(TransactionLine, "move", note_when)
    letters = await dead_letters(fast, "slow", 2)
    emulator.faults.entity("slow").reject_nth = 1  # so that the second one opens the connection again
    emulator.faults.entity(COORDINATOR).drop_before_nth = 3

    report = await fast.entity("slow/$dlq").plan_resubmit(letters, atomic()).apply()

    assert [outcome.status for outcome in report] == [FAILED, FAILED]
    assert "during the commit, which was not done" in (report[1].description or "")
    assert clock.now() - lost_at[-1] > timedelta(seconds=120)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[TransactionLine]:
    """Every line that is opened."""
    opened, open_line = list[TransactionLine](), TransactionLine.open

    async def note_and_open(line: TransactionLine) -> None:
        opened.append(line)
        await open_line(line)

    monkeypatch.setattr(TransactionLine, "open", note_and_open)
    return opened


async def test_a_line_that_is_idle_is_opened_again(
    fast: AsyncNamespace, clock: FastClock, lines: list[TransactionLine]
) -> None:
    await fast.create_queue("idle", lock_duration=timedelta(minutes=5))
    letters = await dead_letters(fast, "idle", 4)
    waits = {"m1": 50, "m2": 61}

    def edit(message: ReceivedMessage) -> ReceivedMessage:
        clock.waited += timedelta(seconds=waits.get(message.message_id or "", 0))
        return message

    report = await fast.entity("idle/$dlq").plan_resubmit(letters, atomic(), edit=edit).apply()
    assert report.ok, report.failures
    assert len(lines) == 2
    parts: list[Any] = [vars(line)["_parts"] for line in lines]
    assert [vars(each)["_handler"] for each in parts] == [None, None], "each was closed"
    assert await counted(fast, "idle", "idle/$dlq") == [4, 0]


@pytest.mark.parametrize("path", [COORDINATOR, "cut", "cut/$DeadLetterQueue"])
async def test_a_connection_lost_before_the_commit_rolls_back(
    own: AsyncNamespace, emulator: RunningEmulator, path: str
) -> None:
    letters = await dead_letters(own, "cut", 3)

    def cut(message: ReceivedMessage) -> Message:
        if message.message_id == "m0":
            emulator.faults.entity(path).drop_after_nth = 1
        return message.with_changes(subject="edited")

    report = await own.entity("cut/$dlq").plan_resubmit(letters, atomic(), edit=cut).apply()

    assert [outcome.status for outcome in report] == [FAILED, SETTLED, SETTLED]
    assert [letter.message_id for letter in await own.entity("cut/$dlq").peek()] == ["m0"]
    assert await counted(own, "cut") == [2]


async def test_a_refused_commit_is_no_riddle(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    emulator.faults.network_delay_ms = 25
    letters = await dead_letters(own, "late", 1)

    async def lose_amid_transaction() -> None:
        peers: Any = emulator._server.broker.peers  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        await until(lambda: [each for peer in [*peers] for each in peer.transactions.open.values() if each.tokens])
        emulator.lose_locks("late/$dlq")

    plan = own.entity("late/$dlq").plan_resubmit(letters, atomic())
    reports: list[Report] = []
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lose_amid_transaction)
        tasks.start_soon(append_to, reports, plan.apply)

    assert anyio.current_time() - began < 60, "it was found out from the original, which takes longer"
    ((outcome,),) = reports
    assert outcome.status is FAILED
    assert "Nothing was done, there was no commit" in (outcome.description or "")
    assert await counted(own, "late", "late/$dlq") == [0, 1]


async def test_a_lock_that_ends_before_its_transaction_sends_nothing(
    fast: AsyncNamespace, clock: FastClock, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, times = TransactionLine.open, iter((0, 400))

    async def open_slowly(line: TransactionLine) -> None:
        await opened(line)
        clock.waited += timedelta(seconds=next(times))

    monkeypatch.setattr(TransactionLine, "open", open_slowly)
    letters = await dead_letters(fast, "slow", 2)
    emulator.faults.entity("slow").reject_nth = 1  # so that the second one opens the connection again

    report = await fast.entity("slow/$dlq").plan_resubmit(letters, atomic()).apply()

    assert [outcome.status for outcome in report] == [FAILED, OutcomeStatus.LOCK_LOST]
    assert "before its transaction began: nothing was sent" in (report[1].description or "")
    assert await counted(fast, "slow") == [0]


@pytest.mark.parametrize("error", [ServiceBusError("down"), TimeoutError("no answer")], ids=["refused", "timeout"])
async def test_a_commit_that_cannot_be_looked_at_is_in_doubt(
    fast: AsyncNamespace, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    letters = await dead_letters(fast, "unseen", 1)
    emulator.faults.entity(COORDINATOR).drop_before_nth = 2  # the commit
    moved = TransactionLine.move

    async def fail(*_: object) -> None:
        raise error

    async def move(line: TransactionLine, *given: Any) -> None:
        monkeypatch.setattr(fast.peeker(letters[0].entity), "messages_of", fail)
        await moved(line, *given)

    monkeypatch.setattr(TransactionLine, "move", move)
    report = await fast.entity("unseen/$dlq").plan_resubmit(letters, atomic()).apply()
    assert [outcome.status for outcome in report] == [UNCONFIRMED]
    assert "the original could not be looked at since: " in (report[0].description or "")


@pytest.mark.parametrize("what", ["no network", "a token that is refused"])
async def test_a_connection_that_cannot_be_opened_again_ends_in_a_report(
    own: AsyncNamespace, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    letters = await dead_letters(own, "down", 4)

    async def unreachable(*_: Any, **__: Any) -> Any:
        raise ConnectionRefusedError("down")

    async def refuse(cbs: Any, *_: Any) -> None:  # as the SDK notes an answer of 401
        answer = {"auth_state": CbsAuthState.ERROR, "_token_status_code": 401, "_token_status_description": "No"}
        for name, value in answer.items():
            setattr(cbs, name, value)

    def end(message: ReceivedMessage) -> Message:
        if message.message_id == "m1":
            emulator.faults.entity("down").reject_nth = 1  # so that the next one opens the connection again
            if what == "no network":
                monkeypatch.setattr(asyncio, "open_connection", unreachable)
            else:
                monkeypatch.setattr(CBSAuthenticator, "_put_token", refuse)
        return message.with_changes(subject="edited")

    report = await own.entity("down/$dlq").plan_resubmit(letters, atomic(), edit=end).apply()
    monkeypatch.undo()

    assert [outcome.status for outcome in report] == [SETTLED, FAILED, FAILED, OutcomeStatus.SKIPPED]
    assert "Nothing was done" in (report[2].description or "")
    assert await counted(own, "down", "down/$dlq") == [1, 3]


async def test_an_interrupt_ends_between_two_transactions(own: AsyncNamespace) -> None:
    letters = await dead_letters(own, "stopped", 10)
    with anyio.CancelScope() as scope:
        plan = own.entity("stopped/$dlq").plan_resubmit(letters, atomic())
        await plan.apply(progress=lambda _: scope.cancel())
    assert scope.cancelled_caught
    assert await counted(own, "stopped", "stopped/$dlq") == [1, 9]


@pytest.mark.parametrize("over", ["stop", "detach"])
async def test_more_than_a_link_holds(
    own: AsyncNamespace, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch, over: str
) -> None:
    monkeypatch.setattr(LockedBatch, "per_link", 20)
    letters = await dead_letters(own, "many", 70)
    emulator.faults.max_unsettled, emulator.faults.over_max_unsettled = 20, over

    report = await own.entity("many/$dlq").plan_resubmit(letters, atomic()).apply()

    assert report.ok, report.failures
    assert await counted(own, "many", "many/$dlq") == [70, 0]
