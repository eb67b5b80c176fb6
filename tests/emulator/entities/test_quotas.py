from __future__ import annotations

from sbnotebook.emulator.entities import Tier
from sbnotebook.emulator.entities.quotas import MAX_HEADER_SIZE, MAX_HOPS, MAX_ID_LENGTH, MAX_PROPERTY_SIZE


def test_the_quotas_are_those_of_the_documentation() -> None:
    kilobyte, day = 1024, 86_400_000
    small, large, largest = 256 * kilobyte, 1024 * kilobyte, 102_400 * kilobyte
    assert [tuple(tier.quotas) for tier in Tier] == [
        (small, small, small, 0, 14 * day, 10_000, 0, False),
        (small, small, small, small, None, 10_000, 2000, True),
        (large, largest, large, large, None, 1_000_000, 2000, True),
    ]
    assert (MAX_HEADER_SIZE, MAX_PROPERTY_SIZE, MAX_ID_LENGTH, MAX_HOPS) == (65_536, 32_768, 128, 4)
