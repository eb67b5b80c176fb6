from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.client import Namespace
from sbnotebook.client.deferred import DeferredMessages
from sbnotebook.client.messages import Messages
from sbnotebook.client.targets import Target
from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.settlement import Connection, Journal
from sbnotebook.testing.comparison import differences
from sbnotebook.testing.strategies import peeked_messages as any_peeked
from tests.filled_queues import filled_client_queue

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


def test_another_journal_has_orphans_and_knows_gone_messages(
    namespace: Namespace, shared_emulator: RunningEmulator, tmp_path: Path
) -> None:
    filled_client_queue(namespace, "two-journals", 5)
    queue = namespace.entity("two-journals")
    with queue.lock(2) as batch:
        batch.defer().raise_for_failures()
    there = Target(Connection(shared_emulator.connection_string), "a test")
    with Namespace(there, journal=Journal(tmp_path / "another.sqlite")) as another:
        same = another.entity("two-journals")
        with same.lock(1) as batch:
            batch.defer().raise_for_failures()
        found = same.deferred()
        assert [m.message_id for m in found] == ["m0", "m1", "m2"]
        assert [m.message_id for m in found.orphans] == ["m0", "m1"]
        assert found.complete(found.orphans[:1]).apply().settled == 1
    found = queue.deferred()
    assert [m.message_id for m in found.orphans] == ["m2"]
    assert [entry.sequence_number for entry in found.gone] == [1]
    assert "2 deferred in two-journals: 1 in the journal, 1 orphans; 1 in the journal only" in repr(found)


def test_a_part_of_deferred_messages_is_settled_like_all_of_them(namespace: Namespace) -> None:
    filled_client_queue(namespace, "deferred-parts", 8)
    queue = namespace.entity("deferred-parts")
    with queue.lock(8) as batch:
        batch.defer().raise_for_failures()
    found = queue.deferred()
    assert found.where("subject = 'even'").where(None).complete().apply().settled == 4
    odd = found.where("subject <> 'even'")
    for part, settle in ((odd[:1], "abandon"), (odd[::-1][:1], "dead_letter"), (odd.groups()[0].messages, "complete")):
        assert isinstance(part, DeferredMessages)
        assert getattr(part, settle)().apply().settled
    assert len(odd.where("sequence_number < 0").orphans) == len(found.orphans) == 0
    assert [message.message_id for message in queue.deferred()] == []


# ----------------------------------------------------------------


TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
PARENT: Final = f"00-{TRACE}-b7ad6b7169203331-01"


def test_a_resubmit_keeps_the_trace_of_a_message(namespace: Namespace) -> None:
    namespace.create_queue("traced")
    queue, letters = namespace.entity("traced"), namespace.entity("traced/$dlq")
    with (
        ServiceBusClient.from_connection_string(str(namespace.connection_string)) as client,
        client.get_queue_sender("traced") as sender,
    ):
        properties: dict[str | bytes, int | str] = {"traceparent": PARENT, "Diagnostic-Id": PARENT, "tracestate": "a=1"}
        sender.send_messages(ServiceBusMessage(b"order", application_properties=properties))  # pyright: ignore[reportArgumentType]
    with queue.lock(1) as batch:
        batch.dead_letter(reason="Invalid").raise_for_failures()
    (cause,) = letters.peek().groups()
    assert cause.traces == (TRACE,)
    assert f'"{TRACE}"' in cause.kql()
    assert letters.resubmit(cause).apply().ok
    (clone,) = queue.peek(where=f"trace_id = '{TRACE}'")
    kept = {name: clone.application_properties[name] for name in properties if isinstance(name, str)}
    assert kept == properties
