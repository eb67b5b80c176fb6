from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sbnotebook.client import Namespace
from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import InvalidEntityAddressError
from sbnotebook.model import Message
from sbnotebook.widgets import entity_browser
from sbnotebook.widgets.entity_browser import Browser
from tests.namespaces import opened
from tests.widgets.conftest import click, find, names, said, until, write


@pytest.fixture
def queue(namespace: Namespace) -> Iterator[str]:
    namespace.create_queue("browsed")
    messages = [Message(body=b"x", message_id=f"m{n}", subject="even" if n % 2 == 0 else "odd") for n in range(7)]
    namespace.entity("browsed").send(messages).raise_for_failures()
    with namespace.entity("browsed").lock(2) as batch:
        batch.dead_letter(where="message_id = 'm0'", reason="Bad")
        batch.defer(where="message_id = 'm1'")
    namespace.entity("browsed").schedule([Message(body=b"x", message_id="later")], delay="1h")
    yield "browsed"
    if any(str(entity.address) == "browsed" for entity in namespace.entities()):
        namespace.delete_queue("browsed")


def ids(browser: Browser) -> list[str | None]:
    return [message.message_id for message in browser.table.messages]


def sessions_of(browser: Browser) -> list[str]:
    return list(find(browser, "Session").options)


def see(browser: Browser, view: str) -> list[str | None]:
    write(browser, "Which messages are shown", view)
    assert browser.wait()
    return ids(browser)


def confirm(browser: Browser, words: str) -> None:
    """Carry out the plan that says this."""
    until(lambda: words in repr(browser.actions), words)
    click(browser.actions, "Carry out")
    until(lambda: not browser.actions.is_looking and browser.actions.report)


def test_browser_shows_all_dead_letters_and_hides_them(namespace: Namespace, queue: str) -> None:
    browser = Browser(namespace)
    click(browser, "All dead letters")
    until(lambda: browser.letters)
    until(lambda: f"{queue}/$dlq" in said(browser))
    click(browser, "Hide dead letters")
    assert f"{queue}/$dlq" not in said(browser)
    assert "All dead letters" in names(browser)
    browser.close()


def test_looking_by_state_expression_and_page(namespace: Namespace, queue: str) -> None:
    browser = Browser(namespace, queue)
    bar = browser.messages
    assert browser.wait()
    assert ids(browser) == ["m1", "m2", "m3", "m4", "m5", "m6", "later"]
    assert "That is the end" in bar.status
    assert see(browser, "Active") == ["m2", "m3", "m4", "m5", "m6"]
    assert see(browser, "Scheduled") == ["later"]
    assert see(browser, "Deferred") == ["m1"]

    write(browser, "Where", "nothing = 1")
    assert browser.wait()
    assert "nothing" in bar.problem
    write(browser, "Where", "subject = 'even'")
    assert see(browser, "All") == ["m2", "m4", "m6"]
    write(browser, "Where", "")
    assert browser.wait()

    write(browser, "At most", 3)
    click(browser, "Peek")
    assert browser.wait()
    assert ids(browser) == ["m1", "m2", "m3"]
    assert "More may follow." in bar.status
    click(browser, "Load more")
    assert browser.wait()
    assert ids(browser) == ["m1", "m2", "m3", "m4", "m5", "m6"]
    write(browser, "From #", "x")
    click(browser, "Peek")
    assert "From # is a sequence number" in bar.problem

    write(browser, "Which messages are shown", "Dead letters")
    until(lambda: ids(browser) == ["m0"])
    assert browser.tree.chosen == "browsed/$dlq"
    assert "m0" in browser.to_text()
    with namespace.entity(queue).lock(5) as batch:
        assert {message.delivery_count for message in batch.messages} == {0}, "looking has locked nothing"
    browser.close()
    namespace.delete_queue(queue)


def test_browser_cancels_scheduled_and_settles_deferred(namespace: Namespace, queue: str) -> None:
    browser = Browser(namespace, queue)
    assert see(browser, "Scheduled") == ["later"]
    browser.table.select([("browsed", browser.table.messages[0].sequence_number)])
    act(browser, "Cancel…")
    confirm(browser, "Cancel 1 message of browsed")
    until(lambda: ids(browser) == [])
    assert len(namespace.entity(queue).scheduled()) == 0

    assert see(browser, "Deferred") == ["m1"]
    assert "1 of 1 deferred in browsed: 1 in the journal" in browser.messages.status
    browser.table.select([("browsed", browser.table.messages[0].sequence_number)])
    act(browser, "Complete…")
    confirm(browser, "Complete 1 message of browsed")
    assert see(browser, "Deferred") == []
    until(lambda: next(row for row in browser.tree.rows if row["path"] == "browsed")["active"] == 5, "new counts")
    browser.close()
    namespace.delete_queue(queue)


def test_plan_goes_with_the_view_that_it_was_made_in(namespace: Namespace, queue: str) -> None:
    browser = Browser(namespace, queue)
    assert see(browser, "Deferred") == ["m1"]
    browser.table.select([("browsed", browser.table.messages[0].sequence_number)])
    act(browser, "Complete…")
    until(lambda: "Complete 1 message of browsed" in repr(browser.actions))
    see(browser, "Active")
    assert "The form of this plan was closed" in repr(browser.actions)
    assert "Carry out" not in names(browser)
    browser.close()
    namespace.delete_queue(queue)


def test_what_somebody_else_has_deferred_is_an_orphan(
    namespace: Namespace, shared_emulator: RunningEmulator, tmp_path: Path, queue: str
) -> None:
    with opened(shared_emulator.connection_string, tmp_path / "other") as other, other.entity(queue).lock(1) as batch:
        batch.defer().raise_for_failures()
    browser = Browser(namespace, queue)
    assert see(browser, "Deferred") == ["m1", "m2"]
    assert (
        "2 of 2 deferred in browsed: 1 in the journal, 1 orphans; 0 in the journal only. Orphans"
        in browser.messages.status
    )
    write(browser, "Where", "message_id = 'm2'")
    assert browser.wait()
    assert ids(browser) == ["m2"]
    browser.close()
    namespace.delete_queue(queue)


def act(browser: Browser, name: str) -> None:
    """Click an action on the selected messages, and the button of its form."""
    click(browser, name)
    click(browser, "Show the plan")


def test_sessions_are_listed_and_looked_into(namespace: Namespace) -> None:
    namespace.create_queue("in-sessions", requires_session=True)
    messages = [Message(body=b"x", message_id=f"m{n}", session_id="ab"[n % 2]) for n in range(4)]
    namespace.entity("in-sessions").send(messages).raise_for_failures()
    browser = Browser(namespace, "in-sessions")
    assert see(browser, "Sessions") == []
    assert sessions_of(browser) == ["a · 2 messages", "b · 2 messages"]
    write(browser, "Session", "b · 2 messages")
    assert browser.wait()
    assert ids(browser) == ["m1", "m3"]
    browser.close()
    namespace.delete_queue("in-sessions")


def test_sessions_are_counted_sorted_and_found(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace.create_queue("carts", requires_session=True)
    carts = ["cart-10", "cart-10", "cart-9", *(f"other-{n}" for n in range(5)), "\u202e"]
    namespace.entity("carts").send(Message(session_id=each) for each in carts).raise_for_failures()
    browser = Browser(namespace, "carts")
    bar = browser.messages
    assert see(browser, "Sessions") == []
    assert sessions_of(browser)[:3] == ["cart-9 · 1 message", "cart-10 · 2 messages", "other-0 · 1 message"]
    assert sessions_of(browser)[-1] == "⟨U+202E⟩ · 1 message"
    write(browser, "Find", "CART")
    assert sessions_of(browser) == ["cart-9 · 1 message", "cart-10 · 2 messages"]
    write(browser, "Session", "cart-10 · 2 messages")
    assert browser.wait()
    assert {message.session_id for message in browser.table.messages} == {"cart-10"}
    write(browser, "Find", "other-3")
    assert sessions_of(browser) == ["cart-10 · 2 messages", "other-3 · 1 message"], "the chosen one stays"
    assert bar.session == "cart-10"
    monkeypatch.setattr(entity_browser, "_COUNTED", 3)
    browser.close()
    browser = Browser(namespace, "carts")
    see(browser, "Sessions")
    assert "cart-10 · at least 2 messages" in sessions_of(browser)
    assert browser.messages.status.endswith("The counts are of the first 3 messages.")
    browser.close()
    namespace.delete_queue("carts")


def test_topics_entities_that_are_not_there_and_no_entity(namespace: Namespace) -> None:
    browser = Browser(namespace)
    assert "events" in browser.to_text()
    browser.choose("events")
    assert "Peek" not in names(browser)
    assert browser.form.to.value == "events"
    browser.choose("events/subscriptions/audit")
    assert browser.wait()
    assert "There are no messages here" in repr(browser)
    assert "Scheduled" not in find(browser, "Which messages are shown").options
    at_first = Browser(namespace, "events")
    until(lambda: "Peek" not in names(at_first))
    at_first.close()
    browser.choose("nowhere")
    assert browser.wait()
    assert "nowhere" in browser.messages.problem
    with pytest.raises(InvalidEntityAddressError):
        browser.choose("//")
    browser.close()


def test_a_message_is_sent_and_another_is_made_of_one(namespace: Namespace, queue: str) -> None:
    browser = Browser(namespace, queue)
    click(browser, "Send a message…")
    assert browser.wait()
    assert not find(browser, "Copy the selected one").is_enabled, "no message is selected"
    browser.table.select([("browsed", browser.table.messages[1].sequence_number)])
    click(browser, "Copy the selected one")
    assert browser.form.texts["subject"].value == "even"
    click(browser, "Show what will be sent")
    confirm(browser, "Send 1 message to browsed.")
    click(browser, "Close the form")
    assert "Show what will be sent" not in names(browser)
    click(browser, "Peek")
    assert browser.wait()
    assert len(browser.table.messages) == 8
    browser.close()
    namespace.delete_queue(queue)
