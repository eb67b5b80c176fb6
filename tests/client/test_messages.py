from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.client import Namespace
from sbnotebook.client.batch import DeferredMessages
from sbnotebook.client.messages import Messages
from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.testing.strategies import peeked_messages as any_peeked
from tests.comparison import differences
from tests.filled_queues import filled_client_queue
from tests.namespaces import opened

ORDERS = EntityAddress("orders")


def peeked(number: int, **fields: Any) -> PeekedMessage:
    return PeekedMessage(entity=ORDERS, sequence_number=number, **fields)


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


def test_sql_keeps_numbers_exact_beside_nulls() -> None:
    messages = Messages([peeked(2**53 + 1), peeked(2**53 + 3)])
    frame = messages.sql("select lag(sequence_number) over (order by sequence_number) as before from messages")
    assert frame["before"].to_list()[1] == 2**53 + 1


def test_another_journal_has_orphans_and_knows_gone_messages(
    namespace: Namespace, shared_emulator: RunningEmulator, tmp_path: Path
) -> None:
    queue = filled_client_queue(namespace, "two-journals", 5)
    with queue.lock(2) as batch:
        batch.defer().raise_for_failures()
    with opened(shared_emulator.connection_string, tmp_path / "other") as another:
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
    queue = filled_client_queue(namespace, "deferred-parts", 8)
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
