from __future__ import annotations

import pytest

from sbnotebook.model.message import end_of_partition, partition_of, start_of_partition


@pytest.mark.parametrize("partition", [0, 1, 15, 2**15 - 1])
def test_partition_begins_and_ends_at_its_own_numbers(partition: int) -> None:
    start, end = start_of_partition(partition), end_of_partition(partition)
    assert start == (1 if partition == 0 else partition * 2**48)
    assert partition_of(start) == partition_of(end) == partition
    assert partition_of(end + 1) == partition + 1
    assert end_of_partition(partition - 1) == partition * 2**48 - 1
