from __future__ import annotations

from sbnotebook.client import Namespace
from sbnotebook.model import Message
from sbnotebook.widgets.entity_browser import Browser
from sbnotebook.widgets.entity_tree import EntityList
from tests.widgets.conftest import until


def test_entities_are_chosen_in_a_plain_list(namespace: Namespace) -> None:
    namespace.create_queue("listed")
    namespace.entity("listed").send([Message(body=b"x")] * 2)
    browser = Browser(namespace)
    browser.table.use_plain()
    (entities,) = browser._left.children  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001 (its place)
    assert isinstance(entities, EntityList)
    until(lambda: len(entities.select.options) == 3 + 1 + 2 * 3, "all topics are open")
    names = [name.strip() for name, _ in entities.select.options]
    assert names[:2] == ["listed: 2 active", "dead letters"]
    entities.select.index = 0
    assert browser.tree.chosen == "listed"
    assert browser.wait()
    assert len(browser.table.messages) == 2
    browser.choose("events/subscriptions/audit")
    assert names[entities.select.index] == "audit"
    browser.table.use_plain(False)
    assert browser._left.children == (browser.tree,)  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
    browser.close()
    namespace.delete_queue("listed")
