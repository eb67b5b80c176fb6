from __future__ import annotations

import pytest

from sbnotebook.settlement.pace import SENDERS, Limiter

pytestmark = pytest.mark.anyio


class Time:
    """Passes while a task sleeps, and not otherwise."""

    def __init__(self) -> None:
        self.now = 100.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


async def waited(limiter: Limiter, time: Time, count: int = 1) -> float:
    before = time.now
    await limiter.wait(count)
    return round(time.now - before, 6)


@pytest.fixture
def limiter(time: Time) -> Limiter:
    return Limiter(lambda: time.now, time.sleep)


async def test_after_a_refusal_transfers_wait_by_their_messages(limiter: Limiter, time: Time) -> None:
    limiter.refused()
    assert 1 <= await waited(limiter, time, 100) < 1.1
    assert 0.1 < await waited(limiter, time, 100) < 0.2  # at 700 a second
    assert await waited(limiter, time, 20_000) < 0.2
    assert await waited(limiter, time) == 16, "a transfer waits no longer for a large one before it"


async def test_few_begin_together_after_a_silence(limiter: Limiter, time: Time) -> None:
    limiter.refused()
    assert await waited(limiter, time, 100) >= 1
    time.now += 5
    begun = 0
    while limiter.is_open():
        limiter.began()
        begun += 1
    assert 5 <= begun <= 50  # of about 700 a second


async def test_what_was_long_ago_is_forgotten(limiter: Limiter, time: Time) -> None:
    limiter.refused()
    assert await waited(limiter, time) >= 1
    time.now += 61
    assert [await waited(limiter, time, 1000) for _ in range(3)] == [0, 0, 0]


def test_as_many_wait_as_keep_the_line_busy(limiter: Limiter) -> None:
    assert limiter.in_flight == 10
    limiter.answered(0.05)  # behind many messages on the same link
    limiter.answered(0.02)
    limiter.answered(0.3)
    assert limiter.in_flight == 160
    limiter.answered(0.0001)
    assert limiter.in_flight == 10


def test_so_many_wait_over_a_long_line_at_most(limiter: Limiter) -> None:
    limiter.answered(0.15)
    assert limiter.in_flight == 400
    senders = Limiter(in_flight=SENDERS)
    assert senders.in_flight == 10
    senders.answered(0.15)
    assert senders.in_flight == 50
