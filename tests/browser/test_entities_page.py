"""The emulator's page: the entities as a tree, with counts that follow what happens."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from sbnotebook.emulator import running

COLUMNS = ("active", "locked", "deferred", "scheduled", "dead_letter")


def counts(page: Page, name: str) -> dict[str, str]:
    """The counts in the row of an entity."""
    row = page.locator("tbody tr").filter(has=page.get_by_role("rowheader", name=name))
    return {column: row.locator(f"td[data-column={column}]").inner_text() for column in COLUMNS}


@pytest.mark.browser
def test_counts_follow_what_happens_without_loading_anew(browser: Browser) -> None:
    said: list[str] = []

    def note(message: ConsoleMessage) -> None:
        said.append(message.text)

    page = browser.new_page()
    page.on("console", note)
    page.on("pageerror", lambda error: said.append(str(error)))
    with (
        running(queues=["orders"], topics={"events": ["audit", "mail"]}) as emulator,
        ServiceBusClient.from_connection_string(emulator.connection_string) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
        client.get_topic_sender("events") as topic,
    ):
        page.goto(emulator.http_url)
        expect(page.locator("tbody th")).to_have_text(["ordersqueue", "eventstopic", "audit1 rule", "mail1 rule"])
        expect(page.locator("#state")).to_have_text("live")
        page.evaluate("() => { window.isSamePage = true; }")
        sender.send_messages([ServiceBusMessage("x") for _ in range(5)])
        topic.send_messages(ServiceBusMessage("y"))
        first, second, _ = receiver.receive_messages(3, max_wait_time=5)
        receiver.dead_letter_message(first)
        receiver.defer_message(second)
        expect(page.locator("td.dead")).to_have_text("1")
        assert counts(page, "orders") == dict(zip(COLUMNS, ("3", "1", "1", "0", "1"), strict=True))
        assert counts(page, "audit")["active"] == "1"
        emulator.delete("orders")
        expect(page.locator("tbody tr")).to_have_count(3)
        assert page.evaluate("() => window.isSamePage")
        assert said == []
    expect(page.locator("#state")).to_have_text("the emulator does not answer")
    page.close()


@pytest.mark.browser
def test_messages_of_an_entity_are_shown_as_text(browser: Browser) -> None:
    page = browser.new_page()
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    hostile = "<img src=x onerror=alert(1)>"
    with (
        running(queues=["orders"]) as emulator,
        ServiceBusClient.from_connection_string(emulator.connection_string) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        sender.send_messages([ServiceBusMessage(f"{hostile}{number}", subject=hostile) for number in range(60)])
        receiver.dead_letter_message(receiver.receive_messages(1, max_wait_time=5)[0])
        page.goto(emulator.http_url)
        page.get_by_role("button", name="orders").click()
        rows = page.locator("#messages tbody tr")
        expect(rows).to_have_count(50)
        expect(rows.first.locator("td").nth(0)).to_have_text("2")
        expect(rows.first.locator("td.body")).to_have_text(f"{hostile}1")
        page.get_by_role("button", name="Next").click()
        expect(rows).to_have_count(9)
        page.get_by_role("button", name="Dead letters", exact=True).click()
        expect(rows).to_have_count(1)
        expect(rows.locator("td.body")).to_have_text(f"{hostile}0")
        assert page.locator("#messages img").count() == 0
        page.get_by_role("button", name="Close").click()
        expect(page.locator("#messages")).to_be_hidden()
        assert emulator.counts("orders").locked == 0
    page.close()
