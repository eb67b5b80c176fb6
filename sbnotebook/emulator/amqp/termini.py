"""The two ends of a link.

Source: AMQP 1.0 part 3, section 3.5 (source, target) and part 4, section 4.5.1 (coordinator).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from sbnotebook.emulator.amqp.composites import Anything, Fields, Symbols, composite
from sbnotebook.emulator.amqp.outcomes import Accepted, Modified, Rejected, Released
from sbnotebook.model.amqp import AmqpValue, Symbol, UInt

__all__ = ["Coordinator", "Source", "Target"]


@composite(0x28)
@dataclass(frozen=True, slots=True)
class Source:
    """Where the messages of a link come from.

    Attributes:
        address: the entity's address as the peer wrote it, usually a string.
        filter: what the receiver wants to get, for example the session filter, by symbol.
    """

    address: Annotated[AmqpValue, Anything] = None
    durable: Annotated[int, UInt] = 0
    expiry_policy: Annotated[str, Symbol] = "session-end"
    timeout: Annotated[int, UInt] = 0
    dynamic: Annotated[bool, bool] = False
    dynamic_node_properties: Annotated[dict[str, AmqpValue] | None, Fields] = None
    distribution_mode: Annotated[str | None, Symbol] = None
    filter: Annotated[dict[str, AmqpValue] | None, Fields] = None
    default_outcome: Annotated[
        Accepted | Rejected | Released | Modified | None, Accepted, Rejected, Released, Modified
    ] = None
    outcomes: Annotated[tuple[str, ...], Symbols] = ()
    capabilities: Annotated[tuple[str, ...], Symbols] = ()


@composite(0x29)
@dataclass(frozen=True, slots=True)
class Target:
    """Where the messages of a link go to; ``address`` is as the peer wrote it, usually a string."""

    address: Annotated[AmqpValue, Anything] = None
    durable: Annotated[int, UInt] = 0
    expiry_policy: Annotated[str, Symbol] = "session-end"
    timeout: Annotated[int, UInt] = 0
    dynamic: Annotated[bool, bool] = False
    dynamic_node_properties: Annotated[dict[str, AmqpValue] | None, Fields] = None
    capabilities: Annotated[tuple[str, ...], Symbols] = ()


@composite(0x30)
@dataclass(frozen=True, slots=True)
class Coordinator:
    """The target of a link that controls transactions."""

    capabilities: Annotated[tuple[str, ...], Symbols] = ()
