"""The performatives, and the composite types that they carry: errors, outcomes, sources and targets.

The three performatives that come with every message are not frozen. Freezing them would cost more than decoding them.

Source: AMQP 1.0 part 2, sections 2.7 (performatives) and 2.8.14 (error); part 3, sections 3.4 (delivery state) and
3.5 (source, target); part 4, section 4.5 (transactions).
"""

from __future__ import annotations

import struct
from dataclasses import field, replace
from typing import Annotated, Any, Final

from sbnotebook.amqp import AmqpValue, Symbol, UByte, UInt, ULong, UShort
from sbnotebook.emulator.amqp.composites import Anything, Fields, Symbols, composite, encode_composite
from sbnotebook.errors import ProtocolViolationError

SENDER: Final = False
"""The role of the end of a link that sends."""
RECEIVER: Final = True
"""The role of the end of a link that receives."""

_UINT_MAX: Final = 2**32 - 1
_SMALL_STATE: Final = 200
_SETTLEMENT: Final = struct.Struct(">4sBBcBIBIB")
_TRANSFER_HEAD: Final = struct.Struct(">4sBBBIBIBB")
_TRANSFER_END: Final = struct.Struct(">BIBB")
_FLAGS: Final = (0x42, 0x41)


@composite(0x1D)
class Error:
    """The reason for which a message, a link, a session or a connection was refused or ended."""

    condition: Annotated[str, Symbol]  # a symbol such as ``"amqp:not-found"``
    description: Annotated[str | None, str] = None  # one sentence for a human reader
    # Always sent, if only as an empty map: azure-servicebus looks for it in a fixed place.
    info: Annotated[dict[str, AmqpValue], Fields] = field(default_factory=dict[str, AmqpValue])


@composite(0x23)
class Received:
    """The part of a delivery that the receiver has got so far. It is not an outcome."""

    section_number: Annotated[int, UInt]
    section_offset: Annotated[int, ULong]


@composite(0x24)
class Accepted:
    """The message was taken (sent) or is done with (completed)."""


@composite(0x25)
class Rejected:
    """The message was refused (sent), or is to be dead-lettered (received)."""

    error: Annotated[Error | None, Error] = None


@composite(0x26)
class Released:
    """The message was not looked at: it is available again and its delivery count stays."""


@composite(0x27)
class Modified:
    """The message goes back changed: abandoned, or deferred if it is undeliverable here."""

    delivery_failed: Annotated[bool, bool] = False
    undeliverable_here: Annotated[bool, bool] = False
    message_annotations: Annotated[dict[str, AmqpValue] | None, Fields] = None


Outcome = Accepted | Rejected | Released | Modified
_OUTCOMES: Final = (Accepted, Rejected, Released, Modified)


@composite(0x31)
class Declare:
    """The body of a message to a coordinator: begin a transaction."""

    global_id: Annotated[AmqpValue, Anything] = None


@composite(0x32)
class Discharge:
    """The body of a message to a coordinator: end a transaction, with all of its work or, on ``fail``, with none."""

    txn_id: Annotated[bytes, bytes]
    fail: Annotated[bool, bool] = False


@composite(0x33)
class Declared:
    """The outcome of a declare: the transaction's id."""

    txn_id: Annotated[bytes, bytes]


@composite(0x34)
class TransactionalState:
    """The state of a delivery within a transaction, and the outcome if there is one."""

    txn_id: Annotated[bytes, bytes]
    outcome: Annotated[Outcome | None, *_OUTCOMES] = None


DeliveryState = Outcome | Declared | TransactionalState
"""The states of a delivery other than how much of it has arrived."""
_State = Received | DeliveryState | None
_STATES: Final = (Received, *_OUTCOMES, Declared, TransactionalState)


@composite(0x28)
class Source:
    """The end of a link that messages come from."""

    address: Annotated[AmqpValue, Anything] = None  # the entity's address as the peer wrote it, usually a string
    durable: Annotated[int, UInt] = 0
    expiry_policy: Annotated[str, Symbol] = "session-end"
    timeout: Annotated[int, UInt] = 0
    dynamic: Annotated[bool, bool] = False
    dynamic_node_properties: Annotated[dict[str, AmqpValue] | None, Fields] = None
    distribution_mode: Annotated[str | None, Symbol] = None
    filter: Annotated[dict[str, AmqpValue] | None, Fields] = None
    default_outcome: Annotated[Outcome | None, *_OUTCOMES] = None
    outcomes: Annotated[tuple[str, ...], Symbols] = ()
    capabilities: Annotated[tuple[str, ...], Symbols] = ()


@composite(0x29)
class Target:
    """The end of a link that messages go to; ``address`` is as the peer wrote it, usually a string."""

    address: Annotated[AmqpValue, Anything] = None
    durable: Annotated[int, UInt] = 0
    expiry_policy: Annotated[str, Symbol] = "session-end"
    timeout: Annotated[int, UInt] = 0
    dynamic: Annotated[bool, bool] = False
    dynamic_node_properties: Annotated[dict[str, AmqpValue] | None, Fields] = None
    capabilities: Annotated[tuple[str, ...], Symbols] = ()


@composite(0x30)
class Coordinator:
    """The target of a link that controls transactions."""

    capabilities: Annotated[tuple[str, ...], Symbols] = ()


@composite(0x10, kw_only=True)
class Open:
    container_id: Annotated[str, str]
    hostname: Annotated[str | None, str] = None
    max_frame_size: Annotated[int, UInt] = _UINT_MAX
    channel_max: Annotated[int, UShort] = 65_535
    idle_time_out: Annotated[int | None, UInt] = None
    outgoing_locales: Annotated[tuple[str, ...], Symbols] = ()
    incoming_locales: Annotated[tuple[str, ...], Symbols] = ()
    offered_capabilities: Annotated[tuple[str, ...], Symbols] = ()
    desired_capabilities: Annotated[tuple[str, ...], Symbols] = ()
    properties: Annotated[dict[str, AmqpValue] | None, Fields] = None


@composite(0x11, kw_only=True)
class Begin:
    """Begins a session on a channel; ``remote_channel`` is set in an answer only."""

    remote_channel: Annotated[int | None, UShort] = None
    next_outgoing_id: Annotated[int, UInt]
    incoming_window: Annotated[int, UInt]
    outgoing_window: Annotated[int, UInt]
    handle_max: Annotated[int, UInt] = _UINT_MAX
    offered_capabilities: Annotated[tuple[str, ...], Symbols] = ()
    desired_capabilities: Annotated[tuple[str, ...], Symbols] = ()
    properties: Annotated[dict[str, AmqpValue] | None, Fields] = None


@composite(0x12, kw_only=True)
class Attach:
    name: Annotated[str, str]
    handle: Annotated[int, UInt]
    role: Annotated[bool, bool]
    snd_settle_mode: Annotated[int, UByte] = 2
    rcv_settle_mode: Annotated[int, UByte] = 0
    source: Annotated[Source | None, Source] = None
    target: Annotated[Target | Coordinator | None, Target, Coordinator] = None
    unsettled: Annotated[AmqpValue, Anything] = None
    incomplete_unsettled: Annotated[bool, bool] = False
    initial_delivery_count: Annotated[int | None, UInt] = None
    max_message_size: Annotated[int | None, ULong] = None
    offered_capabilities: Annotated[tuple[str, ...], Symbols] = ()
    desired_capabilities: Annotated[tuple[str, ...], Symbols] = ()
    properties: Annotated[dict[str, AmqpValue] | None, Fields] = None


@composite(0x13, frozen=False, kw_only=True)
class Flow:
    """Updates the windows of a session and, with a handle, the credit of a link."""

    next_incoming_id: Annotated[int | None, UInt] = None
    incoming_window: Annotated[int, UInt]
    next_outgoing_id: Annotated[int, UInt]
    outgoing_window: Annotated[int, UInt]
    handle: Annotated[int | None, UInt] = None
    delivery_count: Annotated[int | None, UInt] = None
    link_credit: Annotated[int | None, UInt] = None
    available: Annotated[int | None, UInt] = None
    drain: Annotated[bool, bool] = False
    echo: Annotated[bool, bool] = False
    properties: Annotated[dict[str, AmqpValue] | None, Fields] = None


@composite(0x14, frozen=False, kw_only=True)
class Transfer:
    """One frame of a message; its payload follows in the frame."""

    handle: Annotated[int, UInt]
    delivery_id: Annotated[int | None, UInt] = None
    delivery_tag: Annotated[bytes | None, bytes] = None
    message_format: Annotated[int | None, UInt] = None
    settled: Annotated[bool | None, bool] = None
    more: Annotated[bool, bool] = False
    rcv_settle_mode: Annotated[int | None, UByte] = None
    state: Annotated[_State, *_STATES] = None
    resume: Annotated[bool, bool] = False
    aborted: Annotated[bool, bool] = False
    batchable: Annotated[bool, bool] = False


@composite(0x15, frozen=False, kw_only=True)
class Disposition:
    """Settles the deliveries ``first`` to ``last``, or reports their states; without ``last``, of one delivery."""

    role: Annotated[bool, bool]
    first: Annotated[int, UInt]
    last: Annotated[int | None, UInt] = None
    settled: Annotated[bool, bool] = False
    state: Annotated[_State, *_STATES] = None
    batchable: Annotated[bool, bool] = False


@composite(0x16, kw_only=True)
class Detach:
    """Detaches a link; ``closed`` for good."""

    handle: Annotated[int, UInt]
    closed: Annotated[bool, bool] = False
    error: Annotated[Error | None, Error] = None


@composite(0x17, kw_only=True)
class End:
    error: Annotated[Error | None, Error] = None


@composite(0x18, kw_only=True)
class Close:
    error: Annotated[Error | None, Error] = None


_ACCEPTED: Final = encode_composite(Accepted())


def encode_within(size: int, performative: Any) -> bytes:
    """Encode a performative whose error is cut where it does not fit into a frame with a body of ``size`` bytes."""
    body = encode_composite(performative)
    if len(body) <= size:
        return body
    match performative:
        case Attach(properties=properties) if properties:
            return encode_within(size, replace(performative, properties={}))
        case Attach() | Begin() | Flow():
            text = f"The {type(performative).__name__.lower()} needs a frame of {len(body) + 8} bytes."
            raise ProtocolViolationError(text, "amqp:frame-size-too-small")
        case _:
            return encode_composite(_with_short_error(performative))


def _with_short_error(value: Any) -> Any:
    if isinstance(value, Error):
        # At most four bytes for a character, and the smallest frame that a peer may ask for has 512.
        return Error(value.condition, value.description and value.description[:80])
    inside = {name: getattr(value, name, None) for name in ("error", "state", "outcome")}
    return replace(value, **{name: _with_short_error(each) for name, each in inside.items() if each is not None})


def encode_settlement(size: int, role: bool, delivery_id: int, outcome: DeliveryState) -> bytes:
    """Encode the settled disposition of one delivery for a frame with a body of ``size`` bytes.

    Equals ``encode_within`` of a :class:`Disposition`, at a sixth of the cost. There is one for every message that is
    sent or settled.
    """
    state = _ACCEPTED if type(outcome) is Accepted else encode_composite(outcome)
    if len(state) > _SMALL_STATE:
        return encode_within(
            size, Disposition(role=role, first=delivery_id, last=delivery_id, settled=True, state=outcome)
        )
    head = (b"\x00\x53\x15\xc0", 13 + len(state), 5, b"\x41" if role else b"\x42")
    return _SETTLEMENT.pack(*head, 0x70, delivery_id, 0x70, delivery_id, 0x41) + state


def encode_transfer(handle: int, delivery_id: int, delivery_tag: bytes, *, settled: bool, more: bool) -> bytes:
    """Encode a transfer of a message in the usual format with these fields.

    Equals ``encode_composite`` of a :class:`Transfer`, at a tenth of the cost.
    """
    tag_size = len(delivery_tag)
    size = 20 + tag_size
    head = (b"\x00\x53\x14\xc0", size, 6, 0x70, handle, 0x70, delivery_id, 0xA0, tag_size)
    flags = _FLAGS[settled], _FLAGS[more]
    return _TRANSFER_HEAD.pack(*head) + delivery_tag + _TRANSFER_END.pack(0x70, 0, *flags)


Performative = Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close
