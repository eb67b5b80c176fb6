"""The background loop, in this process and in the children that it forks."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from sbnotebook.client.portal import portal, run


async def thread_name() -> str:
    return threading.current_thread().name


def test_work_runs_in_one_background_thread() -> None:
    assert run(thread_name) == "sbnotebook"
    assert portal() is portal()


def test_an_exception_comes_back() -> None:
    async def fail() -> None:
        raise LookupError("nothing here")

    with pytest.raises(LookupError, match="nothing here"):
        run(fail)


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
