from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import InvalidEntityAddressError
from sbnotebook.model import Message
from sbnotebook.settlement import Connection, Journal
from sbnotebook.widgets import entity_messages
from sbnotebook.widgets.entity_browser import Browser
from tests.widgets.conftest import named, parts, until


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
    return [name for name, _ in browser.messages.bar.sessions.options]


def see(browser: Browser, view: str) -> list[str | None]:
    browser.messages.bar.views.value = view
    assert browser.wait()
    return ids(browser)


def confirm(browser: Browser, words: str) -> None:
    """Carry out the plan that says this."""
    until(lambda: words in repr(browser.actions), words)
    carry_out: Any = browser.actions._carry_out  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001 (its button)
    carry_out.click()
    until(lambda: not browser.actions.busy and browser.actions.report)


def test_browser_shows_all_dead_letters_and_hides_them(namespace: Namespace, queue: str) -> None:
    browser = Browser(namespace)
    view = browser.dead_letters
    view.switch.click()
    assert view.wait()
    assert view.letters is not None
    assert f"{queue}/$dlq" in {str(each.address) for each in view.letters}
    assert f"{queue}/$dlq" in view.table.value
    assert (view.problem.value, view.switch.description) == ("", "Hide dead letters")
    view.switch.click()
    assert (view.table.value, view.switch.description) == ("", "All dead letters")
    browser.close()


def test_looking_by_state_expression_and_page(namespace: Namespace, queue: str) -> None:
    browser = Browser(namespace, queue)
    bar = browser.messages.bar
    assert browser.wait()
    assert ids(browser) == ["m1", "m2", "m3", "m4", "m5", "m6", "later"]
    assert "That is the end" in bar.status.value
    assert see(browser, "Active") == ["m2", "m3", "m4", "m5", "m6"]
    assert see(browser, "Scheduled") == ["later"]
    assert see(browser, "Deferred") == ["m1"]

    bar.where.value = "nothing = 1"
    assert browser.wait()
    assert "nothing" in bar.problem.value
    bar.where.value = "subject = 'even'"
    assert see(browser, "All") == ["m2", "m4", "m6"]
    bar.where.value = ""
    assert browser.wait()

    bar.count.value = 3
    bar.peek.click()
    assert browser.wait()
    assert ids(browser) == ["m1", "m2", "m3"]
    assert "peek onward" in bar.status.value
    bar.onward.click()
    assert browser.wait()
    assert ids(browser) == ["m1", "m2", "m3", "m4", "m5", "m6"]
    bar.first.value = "x"
    bar.peek.click()
    assert "From # is a sequence number" in bar.problem.value

    bar.views.value = "Dead letters"
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
    assert "1 of 1 deferred message" in browser.messages.bar.status.value
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
    carry_out: Any = browser.actions._carry_out  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001 (its button)
    until(lambda: carry_out in parts(browser.actions))  # the buttons come after the words
    see(browser, "Active")
    assert "The form of this plan was closed" in repr(browser.actions)
    assert carry_out not in parts(browser.actions)
    browser.close()
    namespace.delete_queue(queue)


def test_what_somebody_else_has_deferred_is_an_orphan(
    namespace: Namespace, shared_emulator: RunningEmulator, tmp_path: Path, queue: str
) -> None:
    target = Target(Connection(shared_emulator.connection_string), "a test")
    with Namespace(target, journal=Journal(tmp_path / "other.sqlite")) as other, other.entity(queue).lock(1) as batch:
        batch.defer().raise_for_failures()
    browser = Browser(namespace, queue)
    assert see(browser, "Deferred") == ["m1", "m2"]
    assert "2 of 2 deferred messages; 1 of them is an orphan" in browser.messages.bar.status.value
    browser.messages.bar.where.value = "message_id = 'm2'"
    assert browser.wait()
    assert ids(browser) == ["m2"]
    browser.close()
    namespace.delete_queue(queue)


def act(browser: Browser, name: str) -> None:
    """Click an action on the selected messages, and the button of its form."""
    (selection,) = browser.messages._selected.children  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
    selection.buttons[name].click()
    named(selection, "Show the plan").click()


def test_sessions_are_listed_and_looked_into(namespace: Namespace) -> None:
    namespace.create_queue("in-sessions", requires_session=True)
    messages = [Message(body=b"x", message_id=f"m{n}", session_id="ab"[n % 2]) for n in range(4)]
    namespace.entity("in-sessions").send(messages).raise_for_failures()
    browser = Browser(namespace, "in-sessions")
    assert see(browser, "Sessions") == []
    assert sessions_of(browser) == ["a · 2 messages", "b · 2 messages"]
    browser.messages.bar.sessions.index = 1
    assert browser.wait()
    assert ids(browser) == ["m1", "m3"]
    browser.close()
    namespace.delete_queue("in-sessions")


def test_sessions_are_counted_sorted_and_found(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace.create_queue("carts", requires_session=True)
    carts = ["cart-10", "cart-10", "cart-9", *(f"other-{n}" for n in range(5)), "\u202e"]
    namespace.entity("carts").send(Message(session_id=each) for each in carts).raise_for_failures()
    browser = Browser(namespace, "carts")
    bar = browser.messages.bar
    assert see(browser, "Sessions") == []
    assert sessions_of(browser)[:3] == ["cart-9 · 1 message", "cart-10 · 2 messages", "other-0 · 1 message"]
    assert sessions_of(browser)[-1] == "⟨U+202E⟩ · 1 message"
    bar.find.value = "CART"
    assert sessions_of(browser) == ["cart-9 · 1 message", "cart-10 · 2 messages"]
    bar.sessions.index = 1
    assert browser.wait()
    assert {message.session_id for message in browser.table.messages} == {"cart-10"}
    bar.find.value = "other-3"
    assert sessions_of(browser) == ["cart-10 · 2 messages", "other-3 · 1 message"], "the chosen one stays"
    assert bar.session == "cart-10"
    monkeypatch.setattr(entity_messages, "_COUNTED", 3)
    browser.close()
    browser = Browser(namespace, "carts")
    see(browser, "Sessions")
    assert "cart-10 · at least 2 messages" in sessions_of(browser)
    assert browser.messages.bar.status.value.endswith("The counts are of the first 3 messages.")
    browser.close()
    namespace.delete_queue("carts")


def test_topics_entities_that_are_not_there_and_no_entity(namespace: Namespace) -> None:
    browser = Browser(namespace)
    assert "events" in browser.to_text()
    browser.tree.chosen = "events"
    assert browser.messages.layout.display == "none"
    assert browser.form.to.value == "events"
    browser.choose("events/subscriptions/audit")
    assert browser.wait()
    assert "There are no messages here" in repr(browser)
    assert "Scheduled" not in browser.messages.bar.views.options
    at_first = Browser(namespace, "events")
    until(lambda: at_first.messages.layout.display == "none")
    at_first.close()
    browser.choose("nowhere")
    assert browser.wait()
    assert "nowhere" in browser.messages.bar.problem.value
    with pytest.raises(InvalidEntityAddressError):
        browser.choose("//")
    browser.close()


def test_a_message_is_sent_and_another_is_made_of_one(namespace: Namespace, queue: str) -> None:
    browser = Browser(namespace, queue)
    browser.sending.click()
    assert browser.wait()
    browser.template.click()
    assert "Select one message in the table first." in [getattr(part, "value", "") for part in parts(browser)]
    browser.table.select([("browsed", browser.table.messages[1].sequence_number)])
    browser.template.click()
    assert browser.form.texts["subject"].value == "even"
    browser.form.submit.click()
    confirm(browser, "Send 1 message to browsed.")
    browser.sending.click()
    assert browser.form.layout.display == "none"
    browser.messages.bar.peek.click()
    assert browser.wait()
    assert len(browser.table.messages) == 8
    browser.close()
    namespace.delete_queue(queue)
