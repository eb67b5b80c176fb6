from __future__ import annotations

import os
import platform
from datetime import UTC, datetime

import pytest

from sbnotebook.model import EntityAddress
from sbnotebook.settlement.processing.policy import End
from sbnotebook.settlement.processing.status import Leases, ProcessState, ProcessStatus, consumer

ORDERS = EntityAddress("orders")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_status_says_nothing_of_what_there_is_none_of() -> None:
    assert str(ProcessStatus(ORDERS, ProcessState.RUNNING, NOW, (), {})) == "orders (running): no message yet"


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("repeated", "1,234 done before"),
        ("waiting", "1,234 locked and waiting"),
        ("unsettled", "1,234 not settled yet"),
        ("not_settled", "1,234 whose settlement was not confirmed"),
    ],
)
def test_a_status_says_each_count_and_the_error(field: str, said: str) -> None:
    counts: dict[str, int] = {field: 1_234}
    status = ProcessStatus(ORDERS, ProcessState.ENDED, NOW, (), {End.COMPLETED: 2}, **counts, error="It broke.")
    assert str(status) == f"orders (ended): 2 completed, {said}. It broke."


def test_leases_of_a_worker_follow_each_other() -> None:
    leases = Leases(ORDERS)
    for session in range(102):
        leases.begin(1, NOW, str(session))
    sessions = [lease.session_id for lease in leases.now()]
    assert sessions == [str(session) for session in range(101, 0, -1)], "the last hundred that ended are shown"
    assert {lease.worker for lease in leases.now()} == {f"{platform.node()}/{os.getpid()}/2"}
    assert consumer() == f"{platform.node()}/{os.getpid()}"
