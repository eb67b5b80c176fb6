from __future__ import annotations

import contextlib
import random
import sys
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, LockedMessage, Message, OutcomeStatus, PeekedMessage
from sbnotebook.settlement import AsyncNamespace, Journal, RejectMessage
from sbnotebook.settlement.memory.journal import NamespaceTables, key_of
from sbnotebook.settlement.processing.process import Options
from tests.filled_queues import filled_queue
from tests.settlement.waiting import until

pytestmark = pytest.mark.anyio

ORDERS = EntityAddress("orders")
DAY = timedelta(days=1)


def test_a_message_is_remembered_for_a_week() -> None:
    assert Options(seen=True).remembers_for == timedelta(days=7)
    assert Options().remembers_for is None
    with pytest.raises(ConfigurationError, match="must be positive"):
        Options(seen=timedelta(0))


class Worker:
    """Counts how often the work was done for each message."""

    def __init__(self) -> None:
        self.done: Counter[str | None] = Counter()
        self._lock = threading.Lock()

    def __call__(self, message: LockedMessage) -> None:
        with self._lock:
            self.done[message.message_id] += 1


async def test_seen_prevents_repeated_work_when_lock_lost_at_complete(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    queue = await filled_queue(namespace, "lost-at-complete", 1)
    worker = Worker()

    def work(message: LockedMessage) -> None:
        worker(message)
        shared_emulator.lose_locks("lost-at-complete")

    first = await queue.process(work, seen=True, max_messages=1, max_wait=0.5)
    assert [outcome.status for outcome in first] == [OutcomeStatus.LOCK_LOST]
    assert len(await queue.peek()) == 1

    second = await queue.process(work, seen=True, max_wait=0.5)
    (outcome,) = second
    assert (outcome.verb, outcome.status) == ("complete", OutcomeStatus.SETTLED)
    assert str(outcome.description).startswith("Its work was done before, at ")
    assert worker.done == {"m0": 1}
    assert await queue.peek() == []


async def test_under_many_faults_the_work_of_each_message_is_done_once(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    queue = await filled_queue(namespace, "many-faults", 120)
    worker, chance = Worker(), random.Random(7)  # noqa: S311 (the same each time)
    faults = shared_emulator.faults.entity("many-faults")

    def work(message: LockedMessage) -> None:
        worker(message)
        match chance.randrange(40):
            case 0:
                shared_emulator.lose_locks("many-faults")
            case 1:
                faults.drop_before_nth = 1
            case 2:
                faults.drop_after_nth = 1
            case 3:
                shared_emulator.close_links("many-faults")
            case _:
                pass

    for _ in range(20):
        with contextlib.suppress(ServiceBusError):  # the run may end early, but nothing is lost by that
            await queue.process(work, seen=True, max_wait=0.5)
        faults.drop_before_nth = faults.drop_after_nth = 0
        shared_emulator.lose_locks("many-faults")  # those of a run that ended early would last for a minute
        if not await queue.peek():
            break
    assert worker.done == {f"m{n}": 1 for n in range(120)}
    assert await queue.peek() == []


SCRIPT = """
import sys, anyio, pathlib
from sbnotebook.settlement import AsyncNamespace, Connection, Journal

def work(message):
    with open(sys.argv[3], "a") as done:
        done.write(f"{message.message_id}\\n")

async def main():
    async with AsyncNamespace(Connection(sys.argv[1]), journal=Journal(pathlib.Path(sys.argv[2]))) as namespace:
        await namespace.entity("killed").process(work, seen=True, max_wait=1)

anyio.run(main)
"""


async def test_seen_survives_a_kill_before_complete(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, tmp_path: Path
) -> None:
    queue = await filled_queue(namespace, "killed", 3)
    journal, done = tmp_path / "journal.sqlite", tmp_path / "done"
    command = [sys.executable, "-c", SCRIPT, shared_emulator.connection_string, str(journal), str(done)]
    seen = NamespaceTables(Journal(journal), namespace.identity)
    messages = await queue.peek()
    shared_emulator.faults.entity("killed").settle_delay_ms = 600_000
    async with await anyio.open_process(command) as killed:
        await until(lambda: len(seen.done_at(messages, DAY)) == len(messages))
        killed.kill()
    assert done.read_text().split() == ["m0", "m1", "m2"]
    shared_emulator.faults.entity("killed").settle_delay_ms = 0
    shared_emulator.drop_connections("killed")  # or it gives them to the dead process again
    shared_emulator.lose_locks("killed")

    await anyio.run_process(command)

    assert done.read_text().split() == ["m0", "m1", "m2"], "nothing was done twice"
    assert await queue.peek() == []


async def test_a_second_message_with_the_same_id_counts_as_the_first(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "twins", 2)
    assert (await queue.send([Message(message_id="m1"), Message(message_id="m1")], max_in_flight=1)).ok
    worker = Worker()
    report = await queue.process(worker, seen=True, max_in_flight=4, max_wait=0.5)
    assert worker.done == {"m0": 1, "m1": 1}, "also where both are here at the same time"
    assert report.settled == 4
    assert await queue.peek() == []


async def test_only_work_that_is_done_is_remembered(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "undone", 1)
    calls: list[int] = []

    def work(_message: LockedMessage) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise RejectMessage("Not yet")

    await queue.process(work, seen=True, max_wait=0.5)
    letters = namespace.entity("undone/$dlq")
    assert (await letters.plan_resubmit(await letters.peek()).apply()).ok
    assert (await queue.process(work, seen=True, max_wait=0.5)).settled == 1
    assert len(calls) == 2


def is_known(seen: NamespaceTables, message: PeekedMessage, within: timedelta = DAY) -> bool:
    return key_of(message) in seen.done_at([message], within)


def message(number: int = 1, message_id: str | None = "m", enqueued: datetime | None = None) -> PeekedMessage:
    return PeekedMessage(entity=ORDERS, sequence_number=number, message_id=message_id, enqueued_time=enqueued)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.sqlite")


def test_it_outlives_the_process_and_is_forgotten_in_time(journal: Journal) -> None:
    NamespaceTables(journal, lambda: "here").remember_done([message()])
    journal.close()
    seen = NamespaceTables(journal, lambda: "here")
    assert is_known(seen, message())
    assert not is_known(seen, message(message_id="M")), "ids differ by upper and lower case"
    assert not is_known(NamespaceTables(journal, lambda: "elsewhere"), message())
    assert not is_known(seen, message(), timedelta(microseconds=1))
    seen.forget_done(DAY)
    assert is_known(seen, message())
    seen.forget_done(timedelta(microseconds=1))
    assert not is_known(seen, message())


def test_a_message_without_an_id_is_known_by_its_number_and_time(journal: Journal) -> None:
    seen = NamespaceTables(journal, lambda: "here")
    now = datetime.now(UTC)
    seen.remember_done([message(7, None, now)])
    assert is_known(seen, message(7, None, now))
    assert not is_known(seen, message(8, None, now))
    assert not is_known(seen, message(7, None, now + timedelta(seconds=1))), "a queue that was made anew"
    assert not is_known(seen, message(7, "#7@" + now.isoformat(), now)), "an id that looks like one"


def test_an_id_of_a_broken_sender_can_be_kept(journal: Journal) -> None:
    seen = NamespaceTables(journal, lambda: "here")
    broken = message(message_id="half \ud83d; DROP TABLE seen; --\x00")
    seen.remember_done([broken])
    assert is_known(seen, broken)
    assert key_of(broken).isprintable()
