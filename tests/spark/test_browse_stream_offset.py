from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress
from sbnotebook.model.message import end_of_partition, partition_of
from sbnotebook.spark.browse_stream import BrowseOffset

ORDERS = EntityAddress("orders")
NUMBERS = st.dictionaries(st.integers(0, 20), st.integers(1, 2**48 - 1)).map(
    lambda counts: {partition: end_of_partition(partition - 1) + 1 + count for partition, count in counts.items()}
)


@given(st.integers(1, 2**63 - 1), NUMBERS)
def test_browse_offset_round_trips_as_the_same_text(first: int, read: dict[int, int]) -> None:
    offset = BrowseOffset(ORDERS, first, read)
    text = json.dumps(offset.as_dict())
    assert BrowseOffset.parse(json.loads(text), ORDERS) == offset
    again = BrowseOffset(ORDERS, first, dict(reversed(read.items())))
    assert json.dumps(again.as_dict()) == text


@given(NUMBERS, NUMBERS, st.integers(1, 2**50))
def test_browse_offset_spans_lie_between_two_offsets(read: dict[int, int], more: dict[int, int], first: int) -> None:
    before = BrowseOffset(ORDERS, first, read)
    for start, end in before.spans_to(before.reading(more)):
        partition = partition_of(start)
        assert partition == partition_of(end)
        assert end == more[partition] >= start
        assert start == max(first, read.get(partition, end_of_partition(partition - 1)) + 1)


@pytest.mark.parametrize(
    ("offset", "says"),
    [
        ({"entity": "events/subscriptions/audit", "first": 1, "read": {}}, "of a stream of events/subscriptions/audit"),
        ({"entity": "orders", "batch": 3, "numbers": []}, "of another kind of stream"),
        ({"entity": "orders", "first": 1, "read": {"a": 1}}, "of another kind of stream"),
        ({"entity": 5, "first": 1, "read": {}}, "of another kind of stream"),
        ({}, "of another kind of stream"),
    ],
)
def test_browse_offset_refuses_the_checkpoint_of_another_stream(offset: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        BrowseOffset.parse(offset, ORDERS)
