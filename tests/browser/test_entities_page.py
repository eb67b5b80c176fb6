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
