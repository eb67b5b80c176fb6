"""The embedded emulator of Azure Service Bus: AMQP 1.0 and administration over one local port.

``running`` runs one inside of this process, ``ensure_running`` finds or starts one in the background,
and ``python -m sbnotebook.emulator`` runs one in the foreground.
"""

from sbnotebook.emulator.clock import ManualClock
from sbnotebook.emulator.embedded import RunningEmulator, running
from sbnotebook.emulator.entities.options import EntityStatus, QueueOptions, SubscriptionOptions, Tier, TopicOptions
from sbnotebook.emulator.process import ensure_running, stop

__all__ = [
    "EntityStatus",
    "ManualClock",
    "QueueOptions",
    "RunningEmulator",
    "SubscriptionOptions",
    "Tier",
    "TopicOptions",
    "ensure_running",
    "running",
    "stop",
]
