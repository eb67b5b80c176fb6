from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.client.messages import Messages
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.testing.comparison import differences
from sbnotebook.testing.strategies import peeked_messages as any_peeked

ORDERS = EntityAddress("orders")


def peeked(number: int, **fields: Any) -> PeekedMessage:
    return PeekedMessage(entity=ORDERS, sequence_number=number, **fields)


THREE = Messages([peeked(1, subject="a"), peeked(2, subject="b"), peeked(3, subject="a")], where_from="orders")


def same(found: Iterable[PeekedMessage], expected: Sequence[PeekedMessage]) -> bool:
    """Equality, with types, and with NaN the same as NaN."""
    pairs = [*zip(found, expected, strict=True)]
    return all(differences(one, other) == {} and one.sequence_number == other.sequence_number for one, other in pairs)


@given(st.lists(any_peeked(), max_size=4), st.slices(4))
def test_messages_are_a_sequence(held: list[PeekedMessage], part: slice) -> None:
    messages = Messages(held)
    assert len(messages) == len(held)
    assert same(messages, held)
    assert isinstance(messages[part], Messages)
    assert same(messages[part], held[part])
    assert same([messages[place] for place in range(len(held))], held)


def test_messages_are_chosen_by_an_expression() -> None:
    chosen = THREE.where("subject = 'a'")
    assert [message.sequence_number for message in chosen] == [1, 3]
    assert "orders: 2 messages" in repr(chosen)
    assert len(THREE.where(None)) == 3
    with pytest.raises(ConfigurationError, match="subjet"):
        THREE.where("subjet = 'a'")


def test_sql_keeps_numbers_exact_beside_nulls() -> None:
    messages = Messages([peeked(2**53 + 1), peeked(2**53 + 3)])
    frame = messages.sql("select lag(sequence_number) over (order by sequence_number) as before from messages")
    assert frame["before"].to_list()[1] == 2**53 + 1


def test_messages_are_shown_as_a_table_and_as_text() -> None:
    html = THREE._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert html.startswith('<table class="mathjax_ignore tex2jax_ignore">')
    assert "orders: 3 messages" in html
    assert repr(THREE).startswith("orders: 3 messages")
    assert repr(Messages()) == "0 messages"


def test_hostile_messages_do_no_harm_when_they_are_shown() -> None:
    hostile = Messages([peeked(1, subject="<script>\x1b[2J", body=b"<" * 262_144)], where_from="<b>orders</b>")
    html = hostile._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert "<script>" not in html
    assert "<b>" not in html
    assert len(html) + len(repr(hostile)) < 10_000
    assert repr(hostile).replace("\n", "").isprintable()
