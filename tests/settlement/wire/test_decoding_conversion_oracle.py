"""Our reading and writing of messages against the SDK's own, in both directions."""

# The SDK's message codec is private and untyped; it is only looked at here, and nowhere used.
# pyright: reportPrivateUsage=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus._pyamqp import _encode as sdk_encode
from azure.servicebus._pyamqp.types import TYPE, VALUE, AMQPTypes
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.amqp import (
    AmqpValue,
    Described,
    Int,
    Long,
    Symbol,
    Timestamp,
    UInt,
    ULong,
    encode,
    type_name,
)
from sbnotebook.amqp.sections import HEADER, MESSAGE_ANNOTATIONS
from sbnotebook.model import BodyType, EntityAddress, Message
from sbnotebook.settlement.wire.decoding import locked_from_payload, peeked_from_payload
from sbnotebook.settlement.wire.encoding import payload_of
from sbnotebook.testing.strategies import PRIMITIVES, messages
from tests.comparison import same_value

ORDERS = EntityAddress("orders")
# The SDK can neither write nor read these.
FOREIGN = {"char", "decimal32", "decimal64"}
# It reads decimal128 as a Decimal; test_encoding_oracle looks at that.
SHARED = [name for name in PRIMITIVES if name not in FOREIGN | {"decimal128"}]

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
# Milliseconds, in the years in which the SDK's floats hold them exactly; 0 is nothing for it.
MOMENTS = st.integers(1, 4_102_444_800_000).map(lambda count: Timestamp(count).to_datetime())


def sent_by_sdk(message: ServiceBusMessage | AmqpAnnotatedMessage) -> bytes:
    annotated = message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message
    output = bytearray()
    sdk_encode.encode_payload(output, PyamqpTransport.to_outgoing_amqp_message(annotated))
    return bytes(output)


def typed(name: str, value: Any) -> dict[str, Any]:
    """A value as the SDK takes it together with its AMQP type."""
    return {TYPE: getattr(AMQPTypes, name), VALUE: value}


# ------------------------------------------------------------------ the SDK writes, we read

FIELDS = ("message_id", "correlation_id", "subject", "content_type", "to", "reply_to", "reply_to_session_id")


@given(
    texts=st.dictionaries(st.sampled_from(FIELDS), TEXTS),
    key=st.none() | st.tuples(st.sampled_from(["session_id", "partition_key"]), TEXTS),
    body=st.binary(max_size=300),
    scheduled=st.none() | MOMENTS,
    seconds=st.none() | st.integers(1, 4_000_000),
)
def test_fields_that_the_sdk_writes_are_read(
    texts: dict[str, str],
    key: tuple[str, str] | None,
    body: bytes,
    scheduled: datetime | None,
    seconds: int | None,
) -> None:
    named: dict[str, Any] = texts | dict([key] if key else [])
    ttl = None if seconds is None else timedelta(seconds=seconds)
    message = ServiceBusMessage(body, scheduled_enqueue_time_utc=scheduled, time_to_live=ttl, **named)
    found = peeked_from_payload(sent_by_sdk(message), ORDERS)
    named.setdefault("message_id", message.message_id)  # it makes one up for a message with a schedule
    for name in (*FIELDS, "session_id", "partition_key"):
        assert getattr(found, name) == named.get(name)
    assert (found.body, found.body_type) == (body, BodyType.DATA)
    assert (found.scheduled_enqueue_time, found.time_to_live) == (scheduled, ttl)


@pytest.mark.parametrize("name", SHARED)
@given(data=st.data())
def test_properties_of_the_sdk_keep_their_types(name: str, data: st.DataObject) -> None:
    value = data.draw(PRIMITIVES[name])
    message = ServiceBusMessage(b"", application_properties={"p": typed(name, value)})  # pyright: ignore[reportArgumentType]
    found = peeked_from_payload(sent_by_sdk(message), ORDERS)
    assert same_value(found.application_properties["p"], value)


def test_a_decimal_of_the_sdk_is_sent_on_as_it_was() -> None:
    properties: dict[Any, Any] = {"p": Decimal("12.5")}
    payload = sent_by_sdk(ServiceBusMessage(b"", application_properties=properties))
    found = peeked_from_payload(payload, ORDERS)
    assert type_name(found.application_properties["p"]) == "decimal128"
    assert encode(found.application_properties["p"]) in payload
    assert encode(found.application_properties["p"]) in payload_of(found)


@pytest.mark.parametrize(
    ("body", "body_type", "value"),
    [
        ({"data_body": [b"one ", b"two"]}, BodyType.DATA, b"one two"),
        ({"value_body": "a text"}, BodyType.VALUE, "a text"),
        ({"value_body": {"a": [1, b"\xff", None]}}, BodyType.VALUE, {"a": [1, b"\xff", None]}),
        ({"sequence_body": [1, "a"]}, BodyType.SEQUENCE, [[1, "a"]]),
        ({"sequence_body": [[1, "a"], [2]]}, BodyType.SEQUENCE, [[1, "a"], [2]]),
    ],
    ids=str,
)
def test_bodies_that_the_sdk_writes_are_read(body: dict[str, Any], body_type: BodyType, value: AmqpValue) -> None:
    found = peeked_from_payload(sent_by_sdk(AmqpAnnotatedMessage(**body)), ORDERS)
    assert found.body_type is body_type
    assert same_value(found.body_value, value)


# ------------------------------------------------------------------ we write, the SDK reads


def as_the_sdk_reads(value: Any) -> Any:
    """The SDK leaves strings and symbols as bytes, and described values without their descriptor."""
    if isinstance(value, Described):
        return as_the_sdk_reads(value.value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return [as_the_sdk_reads(each) for each in value]
    if isinstance(value, dict):
        return {as_the_sdk_reads(key): as_the_sdk_reads(each) for key, each in value.items()}
    return value


READABLE = st.one_of(*(PRIMITIVES[name] for name in SHARED)).filter(lambda value: value == value)  # noqa: PLR0124


@given(messages(), st.dictionaries(TEXTS, READABLE, max_size=4), st.none() | MOMENTS)
def test_fields_that_we_write_are_read_by_the_sdk(
    message: Message, properties: dict[str, Any], scheduled: datetime | None
) -> None:
    message = message.with_changes(
        body=b"a",
        body_type=BodyType.DATA,
        application_properties=properties,
        scheduled_enqueue_time=scheduled,
        extras={},  # the SDK cannot read every footer
    )
    found = ServiceBusReceivedMessage.from_bytes(payload_of(message))
    for name in (*FIELDS, "session_id", "partition_key"):
        assert getattr(found, name) == getattr(message, name)
    assert b"".join(found.body) == b"a"
    assert found.scheduled_enqueue_time_utc == scheduled
    assert (found.time_to_live or None) == (message.time_to_live or None)
    assert (found.application_properties or {}) == as_the_sdk_reads(properties)


@pytest.mark.parametrize(
    ("message", "body_type", "body"),
    [
        (Message(body=b"\x00" * 262_144), AmqpMessageBodyType.DATA, [b"\x00" * 262_144]),
        (Message.of_value("text"), AmqpMessageBodyType.VALUE, b"text"),
        (Message.of_value({"a": [1, None]}), AmqpMessageBodyType.VALUE, {b"a": [1, None]}),
        (Message.of_value(ULong(5)), AmqpMessageBodyType.VALUE, 5),
        (Message.of_sequence([1, "a"], [2]), AmqpMessageBodyType.SEQUENCE, [[1, b"a"], [2]]),
    ],
    ids=range(5),
)
def test_bodies_that_we_write_are_read_by_the_sdk(message: Message, body_type: AmqpMessageBodyType, body: Any) -> None:
    found = ServiceBusReceivedMessage.from_bytes(payload_of(message))
    assert found.body_type is body_type
    assert (found.body if body_type is AmqpMessageBodyType.VALUE else [*found.body]) == body


# ------------------------------------------------------------------ the service writes, both read


@given(
    number=st.integers(1, 2**63 - 1),
    first_number=st.none() | st.integers(0, 2**63 - 1),
    enqueued=MOMENTS,
    locked=MOMENTS,
    ttl=st.none() | st.integers(1, 2**32 - 2),
    deliveries=st.integers(0, 10),
    state=st.sampled_from([0, 1, 2]),
    source=st.none() | TEXTS,
    reason=st.none() | TEXTS,
)
def test_what_the_service_adds_is_read_as_the_sdk_reads_it(  # noqa: PLR0913 (one for each thing that it adds)
    *,
    number: int,
    first_number: int | None,
    enqueued: datetime,
    locked: datetime,
    ttl: int | None,
    deliveries: int,
    state: int,
    source: str | None,
    reason: str | None,
) -> None:
    annotations = {
        "x-opt-sequence-number": Long(number),
        "x-opt-enqueue-sequence-number": None if first_number is None else Long(first_number),
        "x-opt-enqueued-time": Timestamp.from_datetime(enqueued),
        "x-opt-locked-until": Timestamp.from_datetime(locked),
        "x-opt-message-state": Int(state),
        "x-opt-deadletter-source": source,
    }
    present: AmqpValue = {Symbol(name): value for name, value in annotations.items() if value is not None}
    header: list[AmqpValue] = [True, None, None if ttl is None else UInt(ttl), None, UInt(deliveries)]
    properties = {} if reason is None else {"DeadLetterReason": reason, "DeadLetterErrorDescription": reason}
    payload = b"".join([
        encode(Described(ULong(HEADER), header)),
        encode(Described(ULong(MESSAGE_ANNOTATIONS), present)),
        payload_of(Message(body=b"a", application_properties=properties)),
    ])  # fmt: skip
    ours, theirs = locked_from_payload(payload, ORDERS, UUID(int=1)), ServiceBusReceivedMessage.from_bytes(payload)
    assert ours.sequence_number == theirs.sequence_number == number
    assert ours.enqueued_sequence_number == theirs.enqueued_sequence_number
    assert ours.enqueued_time == theirs.enqueued_time_utc
    assert ours.locked_until == theirs.locked_until_utc
    assert ours.expires_at == theirs.expires_at_utc
    assert ours.time_to_live == theirs.time_to_live
    assert ours.delivery_count == theirs.delivery_count
    assert ours.state.name == theirs.state.name
    assert ours.dead_letter_source == theirs.dead_letter_source
    assert ours.dead_letter_reason == theirs.dead_letter_reason
    assert ours.dead_letter_error_description == theirs.dead_letter_error_description
