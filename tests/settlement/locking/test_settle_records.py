"""The archive after messages were removed, or were not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from sbnotebook.amqp.sections import DATA, split
from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import ArchiveError
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    OutcomeStatus,
    Release,
)
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.memory.archive import Archive, ArchivedMessage, ArchiveState
from tests.filled_queues import filled_queue, settle_first
from tests.hand_clock import HandClock
from tests.settlement.full_disk import fill_up
from tests.settlement.namespaces import archive_in, namespace_of

pytestmark = pytest.mark.anyio

REMOVED, REMOVING, KEPT = ArchiveState.REMOVED, ArchiveState.REMOVING, ArchiveState.KEPT


def archived(namespace: AsyncNamespace) -> list[ArchivedMessage]:
    return archive_in(namespace).find(namespace.identity())


def states(namespace: AsyncNamespace) -> list[tuple[str | None, ArchiveState]]:
    return sorted((each.message_id, each.state) for each in archived(namespace))


def payload(namespace: AsyncNamespace, message: ArchivedMessage) -> bytes:
    return archive_in(namespace).payloads([message.row])[message.row]


async def test_archive_keeps_completed_messages_with_their_place(namespace: AsyncNamespace, tmp_path: Path) -> None:
    queue = await filled_queue(namespace, "archived-completed", [b"\x00exact\xff"] * 2)
    async with queue.batch() as batch:
        first, _ = await batch.receive(2)
        await batch.settle(Complete(), [first])
    (kept,) = archived(namespace)
    assert first.enqueued_time is not None
    assert kept.place == ("archived-completed", first.sequence_number, first.enqueued_time.isoformat())
    assert (kept.message_id, kept.verb, kept.state) == ("m0", "complete", REMOVED)
    found = payload(namespace, kept)
    (body,) = (part for part in split(found) if part.code == DATA)
    assert found[body.value_start : body.end].endswith(b"\x00exact\xff")
    assert (tmp_path / "archive.sqlite").is_file(), "beside the journal"


@pytest.mark.parametrize("decision", [Abandon(), DeadLetter("Bad"), Defer(), Release()], ids=lambda each: each.verb)
async def test_what_stays_in_the_service_is_not_archived(
    namespace: AsyncNamespace, decision: Abandon | DeadLetter | Defer | Release
) -> None:
    queue = await filled_queue(namespace, f"archived-stays-{decision.verb}", 2)
    async with queue.batch() as batch:
        await batch.receive(2)
        assert (await batch.settle(decision)).ok
    assert archived(namespace) == []


async def test_a_lost_lock_is_written_down_as_not_removed(namespace_by_hand: AsyncNamespace, clock: HandClock) -> None:
    queue = await filled_queue(namespace_by_hand, "lost", 2)
    async with queue.batch(renew_for=timedelta(seconds=10)) as batch:
        first, second = await batch.receive(2)
        assert (await batch.settle(Complete(), [second])).ok
        clock.emulators.advance(61)  # the library does not look at the clock until it settles
        (outcome,) = await batch.settle(Complete(), [first])
    assert outcome.status is OutcomeStatus.LOCK_LOST
    assert states(namespace_by_hand) == [("m0", KEPT), ("m1", REMOVED)]
    assert len(await queue.peek()) == 1


async def test_what_was_not_confirmed_is_archived_as_unknown(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    queue = await filled_queue(own, "unknown", 3)
    async with queue.batch() as batch:
        await batch.receive(3)
        emulator.faults.entity("unknown").drop_after_nth = 1
        report = await batch.settle(Complete(), max_in_flight=1)
        unconfirmed = [o.message_id for o in report if o.status is OutcomeStatus.UNCONFIRMED]
        assert len(unconfirmed) == 1
        assert states(own) == [(unconfirmed[0], REMOVING)], "what was not attempted is taken out again"


async def test_archive_rows_of_a_cancelled_settlement_are_in_doubt(
    own: AsyncNamespace, emulator: RunningEmulator
) -> None:
    queue = await filled_queue(own, "cancelled", 20)
    async with queue.batch() as batch:
        held = await batch.receive(20)
        emulator.freeze("cancelled")
        with anyio.move_on_after(1) as scope:
            await batch.settle(Complete(), held, max_in_flight=4)
        assert scope.cancelled_caught
        in_doubt = states(own)
        emulator.thaw()
        assert [state for _, state in in_doubt] == [REMOVING] * 4
        report = await batch.settle(Complete(), held)
    assert {outcome.status for outcome in report} <= {OutcomeStatus.SETTLED, OutcomeStatus.UNCONFIRMED}
    assert len({message_id for message_id, _ in states(own)}) == 20, "each of them can be sent back"


@pytest.fixture
def small(emulator: RunningEmulator, tmp_path: Path) -> Callable[[int], AsyncNamespace]:
    """Return a function that makes a namespace with an archive of so many bytes."""

    def make(max_bytes: int) -> AsyncNamespace:
        return namespace_of(emulator, tmp_path, archive=Archive(tmp_path / "small.sqlite", max_bytes=max_bytes))

    return make


async def test_a_full_archive_removes_nothing_from_the_service(small: Callable[[int], AsyncNamespace]) -> None:
    async with small(300_000) as namespace:
        queue = await filled_queue(namespace, "full", [b"x" * 100_000] * 4)
        async with queue.batch() as batch:
            held = await batch.receive(4)
            with pytest.raises(ArchiveError, match=r"Nothing was removed: the archive .* is full"):
                await batch.settle(Complete(), held)
            assert batch.messages == held
        assert len(await queue.peek()) == 4
        assert archived(namespace) == []


async def test_archive_full_midway_is_reported_in_outcomes(small: Callable[[int], AsyncNamespace]) -> None:
    async with small(150_000) as namespace:
        queue = await filled_queue(namespace, "half", [b"x" * 3_000] * 40)
        async with queue.batch() as batch:
            await batch.receive(40)
            report = await batch.settle(Complete(), max_in_flight=1)  # 20 at a time
        assert 0 < report.settled < 40
        skipped = [outcome for outcome in report if not outcome.ok]
        assert {outcome.status for outcome in skipped} == {OutcomeStatus.SKIPPED}
        assert "is full" in (skipped[0].description or "")
        assert len(await queue.peek()) == len(skipped) == 40 - len(archived(namespace))


async def test_a_process_stops_when_nothing_more_can_be_archived(small: Callable[[int], AsyncNamespace]) -> None:
    worked: list[str | None] = []
    async with small(100_000) as namespace:
        queue = await filled_queue(namespace, "process", [b"x" * 500] * 3_000)
        with pytest.raises(ArchiveError, match="is full"):
            await queue.process(lambda message: worked.append(message.message_id), max_in_flight=1)
        assert len(worked) < 3_000, "it does not go on for nothing"
        assert len(await queue.peek()) == 3_000 - len(archived(namespace))


async def test_an_archive_that_breaks_after_the_removal_hides_no_outcome(namespace: AsyncNamespace) -> None:
    archive_in(namespace).prune()  # makes the file
    fill_up(archive_in(namespace).path, "archived", "UPDATE OF state", when="new.state = 'removed'")
    queue = await filled_queue(namespace, "archived-breaks", 2)
    await settle_first(queue, Complete(), 2)
    assert [state for _, state in states(namespace)] == [REMOVING] * 2


@pytest.mark.parametrize("setting", [False, None])
async def test_without_an_archive_nothing_is_written(
    emulator: RunningEmulator, tmp_path: Path, setting: bool | None
) -> None:
    async with namespace_of(emulator, tmp_path, archive=setting) as namespace:
        queue = await filled_queue(namespace, "off", 1)
        await settle_first(queue, Complete())
    assert not (tmp_path / "archive.sqlite").exists()


async def test_no_secret_is_in_the_archive(own: AsyncNamespace, tmp_path: Path) -> None:
    queue = await filled_queue(own, "secrets", 1)
    await settle_first(queue, Complete())
    content = (tmp_path / "archive.sqlite").read_bytes()
    assert b"m0" in content
    assert b"SAS_KEY_VALUE" not in content
    assert b"SharedAccessKey" not in content
