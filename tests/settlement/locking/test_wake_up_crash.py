"""What each way to delay leaves when the process is killed in the middle: docs/how-to/delay.md says it, too."""

from __future__ import annotations

import signal
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.model import Message, MessageState
from sbnotebook.settlement import AsyncNamespace, Connection, Journal
from sbnotebook.settlement.locking.wake_up import WakeUp
from tests import kills
from tests.chances import IS_THOROUGH
from tests.hand_clock import HandClock
from tests.settlement.deferrals import deferrals_of

pytestmark = pytest.mark.anyio

DELAYING = """
import asyncio, sys
from datetime import timedelta
from pathlib import Path
from sbnotebook.model import Abandon, Defer
from sbnotebook.settlement import AsyncNamespace, Connection, Journal

async def main() -> None:
    namespace = AsyncNamespace(Connection(sys.argv[1]), journal=Journal(Path(sys.argv[2])), archive=None)
    hour = timedelta(hours=1)
    async with namespace.entity("orders").batch(renew_for=2 * hour) as batch:
        await batch.receive(1)
        print("locked", flush=True)
        await batch.settle(Abandon(delay=hour) if sys.argv[3] == "abandon" else Defer(wake_after=hour))

asyncio.run(main())
"""


def killed(emulator: RunningEmulator, journal: Path, way: str, *, wake_ups: int = 0) -> None:
    """Run a process that delays a message, and kill it while it waits."""
    with kills.python("-c", DELAYING, emulator.connection_string, str(journal), way) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        while emulator.counts("orders").scheduled < wake_ups:
            assert process.poll() is None
    assert process.returncode == -signal.SIGKILL


async def test_a_killed_abandon_comes_back_when_its_lock_ends(clock: HandClock, tmp_path: Path) -> None:
    with running(queues=["orders"], clock=clock.emulators) as emulator:
        async with AsyncNamespace(Connection(emulator.connection_string), clock=clock, archive=None) as namespace:
            orders = namespace.entity("orders")
            await orders.send([Message(body=b"x")])
            await anyio.to_thread.run_sync(killed, emulator, tmp_path / "journal.sqlite", "abandon")
            async with orders.batch() as batch:
                clock.emulators.advance(61)  # a minute, and not the hour
                (again,) = await batch.receive(1)
                assert again.delivery_count == 1


@pytest.mark.parametrize("one_way_ms", [0, 25] if IS_THOROUGH else [25])
async def test_a_killed_deferral_leaves_a_wake_up_that_does_no_harm(
    clock: HandClock, tmp_path: Path, one_way_ms: int
) -> None:
    with running(queues=["orders"], clock=clock.emulators) as emulator:
        emulator.faults.network_delay_ms = one_way_ms
        async with AsyncNamespace(Connection(emulator.connection_string), clock=clock, archive=None) as namespace:
            orders = namespace.entity("orders")
            await orders.send([Message(body=b"x")])
            emulator.faults.accept_delay_ms = 3_600_000  # until the process is killed: it defers nothing before
            journal = tmp_path / "journal.sqlite"
            await anyio.to_thread.run_sync(lambda: killed(emulator, journal, "defer", wake_ups=1))
            first, wake_up = await orders.peek()
            assert (first.state, wake_up.state) == (MessageState.ACTIVE, MessageState.SCHEDULED)
            said = WakeUp.of(wake_up)
            assert said is not None
            async with orders.batch() as batch:
                assert await said.receive(batch) is None
        # It was recorded before, so it would not be forgotten if it had been deferred.
        async with AsyncNamespace(Connection(emulator.connection_string), journal=Journal(journal)) as restarted:
            (entry,) = (await deferrals_of(restarted.entity("orders"))).gone
            assert (entry.sequence_number, entry.confirmed) == (1, False)
