"""What is asked of a subscription about its rules."""

from __future__ import annotations

from sbnotebook.emulator.entities import Subscription
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.operations import Operation

__all__ = ["rule_operations"]


def rule_operations(broker: Broker, subscription: Subscription) -> dict[str, Operation]:
    """The operations of a subscription on its rules."""
    del broker, subscription
    return {}
