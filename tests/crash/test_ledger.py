"""The ledger notices each way in which a message can be lost, doubled or changed."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.kills import NOWHERE, Ledger

QUEUE, SINK = "queue", "sink"


def ledger_of(*names: str, place: str = QUEUE) -> Ledger:
    ledger = Ledger()
    for name in names:
        ledger.enter(name, name.encode(), place)
    return ledger


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({QUEUE: ["a"]}, "1 of 2 are lost, such as b"),
        ({QUEUE: ["a", "b"], SINK: ["b"]}, "1 are there twice"),
        ({QUEUE: ["a", "b", "b"]}, "1 are there twice"),
        ({QUEUE: ["a", "b", "c"]}, "no client sent"),
        ({QUEUE: ["a"], SINK: ["b"]}, "b is at sink, and can be {'queue'}"),
    ],
)
def test_count_notices_each_fault(found: dict[str, list[str]], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        ledger_of("a", "b").count(found)


def test_message_is_at_either_place_until_its_move_is_confirmed() -> None:
    for place in (QUEUE, SINK):
        ledger = ledger_of("a")
        with suppress(ConnectionError), ledger.moving(["a"], SINK):
            raise ConnectionError
        ledger.count({place: ["a"]})
        assert ledger.at(place) == ["a"]
    ledger = ledger_of("a", place=NOWHERE)
    with ledger.moving(["a"], QUEUE):
        pass
    with pytest.raises(AssertionError, match="lost"):
        ledger.count({})


def test_receiver_gets_what_was_sent_from_where_it_may_be() -> None:
    ledger = ledger_of("a")
    with pytest.raises(AssertionError, match="a has changed"):
        ledger.see("a", b"b", QUEUE)
    with pytest.raises(AssertionError, match="a came from sink"):
        ledger.see("a", b"a", SINK)
    with ledger.moving(["a"], SINK):
        ledger.see("a", b"a", SINK)  # faster than the answer to the move
        ledger.confirm(["a"], NOWHERE)
    assert ledger.at(NOWHERE) == ["a"]


def test_places_may_repeat_where_the_caller_says_so() -> None:
    ledger_of("a").count({QUEUE: ["a", "a"]}, may_repeat=[QUEUE])
