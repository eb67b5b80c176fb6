"""The operations that a plan costs: counted by size, by step, and with the messages in between."""

from __future__ import annotations

import pytest

from sbnotebook.model import Message
from sbnotebook.settlement.costs import Cost


@pytest.mark.parametrize(
    ("size", "operations"), [(0, 200), (1, 200), (65_536, 200), (65_537, 300), (131_072, 300), (150_000, 400)]
)
def test_each_64_kb_of_a_transfer_is_an_operation(size: int, operations: int) -> None:
    said = Cost().sentence([Message(body=b"x" * size)] * 100)
    assert said == f"It costs a Standard namespace about {operations:,} operations."


@pytest.mark.parametrize(
    ("cost", "operations"),
    [
        (Cost(), "200"),
        (Cost(transfers=2), "300"),
        (Cost(transfers=0), "100"),
        (Cost(settlements=0), "100"),
        (Cost(others=450), "1,100"),
    ],
)
def test_steps_and_messages_in_between_add_up(cost: Cost, operations: str) -> None:
    said = cost.sentence([Message()] * 100)
    assert said == f"It costs a Standard namespace about {operations} operations."


def test_few_messages_cost_no_sentence() -> None:
    assert not Cost().sentence([Message()] * 99)
    assert not Cost().sentence([])
    assert Cost(others=1).sentence([Message()] * 99)


def test_the_size_of_messages_not_read_yet_is_that_of_the_first() -> None:
    first = [Message(body=b"x" * 100_000), Message()]
    assert "about 1,500 operations" in Cost(settlements=0).sentence(first, 1_000)
    assert "about 1,000 operations" in Cost(settlements=0).sentence([], 1_000)
