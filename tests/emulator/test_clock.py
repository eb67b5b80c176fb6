from __future__ import annotations

import asyncio
import time

import pytest

from sbnotebook.emulator.clock import ManualClock, SystemClock


def test_the_machines_time_is_in_milliseconds() -> None:
    assert abs(SystemClock().now() - time.time() * 1000) < 1_000


def test_a_clock_that_is_set_back_does_not_stop_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    second = 1_000_000_000
    wall, monotonic = 1_000 * second, 5 * second
    monkeypatch.setattr(time, "time_ns", lambda: wall)
    monkeypatch.setattr(time, "monotonic_ns", lambda: monotonic)
    clock = SystemClock()
    assert clock.now() == 1_000_000
    wall, monotonic = 400 * second, 6 * second  # set back
    assert clock.now() == 1_001_000
    wall, monotonic = 5_000 * second, 7 * second  # asleep, or set right
    assert clock.now() == 5_000_000


@pytest.mark.anyio
async def test_the_system_clock_wakes_unless_cancelled() -> None:
    clock = SystemClock()
    woken: list[str] = []
    done = asyncio.Event()
    clock.wake_at(clock.now() + 1, lambda: woken.append("cancelled"))()
    clock.wake_at(clock.now() + 5, done.set)
    await asyncio.wait_for(done.wait(), 30)
    assert woken == []


@pytest.mark.anyio
async def test_a_manual_clock_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock(1_000)
    woken: list[int] = []
    clock.wake_at(2_000, lambda: woken.append(2_000))
    clock.wake_at(3_000, lambda: woken.append(3_000))
    clock.wake_at(2_000, lambda: woken.append(0))()
    await asyncio.to_thread(clock.advance, 0.999)
    await asyncio.sleep(0)
    assert (clock.now(), woken) == (1_999, [])
    await asyncio.to_thread(clock.advance, 0.001)
    await asyncio.sleep(0)
    assert woken == [2_000]
    clock.advance(10)
    await asyncio.sleep(0)
    assert woken == [2_000, 3_000]


@pytest.mark.anyio
async def test_a_manual_clock_wakes_at_once_who_comes_late() -> None:
    clock = ManualClock(1_000)
    done = asyncio.Event()
    clock.wake_at(1_000, done.set)
    await asyncio.wait_for(done.wait(), 30)
