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
from sbnotebook.emulator.amqp.link import Link, ReceivingLink, SendingLink, TransferReceived
from sbnotebook.emulator.amqp.performatives import (
    Accepted,
    Coordinator,
    Error,
    Modified,
    Outcome,
    Rejected,
    Released,
    Source,
    Target,
)

__all__ = [
    "Accepted",
    "AmqpConnection",
    "ConnectionClosed",
    "Coordinator",
    "CreditChanged",
    "DispositionReceived",
    "Error",
    "Event",
    "Link",
    "LinkAttaching",
    "LinkDetached",
    "Modified",
    "Outcome",
    "ReceivingLink",
    "Rejected",
    "Released",
    "SendingLink",
    "Source",
    "Target",
    "TransferReceived",
]
