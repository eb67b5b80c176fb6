from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from sbnotebook.client import Namespace, connect
from sbnotebook.client.targets import Target
from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, Message
from sbnotebook.settlement import Archive, Connection, Journal
from sbnotebook.widgets.entity_tree import EntityTree


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


# ----------------------------------------------------------------


NAMES = (
    "masstransit/fault--shop.contracts/orderplaced--",  # MassTransit issue 1267
    "-orders",
    "_orders_",
    ".orders",
    "orders.",
    "orders~",
    "Orders$Placed",
    "dlq",
    "deadletterqueue/transfer",
    "subscriptions",
    "subscriptions/audit",
    "my-subscriptions/audit",
    "events/subscriptions/audit/more",
    "entities",
    "health",
    "faults",
    "lease",
    ("aB9._-~/" * 33)[:259] + "-",
)
SUBSCRIPTIONS = ("subscriptions", "-audit-", "rules", "a." + "b" * 47 + "_")


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    journal = Journal(tmp_path_factory.mktemp("journal") / "journal.sqlite")
    with (
        running() as emulator,
        Namespace(Target(Connection(emulator.connection_string), "a test"), journal=journal) as found,
    ):
        for name in NAMES:
            found.create_queue(name)
            found.create_topic(f"t-{name}"[:260])
            for subscription in SUBSCRIPTIONS:
                found.create_subscription(f"t-{name}"[:260], subscription)
        yield found


def test_every_entity_is_listed_once_and_read_back_from_its_text(strange: Namespace) -> None:
    listed = [each.address for each in strange.entities()]
    assert len(set(listed)) == len(listed) == len(NAMES) * (2 + len(SUBSCRIPTIONS))
    for address in listed:
        for text in (str(address), address.path, str(address.dead_letter)):
            parsed = EntityAddress.parse(text)
            assert (parsed.name, parsed.subscription) == (address.name, address.subscription)


@pytest.mark.parametrize("name", [*NAMES, f"t-{NAMES[0]}/subscriptions/-audit-", "t-rules-"])
def test_an_entity_of_every_name_is_used(strange: Namespace, name: str, tmp_path: Path) -> None:
    if name == "t-rules-":
        strange.create_topic(name)
        strange.create_subscription(name, "rules")
        name = "t-rules-/subscriptions/rules"
    entity = strange.entity(name)
    sender = strange.entity(entity.address.sends_to)
    assert sender.send(["a", "b"]).ok
    with entity.lock(1) as batch:
        assert batch.dead_letter(reason="Bad").ok
    assert [message.body_text for message in entity.peek()] == ["b"]
    letters = strange.entity(entity.address.dead_letter)
    found = letters.peek()
    assert [str(message.entity) for message in found] == [f"{name}/$dlq"]
    found.export(tmp_path / "letters.csv")
    assert letters.resubmit(found, to=str(entity.address.sends_to)).apply().ok
    assert (strange.counts(name)[0].active, strange.counts(name)[0].dead_letter) == (2, 0)


def test_listings_of_all_entities_show_every_name(strange: Namespace) -> None:
    for name in NAMES:
        strange.entity(name).send(["lost"])
        with strange.entity(name).lock(1) as batch:
            assert batch.dead_letter(reason="Overview").ok
    held = {str(each.address) for each in strange.dead_letters()}
    assert {f"{name}/$dlq" for name in NAMES} <= held
    assert {str(message.entity) for message in strange.find(where="dead_letter_reason = 'Overview'")} == {
        f"{name}/$dlq" for name in NAMES
    }
    tree = EntityTree(strange)
    assert tree.wait()
    assert {str(row["path"]) for row in tree.rows} >= {str(each.address) for each in strange.entities(topics=())}
    assert EntityTree(strange, f"t-{NAMES[0]}/subscriptions/-audit-/$dlq").chosen.endswith("/-audit-/$dlq")


def test_resume_shows_and_finishes_cut_off_resubmits(namespace: Namespace, shared_emulator: RunningEmulator) -> None:
    namespace.create_queue("cut")
    queue, letters = namespace.entity("cut"), namespace.entity("cut/$dlq")
    assert queue.send([Message(body=b"x", message_id="m")]).ok
    with queue.lock(1) as batch:
        assert batch.dead_letter(reason="Bad").ok
    assert namespace.resume() == namespace.unfinished() == []
    shared_emulator.faults.entity("cut").drop_after_nth = 1
    assert str(letters.resubmit(letters.peek(), to="cut").apply()) == "resubmit: 1 unconfirmed"

    (entry,) = namespace.unfinished("CUT/$dlq")
    assert (entry.message_id, entry.destination) == ("m", "cut")
    assert namespace.unfinished("cut") == namespace.resume("cut") == []
    (plan,) = namespace.resume("cut/$dlq")
    assert "complete the original, whose clone was sent (1)" in repr(plan)
    assert plan.apply().ok

    assert len(letters.peek()) == 0
    assert [message.body for message in queue.peek()] == [b"x"]
    assert namespace.resume() == namespace.unfinished() == []
