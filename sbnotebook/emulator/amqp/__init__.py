"""AMQP 1.0, the server's side, without I/O.

A connection turns bytes into events, and calls of its links into bytes. The owner of the socket decides what the
events mean.
"""

from sbnotebook.emulator.amqp.connection import AmqpConnection
from sbnotebook.emulator.amqp.events import (
    ConnectionClosed,
    CreditChanged,
    DispositionReceived,
    Event,
    LinkAttaching,
    LinkDetached,
)
from sbnotebook.emulator.amqp.held import HeldMemory, SharedMemory
from sbnotebook.emulator.amqp.link import Link, ReceivingLink, SendingLink, TransferReceived
from sbnotebook.emulator.amqp.performatives import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    DeliveryState,
    Discharge,
    Error,
    Modified,
    Outcome,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
)

__all__ = [
    "Accepted",
    "AmqpConnection",
    "ConnectionClosed",
    "Coordinator",
    "CreditChanged",
    "Declare",
    "Declared",
    "DeliveryState",
    "Discharge",
    "DispositionReceived",
    "Error",
    "Event",
    "HeldMemory",
    "Link",
    "LinkAttaching",
    "LinkDetached",
    "Modified",
    "Outcome",
    "ReceivingLink",
    "Rejected",
    "Released",
    "SendingLink",
    "SharedMemory",
    "Source",
    "Target",
    "TransactionalState",
    "TransferReceived",
]
