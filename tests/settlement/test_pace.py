from __future__ import annotations

import anyio
import pytest

from sbnotebook.model.decision import AUTO
from sbnotebook.settlement.pace import AllowedRate, Pace, Pause, Window

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


async def waited(allowed_rate: AllowedRate, time: Time, count: int = 1) -> float:
    before = time.now
    await allowed_rate.wait(count)
    return round(time.now - before, 6)


@pytest.fixture
def allowed_rate(time: Time) -> AllowedRate:
    return AllowedRate(lambda: time.now, time.sleep)


async def test_nothing_waits_while_the_service_is_not_busy(allowed_rate: AllowedRate, time: Time) -> None:
    for _ in range(3):
        assert await waited(allowed_rate, time, 1000) == 0
        allowed_rate.accepted(1000)


async def test_after_a_refusal_transfers_wait_by_their_messages(allowed_rate: AllowedRate, time: Time) -> None:
    allowed_rate.refused(100)
    assert 1 <= await waited(allowed_rate, time, 100) < 1.1
    assert 0.2 < await waited(allowed_rate, time, 100) < 0.4  # at 350 a second and more
    assert await waited(allowed_rate, time, 10_000) < 0.4
    assert await waited(allowed_rate, time) == 16, "a transfer waits no longer for a large one before it"


async def test_few_begin_together_after_a_silence(allowed_rate: AllowedRate, time: Time) -> None:
    allowed_rate.refused(100)
    assert await waited(allowed_rate, time, 100) >= 1
    time.now += 5
    begun = 0
    while allowed_rate.is_open():
        allowed_rate.began()
        begun += 1
    assert 5 <= begun <= 50  # of about 350 a second


async def test_what_was_long_ago_is_forgotten(allowed_rate: AllowedRate, time: Time) -> None:
    allowed_rate.refused()
    assert await waited(allowed_rate, time) >= 1
    time.now += 61
    assert [await waited(allowed_rate, time, 1000) for _ in range(3)] == [0, 0, 0]


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


async def test_a_pause_holds_nothing_while_a_request_is_in_progress() -> None:
    pause = Pause()
    pace = Pace(None, pause)
    await pace.begin(1)
    pause.begin()
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(pace.begin, 1)
        await anyio.wait_all_tasks_blocked()
        assert (pause.is_on, pause.holds) == (True, False)
        pace.end()
        assert pause.holds
        pause.end()
    assert not pause.holds


async def test_work_that_is_held_up_can_be_cancelled() -> None:
    pause = Pause()
    pause.begin()
    with anyio.move_on_after(0.01) as scope:
        await Pace(None, pause).wait(1)
    assert scope.cancelled_caught
    assert not pause.holds


class FarService:
    """Answers settlements in their order, each after a round trip and so many a second; one client always has more.

    Args:
        time: passes as it answers.
        seconds: of a round trip.
        rate: settlements a second.
    """

    def __init__(self, time: Time, seconds: float, rate: float) -> None:
        self._time = time
        self._free_at = 0.0
        self.seconds = seconds
        self.rate = rate
        self._under_way: list[tuple[float, float, int]] = []

    def serve(self, window: Window, seconds: float) -> int:
        """Let so much time pass, and return how many settlements were answered."""
        until, answered = self._time.now + seconds, 0
        while True:
            while len(self._under_way) < window.size:
                self._free_at = max(self._free_at, self._time.now + self.seconds / 2) + 1 / self.rate
                self._under_way.append((self._free_at + self.seconds / 2, self._time.now, len(self._under_way) + 1))
            due, since, in_flight = self._under_way[0]
            if due > until:
                self._time.now = until
                return answered
            del self._under_way[0]
            self._time.now = due
            window.answered(due - since, in_flight=in_flight)
            answered += 1


def test_a_given_number_in_flight_stays_as_it_is(time: Time) -> None:
    window = Window(7, lambda: time.now)
    FarService(time, 0.1, 1000).serve(window, 10)
    window.refused()
    assert (window.size, window.is_limited) == (7, False)


def test_a_refusal_limits_the_rate_of_auto(time: Time) -> None:
    window = Window("auto", lambda: time.now)
    assert not window.is_limited
    window.refused()
    assert window.is_limited


@pytest.mark.parametrize(("seconds", "rate"), [(0.1, 1000), (0.05, 3000), (0.15, 500), (0.01, 4000)])
def test_auto_finds_what_a_far_service_takes(time: Time, seconds: float, rate: int) -> None:
    window, service = Window("auto", lambda: time.now), FarService(time, seconds, rate)
    service.serve(window, 5)
    line = seconds * rate  # settlements in progress when the service always has one to do
    assert service.serve(window, 5) >= 0.98 * 5 * rate
    assert line <= window.size <= 1.5 * line + 15


def test_auto_follows_a_line_that_becomes_longer(time: Time) -> None:
    window, service = Window("auto", lambda: time.now), FarService(time, 0.02, 1000)
    service.serve(window, 5)
    service.seconds = 0.1
    service.serve(window, 40)
    assert service.serve(window, 5) >= 0.9 * 5 * 1000


def served(service: FarService, window: Window, seconds: int) -> int:
    """Return how many settlements were answered in so much time, while the window always stayed near the line."""
    most = 1.5 * service.seconds * service.rate + 15
    answered = 0
    for _ in range(2 * seconds):
        answered += service.serve(window, 0.5)
        assert window.size <= most
    return answered


@pytest.mark.parametrize(("seconds", "rate", "until"), [(0.05, 1000, 300), (0.02, 300, 600)])
def test_auto_does_not_take_its_own_queue_for_a_longer_line(time: Time, seconds: float, rate: int, until: int) -> None:
    window, service = Window("auto", lambda: time.now), FarService(time, seconds, rate)
    service.serve(window, 5)
    assert served(service, window, until) >= 0.99 * until * rate


def test_auto_follows_a_line_that_becomes_longer_after_a_while(time: Time) -> None:
    window, service = Window("auto", lambda: time.now), FarService(time, 0.02, 1000)
    service.serve(window, 60)
    service.seconds = 0.15
    service.serve(window, 25)
    assert served(service, window, 60) >= 0.98 * 60 * 1000


def test_answers_that_waited_to_be_read_show_no_queue() -> None:
    window, careful = Window(AUTO, now=lambda: 0.0), Window(AUTO, now=lambda: 0.0)
    for each in (window, careful):
        for _ in range(10):
            each.answered(0.05, in_flight=each.size)
    for _ in range(60):  # behind many messages that came on the same link
        window.answered(0.4, in_flight=window.size, at_least=0.05)
        careful.answered(0.4, in_flight=careful.size)
    assert window.size == 80
    assert careful.size < 20
    for _ in range(1_000):  # and a queue shows in spite of it
        window.answered(0.4, in_flight=window.size, at_least=0.3)
    assert window.size < 70
