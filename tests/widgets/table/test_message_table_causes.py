"""The causes beside the message table: each message has its own, for any sequence number."""

from __future__ import annotations

import json

from sbnotebook import EntityAddress, PeekedMessage
from sbnotebook.client import Messages
from sbnotebook.widgets.table.message_table import Causes

ORDERS, BILLS = EntityAddress.parse("orders/$dlq"), EntityAddress.parse("bills/$dlq")


def dead(entity: EntityAddress, number: int, reason: str, description: str = "") -> PeekedMessage:
    properties = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
    return PeekedMessage(entity=entity, sequence_number=number, application_properties=properties)


def test_messages_with_equal_numbers_keep_their_own_causes() -> None:
    messages = Messages(
        [
            dead(ORDERS, 1, "Late", "Flight 17 is late"),
            dead(BILLS, 1, "Invalid"),
            dead(ORDERS, 2, "Late", "Flight 18 is late"),
        ]
    )
    causes = Causes().and_of(messages.to_arrow())
    assert causes.fingerprints[0] == causes.fingerprints[2] != causes.fingerprints[1]
    assert [(cause["reason"], cause["cause"]) for cause in causes.every.values()] == [
        ("Late", "Flight <n> is late"),
        ("Invalid", ""),
    ]
    assert [*causes.every] == causes.fingerprints[:2]
    further = causes.and_of(Messages([*messages, dead(BILLS, 9, "Invalid"), dead(BILLS, 10, "New")]).to_arrow())
    assert further.fingerprints[:4] == [*causes.fingerprints, causes.fingerprints[1]]
    assert [*further.every] == [*causes.every, further.fingerprints[4]]
    assert Causes().and_of(Messages().to_arrow()).fingerprints == []


def test_causes_of_hostile_texts_stay_small_and_visible() -> None:
    messages = Messages([dead(ORDERS, n, f"\u202ereason{chr(97 + n)}" + "x" * 9_000) for n in range(26)])
    causes = Causes().and_of(messages.to_arrow())
    assert len(causes.every) == 26 == len(set(causes.fingerprints))
    told = json.dumps([*causes.every.values()], ensure_ascii=False)
    assert "⟨U+202E⟩" in told
    assert told.isprintable()
    assert len(told.encode()) < 40_000
