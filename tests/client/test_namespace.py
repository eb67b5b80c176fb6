from __future__ import annotations

import asyncio
from pathlib import Path

import pandas as pd
import pytest

from sbnotebook.client import Namespace, connect
from sbnotebook.client.targets import Target
from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Message, ReceivedMessage
from sbnotebook.settlement import Archive, Connection, Journal, RejectMessage


def reject_odd(message: ReceivedMessage) -> None:
    if int(message.body) % 2:
        raise RejectMessage("Odd", f"The number {message.body.decode()} is odd.")


def test_the_main_job_in_plain_python(namespace: Namespace) -> None:
    namespace.create_queue("main")
    queue, letters = namespace.entity("main"), namespace.entity("main/$dlq")
    assert queue.send([Message(body=b"%d" % n, message_id=f"m{n}") for n in range(10)], max_in_flight=2).settled == 10
    assert queue.process(reject_odd, max_wait=1).ok

    found = letters.peek(where="dead_letter_reason = 'Odd' and body_text <> '9'")

    assert sorted(message.body for message in found) == [b"1", b"3", b"5", b"7"]
    assert [(group.reason, group.cause, group.count) for group in letters.peek().groups()] == [
        ("Odd", "The number <n> is odd.", 5)
    ]
    plan = letters.resubmit(found, to="main", edit=lambda m: m.with_changes(body=b"%d" % (int(m.body) * 2)))
    assert plan.apply(max_in_flight=2).ok
    assert sorted(int(message.body) for message in queue.peek()) == [2, 6, 10, 14]
    assert [message.body for message in letters.peek()] == [b"9"]


def test_batch_settles_by_expression_and_releases_the_rest(namespace: Namespace) -> None:
    namespace.create_queue("batch")
    queue = namespace.entity("batch")
    queue.send(pd.DataFrame({"carrier": ["UA", "AA", "B6"], "delay": [1, 2, 3]}))
    with queue.lock(3) as batch:
        assert len(batch) == 3
        done = batch.complete(where="body_json->>'$.carrier' = 'UA'")
        assert done.settled == 1
        dead = batch.dead_letter(where="(body_json->>'$.delay')::int = 2", reason="Late")
        assert dead.settled == 1
        with pytest.raises(ConfigurationError, match="nosuch"):
            batch.complete(where="nosuch = 1")
        assert len(batch) == 1
        (left,) = batch.messages
    assert [message.body_text for message in queue.peek()] == [left.body_text]
    assert queue.peek()[0].delivery_count == 0


def test_namespace_works_inside_a_running_event_loop(namespace: Namespace) -> None:
    namespace.create_queue("looped")

    async def cell() -> int:
        namespace.entity("looped").send(["a", b"b", {"body_text": "c"}])
        return len(namespace.entity("looped").peek())

    assert asyncio.run(cell()) == 3


def test_entities_show_their_counts_and_no_secret_is_shown(namespace: Namespace) -> None:
    namespace.create_queue("shown")
    namespace.entity("shown").send(["a"])
    (counts,) = [entity for entity in namespace.entities() if str(entity.address) == "shown"]
    assert counts.active == 1
    assert "SAS_KEY_VALUE" not in repr(namespace)
    assert "SAS_KEY_VALUE" not in repr(namespace.entity("shown"))


def test_archive_is_beside_the_journal_or_off(shared_emulator: RunningEmulator, tmp_path: Path) -> None:
    target = Target(Connection(shared_emulator.connection_string), "a test")
    with Namespace(target, journal=Journal(tmp_path / "journal.sqlite")) as namespace:
        assert namespace.archive is not None
        assert namespace.archive.path == tmp_path / "archive.sqlite"
    with connect(shared_emulator.connection_string, archive=False) as namespace:
        assert namespace.archive is None
    own = Archive(tmp_path / "own.sqlite")
    with connect(shared_emulator.connection_string, archive=own) as namespace:
        assert namespace.archive is own


def test_undo_sends_removed_messages_back(namespace: Namespace) -> None:
    namespace.create_queue("undone")
    queue = namespace.entity("undone")
    queue.send([Message(body=b"%d" % n) for n in range(3)])
    with queue.lock(3) as batch:
        report = batch.complete()
    plan = namespace.undo(report)
    assert str(plan.preview()) == "send back 3 messages: 3 of undone to undone."
    assert plan.apply().ok
    assert sorted(message.body for message in queue.peek()) == [b"0", b"1", b"2"]
    with queue.lock(1) as batch:
        batch.complete()
    assert len(namespace.undo(entity="undone", since="1h")) == 1
    assert namespace.undo(since="1h", to="undone").apply().settled == 1
