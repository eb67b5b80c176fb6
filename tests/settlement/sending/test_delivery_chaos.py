"""Sends under random faults and cancellations: no message is lost, sent twice, or reported wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import anyio
import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.emulator.faults import EntityFaults
from sbnotebook.model import EntityAddress, Message, OutcomeStatus
from sbnotebook.model.decision import AUTO
from sbnotebook.settlement import AsyncNamespace, Watch
from sbnotebook.settlement.sending.delivery import SenderPool, send_many
from tests.chances import chance, rounds

pytestmark = pytest.mark.anyio

ROUNDS = rounds(4, 40)
COUNT = 200
CONDITIONS = ("amqp:not-allowed", "amqp:internal-error", "amqp:resource-limit-exceeded")


def troubles(dice: Random, emulator: RunningEmulator, name: str) -> list[Callable[[], object]]:
    faults: EntityFaults = emulator.faults.entity(name)

    def reject() -> None:
        faults.reject_nth, faults.reject_condition = dice.randint(1, 30), dice.choice(CONDITIONS)

    return [
        reject,
        lambda: setattr(faults, "drop_after_nth", dice.randint(1, 5)),
        lambda: setattr(faults, "drop_before_nth", dice.randint(1, 5)),
        lambda: setattr(faults, "server_busy", dice.randint(1, 2)),
        lambda: emulator.drop_connections(name),
        lambda: emulator.close_links(name),
    ]


def messages(dice: Random, happens: list[Callable[[], object]]) -> Iterator[Message]:
    for number in range(COUNT):
        if dice.random() < 0.03:
            dice.choice(happens)()
        body = bytes(dice.choice([1, 100, 5_000, 300_000]))
        yield Message(body=body, message_id=f"m{number}", session_id=dice.choice([None, None, "a", "b"]))


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_report_is_true_under_random_faults(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, seed: int
) -> None:
    dice = chance("delivery", seed)
    name = f"chaos-{seed}"
    await namespace.create_queue(name)
    happens = troubles(dice, shared_emulator, name)
    shared_emulator.faults.entity(name).accept_delay_ms = dice.choice([0, 5, 20])
    shared_emulator.faults.network_delay_ms = 25 if seed % 3 == 2 else 0
    pool = SenderPool(namespace.connection, EntityAddress(name))
    cut_off_after = dice.choice([dice.random(), 300.0])
    with Watch() as watch, anyio.move_on_after(cut_off_after) as scope:
        await send_many(
            pool,
            messages(dice, happens),
            max_in_flight=dice.choice([1, 3, 8, AUTO]),
            batch_size=dice.choice([None, 1, 7]),
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
