"""Messages that are gone as they are sent: none that has arrived is lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import ArchiveError, ConfigurationError
from sbnotebook.model import PeekedMessage
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.memory.archive import Archive, ArchivedMessage, ArchiveState
from tests.filled_queues import filled_queue
from tests.settlement.namespaces import archive_in
from tests.settlement.waiting import until

pytestmark = pytest.mark.anyio


def bodies(messages: list[PeekedMessage]) -> list[int]:
    return [int(message.body) for message in messages]


def archived(namespace: AsyncNamespace) -> list[int]:
    found = archive_in(namespace).find(namespace.identity())
    assert {(each.verb, each.state) for each in found} <= {("receive and delete", ArchiveState.REMOVED)}
    return [each.sequence_number for each in found]


async def test_messages_are_gone_and_in_the_archive(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "all", 420)
    told: list[int] = []
    first = await queue.receive_and_delete(290, progress=told.append)
    assert bodies(first) == list(range(290))
    assert sum(told) == 290
    assert (first[0].subject, first[0].sequence_number) == ("even", 1)
    assert len(await queue.peek()) == 130
    assert bodies(await queue.receive_and_delete(1000, max_wait=1)) == list(range(290, 420))
    assert await queue.receive_and_delete(1, max_wait=0.1) == []
    assert archived(own) == list(range(1, 421))


async def test_nothing_is_archived_when_that_is_not_wanted(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "not-archived", 2)
    assert len(await queue.receive_and_delete(2, archived=False)) == 2
    assert archived(own) == []


async def test_a_full_archive_lets_nothing_be_removed(own: AsyncNamespace, tmp_path: Path) -> None:
    queue = await filled_queue(own, "full", 2)
    own.archive = Archive(tmp_path / "full.sqlite", max_bytes=1)
    with pytest.raises(ArchiveError, match="is full"):
        await queue.receive_and_delete(2)
    assert len(await queue.peek()) == 2


async def test_an_archive_that_fills_up_keeps_no_message_from_the_caller(own: AsyncNamespace, tmp_path: Path) -> None:
    queue = await filled_queue(own, "fills-up", 250)
    own.archive = Archive(tmp_path / "small.sqlite", max_bytes=80_000)
    with pytest.warns(UserWarning, match=r"Only \d+ messages were received: .* is full"):
        taken = await queue.receive_and_delete(250)
    assert bodies(taken) == list(range(len(taken)))
    assert 0 < len(taken) < 250
    assert len(await queue.peek()) == 250 - len(taken)


async def test_what_is_on_its_way_as_it_is_cancelled_is_waited_for(
    emulator: RunningEmulator, own: AsyncNamespace
) -> None:
    queue = await filled_queue(own, "on-its-way", 20)
    emulator.faults.entity("on-its-way").delivery_delay_ms = 700
    taken: list[PeekedMessage] = []
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def cancel() -> None:
                await until(lambda: emulator.counts("on-its-way").active < 20)
                scope.cancel()

            tasks.start_soon(cancel)
            await queue.receive_and_delete(100, max_wait=30, into=taken)
    assert len(taken) == 20 - emulator.counts("on-its-way").active
    assert archived(own) == [message.sequence_number for message in taken]


async def test_what_arrives_after_the_wait_is_not_lost(emulator: RunningEmulator, own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "late", 5)
    emulator.faults.entity("late").delivery_delay_ms = 700
    taken = await queue.receive_and_delete(100, max_wait=0.2)
    assert len(taken) + emulator.counts("late").active == 5
    assert archived(own) == [message.sequence_number for message in taken]


async def test_receive_and_delete_returns_arrived_with_a_warning(
    emulator: RunningEmulator, own: AsyncNamespace
) -> None:
    queue = await filled_queue(own, "broken", 30)
    taken: list[PeekedMessage] = []

    async def drop() -> None:
        await until(lambda: taken)
        emulator.drop_connections("broken")

    with pytest.warns(UserWarning, match="Only 30 messages were received"):  # noqa: PT031 (nothing else warns)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drop)
            assert await queue.receive_and_delete(100, max_wait=30, into=taken) is taken
    assert len(taken) == 30
    assert archived(own) == list(range(1, 31))


async def test_an_entity_that_cannot_be_used_is_told(own: AsyncNamespace) -> None:
    with pytest.raises(ServiceBusError, match="There is no queue or topic 'nowhere'"):
        await own.entity("nowhere").receive_and_delete(1)
    for count, wait in ((0, 1), (-1, 1), (1, -1), (1, 0)):
        with pytest.raises(ConfigurationError, match=r"at least 1 message|max_wait is above 0"):
            await own.entity("nowhere").receive_and_delete(count, max_wait=wait)


async def test_what_could_not_be_archived_at_first_is_archived_later(own: AsyncNamespace, tmp_path: Path) -> None:
    queue = await filled_queue(own, "archived-later", 30)

    class Locked(Archive):
        """An archive that another process has locked for a while."""

        is_locked = True

        def keep(self, messages: Sequence[ArchivedMessage]) -> list[int]:
            if self.is_locked:
                self.is_locked = False
                raise ArchiveError("It is locked.")
            return super().keep(messages)

    own.archive = Locked(tmp_path / "locked.sqlite")
    with pytest.warns(UserWarning, match="Only 30 messages were received: It is locked") as caught:
        assert len(await queue.receive_and_delete(30)) == 30
    (where,) = {warning.filename for warning in caught if "Only 30" in str(warning.message)}
    assert where == __file__
    assert archived(own) == list(range(1, 31))
