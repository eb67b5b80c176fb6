"""The list of causes beside the table in JupyterLab: it reaches all causes, and keeps still under the pointer."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Lab, run_notebook

CELLS = [
    """\
from sbnotebook import EntityAddress, PeekedMessage
from sbnotebook.widgets.table.message_table import MessageTable
words = [f"reason{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(260)]
def dead(number, word):
    return PeekedMessage(
        entity=EntityAddress.parse("flights/$dlq"), sequence_number=number,
        application_properties={"DeadLetterReason": word})
table = MessageTable([dead(n + 1, words[n]) for n in range(260)] + [dead(300, words[7])], causes=True)
table""",
]
# As it is while the kernel has not examined the first two rows.
UNREAD = """() => {
    const { store } = document.querySelector(".sbn-table");
    store.column("cause")[0] = store.column("cause")[1] = "";
    store.tell("causes");
}"""


@pytest.mark.browser
def test_all_causes_can_be_reached_and_found(browser: Browser, lab: Lab) -> None:
    notebook = run_notebook(browser, lab, CELLS)
    page = notebook.page
    region = page.get_by_role("region", name="Causes")
    causes = region.get_by_role("listitem")
    expect(region).to_contain_text("260 causes")
    expect(causes).to_have_count(6)
    expect(causes.first).to_contain_text("reasonha")
    for listed, rest in ((100, 160), (200, 60), (260, 0)):
        region.get_by_role("button", name="more causes…").click()
        expect(causes).to_have_count(listed)
        expect(region.get_by_role("button", name=f"{rest} more causes…")).to_have_count(int(rest > 0))
    expect(region).not_to_contain_text("All other messages")

    region.get_by_placeholder("Find in causes").fill("SONZJ")
    expect(causes).to_have_count(1)
    expect(causes.first).to_contain_text("reasonzj")
    causes.first.locator(".sbn-cause-main").click()
    expect(page.locator(".sbn-counts")).to_contain_text("1 of 261 shown")
    region.get_by_placeholder("Find in causes").fill("")
    expect(causes).to_have_count(260)
    region.get_by_role("button", name="Show fewer").click()
    expect(causes).to_have_count(7)  # and the chosen one
    region.get_by_role("button", name="Show all").click()
    expect(causes).to_have_count(6)

    first = causes.first
    first.hover()
    notebook.kernel("table.append([dead(400 + n, words[250]) for n in range(5)])")
    expect(page.locator(".sbn-counts")).to_contain_text("266 shown")
    expect(region.get_by_text("Reading")).to_be_hidden()
    expect(first).to_contain_text("reasonha")
    page.mouse.move(5, 5)
    expect(first).to_contain_text(notebook.kernel("print(words[250])"))

    page.evaluate(UNREAD)
    expect(region).to_contain_text("Reading 2 more messages…")
    assert (notebook.external, notebook.errors) == ([], [])
