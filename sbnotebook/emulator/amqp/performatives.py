"""Composite types, the performatives, and all that they carry: errors, outcomes, sources and targets.

The three performatives that come with every message are not frozen. Freezing them would cost more than decoding them.

Source: AMQP 1.0 part 2, sections 2.7 (performatives) and 2.8.14 (error); part 3, sections 3.4 (delivery state) and
3.5 (source, target); part 4, section 4.5 (transactions).

A composite type of AMQP is a list of fields behind a descriptor: a number, or a name such as
``amqp:transactional-state:list``, which Proton writes in some places. A field without a default is mandatory. A default
stands for null and for what the peer left out. Last fields that the emulator does not use are not declared.

Source: AMQP 1.0 part 1, types, sections 1.2 and 1.4. Microsoft's AMQP library for .NET takes numbers and names
(Azure/azure-amqp, AmqpCodec.cs).
"""

from __future__ import annotations

import dataclasses
import re
import struct
import typing
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Annotated, Any, Final, TypeVar, cast

from sbnotebook.amqp import AmqpValue, Symbol, UByte, UInt, ULong, UShort, decode, encode, list_of_encoded
from sbnotebook.errors import AmqpDecodeError, ProtocolViolationError

Anything: Final = "anything"
"""The wire type of a field that takes any AMQP value."""
Fields: Final = "fields"
"""The wire type of a map whose keys are symbols; plain strings will do as keys when it is sent."""


_Read = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value at an offset; a TypeError names the type of a value that the field cannot have."""
_Field = tuple[str, _Read, Mapping[int, Any]]
"""A field that is read: its name, its reader, and the values that are nothing but their constructor byte."""
_Shape = tuple[type[Any], tuple[_Field, ...], frozenset[str]]
"""A composite: its class, its fields, and the names of those that are mandatory."""
_T = TypeVar("_T")
_NULL: Final = b"\x40"
_UINT32: Final = struct.Struct(">I")
# Size and count of a list, by its constructor
_LIST_SIZES: Final = {0xC0: struct.Struct(">BB"), 0xD0: struct.Struct(">II")}
_EMPTY_LIST: Final = 0x45
_NO_CONSTANT: Final = object()
_MAX_ITEMS: Final = 8192
"""Items of a field of a performative, whose largest ones hold all properties of a message: 64 KiB in Azure. Others
wait while they are read."""
_NEXT_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
# Values that are nothing but their constructor byte, by the wire type of the field
_CONSTANTS: Final[dict[type, dict[int, Any]]] = {UInt: {0x43: 0}, bool: {0x41: True, 0x42: False}}
_CODES: Final[dict[type[Any], int]] = {}
_WRITERS: Final[dict[type[Any], tuple[tuple[str, Callable[[Any], bytes]], ...]]] = {}
_WITHOUT_FIELDS: Final[dict[bytes, Any]] = {}  # Composites that are always the same, by their bytes
_SHAPES: Final[dict[bytes | int | str, _Shape]] = {}  # By the usual first three bytes, by number, and by name


@typing.dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def composite(code: int, *, frozen: bool = True, kw_only: bool = False) -> Callable[[type[_T]], type[_T]]:
    """Return a class decorator that makes a dataclass, the composite type with the descriptor ``code``."""

    def register(declaration: type[_T]) -> type[_T]:
        cls = dataclasses.dataclass(frozen=frozen, slots=True, kw_only=kw_only)(declaration)
        hints = typing.get_type_hints(cls, include_extras=True)
        declared = dataclasses.fields(cast("Any", cls))
        kinds = {each.name: hints[each.name].__metadata__ for each in declared}
        fields = tuple((name, *_reader(kinds[name])) for name in kinds)
        mandatory = (each.name for each in declared if each.default is each.default_factory is dataclasses.MISSING)
        shape = cls, fields, frozenset(mandatory)
        words = _NEXT_WORD.sub("-", cls.__name__).lower()
        _CODES[cls] = code
        _WRITERS[cls] = tuple((name, (_SPECIAL.get(kind) or _primitive(kind))[1]) for name, (kind, *_) in kinds.items())
        _SPECIAL[cls] = (lambda value: value, lambda value: _NULL if value is None else encode_composite(value))
        _SHAPES.update(dict.fromkeys((bytes((0x00, 0x53, code)), code, f"amqp:{words}:list"), shape))
        if not fields:
            _WITHOUT_FIELDS[bytes((0x00, 0x53, code, _EMPTY_LIST))] = cls()
        return cls

    return register


def _reader(kinds: tuple[Any, ...]) -> tuple[_Read, Mapping[int, Any]]:
    kind = kinds[0]
    if kind in _CODES:
        return partial(_read_composite, frozenset(kinds)), {_NULL[0]: None}
    check, _ = _SPECIAL.get(kind) or _primitive(kind)
    return partial(_QUICK_READERS.get(kind, _read_value), check), {_NULL[0]: None} | _CONSTANTS.get(kind, {})


def _read_composite(classes: frozenset[type], data: bytes, at: int) -> tuple[Any, int]:
    known = _WITHOUT_FIELDS.get(data[at : at + 4])
    return (known, at + 4) if type(known) in classes else decode_composite(data, at, classes)


_Check = Callable[[Any], Any]


def _primitive(kind: Callable[[Any], AmqpValue]) -> tuple[_Check, Callable[[Any], bytes]]:
    accepted = str if kind is Symbol else kind

    def check(value: Any) -> Any:
        if not isinstance(value, cast("type", accepted)):
            raise TypeError(type(value).__name__)
        return value

    return check, lambda value: _NULL if value is None else encode(kind(value))


def _write_fields(value: dict[str, AmqpValue] | None) -> bytes:
    return _NULL if value is None else encode({Symbol(key): item for key, item in value.items()})


_SPECIAL: Final[dict[object, tuple[_Check, Callable[[Any], bytes]]]] = {
    Anything: (lambda value: value, encode),
    Fields: (_primitive(dict)[0], _write_fields),
}


def _read_value(check: _Check, data: bytes, at: int) -> tuple[Any, int]:
    value, end = decode(data, at, items=_MAX_ITEMS)
    return check(value), end


# The wire types of the fields that come with every message, in their usual forms


def _read_uint(check: _Check, data: bytes, at: int) -> tuple[Any, int]:
    code = data[at]
    if code == 0x52:
        return data[at + 1], at + 2
    if code == 0x70:
        return _UINT32.unpack_from(data, at + 1)[0], at + 5
    return _read_value(check, data, at)


def _read_binary(check: _Check, data: bytes, at: int) -> tuple[Any, int]:
    if data[at] != 0xA0:
        return _read_value(check, data, at)
    end = at + 2 + data[at + 1]
    return data[at + 2 : end], end


_QUICK_READERS: Final[dict[object, Callable[[_Check, bytes, int], tuple[Any, int]]]] = {
    UInt: _read_uint,
    bytes: _read_binary,
}


def encode_composite(value: Any) -> bytes:
    """Encode a composite with its descriptor; nulls at its end are left out.

    Defaults are written, because some peers take an omitted one for null.
    """
    cls = cast("type[Any]", type(value))
    parts = [write(getattr(value, name)) for name, write in _WRITERS[cls]]
    while parts and parts[-1] == _NULL:
        parts.pop()
    return bytes((0x00, 0x53, _CODES[cls])) + list_of_encoded(parts)


def decode_composite(data: bytes, offset: int = 0, classes: frozenset[type] | None = None) -> tuple[Any, int]:
    """Decode the composite that starts at ``offset``, field by field; raise TypeError if it is none of the classes.

    Every message that is sent, received or settled brings one, so its bytes are not decoded as a value first.
    """
    try:
        shape, at = _SHAPES.get(data[offset : offset + 3]), offset + 3
        if shape is None:
            shape, at = _described(data, offset)
        cls, fields, mandatory = shape
        if classes is not None and cls not in classes:  # before its fields, which could hold such a composite again
            raise TypeError(cls.__name__)
        given, end = ({}, at + 1) if data[at] == _EMPTY_LIST else _read_list(data, at, cls, fields)
    except (IndexError, struct.error):
        raise AmqpDecodeError(f"The composite at byte {offset} is cut short.") from None
    if mandatory and not mandatory.issubset(given):
        missing = next(name for name, *_ in fields if name in mandatory - given.keys())
        raise ProtocolViolationError(f"{cls.__name__}.{missing} is missing.", "amqp:invalid-field")
    return cls(**given), end


def _read_list(data: bytes, at: int, cls: type, fields: tuple[_Field, ...]) -> tuple[dict[str, Any], int]:
    sizes = _LIST_SIZES.get(data[at])
    if sizes is None:
        raise _misfit("A described list was expected.")
    # The size covers the count and the fields that follow.
    size, count = sizes.unpack_from(data, at + 1)
    at += 1 + sizes.size
    end = at - sizes.size // 2 + size
    given: dict[str, Any] = {}
    for name, read, constants in fields[:count]:
        value = constants.get(data[at], _NO_CONSTANT)
        if value is _NO_CONSTANT:
            try:
                value, at = read(data, at)
            except TypeError as error:
                raise _misfit(f"{cls.__name__}.{name} cannot be a {error}.") from None
        else:
            at += 1
        if value is not None:  # null stands for the default
            given[name] = value
    for _ in range(len(fields), count):
        _, at = decode(data, at, items=_MAX_ITEMS)
    if not at == end <= len(data):
        raise AmqpDecodeError(f"The size of a {cls.__name__} does not fit its fields.")
    return given, end


def _misfit(sentence: str) -> ProtocolViolationError:
    return ProtocolViolationError(sentence, "amqp:decode-error")


def _described(data: bytes, offset: int) -> tuple[_Shape, int]:
    """Return the composite of a descriptor in another form than the usual one, and the offset behind it."""
    if data[offset] != 0x00:
        raise _misfit("A described list was expected.")
    descriptor, at = decode(data, offset + 1)
    shape = _SHAPES.get(descriptor) if isinstance(descriptor, ULong | Symbol) else None
    if shape is None:
        name = f"0x{descriptor:02x}" if isinstance(descriptor, ULong) else repr(descriptor)[:80]
        raise _misfit(f"There is no composite type {name}.")
    return shape, at


SENDER: Final = False
RECEIVER: Final = True

_UINT_MAX: Final = 2**32 - 1
_SMALL_STATE: Final = 200
_SETTLEMENT: Final = struct.Struct(">4sBBcBIBIB")
_TRANSFER_HEAD: Final = struct.Struct(">4sBBBIBIBB")
_TRANSFER_END: Final = struct.Struct(">BIBB")
_FLAGS: Final = (0x42, 0x41)


@composite(0x1D)
class Error:
    condition: Annotated[str, Symbol]  # a symbol such as ``"amqp:not-found"``
    description: Annotated[str | None, str] = None  # one sentence for a human reader
    # Always sent, if only as an empty map: azure-servicebus looks for it in a fixed place.
    info: Annotated[dict[str, AmqpValue], Fields] = field(default_factory=dict[str, AmqpValue])


@composite(0x23)
class Received:
    """The receiver has got a part of a delivery so far. It is not an outcome."""


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
    global_id: Annotated[AmqpValue, Anything] = None


@composite(0x32)
class Discharge:
    """The body of a message to a coordinator: end a transaction, with all of its work or, on ``fail``, with none."""

    txn_id: Annotated[bytes, bytes]
    fail: Annotated[bool, bool] = False


@composite(0x33)
class Declared:
    txn_id: Annotated[bytes, bytes]


@composite(0x34)
class TransactionalState:
    txn_id: Annotated[bytes, bytes]
    outcome: Annotated[Outcome | None, *_OUTCOMES] = None


DeliveryState = Outcome | Declared | TransactionalState
"""The states of a delivery other than how much of it has arrived."""
_State = Received | DeliveryState | None
_STATES: Final = (Received, *_OUTCOMES, Declared, TransactionalState)


@composite(0x28)
class Source:
    address: Annotated[AmqpValue, Anything] = None  # the entity's address as the peer wrote it, usually a string
    durable: Annotated[int, UInt] = 0
    expiry_policy: Annotated[str, Symbol] = "session-end"
    timeout: Annotated[int, UInt] = 0
    dynamic: Annotated[bool, bool] = False
    dynamic_node_properties: Annotated[dict[str, AmqpValue] | None, Fields] = None
    distribution_mode: Annotated[str | None, Symbol] = None
    filter: Annotated[dict[str, AmqpValue] | None, Fields] = None


@composite(0x29)
class Target:
    address: Annotated[AmqpValue, Anything] = None


@composite(0x30)
class Coordinator:
    capabilities: Annotated[AmqpValue, Anything] = None


@composite(0x10, kw_only=True)
class Open:
    container_id: Annotated[str, str]
    hostname: Annotated[str | None, str] = None
    max_frame_size: Annotated[int, UInt] = _UINT_MAX
    channel_max: Annotated[int, UShort] = 65_535
    idle_time_out: Annotated[int | None, UInt] = None


@composite(0x11, kw_only=True)
class Begin:
    """Begins a session on a channel; ``remote_channel`` is set in an answer only."""

    remote_channel: Annotated[int | None, UShort] = None
    next_outgoing_id: Annotated[int, UInt]
    incoming_window: Annotated[int, UInt]
    outgoing_window: Annotated[int, UInt]
    handle_max: Annotated[int, UInt] = _UINT_MAX


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
    offered_capabilities: Annotated[AmqpValue, Anything] = None
    desired_capabilities: Annotated[AmqpValue, Anything] = None
    properties: Annotated[dict[str, AmqpValue] | None, Fields] = None


@composite(0x13, frozen=False, kw_only=True)
class Flow:
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


@composite(0x15, frozen=False, kw_only=True)
class Disposition:
    """Settles the deliveries ``first`` to ``last``, or reports their states; without ``last``, of one delivery."""

    role: Annotated[bool, bool]
    first: Annotated[int, UInt]
    last: Annotated[int | None, UInt] = None
    settled: Annotated[bool, bool] = False
    state: Annotated[_State, *_STATES] = None


@composite(0x16, kw_only=True)
class Detach:
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


def encode_disposition(size: int, role: bool, delivery_id: int, outcome: DeliveryState, *, settled: bool) -> bytes:
    """Encode the disposition of one delivery for a frame with a body of ``size`` bytes.

    Equals ``encode_within`` of a :class:`Disposition`, at a sixth of the cost. There is one for every message that is
    sent or settled.
    """
    state = _ACCEPTED if type(outcome) is Accepted else encode_composite(outcome)
    if len(state) > _SMALL_STATE:
        return encode_within(
            size,
            Disposition(role=role, first=delivery_id, last=delivery_id, settled=settled, state=outcome),
        )
    head = (b"\x00\x53\x15\xc0", 13 + len(state), 5, b"\x41" if role else b"\x42")
    return _SETTLEMENT.pack(*head, 0x70, delivery_id, 0x70, delivery_id, _FLAGS[settled]) + state


def encode_transfer(handle: int, delivery_id: int, delivery_tag: bytes, *, settled: bool, more: bool) -> bytes:
    """Encode a transfer of a message in the usual format with these fields.

    Equals ``encode_composite`` of a :class:`Transfer`, at a tenth of the cost.
    """
    tag_size = len(delivery_tag)
    head = (b"\x00\x53\x14\xc0", 20 + tag_size, 6, 0x70, handle, 0x70, delivery_id, 0xA0, tag_size)
    return _TRANSFER_HEAD.pack(*head) + delivery_tag + _TRANSFER_END.pack(0x70, 0, _FLAGS[settled], _FLAGS[more])


Performative = Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close
