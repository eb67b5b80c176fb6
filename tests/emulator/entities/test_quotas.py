from __future__ import annotations

import pytest

from sbnotebook.emulator.entities import Tier


@pytest.mark.parametrize("tier", list(Tier))
def test_a_tier_has_what_the_next_one_has(tier: Tier) -> None:
    basic, standard, premium = (each.quotas for each in Tier)
    assert Tier(tier.value).quotas is tier.quotas
    assert basic.max_message_size <= standard.max_message_size < premium.max_message_size
    assert (basic.has_topics, standard.has_topics, premium.has_topics) == (False, True, True)
    assert (standard.max_session_state, premium.max_session_state) == (262_144, 1_048_576)
    assert (basic.max_time_to_live, standard.max_time_to_live) == (14 * 86_400_000, None)
