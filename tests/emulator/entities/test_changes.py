from __future__ import annotations

import pytest

from sbnotebook.emulator.entities import BrokeredMessage
from sbnotebook.emulator.entities.changes import (
    EntityDeleted,
    EntityKept,
    MessageAdded,
    MessageIdSeen,
    MessageRemoved,
    MessageUpdated,
    SessionStateSet,
)

FROZEN = (EntityKept, EntityDeleted, MessageUpdated, SessionStateSet, MessageIdSeen)


@pytest.mark.parametrize("kind", [*FROZEN, MessageAdded, MessageRemoved, BrokeredMessage])
def test_changes_are_small_and_frozen_but_for_the_frequent_ones(kind: type) -> None:
    assert "__dict__" not in dir(kind)
    assert getattr(kind, "__dataclass_params__").frozen is (kind in FROZEN)  # noqa: B009


def test_a_message_is_equal_to_itself_only() -> None:
    assert BrokeredMessage(1, 1, 0, b"") != BrokeredMessage(1, 1, 0, b"")


def test_an_update_has_no_new_payload_unless_it_is_told() -> None:
    assert not MessageUpdated(4, BrokeredMessage(1, 1, 0, b"")).has_new_payload
