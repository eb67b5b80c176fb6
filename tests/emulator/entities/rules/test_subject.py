from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from sbnotebook.amqp import AmqpValue, Described, Int, Long, Short, Symbol, Timestamp, UInt, ULong, encode
from sbnotebook.amqp.sections import APPLICATION_PROPERTIES, HEADER, MESSAGE_ANNOTATIONS, PROPERTIES
from sbnotebook.emulator.entities.rules.subject import FilterError, RuleSubject
from tests.emulator.entities.conftest import encoded
from tests.emulator.entities.rules.conftest import subject

SYSTEM = {
    "MessageId": "message_id", "To": "to", "Label": "label", "Subject": "label", "ReplyTo": "reply_to",
    "CorrelationId": "correlation_id", "ContentType": "content_type", "SessionId": "session_id",
    "ReplyToSessionId": "reply_to_session_id",
}  # fmt: skip
ANNOTATIONS = {"PartitionKey": "x-opt-partition-key", "ViaPartitionKey": "x-opt-via-partition-key"}


@pytest.mark.parametrize("name", SYSTEM)
def test_a_system_property_is_read_and_written_at_its_home(name: str) -> None:
    message = subject(**{SYSTEM[name]: "before"})
    assert message.system(name) == message.system(name.upper()) == "before"
    message.set(name.lower(), "after", system=True)
    assert message.payload == rewritten(subject(**{SYSTEM[name]: "after"}))
    message.remove(name, system=True)
    assert message.system(name) is None
    assert not message.exists(name, system=True)


def rewritten(message: RuleSubject) -> bytes:
    """The properties in the form that a change leaves behind."""
    message.set("To", message.system("To"), system=True)
    return message.payload


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_a_partition_key_is_an_annotation(name: str) -> None:
    message = RuleSubject(encoded(sections={MESSAGE_ANNOTATIONS: {Symbol(ANNOTATIONS[name]): "k"}}))
    assert message.system(name) == "k"
    message.set(name, "l", system=True)
    assert encode(Symbol(ANNOTATIONS[name])) + encode("l") in message.payload


def test_a_new_annotation_has_a_symbol_as_its_key() -> None:
    message = RuleSubject(encoded())
    message.set("ScheduledEnqueueTimeUtc", Timestamp(5), system=True)
    assert encode({Symbol("x-opt-scheduled-enqueue-time"): Timestamp(5)})[3:] in message.payload
    assert message.system("ScheduledEnqueueTimeUtc") == Timestamp(5)


def test_the_time_to_live_is_a_time_span() -> None:
    message = RuleSubject(encoded(sections={HEADER: [True, None, UInt(5_000)]}), enqueued_time=1_000)
    assert message.system("TimeToLive") == timedelta(seconds=5)
    assert message.system("ExpiresAtUtc") == Timestamp(6_000)
    message.set("TimeToLive", timedelta(days=1000), system=True)
    assert encode(UInt(2**32 - 1)) in message.payload
    message.set("TimeToLive", timedelta(milliseconds=7), system=True)
    assert message.system("TimeToLive") == timedelta(milliseconds=7)
    message.set("TimeToLive", timedelta(), system=True)
    assert message.system("TimeToLive") == timedelta()


def test_the_topic_says_when_it_took_the_message() -> None:
    payload = encoded()
    known = RuleSubject(payload, enqueued_time=1_000, sequence_number=7)
    assert [known.system(name) for name in ("EnqueuedTimeUtc", "SequenceNumber", "Size", "DeliveryCount")] == [
        Timestamp(1_000), 7, len(payload), 0,
    ]  # fmt: skip
    unknown = RuleSubject(payload)
    names = ("EnqueuedTimeUtc", "SequenceNumber", "ExpiresAtUtc", "LockToken", "DeadLetterSource")
    assert [unknown.system(name) for name in names] == [None] * 5


def test_identifiers_are_texts_whatever_the_sender_wrote() -> None:
    assert subject(message_id=UUID(int=1)).system("MessageId") == str(UUID(int=1))
    assert subject(correlation_id=ULong(12)).system("CorrelationId") == "12"
    assert subject(correlation_id=UInt(12)).system("CorrelationId") == "12"


def test_a_value_of_a_system_property_becomes_a_text() -> None:
    message = subject(label="a")
    for value, result in ((UUID(int=1), str(UUID(int=1))), (Long(5), "5"), (True, "True"), (None, None)):
        message.set("Label", value, system=True)
        assert message.system("Label") == result


def test_application_properties_have_names_without_case() -> None:
    message = subject({"Color": "red", "size": Int(1), "SIZE": Int(2)})
    assert [message.user(name) for name in ("color", "Color", "size", "SIZE", "Size", "other")] == [
        "red", "red", 1, 2, 1, None,
    ]  # fmt: skip
    message.set("COLOR", "blue", system=False)
    assert message.user("Color") == "blue"
    assert message.payload.count(b"Color") == 1
    message.remove("coloR", system=False)
    assert not message.exists("Color", system=False)


def test_a_property_that_is_null_exists() -> None:
    message = subject({"empty": None})
    assert (message.user("empty"), message.exists("EMPTY", system=False)) == (None, True)


def test_a_number_keeps_its_type() -> None:
    message = subject({"size": Short(4)})
    message.set("size", Long(5), system=False)
    assert type(message.user("size")) is Short
    message.set("Other", Long(5), system=False)
    assert type(message.user("other")) is Long


def test_unchanged_sections_stay_byte_for_byte() -> None:
    wide = b"\x00\x80" + (0x75).to_bytes(8) + b"\xb0" + (3).to_bytes(4) + b"abc"
    head = encoded(sections={PROPERTIES: ["id"], APPLICATION_PROPERTIES: {"a": 1}}).removesuffix(encoded())
    message = RuleSubject(head + wide)
    message.user("a")
    message.system("To")
    message.remove("To", system=True)
    message.remove("b", system=False)
    assert message.payload == head + wide
    message.set("a", Long(2), system=False)
    assert message.payload.startswith(encode(Described(ULong(PROPERTIES), ["id"])))
    assert message.payload.endswith(wide)


@pytest.mark.parametrize("name", ["Nonsense", "", "user"])
def test_a_system_property_that_is_not_there_is_an_error(name: str) -> None:
    message = subject()
    for attempt in (
        lambda: message.system(name),
        lambda: message.exists(name, system=True),
        lambda: message.set(name, "a", system=True),
        lambda: message.remove(name, system=True),
    ):
        with pytest.raises(FilterError, match="no system property"):
            attempt()


def test_the_brokers_own_properties_cannot_be_set() -> None:
    with pytest.raises(FilterError, match="cannot be changed"):
        subject().set("SequenceNumber", Long(1), system=True)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("Label", b"bytes", "cannot be made a text"),
        ("TimeToLive", Long(5), "must be a time span of zero or more"),
        ("TimeToLive", timedelta(-1), "must be a time span of zero or more"),
        ("TimeToLive", Timestamp(7), "must be a time span of zero or more"),
        ("ScheduledEnqueueTimeUtc", "now", "must be a moment"),
        ("ScheduledEnqueueTimeUtc", timedelta(1), "must be a moment"),
    ],
)
def test_a_system_property_takes_values_of_its_type_only(name: str, value: AmqpValue, why: str) -> None:
    message = subject()
    before = message.payload
    with pytest.raises(FilterError, match=why):
        message.set(name, value, system=True)
    assert message.payload == before


@pytest.mark.parametrize(
    "payload",
    [
        bytes.fromhex("005373"),
        b"no message",
        encode(Described(ULong(PROPERTIES), {"a": 1})) + encode(Described(ULong(APPLICATION_PROPERTIES), ["a"])),
        bytes.fromhex("005373c00301a1ff") + bytes.fromhex("005374c10302a1ff40"),
    ],
    ids=["cut", "text", "types", "inside"],
)
def test_a_damaged_message_is_an_error_of_the_message(payload: bytes) -> None:
    message = RuleSubject(payload)
    for attempt in (
        lambda: message.user("a"),
        lambda: message.system("Label"),
        lambda: message.set("a", "b", system=False),
        lambda: message.set("Label", "b", system=True),
    ):
        with pytest.raises(FilterError, match="cannot be read"):
            attempt()


@pytest.mark.parametrize("value", [Timestamp(2**70), "\ud800", object()], ids=["large", "surrogate", "object"])
def test_a_value_that_amqp_cannot_hold_raises_filter_error(value: Any) -> None:
    with pytest.raises(FilterError, match="AMQP has nothing"):
        subject().set("a", value, system=False)


def test_a_time_to_live_beyond_all_measure_is_left_as_it_is() -> None:
    message = RuleSubject(encoded(sections={HEADER: [None, None, ULong(2**64 - 1)]}))
    assert message.system("TimeToLive") == 2**64 - 1
