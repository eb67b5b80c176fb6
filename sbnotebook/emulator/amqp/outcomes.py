"""How a delivery ends, and the error that goes with it.

Source: AMQP 1.0 part 2, section 2.8.14 (error) and part 3, section 3.4 (delivery state).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from sbnotebook.emulator.amqp.composites import Fields, composite
from sbnotebook.model.amqp import AmqpValue, Symbol, UInt, ULong

__all__ = ["Accepted", "Error", "Modified", "Outcome", "Received", "Rejected", "Released"]


@composite(0x1D)
@dataclass(frozen=True, slots=True)
class Error:
    """Why a message, a link, a session or a connection was refused or ended.

    Attributes:
        condition: a symbol such as ``"amqp:not-found"``.
        description: one sentence for a human reader.
        info: more about it. It is always sent, if only as an empty map, because
            azure-servicebus looks for it in a fixed place.
    """

    condition: Annotated[str, Symbol]
    description: Annotated[str | None, str] = None
    info: Annotated[dict[str, AmqpValue], Fields] = field(default_factory=dict[str, AmqpValue])


@composite(0x23)
@dataclass(frozen=True, slots=True)
class Received:
    """Not an outcome: how much of a delivery the receiver has got so far."""

    section_number: Annotated[int, UInt]
    section_offset: Annotated[int, ULong]


@composite(0x24)
@dataclass(frozen=True, slots=True)
class Accepted:
    """The message was taken (sent) or is done with (completed)."""


@composite(0x25)
@dataclass(frozen=True, slots=True)
class Rejected:
    """The message was refused (sent), or is to be dead-lettered (received)."""

    error: Annotated[Error | None, Error] = None


@composite(0x26)
@dataclass(frozen=True, slots=True)
class Released:
    """The message was not looked at: it is available again and its delivery count stays."""


@composite(0x27)
@dataclass(frozen=True, slots=True)
class Modified:
    """The message goes back changed: abandoned, or deferred if it is undeliverable here."""

    delivery_failed: Annotated[bool, bool] = False
    undeliverable_here: Annotated[bool, bool] = False
    message_annotations: Annotated[dict[str, AmqpValue] | None, Fields] = None


Outcome = Accepted | Rejected | Released | Modified
