"""A disk that fails at each step of each action: every report is true, and nothing is lost or sent twice."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from sbnotebook.errors import ArchiveError, JournalError
from sbnotebook.model import (
    Complete,
    Defer,
    EntityAddress,
    Message,
    MessageState,
    Outcome,
    OutcomeStatus,
    Report,
    Resubmit,
    Send,
)
from sbnotebook.model.message import ORIGINAL_MESSAGE_ID
from sbnotebook.settlement import AsyncEntity, AsyncNamespace, Plan
from sbnotebook.settlement.memory.local_database import LocalDatabase
from tests.filled_queues import filled_queue
from tests.settlement.actions.dead_letters import cut_off

pytestmark = pytest.mark.anyio

COUNT: Final = 4
IDS: Final = [f"m{number}" for number in range(COUNT)]
MOST_STEPS: Final = 40


class Disk:
    """Lets the transactions of one database fail, from the nth on."""

    def __init__(self, database: LocalDatabase) -> None:
        self._database = database
        self._transaction = database.transaction
        self.left: int | None = None
        """Transactions until it fails; None while it is well."""

    @contextmanager
    def _failing(self) -> Generator[sqlite3.Connection]:
        with self._transaction() as connection:
            if self.left is not None:
                if self.left <= 0:
                    raise sqlite3.OperationalError("database or disk is full")
                self.left -= 1
            yield connection

    @contextmanager
    def failing_after(self, steps: int) -> Generator[None]:
        self.left = steps
        self._database.transaction = self._failing  # pyright: ignore[reportAttributeAccessIssue]
        try:
            yield
        finally:
            self._database.transaction = self._transaction  # pyright: ignore[reportAttributeAccessIssue]


def disk_of(namespace: AsyncNamespace, which: str) -> Disk:
    archive = namespace.archive
    assert archive is not None
    if which == "journal":
        return Disk(namespace.journal)
    return Disk(archive)


# ---------------------------------------------------------------------- the actions

MakePlan = Callable[[AsyncNamespace, AsyncEntity, AsyncExitStack], Awaitable[Plan]]


def again(queue: AsyncEntity) -> EntityAddress:
    return EntityAddress(f"{queue.address}-again")


async def held(queue: AsyncEntity, stack: AsyncExitStack, decision: Complete | Defer) -> Plan:
    batch = await stack.enter_async_context(queue.batch())
    await batch.receive(COUNT)
    return queue.plan(batch, decision)


async def complete_held(_: AsyncNamespace, queue: AsyncEntity, stack: AsyncExitStack) -> Plan:
    return await held(queue, stack, Complete())


async def defer_held(_: AsyncNamespace, queue: AsyncEntity, stack: AsyncExitStack) -> Plan:
    return await held(queue, stack, Defer())


async def wake_held(_: AsyncNamespace, queue: AsyncEntity, stack: AsyncExitStack) -> Plan:
    return await held(queue, stack, Defer(wake_after=timedelta(hours=1)))


async def complete_by_token(_: AsyncNamespace, queue: AsyncEntity, stack: AsyncExitStack) -> Plan:
    batch = await stack.enter_async_context(queue.batch())
    return queue.plan_by_token(Complete(), await batch.receive(COUNT))


async def pick_completes(_: AsyncNamespace, queue: AsyncEntity, __: AsyncExitStack) -> Plan:
    return await queue.pick([m for m in await queue.peek() if m.message_id != "m1"], Complete())


async def pick_defers(_: AsyncNamespace, queue: AsyncEntity, __: AsyncExitStack) -> Plan:
    return await queue.pick(await queue.peek(), Defer())


async def pick_resubmits(namespace: AsyncNamespace, queue: AsyncEntity, _: AsyncExitStack) -> Plan:
    await namespace.create_queue(str(again(queue)))
    return await queue.pick([m for m in await queue.peek() if m.message_id != "m1"], Resubmit(to=again(queue)))


async def defer_all(_: AsyncNamespace, queue: AsyncEntity, __: AsyncExitStack) -> Plan:
    return await queue.defer_all()


async def purge(_: AsyncNamespace, queue: AsyncEntity, __: AsyncExitStack) -> Plan:
    return await queue.purge()


async def purge_each_state(_: AsyncNamespace, queue: AsyncEntity, __: AsyncExitStack) -> Plan:
    first, *_others = await queue.peek()
    (await (await queue.pick([first], Defer())).apply()).raise_for_failures()
    later = datetime.now(UTC) + timedelta(days=1)
    (await queue.send([Message(message_id="later", scheduled_enqueue_time=later)])).raise_for_failures()
    return await queue.purge()


async def complete_deferred(_: AsyncNamespace, queue: AsyncEntity, __: AsyncExitStack) -> Plan:
    (await (await queue.defer_all()).apply()).raise_for_failures()
    return queue.plan_deferred(await queue.peek(), Complete())


async def cancel(_: AsyncNamespace, queue: AsyncEntity, __: AsyncExitStack) -> Plan:
    (await (await queue.purge()).apply()).raise_for_failures()
    later = datetime.now(UTC) + timedelta(days=1)
    (await queue.send((Message(message_id=name) for name in IDS), Send(at=later))).raise_for_failures()
    return queue.plan_cancel_scheduled(await queue.peek(state=MessageState.SCHEDULED))


async def resubmit(namespace: AsyncNamespace, queue: AsyncEntity, _: AsyncExitStack) -> Plan:
    await namespace.create_queue(str(again(queue)))
    return queue.plan_resubmit(await queue.peek(), Resubmit(to=again(queue)))


async def resubmit_once_more(namespace: AsyncNamespace, queue: AsyncEntity, _: AsyncExitStack) -> Plan:
    await begun(namespace, queue)
    return queue.plan_resubmit(await queue.peek(), Resubmit(to=again(queue), resend_unknown=True))


async def resume(namespace: AsyncNamespace, queue: AsyncEntity, _: AsyncExitStack) -> Plan:
    await begun(namespace, queue)
    (plan,) = await namespace.resume(str(queue.address))
    return plan


async def begun(namespace: AsyncNamespace, queue: AsyncEntity) -> None:
    """Begin resubmits of three messages; each was interrupted at another step."""
    await namespace.create_queue(str(again(queue)))
    first, second, third, *_others = await queue.peek()
    await cut_off(namespace, first, str(again(queue)), sent=True, marked=True)
    await cut_off(namespace, second, str(again(queue)), sent=True)
    await cut_off(namespace, third, str(again(queue)), sent=False)


async def undo(namespace: AsyncNamespace, queue: AsyncEntity, _: AsyncExitStack) -> Plan:
    return await namespace.undo(await (await queue.purge()).apply())


ACTIONS: Final = (
    complete_held,
    defer_held,
    wake_held,
    complete_by_token,
    pick_completes,
    pick_defers,
    pick_resubmits,
    defer_all,
    purge,
    purge_each_state,
    complete_deferred,
    cancel,
    resubmit,
    resubmit_once_more,
    resume,
    undo,
)
RESUBMITS: Final = (pick_resubmits, resubmit, resubmit_once_more, resume)
"""Those that make the queue for clones."""


# ---------------------------------------------------------------------- the truth

States = dict[str, MessageState]


async def states_of(queue: AsyncEntity) -> States:
    messages = [message for message in await queue.peek() if message.message_id in {*IDS, "later"}]
    assert len(messages) == len({message.message_id for message in messages}), "one came twice"
    return {str(message.message_id): message.state for message in messages}


async def clones_of(namespace: AsyncNamespace, queue: AsyncEntity, make: MakePlan) -> Counter[str]:
    if make not in RESUBMITS:
        return Counter()
    clones = await namespace.entity(str(again(queue))).peek()
    return Counter(str(clone.application_properties[ORIGINAL_MESSAGE_ID]) for clone in clones)


def is_true(outcome: Outcome, before: States, after: States, clones: Counter[str]) -> bool:
    """Return whether an outcome is true of its message."""
    name = str(outcome.message_id)
    is_untouched = after.get(name) is before.get(name)
    match outcome.status:
        case OutcomeStatus.UNCONFIRMED:
            return True
        case OutcomeStatus.SETTLED if outcome.verb == "defer":
            return after.get(name) is MessageState.DEFERRED
        case OutcomeStatus.SETTLED if outcome.verb == "undo":
            return name in after
        case OutcomeStatus.SETTLED if outcome.verb == "resubmit":
            return name not in after and clones[name] == 1
        case OutcomeStatus.SETTLED:
            return name not in after
        case OutcomeStatus.SKIPPED | OutcomeStatus.FAILED:
            return is_untouched
        case _:
            return False


@pytest.mark.parametrize("which", ["journal", "archive"])
@pytest.mark.parametrize("make", ACTIONS)
async def test_each_report_is_true_wherever_the_disk_fails(
    namespace: AsyncNamespace, make: MakePlan, which: str
) -> None:
    disk, steps, reached = disk_of(namespace, which), 0, True
    while reached:
        assert steps < MOST_STEPS
        queue = await filled_queue(namespace, f"{make.__name__.replace('_', '-')}-{which}-{steps}", COUNT)
        async with AsyncExitStack() as stack:
            plan = await make(namespace, queue, stack)
            before, sent_before = await states_of(queue), await clones_of(namespace, queue, make)
            report: Report | None = None
            with disk.failing_after(steps):
                try:
                    report = await plan.apply()
                except (ArchiveError, JournalError):
                    report = None
            reached = disk.left == 0
        after, clones = await states_of(queue), await clones_of(namespace, queue, make)
        if report is None:  # nothing was done
            assert (after, clones) == (before, sent_before), steps
        else:
            untrue = [outcome for outcome in report if not is_true(outcome, before, after, clones)]
            assert not untrue, steps
            assert reached or report.ok or make in (resume, resubmit_once_more), report.failures
        # Nothing is sent twice, and every message to resubmit exists.
        assert set(clones.values()) <= {1}, steps
        if plan.decision.verb == "resubmit":
            assert set(after) | set(clones) == set(IDS), steps
            # With a disk that works, all of it is finished.
            for left in await namespace.resume(str(queue.address)):
                await left.apply()
            rest = queue.plan_resubmit(await queue.peek(), Resubmit(to=again(queue), resend_unknown=True))
            (await rest.apply()).raise_for_failures()
            assert await clones_of(namespace, queue, make) == Counter(dict.fromkeys(IDS, 1)), steps
            assert await states_of(queue) == {}
        steps += 1
