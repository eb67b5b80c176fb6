from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from sbnotebook.settlement.grace import Grace

pytestmark = pytest.mark.anyio


async def cancelled_during(grace: Grace, seconds: float, takes: float) -> list[str]:
    """What happens to work that is cancelled in the middle of a period."""
    seen: list[str] = []
    with anyio.CancelScope() as scope:
        async with grace.watching():
            with grace.period(seconds):
                scope.cancel()
                await anyio.sleep(takes)
                seen.append("finished")
            await anyio.lowlevel.checkpoint_if_cancelled()
            seen.append("went on")
    return seen


@pytest.mark.parametrize("seconds", [1, 60])
async def test_grace_finishes_its_block_after_cancellation(seconds: float) -> None:
    assert await cancelled_during(Grace(), seconds, 0.02) == ["finished"]


async def test_a_block_that_takes_too_long_is_cut_off() -> None:
    assert await cancelled_during(Grace(), 0.02, 60) == []


async def test_grace_bounds_a_period_begun_after_cancellation() -> None:
    grace = Grace()
    async with grace.watching():
        pass
    started = anyio.current_time()
    with grace.period(0.02):
        await anyio.sleep(60)
    assert anyio.current_time() - started < 50


async def test_grace_cuts_off_a_block_at_its_limit() -> None:
    async with Grace().watching():
        with Grace().period(60, at_most=0.02) as late:
            await anyio.sleep(60)
        with Grace().period(60, at_most=60) as in_time:
            await anyio.lowlevel.checkpoint()
    assert (late.cancelled_caught, in_time.cancelled_caught) == (True, False)


@pytest.mark.parametrize(("seconds", "at_most"), [(0.02, 60), (60, 0.02)])
async def test_what_comes_first_cuts_a_cancelled_block_off(seconds: float, at_most: float) -> None:
    grace = Grace()
    with anyio.CancelScope() as scope:
        async with grace.watching():
            with grace.period(seconds, at_most) as period:
                scope.cancel()
                await anyio.sleep(60)
            assert period.cancelled_caught
            await anyio.lowlevel.checkpoint_if_cancelled()
    assert scope.cancelled_caught


async def test_it_is_told_at_once_that_the_work_was_cancelled() -> None:
    told: list[str] = []
    with anyio.CancelScope() as scope:
        async with Grace(lambda: told.append("told")).watching():
            scope.cancel()
            await anyio.sleep_forever()
    assert told == ["told"]


async def test_without_a_cancellation_nothing_is_cut_off() -> None:
    grace = Grace()
    async with grace.watching():
        with grace.period(0.01):
            await anyio.sleep(0.05)
            done = True
    assert done


async def test_an_error_of_the_work_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with Grace().watching():
            raise ZeroDivisionError
