"""The single steps of the pace: how far each answer and each refusal moves the rate and the window."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from sbnotebook.settlement.pace import AllowedRate, Flight, InFlight, Pace, Pause, Window

pytestmark = pytest.mark.anyio


class Time:
    """Passes as a task sleeps, and notes for how long it wanted to sleep."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def allowed_rate(time: Time) -> AllowedRate:
    return AllowedRate(lambda: time.now, time.sleep)


async def rate_of(allowed_rate: AllowedRate, time: Time) -> float:
    """Return the operations a second that are allowed now, 20 at least."""
    time.now += 3
    assert allowed_rate.is_open()
    allowed_rate.began(100)
    time.slept.clear()
    await allowed_rate.wait(1)
    # It waits for 101 operations, less those of 0.05 seconds that may begin together.
    return round(101 / (time.slept[0] + 0.05), 6)


async def test_the_first_refusal_begins_a_search(allowed_rate: AllowedRate, time: Time) -> None:
    allowed_rate.refused()
    await allowed_rate.wait(1)
    assert time.slept == [1.0, 0.01], "for new credits, and for the first operation at 350 a second"
    assert await rate_of(allowed_rate, time) == 350


async def test_a_refusal_of_what_began_before_a_search_counts_not(allowed_rate: AllowedRate, time: Time) -> None:
    allowed_rate.refused()
    time.now += 0.99
    allowed_rate.refused(1_000)
    assert await rate_of(allowed_rate, time) == 350


@pytest.mark.parametrize(("after", "rate"), [(1.39, 350.0), (1.41, 350 + 20 * 200 / 350)])
async def test_a_search_grows_once_refusals_are_over(
    allowed_rate: AllowedRate, time: Time, after: float, rate: float
) -> None:
    allowed_rate.refused()
    time.now += 1.02
    assert allowed_rate.is_open()
    time.now += after - 1.02
    allowed_rate.accepted(20)
    assert await rate_of(allowed_rate, time) == round(rate, 6)


async def test_each_message_raises_a_low_rate_by_one(time: Time) -> None:
    allowed_rate = AllowedRate(lambda: time.now, time.sleep, rate=100)
    allowed_rate.accepted(20)
    assert not allowed_rate.is_open()
    allowed_rate.refused()
    time.now += 2
    allowed_rate.accepted()
    allowed_rate.accepted(20)
    assert await rate_of(allowed_rate, time) == 75 + 1 + 20


async def test_a_rate_grows_only_while_it_is_used(allowed_rate: AllowedRate, time: Time) -> None:
    allowed_rate.refused()
    time.now += 5
    assert allowed_rate.is_open()
    allowed_rate.accepted(20)
    assert await rate_of(allowed_rate, time) == 350


def searched(allowed_rate: AllowedRate, time: Time, refusals: Sequence[float]) -> None:
    """Refuse an operation, and others so many seconds after the begin of the search, with accepted ones between."""
    allowed_rate.refused()
    begun = time.now
    for after in refusals:
        time.now = begun + after
        allowed_rate.accepted(0)
        allowed_rate.refused()


@pytest.mark.parametrize(
    ("refusals", "rate"),
    [
        ([1.1], 350.0),
        ([1.5], 175.0),
        ([1.5, 1.6], 175.0),
        ([1.5, 2.0], 87.5),
        ([3.5], 175.0),
        ([4.5], 262.5),
        ([4.5, 5.5], 231.0),
        ([3.5, 4.5], 131.25),
        ([3.5, 4.5, 5.5], 115.5),
    ],
    ids=str,
)
async def test_refusals_halve_a_search_and_end_it(
    allowed_rate: AllowedRate, time: Time, refusals: Sequence[float], rate: float
) -> None:
    searched(allowed_rate, time, refusals)
    assert await rate_of(allowed_rate, time) == rate


@pytest.mark.parametrize(("after", "rate"), [(0.9, 262.5), (1.1, 231.0)])
async def test_refusals_of_one_second_count_as_one(
    allowed_rate: AllowedRate, time: Time, after: float, rate: float
) -> None:
    searched(allowed_rate, time, [4.5])
    time.now += after
    allowed_rate.refused()
    assert await rate_of(allowed_rate, time) == rate


@pytest.mark.parametrize(("quiet", "doubled"), [(1.0, 1.0), (3.0, 1.0), (4.0, 2.0), (5.0, 4.0), (6.0, 8.0), (9.0, 8.0)])
async def test_steps_double_after_some_quiet_seconds(
    allowed_rate: AllowedRate, time: Time, quiet: float, doubled: float
) -> None:
    searched(allowed_rate, time, [4.5])
    refused_at = time.now
    time.now += 0.01
    allowed_rate.is_open()
    allowed_rate.began(1_000)
    time.now += 0.01
    assert not allowed_rate.is_open()
    time.now = refused_at + quiet
    allowed_rate.accepted(100)
    assert await rate_of(allowed_rate, time) == round(262.5 + 100 * 15 * doubled / 262.5, 6)


@pytest.mark.parametrize(
    ("counts", "rate"),
    [([25], 262.5), ([26], 231.0), ([26, 23], 231.0), ([26, 24], 203.28), ([10, 10, 10], 231.0)],
    ids=str,
)
async def test_many_refusals_at_once_lower_the_rate_once_more(
    allowed_rate: AllowedRate, time: Time, counts: Sequence[int], rate: float
) -> None:
    searched(allowed_rate, time, [4.5])
    for count in counts:
        allowed_rate.refused(count)
    assert await rate_of(allowed_rate, time) == rate


@pytest.mark.parametrize(("after", "is_search"), [(7.9, False), (8.1, True)])
async def test_a_crowd_of_refusals_begins_another_search(
    allowed_rate: AllowedRate, time: Time, after: float, is_search: bool
) -> None:
    searched(allowed_rate, time, [4.5])
    time.now += after - 4.5
    allowed_rate.accepted()
    allowed_rate.refused(80)
    await allowed_rate.wait(1)
    assert (1.0 in time.slept) is is_search


async def test_fewer_refusals_than_a_crowd_begin_no_search(allowed_rate: AllowedRate, time: Time) -> None:
    searched(allowed_rate, time, [4.5])
    time.now += 10
    allowed_rate.accepted(0)
    allowed_rate.refused(25)
    allowed_rate.refused(15)
    await allowed_rate.wait(1)
    assert 1.0 not in time.slept


@pytest.mark.parametrize(("silence", "is_limited"), [(59.5, True), (60.5, False)])
async def test_a_minute_without_a_question_ends_the_limit(
    allowed_rate: AllowedRate, time: Time, silence: float, is_limited: bool
) -> None:
    searched(allowed_rate, time, [4.5])
    time.now += 1
    allowed_rate.is_open()
    time.now += silence
    assert allowed_rate.is_limited is is_limited
    assert allowed_rate.is_open()
    allowed_rate.refused()
    # A forgotten limit begins with a search.
    assert await rate_of(allowed_rate, time) == (231 if is_limited else 350)


async def test_one_operation_a_second_is_always_allowed(time: Time) -> None:
    allowed_rate = AllowedRate(lambda: time.now, time.sleep, rate=1.2)
    assert not allowed_rate.is_open()
    allowed_rate.refused()
    await allowed_rate.wait(1)
    assert time.slept == [1.0, 1.0]
    time.now += 10
    assert allowed_rate.is_open()
    allowed_rate.began()
    assert not allowed_rate.is_open(), "no more than one begins at once"


def sizes(window: Window, seconds: float, count: int) -> list[int]:
    """Return the size after each of so many answers."""
    found: list[int] = []
    for _ in range(count):
        window.answered(seconds, in_flight=window.size)
        found.append(window.size)
    return found


def window_of(size: int) -> Window:
    """Return a window that prompt answers after 0.05 seconds have made so large."""
    window = Window("auto", now=lambda: 0.0)
    assert [10, *sizes(window, 0.05, size - 10)][-1] == size
    return window


def queueing(count: float, size: int) -> float:
    """Return the seconds of an answer if so many of a window wait in line, and the way alone takes 0.05 seconds."""
    return 0.05 / (1 - count / size)


@pytest.mark.parametrize(
    ("size", "count", "after"), [(20, 2.5, 21), (20, 3.5, 20), (40, 4.5, 41), (40, 5.5, 40), (20, 0.0, 21)]
)
def test_a_window_grows_while_few_wait_in_line(size: int, count: float, after: int) -> None:
    assert sizes(window_of(size), queueing(count, size), 1) == [after]


@pytest.mark.parametrize(("size", "count", "is_late"), [(20, 5.5, False), (20, 6.5, True), (40, 10.5, True)])
def test_half_a_window_of_late_answers_ends_fast_growth(size: int, count: float, is_late: bool) -> None:
    window = window_of(size)
    full = size // 2 + (size - 10)
    assert sizes(window, queueing(count, size), full - 1) == [size] * (full - 1)
    assert sizes(window, queueing(count, size), 1) == [size - is_late]


def test_a_large_window_may_have_a_quarter_in_line() -> None:
    window = window_of(40)
    assert sizes(window, queueing(9.5, 40), 60) == [40] * 60


def test_a_slow_window_moves_by_three_a_round_trip() -> None:
    window = window_of(20)
    sizes(window, queueing(7, 20), 19)
    assert sizes(window, queueing(7, 20), 8) == [19, 19, 19, 19, 19, 19, 18, 18]
    assert sizes(window, 0.05, 13) == [18, 19, 19, 19, 19, 19, 19, 20, 20, 20, 20, 20, 20]
    assert sizes(window, 0.05, 20)[-1] == 24


def test_a_window_of_ten_shrinks_no_further() -> None:
    window = window_of(10)
    window.answered(0.05, in_flight=1)
    assert {*sizes(window, 1.0, 30)} == {10}


def test_a_window_has_its_own_limit() -> None:
    window = Window("auto", now=lambda: 0.0, most=12)
    assert sizes(window, 0.0, 4) == [11, 12, 12, 12]


@pytest.mark.parametrize(("in_flight", "size"), [(4, 10), (5, 11)])
def test_an_answer_counts_where_half_the_window_is_used(in_flight: int, size: int) -> None:
    window = window_of(10)
    window.answered(0.05, in_flight=in_flight)
    assert window.size == size


def test_half_as_many_wait_after_a_period_of_slower_answers(time: Time) -> None:
    window = Window("auto", now=lambda: time.now, most=10)
    seen: list[int] = []
    for after, seconds in ((0.0, 0.05), (9.9, 0.05), (0.2, 0.06), (9.9, 0.06)):
        time.now += after
        seen += sizes(window, seconds, 1)
    assert seen == [10, 10, 10, 10]
    time.now += 0.2
    assert sizes(window, 0.06, 17) == [5] * 15 + [10, 10]


def test_a_window_counts_those_that_wait() -> None:
    window = Window(2)
    seen: list[tuple[int, bool]] = []
    for step in (window.began, window.began, window.ended, window.ended):
        seen.append((window.waiting, window.has_room))
        step()
    assert seen == [(0, True), (1, True), (2, False), (1, True)]
    assert (window.waiting, window.has_room) == (0, True)


def begun_in(window: Window) -> int:
    """Begin and end messages while there is room, and return how many."""
    count = 0
    while window.has_room:
        window.began()
        window.ended()
        count += 1
    return count


def test_a_busy_window_counts_one_message_unless_told(time: Time) -> None:
    window = Window("auto", lambda: time.now)
    window.refused()
    time.now += 5
    assert begun_in(window) == 17, "a twentieth of the 350 of a second"


@pytest.mark.parametrize(("limit", "waits"), [("auto", True), (3, False)])
async def test_only_auto_waits_for_the_rate_of_a_busy_service(time: Time, limit: InFlight, waits: bool) -> None:
    window = Window(limit, lambda: time.now)
    window.refused()
    with anyio.move_on_after(0.01) as scope:
        await window.wait_for_rate(1)
    assert scope.cancelled_caught is waits


@pytest.mark.parametrize(("accepted", "begun"), [(0, 17), (100, 20)])
def test_accepted_settlements_of_a_request_raise_the_rate(time: Time, accepted: int, begun: int) -> None:
    window = Window("auto", lambda: time.now)
    window.refused()
    time.now += 2
    begun_in(window)
    time.now += 0.01
    assert window.has_room
    window.accepted(accepted)
    time.now += 5
    assert begun_in(window) == begun


def test_a_flight_begins_with_no_messages() -> None:
    flight = Flight()
    assert flight.now == flight.latest == flight.most == 0


async def test_a_pause_that_has_not_begun_takes_no_time() -> None:
    pause = Pause()
    pace = Pace(None, pause)
    with anyio.fail_after(5):
        for _ in range(10):
            await pace.wait(1_000)
    assert not pause.was_used
    assert not pause.holds


async def test_a_rate_spreads_messages_over_the_time() -> None:
    pace, start = Pace(50), anyio.current_time()
    for _ in range(3):
        await pace.wait(5)
    assert 0.2 <= anyio.current_time() - start < 1.5
