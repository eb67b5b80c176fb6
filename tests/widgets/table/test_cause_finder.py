"""The causes beside the message table: each message has its own, for any sequence number."""

from __future__ import annotations

import json

from sbnotebook import EntityAddress, PeekedMessage
from sbnotebook.client import Messages
from sbnotebook.widgets.table.cause_finder import MOST, Causes, Tally

ORDERS, BILLS = EntityAddress.parse("orders/$dlq"), EntityAddress.parse("bills/$dlq")


def dead(entity: EntityAddress, number: int, reason: str, description: str = "") -> PeekedMessage:
    properties = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
    return PeekedMessage(entity=entity, sequence_number=number, application_properties=properties)


def causes_of(messages: Messages) -> Causes:
    tally = Tally()
    tally.add(messages.to_arrow())
    return tally.causes()


def test_messages_with_equal_numbers_keep_their_own_causes() -> None:
    messages = Messages(
        [
            dead(ORDERS, 1, "Late", "Flight 17 is late"),
            dead(BILLS, 1, "Invalid"),
            dead(ORDERS, 2, "Late", "Flight 18 is late"),
        ]
    )
    causes = causes_of(messages)
    assert causes.fingerprints[0] == causes.fingerprints[2] != causes.fingerprints[1]
    assert [(cause["reason"], cause["cause"]) for cause in causes.told] == [
        ("Late", "Flight <n> is late"),
        ("Invalid", ""),
    ]
    assert [cause["fingerprint"] for cause in causes.told] == [causes.fingerprints[0], causes.fingerprints[1]]
    assert causes_of(Messages()) == ([], [])


def test_causes_of_hostile_texts_stay_small_and_visible() -> None:
    words = [f"reason{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(2 * MOST)]
    messages = Messages([dead(ORDERS, n, f"\u202e{word}" + "x" * 9_000) for n, word in enumerate(words)])
    causes = causes_of(messages)
    assert len(causes.told) == MOST < len(causes.every) == len(set(causes.fingerprints))
    last = causes.every[-1]
    assert causes.named({last["fingerprint"]}) == [last]
    assert last in causes.having(last["reason"][:20].upper())
    assert len(causes.named({cause["fingerprint"] for cause in causes.every})) == MOST
    sent = json.dumps(causes.told, ensure_ascii=False)
    assert "⟨U+202E⟩" in sent
    assert sent.isprintable()
    assert len(sent.encode()) < 300_000
