from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sbnotebook.client import Namespace, connect
from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.model import EntityAddress
from sbnotebook.settlement import Archive
from sbnotebook.widgets.entity_browser import EntityTree
from tests.namespaces import opened


def test_archive_is_beside_the_journal_or_off(shared_emulator: RunningEmulator, tmp_path: Path) -> None:
    with opened(shared_emulator.connection_string, tmp_path) as namespace:
        assert namespace.archive is not None
        assert namespace.archive.path == tmp_path / "archive.sqlite"
    with connect(shared_emulator.connection_string, archive=False) as namespace:
        assert namespace.archive is None
    own = Archive(tmp_path / "own.sqlite")
    with connect(shared_emulator.connection_string, archive=own) as namespace:
        assert namespace.archive is own


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
    with running() as emulator, opened(emulator.connection_string, tmp_path_factory.mktemp("journal")) as found:
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
