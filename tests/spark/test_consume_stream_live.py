"""Streams of entities in which messages arrive all the time: each step ends all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from sbnotebook.client import Namespace
from sbnotebook.emulator import QueueOptions, RunningEmulator
from sbnotebook.spark.browse_stream import BrowseStream
from sbnotebook.spark.options import StreamOptions
from sbnotebook.spark.schema import message_schema

from .stream_processes import Query, arriving, fill

pytestmark = pytest.mark.thorough

OPTIONS: Final[dict[str, str]] = {}
SECONDS: Final = 20.0
"""For which messages arrive: a step that waits for a pause takes as long."""


@pytest.fixture
def far(emulator: RunningEmulator) -> Iterator[None]:
    """A round trip of 50 ms."""
    emulator.faults.network_delay_ms = 25
    yield
    emulator.faults.network_delay_ms = 0


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("orphans", ["report", "adopt"])
def test_available_now_ends_while_messages_arrive(query: Query, own: Namespace, own_queue: str, orphans: str) -> None:
    ids = fill(own, own_queue, 2)
    query.options |= {"orphans": orphans}
    query.started().prepareForTriggerAvailableNow()
    with arriving(own, own_queue, 40, SECONDS) as sender:
        query.drain_prepared()
        assert sender.is_alive(), "it ended before the last arrival"
    assert query.ids == ids


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_micro_batch_ends_while_messages_arrive(query: Query, own: Namespace, own_queue: str, delivery: str) -> None:
    query.options["delivery"] = delivery
    query.started()
    with arriving(own, own_queue, 50, SECONDS) as sender:
        for _ in range(2):
            query.step()
        assert sender.is_alive(), "it ended before the last arrival"
    assert "late00000" in query.sink[1]


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("is_available_now", [False, True])
def test_sessions_end_while_messages_arrive(emulator: RunningEmulator, own: Namespace, is_available_now: bool) -> None:
    name = f"sessions-{is_available_now}"
    emulator.create_queue(name, QueueOptions(requires_session=True))
    query = Query(emulator, name, {"orphans": "ignore"})
    try:
        with arriving(own, name, 40, SECONDS, session_id="one") as sender:
            if is_available_now:
                query.drain()
            else:
                query.step()
            assert sender.is_alive(), "it ended before the last arrival"
        assert "late00000" in query.ids
    finally:
        query.stop()


@pytest.mark.usefixtures("far")
def test_browsing_by_bytes_ends_while_messages_arrive(
    emulator: RunningEmulator, own: Namespace, own_queue: str
) -> None:
    given = {"entity": own_queue, "connectionString": emulator.connection_string, "maxBytesPerTrigger": "100m"}
    stream = BrowseStream(StreamOptions.parse(given), message_schema())
    try:
        with arriving(own, own_queue, 40, SECONDS) as sender:
            start = stream.initialOffset()
            assert stream.latestOffset(start, stream.getDefaultReadLimit()) != start
            assert sender.is_alive(), "it ended before the last arrival"
    finally:
        stream.stop()
