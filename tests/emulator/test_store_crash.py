"""A real emulator is killed at random moments under load, and every message is counted afterwards."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusReceivedMessage, ServiceBusReceiveMode
from azure.servicebus import ServiceBusSubQueue as SubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.emulator.store import FILE_NAME
from tests.chances import chance, rounds
from tests.kills import NOWHERE, Emulator, Ledger, digest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")

CRASHES: Final = rounds(2, 12)
QUEUE, EXPRESS = "orders", "express"
EXPRESS_CREDIT: Final = 5
"""Messages that may be on their way to a receiver that removes what it gets: those a kill may lose."""
FAR: Final = datetime(2100, 1, 1, tzinfo=UTC)
BATCH: Final = 50
PLENTY: Final = 3_000
"""Messages from which on no batches are sent, until the receivers have caught up."""
PATIENCE: Final = 60
"""Seconds after which something hangs; a crash never takes a tenth of it."""
WARM: Final = 20
"""Steps after which a kill may come: the clients need most of a second to open their links."""
SIZES: Final = (0, 100, 200, 400) * 10 + (20_000,)
"""Bytes of bodies: one in forty is too large to be read with the others."""


class Place(StrEnum):
    """Where a message can be."""

    ABSENT = NOWHERE
    ACTIVE = "active"
    DEFERRED = "deferred"
    SCHEDULED = "scheduled"
    DEAD = "dead-lettered"


PLACES: Final = {
    ServiceBusMessageState.ACTIVE: Place.ACTIVE,
    ServiceBusMessageState.DEFERRED: Place.DEFERRED,
    ServiceBusMessageState.SCHEDULED: Place.SCHEDULED,
}


@dataclass
class Story(Ledger):
    """All actions of the clients, and the answers to them."""

    queues: dict[str, str] = field(default_factory=dict[str, str])
    """The queue that each message was sent to."""
    abandoned: Counter[str] = field(default_factory=Counter[str])
    open_batches: list[list[str]] = field(default_factory=list[list[str]])
    numbers: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    deferred: dict[str, int] = field(default_factory=dict[str, int])

    def new(self, chance: random.Random, queue: str) -> ServiceBusMessage:
        """A message that is to be sent, with a body of its own."""
        name = str(len(self.entries))
        body = f"{name}:".encode() * (1 + chance.choice(SIZES) // (len(name) + 1))
        self.enter(name, body)
        self.queues[name] = queue
        return ServiceBusMessage(body, message_id=name)

    async def do(self, names: list[str], place: Place, action: Awaitable[object]) -> None:
        """Move messages: they may be there or not until it is confirmed."""
        with self.moving(names, place):
            await action

    def received(self, message: ServiceBusReceivedMessage, place: Place) -> str:
        """Note that a client received a message, and check whether it may be where it came from."""
        name = message.message_id or ""
        self.see(name, b"".join(message.body), place)
        return name

    def hold_against(self, found: dict[str, tuple[str, Place, int]]) -> None:
        """Compare the emulator's messages, with their queues and delivery counts, with the possible ones."""
        for batch in self.open_batches:
            kept = [name in found or self.entries[name].seen > 0 for name in batch]
            assert all(kept) or not any(kept), f"of an unconfirmed batch there are {sum(kept)} of {len(kept)}"
        self.open_batches.clear()
        on_their_way = [name for name in self.at(Place.ACTIVE) if self.queues[name] == EXPRESS and name not in found]
        assert len(on_their_way) <= EXPRESS_CREDIT, f"{len(on_their_way)} messages are lost"
        self.begin(on_their_way, Place.ABSENT)
        names = defaultdict[str, list[str]](list)
        for name, (queue, place, delivery_count) in found.items():
            names[place].append(name)
            assert queue == self.queues[name]
            assert delivery_count >= self.abandoned[name], f"{name} was abandoned {self.abandoned[name]} times"
        self.count(names)


@dataclass
class Load:
    """Clients that send and receive until the emulator is killed."""

    client: ServiceBusClient
    ledger: Story
    chance: random.Random
    has_plenty: bool = False
    is_killed: bool = False
    steps: int = 0
    is_busy: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, kill: Callable[[], None], seconds: float) -> None:
        """Let all clients work, kill the emulator, and wait until all have noticed."""
        works = [self._send_one, self._send_one, self._schedule, self._send_express]
        works.append(self._receive if self.has_plenty else self._send_batch)
        receivers = [self._receive, self._receive, self._receive_dead, self._receive_express]
        tasks = [asyncio.create_task(self._repeat(work)) for work in (*works, *receivers)]
        await asyncio.wait_for(self.is_busy.wait(), PATIENCE)
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        self.is_killed = True
        kill()
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        while not self.is_killed:
            try:
                await work()
            except AssertionError:
                raise
            except Exception:
                if not self.is_killed:
                    raise

    async def _while_alive(self, step: Callable[[], Awaitable[None]]) -> None:
        while not self.is_killed:
            await step()
            self.steps += 1
            if self.steps >= WARM:
                self.is_busy.set()

    async def _send_one(self) -> None:
        await self._send(QUEUE, 1)

    async def _send_express(self) -> None:
        await self._send(EXPRESS, 1)

    async def _send_batch(self) -> None:
        await self._send(QUEUE, BATCH)

    async def _send(self, queue: str, count: int) -> None:
        async with self.client.get_queue_sender(queue) as sender:

            async def step() -> None:
                messages = [self.ledger.new(self.chance, queue) for _ in range(count)]
                names = [message.message_id or "" for message in messages]
                self.ledger.open_batches.append(names)
                await self.ledger.do(names, Place.ACTIVE, sender.send_messages(messages))
                self.ledger.open_batches.remove(names)

            await self._while_alive(step)

    async def _schedule(self) -> None:
        async with self.client.get_queue_sender(QUEUE) as sender:
            await self._while_alive(lambda: self._schedule_and_cancel(sender))

    async def _schedule_and_cancel(self, sender: ServiceBusSender) -> None:
        messages = [self.ledger.new(self.chance, QUEUE) for _ in range(3)]
        names = [message.message_id or "" for message in messages]
        numbers: list[int] = []

        async def schedule() -> None:
            numbers.extend(await sender.schedule_messages(messages, FAR))

        await self.ledger.do(names, Place.SCHEDULED, schedule())
        await self.ledger.do(names[:2], Place.ABSENT, sender.cancel_scheduled_messages(numbers[:2]))

    async def _receive(self) -> None:
        async with self.client.get_queue_receiver(QUEUE) as receiver:

            async def step() -> None:
                messages = await receiver.receive_messages(30, max_wait_time=1)
                await asyncio.gather(*(self._settle(receiver, message) for message in messages))
                await self._complete_deferred(receiver)

            await self._while_alive(step)

    async def _settle(self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
        name = self.ledger.received(message, Place.ACTIVE)
        how = self.chance.choices(("complete", "abandon", "defer", "dead-letter"), (6, 1, 1, 1))[0]
        if how == "complete":
            await self.ledger.do([name], Place.ABSENT, receiver.complete_message(message))
        elif how == "defer":
            await self.ledger.do([name], Place.DEFERRED, receiver.defer_message(message))
            self.ledger.deferred[name] = message.sequence_number or 0
        elif how == "dead-letter":
            await self.ledger.do([name], Place.DEAD, receiver.dead_letter_message(message, reason="chance"))
        else:
            await receiver.abandon_message(message)
            self.ledger.abandoned[name] += 1

    async def _complete_deferred(self, receiver: ServiceBusReceiver) -> None:
        if len(self.ledger.deferred) < 10:  # the others stay until after the next crash
            return
        name, number = self.ledger.deferred.popitem()
        for message in await receiver.receive_deferred_messages(number):
            self.ledger.received(message, Place.DEFERRED)
            await self.ledger.do([name], Place.ABSENT, receiver.complete_message(message))

    async def _receive_dead(self) -> None:
        async with self.client.get_queue_receiver(QUEUE, sub_queue=SubQueue.DEAD_LETTER) as receiver:

            async def step() -> None:
                for message in await receiver.receive_messages(2, max_wait_time=1):
                    self.ledger.received(message, Place.DEAD)
                    action = receiver.complete_message(message)
                    await self.ledger.do([message.message_id or ""], Place.ABSENT, action)

            await self._while_alive(step)

    async def _receive_express(self) -> None:
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        async with self.client.get_queue_receiver(EXPRESS, receive_mode=mode) as receiver:

            async def step() -> None:
                for message in await receiver.receive_messages(EXPRESS_CREDIT, max_wait_time=1):
                    self.ledger.confirm([self.ledger.received(message, Place.ACTIVE)], Place.ABSENT)

            await self._while_alive(step)


async def standing(client: ServiceBusClient, ledger: Story) -> dict[str, tuple[str, Place, int]]:
    """Every message that the emulator has, once; no number ever stands for two messages."""
    found: dict[str, tuple[str, Place, int]] = {}

    async def walk(queue: str, sub_queue: SubQueue | None) -> None:
        async with client.get_queue_receiver(queue, sub_queue=sub_queue) as receiver:
            start = 1
            while page := await receiver.peek_messages(250, sequence_number=start):
                for message in page:
                    name, start = message.message_id or "", (message.sequence_number or 0) + 1
                    assert name not in found, f"{name} is there twice"
                    assert ledger.numbers.setdefault((queue, start - 1), name) == name
                    assert digest(b"".join(message.body)) == ledger.entries[name].digest
                    place = PLACES[message.state] if sub_queue is None else Place.DEAD
                    found[name] = (queue, place, message.delivery_count or 0)

    await asyncio.gather(
        *(walk(queue, sub_queue) for queue in (QUEUE, EXPRESS) for sub_queue in (None, SubQueue.DEAD_LETTER))
    )
    return found


def emulator(directory: Path) -> Emulator:
    properties = {"LockDuration": "PT5M", "MaxDeliveryCount": 2000}
    return Emulator(directory, dict.fromkeys((QUEUE, EXPRESS), properties))


def connected(emulator: Emulator) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(emulator.connection_string, retry_total=0)


async def crash(emulator: Emulator, ledger: Story, chance: random.Random) -> int:
    """Start, count, work, kill; returns how many steps the clients took."""
    if chance.random() < 0.3:  # some are killed while they start
        emulator.spawn()
        await asyncio.sleep(chance.uniform(0, 0.6))
        emulator.kill()
    with emulator:
        async with connected(emulator) as client:
            found = await standing(client, ledger)
            ledger.hold_against(found)
            load = Load(client, ledger, chance, has_plenty=len(found) > PLENTY)
            await load.run(emulator.process.kill, chance.uniform(0, 1))
    return load.steps


async def crash_often(emulator: Emulator) -> None:
    """Crash, and count at the end once more."""
    dice, ledger = chance("store"), Story()
    steps = [await crash(emulator, ledger, dice) for _ in range(CRASHES)]
    with emulator:
        async with connected(emulator) as client:
            ledger.hold_against(await standing(client, ledger))
    assert sum(steps) > 10 * CRASHES, "the clients did next to nothing"


async def received_all(emulator: Emulator) -> None:
    async with connected(emulator) as client, client.get_queue_receiver(QUEUE) as receiver:
        while messages := await receiver.receive_messages(100, max_wait_time=5):
            for message in messages:
                await receiver.complete_message(message)


async def sent(emulator: Emulator) -> None:
    async with connected(emulator) as client, client.get_queue_sender(QUEUE) as sender:
        await sender.send_messages([ServiceBusMessage(b"x" * 1000) for _ in range(200)])


def test_damage_that_is_found_later_ends_the_emulator(tmp_path: Path) -> None:
    with emulator(tmp_path) as server:
        asyncio.run(sent(server))
        server.process.terminate()
        server.process.wait(PATIENCE)
    path = tmp_path / "data" / FILE_NAME
    content = path.read_bytes()
    page = content.index(b"x" * 1000) // 4096
    path.write_bytes(content[: page * 4096] + b"\xee" * 4096 + content[(page + 1) * 4096 :])
    with emulator(tmp_path) as server:
        with pytest.raises(ServiceBusError):
            asyncio.run(received_all(server))
        assert server.process.wait(PATIENCE) == 2
    assert "emulator.sqlite3 cannot be read (database disk image is malformed)" in server.log.splitlines()[-1]


def test_confirmed_changes_survive_every_crash(tmp_path: Path) -> None:
    asyncio.run(crash_often(emulator(tmp_path)))
