"""Quotas of a namespace's tier.

Source: Service Bus documentation, "Service Bus quotas" and "Service Bus Premium and Standard messaging tiers".
"""

from __future__ import annotations

from enum import Enum
from functools import cached_property
from typing import Final, NamedTuple

MAX_HEADER_SIZE: Final = 65_536
"""Bytes of all that is not body in one message."""
MAX_PROPERTY_SIZE: Final = 32_768
"""Bytes of the value of one application property, without the type and the length in front of it."""
MAX_ID_LENGTH: Final = 128
"""Characters of a message id, session id or partition key."""
MAX_HOPS: Final = 4
"""How often one message is forwarded."""

_KILOBYTE: Final = 1024
_DAY: Final = 86_400_000


class Quotas(NamedTuple):
    max_message_size: int  # bytes of one message, unless the entity allows more
    max_large_message_size: int  # bytes that an entity can allow
    max_batch_size: int  # bytes of one batch
    max_session_state: int  # bytes of one session's state
    max_time_to_live: int | None  # ms; None for no limit
    max_entities: int  # queues and topics
    max_subscriptions: int  # of one topic
    has_topics: bool  # whether there are topics, sessions, duplicate detection and forwarding

    def message_size(self, wanted_kb: int | None) -> int:
        return self.max_message_size if wanted_kb is None else min(wanted_kb * _KILOBYTE, self.max_large_message_size)


class Tier(Enum):
    """A namespace's tier, by the name that Service Bus gives to it."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"

    @cached_property  # It is asked for with every message, and to find an enumeration's member in a dict is slow.
    def quotas(self) -> Quotas:
        return _QUOTAS[self]


_QUOTAS: Final = {
    Tier.BASIC: Quotas(256 * _KILOBYTE, 256 * _KILOBYTE, 256 * _KILOBYTE, 0, 14 * _DAY, 10_000, 0, False),
    Tier.STANDARD: Quotas(256 * _KILOBYTE, 256 * _KILOBYTE, 256 * _KILOBYTE, 256 * _KILOBYTE, None, 10_000, 2000, True),
    Tier.PREMIUM: Quotas(
        1024 * _KILOBYTE, 102_400 * _KILOBYTE, 1024 * _KILOBYTE, 1024 * _KILOBYTE, None, 1_000_000, 2000, True
    ),
}
