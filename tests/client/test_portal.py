"""The background loop, in this process and in the children that it forks."""

from __future__ import annotations

import gc
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from sbnotebook.client.portal import portal, run
from sbnotebook.model import EntityAddress, Outcome, OutcomeStatus, Report
from sbnotebook.settlement.interrupts import reporting


async def thread_name() -> str:
    return threading.current_thread().name


def test_work_runs_in_one_background_thread() -> None:
    assert run(thread_name) == "sbnotebook"
    assert portal() is portal()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_the_child_of_a_fork_has_a_loop_of_its_own() -> None:
    run(thread_name)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that waits for its parent's thread waits for ever
        os._exit(0 if run(thread_name) == "sbnotebook" else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert run(thread_name) == "sbnotebook"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_another_loop_begins_where_one_has_ended() -> None:
    async def leave() -> None:
        raise SystemExit

    child = os.fork()  # its loop says how it ended
    if child == 0:
        signal.alarm(20)
        try:
            with suppress(SystemExit):
                run(leave)
            os._exit(0 if run(thread_name) == "sbnotebook" else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert status == 0


def test_the_background_loop_cannot_wait_for_itself() -> None:
    async def nested() -> None:
        run(thread_name)

    with pytest.raises(RuntimeError, match="event loop thread"):
        run(nested)


def test_interrupt_cancels_the_work_and_waits() -> None:
    seen: list[str] = []

    async def work() -> None:
        seen.append("began")
        os.kill(os.getpid(), signal.SIGINT)  # as the notebook's stop button does
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                seen.append("gave back what it held")

    with pytest.raises(KeyboardInterrupt):
        run(work)
    assert seen == ["began", "gave back what it held"]
    assert run(thread_name) == "sbnotebook"


def test_interrupt_carries_the_report() -> None:
    outcomes = [
        Outcome(OutcomeStatus.SETTLED, "send", EntityAddress("orders")),
        Outcome(OutcomeStatus.UNCONFIRMED, "send", EntityAddress("orders")),
    ]

    async def work() -> None:
        known: list[Outcome] = []
        with reporting(lambda: Report(known)):
            os.kill(os.getpid(), signal.SIGINT)
            try:
                await anyio.sleep_forever()
            finally:
                known += outcomes  # it also has outcomes known only in the end

    with pytest.raises(KeyboardInterrupt) as caught:
        run(work)
    assert caught.value.__dict__["report"] == Report(outcomes)
    assert "Sent 1 of 2 messages: 1 unconfirmed" in caught.value.__notes__[0]


def test_interrupt_without_outcomes_has_an_empty_report() -> None:
    async def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await anyio.sleep_forever()

    with pytest.raises(KeyboardInterrupt) as caught:
        run(work)
    assert caught.value.__dict__["report"] == Report()
    assert not hasattr(caught.value, "__notes__")


async def first_threshold() -> int:
    return gc.get_threshold()[0]


def test_cycles_are_looked_for_seldom_while_work_is_done() -> None:
    usual = gc.get_threshold()
    ends = threading.Event()
    with ThreadPoolExecutor() as pool:
        longer = pool.submit(run, anyio.to_thread.run_sync, ends.wait)
        assert run(first_threshold) == 20_000
        assert run(first_threshold) == 20_000, "the longer work goes on"
        ends.set()
        longer.result()
    assert gc.get_threshold() == usual


@pytest.mark.parametrize("own", [0, 50_000], ids=["never", "more seldom"])
def test_a_user_who_looks_for_cycles_more_seldom_keeps_that(own: int) -> None:
    usual = gc.get_threshold()
    gc.set_threshold(own)
    try:
        assert run(first_threshold) == own
        assert gc.get_threshold()[0] == own
    finally:
        gc.set_threshold(*usual)
