from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from sbnotebook.emulator.entities import Queue, Receivable, Registry, read_sent
from sbnotebook.emulator.service.dispatcher import Dispatcher

MESSAGE = read_sent(b"\x00\x53\x75\xa0\x00")


@dataclass(eq=False)
class Taker:
    """A receiver that records its messages."""

    source: Receivable
    credit: int
    is_draining: bool = False
    size: int = 1
    got: list[int] = field(default_factory=list[int])

    @property
    def can_take(self) -> bool:
        return self.credit > 0

    def deliver(self, now: int) -> int:
        message = self.source.receive(now)
        assert message is not None
        self.got.append(message.sequence_number)
        self.credit -= 1
        return self.size

    def end_drain(self) -> None:
        self.is_draining = False
        self.credit = 0


@pytest.fixture
def queue() -> Queue:
    return Registry().create_queue("orders")


def fill(queue: Queue, count: int) -> None:
    for _ in range(count):
        queue.send(MESSAGE, 0)


def test_each_gets_one_in_its_turn(queue: Queue) -> None:
    dispatcher: Any = Dispatcher()
    first, second = Taker(queue, credit=2), Taker(queue, credit=10)
    dispatcher.wait(first)
    dispatcher.wait(second)
    fill(queue, 5)
    dispatcher.dispatch(0)
    assert (first.got, second.got) == ([1, 3], [2, 4, 5])
    assert not dispatcher.is_behind


def test_one_turn_delivers_a_share(queue: Queue) -> None:
    dispatcher: Any = Dispatcher()
    taker = Taker(queue, credit=10_000)
    dispatcher.wait(taker)
    fill(queue, 1_200)
    turns = 0
    while not turns or dispatcher.is_behind:
        dispatcher.dispatch(0)
        turns += 1
    assert (turns, len(taker.got)) == (3, 1_200)


def test_a_share_is_limited_in_bytes_too(queue: Queue) -> None:
    dispatcher: Any = Dispatcher()
    taker = Taker(queue, credit=100, size=1_000_000)
    dispatcher.wait(taker)
    fill(queue, 10)
    dispatcher.dispatch(0)
    assert (len(taker.got), dispatcher.is_behind) == (5, True)
