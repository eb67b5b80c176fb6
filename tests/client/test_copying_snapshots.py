"""Snapshots of a namespace, and their differences."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus.management import SqlRuleFilter

from sbnotebook import read_copy
from sbnotebook.client import Namespace, connect
from sbnotebook.emulator import QueueOptions, RunningEmulator, SubscriptionOptions, Tier, running
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.settlement import administration_client


@pytest.fixture
def shop() -> Iterator[RunningEmulator]:
    with running(tier=Tier.STANDARD, topics={"events": ["audit"]}) as emulator:
        emulator.create_queue("orders", QueueOptions(lock_duration=timedelta(seconds=30), max_delivery_count=4))
        emulator.create_queue("invoices")
        yield emulator


@pytest.fixture
def namespace(shop: RunningEmulator) -> Iterator[Namespace]:
    with connect(shop.connection_string, archive=False) as namespace:
        namespace.entity("orders").send(['{"email": "a@b.c", "n": 1}'] * 3, show_progress=False)
        namespace.entity("events").send(["told"], show_progress=False)
        with namespace.entity("orders").lock(1) as batch:
            batch.dead_letter(reason="Bad")
        yield namespace


def test_a_snapshot_is_a_file_from_which_a_namespace_starts(namespace: Namespace, tmp_path: Path) -> None:
    with namespace.snapshot(sample=1, mask="$.email") as copy:
        path = copy.save(tmp_path / "shop.sbcopy")
        assert copy.summary.startswith("3 messages of 4 entities. Masked: $.email in 2")
    text = path.read_text()
    assert "a@b.c" not in text
    assert "SharedAccessKey" not in text
    with read_copy(path) as again:
        assert {str(each.address): each.active for each in again.entities()} == {
            "events": 0,
            "events/subscriptions/audit": 1,
            "invoices": 0,
            "orders": 1,
        }
        (letter,) = again.entity("orders/$dlq").peek()
        assert letter.dead_letter_reason == "Bad"
        assert len(namespace.compare(path)) == 0, "counts are those of the time, and not of the sample"
        assert len(again.compare(namespace)) == 0


def test_a_comparison_names_options_rules_and_counts(
    namespace: Namespace, shop: RunningEmulator, tmp_path: Path
) -> None:
    with namespace.snapshot() as copy:
        path = copy.save(tmp_path / "before.sbcopy")
    namespace.entity("invoices").send(["1"], show_progress=False)
    shop.delete("orders")
    shop.create_queue("orders", QueueOptions(lock_duration=timedelta(minutes=5), max_delivery_count=4))
    shop.create_subscription("events", "mail", SubscriptionOptions(requires_session=True))
    with administration_client(shop.connection_string) as client:
        client.create_rule("events", "audit", "big", filter=SqlRuleFilter("n > 5"))
    found = namespace.compare(path)
    assert [(each.entity, each.what, each.one, each.other) for each in found] == [
        ("events/subscriptions/audit", "rule big", found[0].one, None),
        ("events/subscriptions/mail", "entity", "subscription", None),
        ("invoices", "active messages", "1", "0"),
        ("orders", "LockDuration", "PT5M", "PT30S"),
        ("orders", "active messages", "0", "2"),
        ("orders", "dead letters", "0", "1"),
    ]
    assert "n > 5" in (found[0].one or "")
    assert f"6 differences between {namespace.host} and the copy in before.sbcopy." in repr(found)
    assert len(found.to_pandas()) == 6
    assert [each.what for each in namespace.compare(path, counts=False)] == ["rule big", "entity", "LockDuration"]


def test_snapshots_that_cannot_be_are_refused(
    namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbnotebook.client.copying.MOST", 1)
    with pytest.raises(DecisionError, match="take a smaller sample"):
        namespace.snapshot(sample=5)
    wrong = tmp_path / "wrong.sbcopy"
    wrong.write_text(
        '{"sbcopy": 1, "tier": "Standard", "entity": null, "entities": {}, "masked": {}, '
        '"masked_whole": 0, "counts": {"orders": ["many"]}}\n'
    )
    with pytest.raises(ConfigurationError):
        namespace.compare(wrong)
