from __future__ import annotations

import getpass
import platform
import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import (
    Complete,
    DeadLetter,
    Decision,
    Defer,
    EntityAddress,
    LockedMessage,
)
from sbnotebook.settlement import AsyncNamespace, Journal
from sbnotebook.settlement.memory.journal import NamespaceTables
from tests.filled_queues import filled_queue, settle_first
from tests.settlement.deferrals import deferrals_of

ORDERS = EntityAddress("orders")


def message(number: int) -> LockedMessage:
    enqueued = datetime(2026, 1, 1, tzinfo=UTC)
    return LockedMessage(entity=ORDERS, sequence_number=number, lock_token=uuid.uuid4(), enqueued_time=enqueued)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        yield journal


def test_what_was_intended_is_not_confirmed_until_it_is(journal: Journal) -> None:
    ledger = NamespaceTables(journal, lambda: "shop.servicebus.windows.net")
    ledger.intend([message(2), message(1)])
    ledger.confirm([(ORDERS, 1)])
    entries = ledger.deferrals(EntityAddress("Orders"))
    assert [(number, entry.confirmed) for number, entry in entries.items()] == [(1, True), (2, False)]
    assert datetime.now(UTC) - entries[1].deferred_at < timedelta(minutes=5)
    ledger.forget([(ORDERS, 1), (ORDERS, 9)])
    assert list(ledger.deferrals(ORDERS)) == [2]
    assert not ledger.deferrals(EntityAddress.parse("orders/$dlq"))
    assert not NamespaceTables(journal, lambda: "other.servicebus.windows.net").deferrals(ORDERS)


def test_an_entry_says_what_was_deferred_and_by_whom(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = NamespaceTables(journal, lambda: "shop.servicebus.windows.net")
    monkeypatch.setenv("LOGNAME", "ann")
    ledger.intend([replace(message(1), message_id="m1")])
    (entry,) = ledger.deferrals(ORDERS).values()
    assert (entry.sequence_number, entry.message_id) == (1, "m1")
    assert entry.enqueued_time == "2026-01-01T00:00:00+00:00"
    assert entry.deferred_by == f"ann@{platform.node()}"


@pytest.mark.parametrize("error", [OSError, KeyError])
def test_a_user_may_have_no_name(journal: Journal, monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def no_name() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", no_name)
    ledger = NamespaceTables(journal, lambda: "shop.servicebus.windows.net")
    ledger.intend([message(1)])
    assert ledger.deferrals(ORDERS)[1].deferred_by == f"unknown@{platform.node()}"


@pytest.mark.anyio
@pytest.mark.parametrize(("write", "decision"), [("UPDATE", Defer()), ("DELETE", Complete()), ("DELETE", DeadLetter())])
async def test_ledger_unwritable_journal_keeps_outcomes(
    namespace: AsyncNamespace, write: str, decision: Decision
) -> None:
    queue = await filled_queue(namespace, f"full-{write}-{decision.verb}", 3)
    await settle_first(queue, Defer(), 2)
    full = f"CREATE TRIGGER full BEFORE {write} ON deferrals BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
    with namespace.journal.transaction() as database:
        database.execute(full)
    if isinstance(decision, Defer):
        async with queue.batch() as batch:
            await batch.receive(1)
            report = await batch.settle(decision)
        left = {1: True, 2: True, 3: False}
    else:
        report = await queue.settle_deferred({1: decision, 2: decision})
        left = {1: True, 2: True}
    assert report.ok, "it is done, whether or not that can be written down"
    found = await deferrals_of(queue)
    assert found.messages.keys() == ({1, 2, 3} if isinstance(decision, Defer) else set())
    assert {number: entry.confirmed for number, entry in found.entries.items()} == left


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from sbnotebook.model import Defer
from sbnotebook.settlement import AsyncNamespace, Connection, Journal

async def main() -> None:
    namespace = AsyncNamespace(Connection(sys.argv[1]), journal=Journal(Path(sys.argv[2])))
    async with namespace.entity(sys.argv[3]).batch() as batch:
        await batch.receive(2)
        await batch.settle(Defer())
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.anyio
async def test_deferrals_survive_the_process_and_the_loss_of_the_journal(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, tmp_path: Path
) -> None:
    queue = await filled_queue(namespace, "survives", 2)
    arguments = [shared_emulator.connection_string, str(tmp_path / "journal.sqlite"), queue.address.path]
    done = await anyio.run_process([sys.executable, "-c", KILLED, *arguments], check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    found = await deferrals_of(queue)
    assert (len(found.messages), found.orphans, found.gone) == (2, (), ())
    assert all(entry.confirmed for entry in found.entries.values())
    namespace.journal.close()
    (tmp_path / "journal.sqlite").unlink()
    found = await deferrals_of(queue)
    assert len(found.orphans) == 2
    assert (await queue.plan_deferred(await queue.peek(), Complete()).apply()).settled == 2
