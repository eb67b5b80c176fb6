"""Reports with failures at which the user has not looked."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable

import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.portal import warn_of_unread, watched
from sbnotebook.emulator import running
from sbnotebook.model import Complete, EntityAddress, Outcome, OutcomeStatus, Report

ORDERS = EntityAddress("orders")
FAILED = Outcome(OutcomeStatus.LOCK_LOST, "complete", ORDERS, 1)
SETTLED = Outcome(OutcomeStatus.SETTLED, "complete", ORDERS, 2)


def warned() -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_unread()
    return [str(each.message) for each in caught]


@pytest.fixture(autouse=True)
def _nothing_before() -> None:  # pyright: ignore[reportUnusedFunction]
    warned()


def test_failures_that_are_not_looked_at_are_told_once() -> None:
    watched(Report([FAILED, SETTLED]))
    watched(Report([SETTLED]))
    (said,) = warned()
    assert said == ("Completed 1 of 2 messages: 1 lock lost. report.failures has the others.")
    assert warned() == []


LOOKS: dict[str, Callable[[Report], object]] = {
    "repr": repr,
    "str": str,
    "list": list,
    "ok": lambda report: report.ok,
    "counts": lambda report: report.counts,
    "failures": lambda report: report.failures,
    "an item": lambda report: report[0],
    "a part": lambda report: report[:1],
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_report_that_is_looked_at_is_not_told(look: str) -> None:
    LOOKS[look](watched(Report([FAILED])))
    assert warned() == []


def test_a_length_is_no_look_and_a_sum_counts_for_its_parts() -> None:
    assert len(watched(Report([FAILED]))) == 1
    assert len(warned()) == 1
    total = Report()
    for _ in range(3):
        total += watched(Report([FAILED]))
    assert not total.ok
    assert warned() == []


def test_every_way_to_act_is_watched(namespace: Namespace) -> None:
    namespace.create_queue("unseen")
    queue = namespace.entity("unseen")
    queue.pick([4711], Complete()).apply()
    queue.pick([4711], Complete()).start().result()
    assert warned() == ["Completed 0 of 1 message: 1 not found. report.failures has the others."] * 2


def test_a_program_is_told_at_its_end() -> None:
    code = """
import sys
from sbnotebook import connect, Complete
with connect(sys.argv[1]) as namespace:
    namespace.create_queue("program")
    namespace.entity("program").pick([4711], Complete()).apply()
    print("done")
"""
    with running() as emulator:
        command = [sys.executable, "-c", code, emulator.connection_string]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == "done\n"
    assert "Completed 0 of 1 message: 1 not found" in ran.stderr
