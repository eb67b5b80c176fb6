from __future__ import annotations

import pytest

from sbnotebook.amqp import type_name
from sbnotebook.demo.flights import (
    check_flight,
    flight_messages,
    is_repairable,
    load_flights,
    repair_air_time,
    route_minutes,
)
from sbnotebook.model import EntityAddress, Message, PeekedMessage
from sbnotebook.settlement import RejectMessage


def peeked(message: Message, **properties: object) -> PeekedMessage:
    fields = {name: getattr(message, name) for name in Message.__dataclass_fields__}
    fields["application_properties"] = {**message.application_properties, **properties}
    return PeekedMessage(entity=EntityAddress.parse("flights/$dlq"), sequence_number=1, **fields)


def test_all_flights_of_the_year_are_there_with_ids_of_their_own() -> None:
    flights = load_flights()
    assert len(flights) == 336_776
    assert flights["dep_time"].isna().sum() == 8_255
    assert flights["tailnum"].isna().sum() == 2_512
    assert flights["air_time"].isna().sum() == 9_430
    assert len({message.message_id for message in flight_messages(flights.head(20_000))}) == 20_000


def test_check_flight_rejects_and_repair_air_time_fixes() -> None:
    flights = load_flights(2_000)
    minutes = route_minutes(load_flights())
    reasons: dict[str, int] = {}
    repaired = 0
    for message in flight_messages(flights):
        try:
            check_flight(peeked(message))
        except RejectMessage as rejection:
            reasons[rejection.reason] = reasons.get(rejection.reason, 0) + 1
            letter = peeked(message, DeadLetterReason=rejection.reason)
            if is_repairable(letter, minutes):
                mended = repair_air_time(minutes)(letter)
                assert mended.application_properties["air_time_estimated"] is True
                check_flight(peeked(mended))
                repaired += 1
    assert sum(reasons.values()) == int((flights["dep_time"].isna() | flights["air_time"].isna()).sum())
    assert set(reasons) == {"NoTailNumber", "NotDeparted", "NoAirTime"}
    assert repaired == int((flights["air_time"].isna() & flights["arr_time"].notna()).sum())


def test_a_flight_is_a_message_with_typed_properties() -> None:
    message = next(iter(flight_messages(load_flights(1))))
    kinds = {name: type_name(value) for name, value in message.application_properties.items()}
    assert kinds == {
        "origin": "string", "dest": "string", "distance": "int", "departed": "boolean", "scheduled": "timestamp",
    }  # fmt: skip
    assert message.content_type == "application/json"
    with pytest.raises(RejectMessage, match="NoTailNumber"):
        check_flight(peeked(message.with_changes(body=message.body.replace(b'"N14228"', b"null"))))
