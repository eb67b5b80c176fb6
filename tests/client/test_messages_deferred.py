from __future__ import annotations

from pathlib import Path

import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.deferred import DeferredMessages
from sbnotebook.client.targets import Target
from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import DecisionError
from sbnotebook.settlement import Connection, Journal
from tests.filled_queues import filled_client_queue


def test_deferred_messages_are_listed_and_settled(namespace: Namespace) -> None:
    filled_client_queue(namespace, "deferred", 5)
    queue = namespace.entity("deferred")
    with queue.lock(4) as batch:
        batch.defer(where="subject = 'even'").raise_for_failures()
        batch.defer(where="message_id = 'm1'").raise_for_failures()
    found = queue.deferred()
    assert [m.message_id for m in found] == ["m0", "m1", "m2"]
    assert len(found.orphans) == len(found.gone) == 0
    assert "3 deferred in deferred: 3 in the journal, 0 orphans; 0 in the journal only" in repr(found)
    plan = found.complete(where="subject = 'even'")
    assert "2 messages" in plan.preview().sentence
    assert plan.apply().settled == 2
    assert found.abandon(where="message_id = 'm1'").apply().settled == 1
    assert found.dead_letter(list(found)[1:2], reason="Late").apply().settled == 1
    assert len(queue.deferred()) == 0
    assert [m.message_id for m in queue.peek()] == ["m3", "m4"]
    with pytest.raises(DecisionError, match="not deferred in deferred"):
        found.complete(queue.peek())


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


def test_batch_delays_in_each_way(namespace: Namespace) -> None:
    filled_client_queue(namespace, "delays", 3)
    queue = namespace.entity("delays")
    with queue.lock(3) as batch:
        first, second, third = batch.messages
        assert batch.let_lapse([first]) is not None
        assert batch.abandon([second], delay="1ms").ok
        assert batch.defer([third], wake_after="0s").ok
    with queue.lock(2) as batch:
        again, wake_up = batch.messages
        assert (again.message_id, again.delivery_count) == ("m1", 1)
        assert batch.wake(again) is None
        original = batch.wake(wake_up)
        assert original is not None
        assert original.message_id == "m2"
        assert batch.complete([original, wake_up]).ok
    assert [m.message_id for m in queue.peek()] == ["m0", "m1"]


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
