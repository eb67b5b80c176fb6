"""Hypothesis strategies for addresses, AMQP values and messages: for testing what you do with messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from types import MappingProxyType
from typing import Any, Final, TypeVar

from hypothesis import strategies as st

from sbnotebook.amqp import (
    AmqpValue,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from sbnotebook.model import EntityAddress, Message, MessageState, PeekedMessage, SubQueue

__all__ = ["PRIMITIVES", "amqp_values", "entity_addresses", "messages", "peeked_messages"]

_M = TypeVar("_M", bound=Message)


def _integers(kind: type[int], bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(low, high).map(kind)


# UTF-8 has no surrogates, and all texts of AMQP are UTF-8.
_CHARACTERS: Final = st.characters(exclude_categories=["Cs"])
_TEXTS: Final = st.text(_CHARACTERS, max_size=30)

PRIMITIVES: Final[Mapping[str, st.SearchStrategy[Any]]] = MappingProxyType({
    "null": st.none(),
    "boolean": st.booleans(),
    "ubyte": _integers(UByte, 8, signed=False),
    "ushort": _integers(UShort, 16, signed=False),
    "uint": _integers(UInt, 32, signed=False),
    "ulong": _integers(ULong, 64, signed=False),
    "byte": _integers(Byte, 8, signed=True),
    "short": _integers(Short, 16, signed=True),
    "int": _integers(Int, 32, signed=True),
    "long": _integers(Long, 64, signed=True),
    "float": st.floats(width=32).map(Float),
    "double": st.floats(),
    "decimal32": st.binary(min_size=4, max_size=4).map(Decimal32),
    "decimal64": st.binary(min_size=8, max_size=8).map(Decimal64),
    "decimal128": st.binary(min_size=16, max_size=16).map(Decimal128),
    "char": _CHARACTERS.map(Char),
    "timestamp": _integers(Timestamp, 64, signed=True) | st.datetimes().map(Timestamp.from_datetime),
    "uuid": st.uuids(),
    "binary": st.binary(max_size=40),
    "string": _TEXTS,
    "symbol": st.text(st.characters(max_codepoint=127), max_size=20).map(Symbol),
})  # fmt: skip
"""Values of each primitive AMQP type, by the type's AMQP name (AMQP 1.0 section 1.6)."""


@cache
def amqp_values() -> st.SearchStrategy[AmqpValue]:
    """Generate values of every AMQP type, also lists, maps, arrays and described values in each other."""
    arrays = [st.lists(items, max_size=5).map(Array) for name, items in PRIMITIVES.items() if name != "null"]
    return st.recursive(st.one_of(*PRIMITIVES.values()) | st.one_of(arrays).filter(len), _compounds, max_leaves=8)


def _compounds(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    descriptors = PRIMITIVES["ulong"] | PRIMITIVES["symbol"]
    # Keys are texts: Python takes 1, True and 1.0 for the same key.
    maps = st.dictionaries(_TEXTS, inner, max_size=4)
    return st.lists(inner, max_size=4) | maps | st.builds(Described, descriptors, inner)


_SEGMENT: Final = re.compile(r"(?!\.{1,16}\Z)[\w.~-]{1,16}", re.ASCII)
_SUBSCRIPTION: Final = re.compile(r"(?!\.{1,32}\Z)[\w.-]{1,32}", re.ASCII)
_SEGMENTS: Final = st.from_regex(_SEGMENT, fullmatch=True)
_SUBSCRIPTIONS: Final = st.from_regex(_SUBSCRIPTION, fullmatch=True)


@cache
def entity_addresses() -> st.SearchStrategy[EntityAddress]:
    """Generate addresses of queues, topics and subscriptions, some of a sub-queue; names may hold slashes."""
    names = st.lists(_SEGMENTS.filter(lambda text: text.lower() != "subscriptions"), min_size=1, max_size=3)
    return st.builds(
        EntityAddress,
        name=names.map("/".join),
        subscription=st.none() | _SUBSCRIPTIONS,
        sub_queue=st.none() | st.sampled_from(SubQueue),
    )


# The wire counts milliseconds.
_MOMENTS: Final = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)).map(  # noqa: DTZ001
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)
# The most that the header holds stands for none.
_TIMES_TO_LIVE: Final = st.integers(0, 2**32 - 2).map(lambda count: timedelta(milliseconds=count))
_NAMES: Final = _TEXTS | st.sampled_from(["DeadLetterReason", "DeadLetterErrorDescription", "ResubmitCount"])
_TEXT_FIELDS: Final = (
    "message_id", "session_id", "partition_key", "correlation_id", "subject", "content_type", "content_encoding",
    "to", "reply_to", "reply_to_session_id",
)  # fmt: skip


def _extras() -> st.SearchStrategy[dict[str, Any]]:
    """Generate extras; an expiry is in the future, and there is no creation time that it has to fit."""
    symbols = PRIMITIVES["symbol"].filter(lambda name: not name.startswith("x-opt-"))
    annotations = st.dictionaries(symbols | PRIMITIVES["ulong"], amqp_values(), min_size=1, max_size=3)
    later = st.integers(4_102_444_800_000, 253_402_300_799_999).map(Timestamp)
    one_of_two = st.sampled_from(("creation_time", "absolute_expiry_time"))
    optional = {
        "durable": PRIMITIVES["boolean"],
        "priority": PRIMITIVES["ubyte"],
        "first_acquirer": PRIMITIVES["boolean"],
        "user_id": PRIMITIVES["binary"],
        "group_sequence": PRIMITIVES["uint"],
        "message_annotations": annotations,
        "delivery_annotations": annotations,
        "footer": annotations,
    }
    moments = st.dictionaries(one_of_two, later, max_size=1)
    return st.builds(dict[str, Any].__or__, st.fixed_dictionaries({}, optional=optional), moments)


def messages() -> st.SearchStrategy[Message]:
    """Generate messages as a sender writes them: any fields, properties of every AMQP type, extras and bodies."""
    return _built(Message, _sent_fields())


def peeked_messages() -> st.SearchStrategy[PeekedMessage]:
    """Generate messages as they are peeked, with the fields that the service adds."""
    added: dict[str, st.SearchStrategy[Any]] = {
        "entity": entity_addresses(),
        "sequence_number": st.integers(1, 2**63 - 1),
        "enqueued_sequence_number": st.none() | st.integers(0, 2**63 - 1),
        "enqueued_time": st.none() | _MOMENTS,
        "expires_at": st.none() | _MOMENTS,
        "delivery_count": st.integers(0, 2**31 - 1),
        "state": st.sampled_from(MessageState),
        "dead_letter_source": st.none() | _TEXTS,
    }
    return _built(PeekedMessage, _sent_fields() | added)


def _built(kind: type[_M], fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[_M]:
    def build(body: Message, values: dict[str, Any]) -> _M:
        return kind(body=body.body, body_type=body.body_type, **values)

    return st.builds(build, _bodies(), st.fixed_dictionaries(fields))


def _bodies() -> st.SearchStrategy[Message]:
    sequences = st.lists(st.lists(amqp_values(), max_size=3), min_size=1, max_size=3)
    return st.one_of(
        st.builds(Message, body=st.binary(max_size=300) | _TEXTS.map(str.encode)),
        amqp_values().map(Message.of_value),
        sequences.map(lambda lists: Message.of_sequence(*lists)),
    )


def _sent_fields() -> dict[str, st.SearchStrategy[Any]]:
    fields: dict[str, st.SearchStrategy[Any]] = {name: st.none() | _TEXTS for name in _TEXT_FIELDS}
    fields["time_to_live"] = st.none() | _TIMES_TO_LIVE
    fields["scheduled_enqueue_time"] = st.none() | _MOMENTS
    fields["application_properties"] = st.dictionaries(_NAMES, amqp_values(), max_size=5)
    fields["extras"] = st.builds(dict[str, Any]) | _extras()
    return fields
