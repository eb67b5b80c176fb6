from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from sbnotebook.client import Namespace
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Complete, LockedMessage, Message, Report
from sbnotebook.settlement import Policy, PolicyRow, Then
from tests.filled_queues import filled_client_queue


def wait_for(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends, "it did not come"
        time.sleep(0.05)


def test_processing_consumes_until_it_is_stopped(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "background", 3)
    with queue.start_processing(lambda _: None) as processing:
        wait_for(lambda: processing.status.count == 3)
        assert processing.wait(0) is None
        assert queue.send([Message(message_id="later")]).ok
        wait_for(lambda: len(processing.report) == 4)
        assert processing.status.state == "running"
        report = processing.stop()
    assert report.settled == 4
    assert processing.wait() == processing.stop() == report
    assert processing.status.state == "ended"


def test_processing_shows_its_workers_and_progress(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "shown", 2)
    with queue.start_processing(lambda _: None, max_wait=1) as processing:
        processing.wait()
    text = repr(processing)
    assert text.startswith("shown (ended): 2 completed")
    for column in ("worker", "since", "count", "last_sequence_number", "ended"):
        assert column in text
    page = processing._repr_html_()  # pyright: ignore[reportPrivateUsage] (what a notebook calls)
    assert page.count("<tr>") == 2
    assert "shown (ended): 2 completed" in page


def test_the_functions_error_comes_when_it_is_asked_for(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "failing", 2)

    def work(_message: LockedMessage) -> None:
        raise TimeoutError("of the function's own")

    with pytest.raises(TimeoutError, match="own"), queue.start_processing(work) as processing:
        processing.wait(30)
    assert "TimeoutError ended it" in str(processing.status)


def test_failing_block_waits_for_the_running_function(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "left", 1)
    begun, go_on = threading.Event(), threading.Event()

    def work(_message: LockedMessage) -> None:
        begun.set()
        assert go_on.wait(30)

    with pytest.raises(ZeroDivisionError), queue.start_processing(work) as processing:  # noqa: PT012 (the block's own)
        assert begun.wait(30)
        raise ZeroDivisionError
    go_on.set()
    report = processing.wait(30)
    assert report is not None
    assert report.settled == 1


def test_process_takes_a_policy_and_a_time_as_text(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "options", 4)
    calls: list[str | None] = []

    def work(message: LockedMessage) -> None:
        calls.append(message.message_id)
        if message.body == b"1":
            raise ValueError(message.body)

    policy = Policy(failed=PolicyRow(Complete(), Then.GO_ON))
    report = queue.process(work, policy=policy, seen="1h", max_in_flight=2, max_wait=1)
    assert report.settled == len(calls) == 4
    assert queue.send([Message(message_id="m2")]).ok
    (again,) = queue.process(work, seen="1h", max_wait=1)
    assert str(again.description).startswith("Its work was done before")
    assert len(calls) == 4


def test_interrupt_waits_for_the_function_and_reports(namespace: Namespace) -> None:
    queue = filled_client_queue(namespace, "interrupted", 3)
    is_over = threading.Event()

    def work(message: LockedMessage) -> None:
        if message.body == b"1":
            os.kill(os.getpid(), signal.SIGINT)
            assert not is_over.wait(1), "the interrupt did not wait for the function"

    with pytest.raises(KeyboardInterrupt) as interrupt:
        queue.process(work, show_progress=False)
    is_over.set()
    report = getattr(interrupt.value, "report", None)
    assert isinstance(report, Report)
    assert [outcome.message_id for outcome in report] == ["m0", "m1"]
    assert report.ok
    assert [(m.message_id, m.delivery_count) for m in queue.peek()] == [("m2", 0)]


def test_process_refuses_what_is_no_function(namespace: Namespace) -> None:
    with pytest.raises(ConfigurationError, match="Messages are processed by a function, not by int"):
        namespace.entity("orders").process(cast("Any", 5))
