from __future__ import annotations

import anyio
import pytest

from sbnotebook.settlement.pace import Pace, Pause, Throttle

pytestmark = pytest.mark.anyio


class Time:
    """Goes on while somebody sleeps, and not otherwise."""

    def __init__(self) -> None:
        self.now = 100.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def throttle(time: Time) -> Throttle:
    return Throttle(lambda: time.now, time.sleep)


async def waited(throttle: Throttle, time: Time) -> float:
    before = time.now
    await throttle.wait()
    return round(time.now - before, 6)


async def test_nobody_waits_while_the_service_is_not_busy(throttle: Throttle, time: Time) -> None:
    throttle.accepted()
    assert [await waited(throttle, time) for _ in range(3)] == [0.0, 0.0, 0.0]


async def test_after_a_refusal_everybody_stops_and_then_goes_one_by_one(throttle: Throttle, time: Time) -> None:
    throttle.refused()
    assert [await waited(throttle, time) for _ in range(3)] == [0.5, 0.05, 0.05]


async def test_refusals_of_what_was_under_way_already_count_once(throttle: Throttle, time: Time) -> None:
    for _ in range(10):
        throttle.refused()
    assert await waited(throttle, time) == 0.5


async def test_each_further_refusal_doubles_stop_and_gap_up_to_a_limit(throttle: Throttle, time: Time) -> None:
    stops: list[float] = []
    for _ in range(9):
        throttle.refused()
        stops.append(await waited(throttle, time))
    assert stops == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 16.0, 16.0, 16.0]
    assert await waited(throttle, time) == 5.0


async def test_pace_speeds_up_gradually_on_accepts(throttle: Throttle, time: Time) -> None:
    throttle.refused()
    gaps: list[float] = []
    while not gaps or gaps[-1]:
        gaps.append(await waited(throttle, time))
        throttle.accepted()
    assert gaps[1:] == sorted(gaps[1:], reverse=True)
    assert 10 < len(gaps) < 60
    throttle.refused()
    assert await waited(throttle, time) == 0.5  # as if it were the first


async def test_answers_from_before_the_stop_do_not_end_it(throttle: Throttle, time: Time) -> None:
    throttle.refused()
    for _ in range(100):
        throttle.accepted()
    assert [await waited(throttle, time) for _ in range(2)] == [0.5, 0.05]


async def test_what_was_long_ago_is_forgotten(throttle: Throttle, time: Time) -> None:
    for _ in range(5):
        throttle.refused()
        await throttle.wait()
    time.now += 3600
    assert [await waited(throttle, time) for _ in range(2)] == [0.0, 0.0]
    throttle.refused()
    assert await waited(throttle, time) == 0.5


async def test_who_waits_already_waits_longer_when_it_is_refused_again(time: Time) -> None:
    async def sleep(seconds: float) -> None:
        time.now += seconds
        if time.now < 101:
            throttle.refused()  # another's, meanwhile

    throttle = Throttle(lambda: time.now, sleep)
    throttle.refused()
    assert await waited(throttle, time) == 1.5


async def test_a_pause_holds_up_whoever_asks_until_it_ends() -> None:
    pause, went = Pause(), list[str]()
    pace = Pace(None, pause)

    async def work() -> None:
        for step in ("first", "second"):
            await pace.wait(1)
            went.append(step)
            pause.begin()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await anyio.wait_all_tasks_blocked()
        assert (went, pause.is_on, pause.holds) == (["first"], True, True)
        pause.end()
        assert not pause.is_on
    assert (went, pause.holds) == (["first", "second"], False)


async def test_work_that_is_held_up_can_be_cancelled() -> None:
    pause = Pause()
    pause.begin()
    with anyio.move_on_after(0.01) as scope:
        await Pace(None, pause).wait(1)
    assert scope.cancelled_caught
    assert not pause.holds


def test_pace_is_free_only_without_rate_and_pause() -> None:
    assert Pace(None).is_free
    assert not Pace(10).is_free
    assert not Pace(None, Pause()).is_free
