from __future__ import annotations

import pytest

from sbnotebook.emulator.entities import QueueOptions
from sbnotebook.errors import ConfigurationError


@pytest.mark.parametrize("options", [{"lock_duration": 0}, {"lock_duration": 300_001}])
def test_a_lock_lasts_at_most_five_minutes(options: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="LockDuration"):
        QueueOptions(**options)


@pytest.mark.parametrize("count", [0, 2001])
def test_the_delivery_count_has_its_limits(count: int) -> None:
    with pytest.raises(ConfigurationError, match="MaxDeliveryCount"):
        QueueOptions(max_delivery_count=count)
