from __future__ import annotations

from sbnotebook.client import Namespace, connect
from sbnotebook.emulator import running
from sbnotebook.model import Message
from sbnotebook.widgets.entity_browser import EntityTree
from tests.widgets.conftest import find, until


def paths(tree: EntityTree) -> list[str]:
    return [str(row["path"]) for row in tree.rows]


def test_entities_with_their_counts(namespace: Namespace) -> None:
    namespace.create_queue("counted")
    namespace.entity("counted").send([Message(body=b"x")] * 3)
    with namespace.entity("counted").lock(1) as batch:
        batch.dead_letter(reason="Bad")
    tree = EntityTree(namespace)
    assert tree.wait()
    queue, topic = tree.rows
    assert queue == {"path": "counted", "kind": "queue", "active": 2, "scheduled": 0, "dead": 1, "transfer": 0}
    assert topic == {"path": "events", "kind": "topic", "active": None, "scheduled": 0, "dead": None, "transfer": None}
    assert "counted" in repr(tree)
    assert "as of" in repr(tree)
    namespace.delete_queue("counted")


def test_an_entity_that_is_chosen_at_first_is_open(namespace: Namespace) -> None:
    tree = EntityTree(namespace, "events/subscriptions/audit/$dlq")
    assert tree.wait()
    assert tree.chosen == "events/subscriptions/audit/$dlq"
    assert "events/subscriptions/audit" in paths(tree)
    assert tree.expanded == ["events", "events/subscriptions/audit"]


def test_entity_tree_shows_errors_and_keeps_known_counts() -> None:
    with running(queues=["orders"]) as emulator:
        namespace = connect(emulator.connection_string)
        tree = EntityTree(namespace)
        assert tree.wait()
    tree.refresh()
    until(lambda: tree.problem and find(tree, "Refresh").is_enabled)
    assert "orders" in paths(tree)
    assert "SharedAccessKey" not in tree.problem
    namespace.close()
