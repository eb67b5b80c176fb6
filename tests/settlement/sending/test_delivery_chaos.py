"""Sends under random faults and cancellations: no message is lost, sent twice, or reported wrongly.

``SBNOTEBOOK_CRASHES`` in the environment asks for more rounds than the few of each test run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from random import Random

import anyio
import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.emulator.faults import EntityFaults
from sbnotebook.model import EntityAddress, Message, OutcomeStatus
from sbnotebook.settlement import AsyncNamespace, Watch
from sbnotebook.settlement.pace import AUTO
from sbnotebook.settlement.sending.delivery import send_many
from sbnotebook.settlement.sending.sender_pool import SenderPool

pytestmark = pytest.mark.anyio

ROUNDS = int(os.environ.get("SBNOTEBOOK_CRASHES", "4"))
COUNT = 200
CONDITIONS = ("amqp:not-allowed", "amqp:internal-error", "amqp:resource-limit-exceeded")


def troubles(chance: Random, emulator: RunningEmulator, name: str) -> list[Callable[[], object]]:
    faults: EntityFaults = emulator.faults.entity(name)

    def reject() -> None:
        faults.reject_nth, faults.reject_condition = chance.randint(1, 30), chance.choice(CONDITIONS)

    return [
        reject,
        lambda: setattr(faults, "drop_after_nth", chance.randint(1, 5)),
        lambda: setattr(faults, "drop_before_nth", chance.randint(1, 5)),
        lambda: setattr(faults, "server_busy", chance.randint(1, 2)),
        lambda: emulator.drop_connections(name),
        lambda: emulator.close_links(name),
    ]


def messages(chance: Random, happens: list[Callable[[], object]]) -> Iterator[Message]:
    for number in range(COUNT):
        if chance.random() < 0.03:
            chance.choice(happens)()
        body = bytes(chance.choice([1, 100, 5_000, 300_000]))
        yield Message(body=body, message_id=f"m{number}", session_id=chance.choice([None, None, "a", "b"]))


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_report_is_true_under_random_faults(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, seed: int
) -> None:
    chance = Random(seed)  # noqa: S311 (no secret)
    name = f"chaos-{seed}"
    await namespace.create_queue(name)
    happens = troubles(chance, shared_emulator, name)
    shared_emulator.faults.entity(name).accept_delay_ms = chance.choice([0, 5, 20])
    shared_emulator.faults.network_delay_ms = 25 if seed % 3 == 2 else 0
    pool = SenderPool(namespace.connection, EntityAddress(name))
    cut_off_after = chance.choice([chance.random(), 300.0])
    with Watch() as watch, anyio.move_on_after(cut_off_after) as scope:
        await send_many(
            pool,
            messages(chance, happens),
            max_in_flight=chance.choice([1, 3, 8, AUTO]),
            batch_size=chance.choice([None, 1, 7]),
        )
    await pool.close()
    shared_emulator.faults.network_delay_ms = 0
    shared_emulator.faults.entities[name] = EntityFaults()
    report = watch.report
    stored = [message.message_id for message in await namespace.entity(name).peek()]
    settled = {outcome.message_id for outcome in report if outcome.ok}
    unknown = {outcome.message_id for outcome in report if outcome.status is OutcomeStatus.UNCONFIRMED}
    assert [outcome.message_id for outcome in report] == [f"m{number}" for number in range(len(report))]
    assert scope.cancelled_caught or len(report) == COUNT
    assert len(stored) == len(set(stored))
    assert settled <= set(stored) <= settled | unknown
