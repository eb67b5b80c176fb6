from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.spark.consume_offset import BatchMessage, ConsumeOffset, ranges_of

ORDERS = EntityAddress("orders")


@given(
    st.lists(
        st.builds(BatchMessage, st.integers(1, 2**63 - 1), st.just(1), st.none() | st.integers(0, 2**42)),
        unique_by=lambda taken: taken.number,
    )
)
def test_consume_offset_round_trips(messages: list[BatchMessage]) -> None:
    offset = ConsumeOffset(ORDERS, 6).next(messages)
    assert ConsumeOffset.parse(json.loads(json.dumps(offset.as_dict())), ORDERS) == offset
    assert offset.numbers == tuple(sorted(message.number for message in messages))
    assert offset.batch == 7


def test_consume_offset_writes_neighbours_as_ranges() -> None:
    offset = ConsumeOffset(ORDERS).next(BatchMessage(number, 1, 5) for number in [*range(1, 10_001), 2 << 48])
    assert offset.as_dict()["ranges"] == [[1, 10_000], [2 << 48, 2 << 48]]
    assert len(json.dumps(offset.as_dict())) < 130
    assert ranges_of([]) == []


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"next": 7},
        {"batch": 1, "entity": "orders", "ranges": [[5, 1]], "enqueued": None},
        {"batch": 1, "entity": "orders", "ranges": [[1, 9999999999]], "enqueued": None},
        {"batch": 1, "entity": "orders", "ranges": "1-4", "enqueued": None},
        {"batch": "x", "entity": "orders", "ranges": [], "enqueued": None},
        {"batch": 1, "entity": "orders", "ranges": [[1, 2]], "enqueued": [1.5, 2]},
        {"batch": 1, "entity": "//", "ranges": [], "enqueued": None},
    ],
)
def test_consume_offset_refuses_other_offsets(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="checkpointLocation of its own"):
        ConsumeOffset.parse(given, ORDERS)


def test_consume_offset_tells_messages_of_a_new_entity_apart() -> None:
    def message(millis: int | None) -> PeekedMessage:
        time = None if millis is None else datetime.fromtimestamp(millis / 1000, UTC)
        return PeekedMessage(entity=ORDERS, sequence_number=1, enqueued_time=time)

    offset = ConsumeOffset(ORDERS).next([BatchMessage.of(message(1000)), BatchMessage.of(message(2000))])
    assert [offset.is_of(message(time)) for time in (999, 1000, 1500, 2000, 2001, None)] == [
        False, True, True, True, False, True,
    ]  # fmt: skip
