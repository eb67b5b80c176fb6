"""The list of causes beside the table: it reaches all causes, and keeps still under the pointer."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import SAVE, Notebook, Run

CELLS = [
    """\
import json
from sbnotebook import EntityAddress, PeekedMessage
from sbnotebook.widgets.table.message_table import MessageTable
words = [f"reason{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(260)]
def dead(number, word):
    return PeekedMessage(
        entity=EntityAddress.parse("flights/$dlq"), sequence_number=number,
        body=json.dumps({"carrier": {"code": ["UA", "DL", "AA"][number % 3]}, "number": number}).encode(),
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
CHOOSE_AND_SCROLL = """(region) => {
    const list = region.querySelector("ul");
    list.children[250].querySelector("button").click();
    list.scrollTop = list.scrollHeight;
    const isLong = list.scrollTop > 0;
    list.scrollTop = 0;
    return isLong;
}"""
FILTERS = "(count) => document.querySelector('.sbn-table').store.filters.size === count"
CODES = """() => {
    const { store } = document.querySelector(".sbn-table");
    return [...store.shown].map((row) => store.value(row, "body_json.carrier.code"));
}"""


@pytest.mark.browser
def test_all_causes_can_be_reached_and_found(run: Run) -> None:
    notebook = run(CELLS)
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
    _list_stays_under_the_pointer(region)

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
    _an_example(notebook, region)
    _a_note_is_written_while_rows_come(notebook, region)
    _filters_outlive_a_reload(page)
    _chosen_cause_stays_in_its_list(notebook, region)
    assert (notebook.external, notebook.errors) == ([], [])


def _list_stays_under_the_pointer(region: Locator) -> None:
    """The user scrolls on before the choice is drawn; a list that moved then would move under the next click."""
    region.get_by_role("list").hover()
    assert region.evaluate(CHOOSE_AND_SCROLL)
    chosen = region.locator(".sbn-cause-main[aria-pressed=true]")
    expect(chosen).to_have_count(1)
    chosen.page.wait_for_timeout(300)  # until the list is drawn
    assert region.get_by_role("list").evaluate("(list) => list.scrollTop") == 0
    region.get_by_role("button", name="Show all").click()
    expect(chosen).to_have_count(0)


def _an_example(notebook: Notebook, region: Locator) -> None:
    """The message opens below the causes, in sight, and its values filter the table."""
    page = notebook.page
    page.set_viewport_size({"width": 1440, "height": 900})
    example = region.get_by_role("button", name="Example").first
    example.click()
    message = page.locator(".sbn-detail-view")
    expect(message).to_be_in_viewport(ratio=0.99)
    expect(example).to_be_in_viewport()
    expect(page.locator(".sbn-causes + .sbn-detail")).to_be_visible()
    message.get_by_role("button", name="Show the messages with the same carrier.code only").click()
    expect(message.locator(".sbn-detail-said")).to_have_text("Filtered by carrier.code.")
    values = page.get_by_role("group", name="carrier.code", exact=True).get_by_role("listitem")
    expect(values).to_have_count(3)
    chosen = page.get_by_role("group", name="carrier.code", exact=True).get_by_role("checkbox", checked=True)
    expect(chosen).to_have_count(1)
    codes = page.evaluate(CODES)
    assert codes == [codes[0]] * int(
        notebook.kernel(f"print(sum('{codes[0]}' in m.body_text for m in table.messages))")
    )
    page.keyboard.press("ArrowDown")
    expect(message.get_by_role("button", name="Show the messages with the same number only")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".sbn-counts")).to_contain_text("1 of 266 shown")
    page.keyboard.press("Escape")
    expect(message).to_be_hidden()
    expect(example).to_be_focused()
    # By the keyboard: a click may miss a button or a row that moves, because the message above it has gone.
    page.get_by_role("button", name="Clear filters").press("Enter")
    expect(page.locator(".sbn-counts")).not_to_contain_text("1 of 266 shown")
    page.get_by_role("grid").press("Enter")
    expect(page.locator(".sbn-main + .sbn-detail")).to_be_visible()
    expect(message).to_be_in_viewport(ratio=0.5)


def _a_note_is_written_while_rows_come(notebook: Notebook, region: Locator) -> None:
    """Its field keeps the focus while its cause has no rows, and while the causes of other rows are not known yet."""
    keyboard, counts = notebook.page.keyboard, notebook.page.locator(".sbn-counts")
    cause = region.get_by_role("listitem").first
    cause.get_by_role("button", name="Note").click()
    field = region.get_by_label("Note on")
    keyboard.type("see ")
    notebook.kernel("before = list(table.messages); table.show([])")
    expect(region).not_to_contain_text("260 causes")
    keyboard.type("INC-")
    notebook.kernel("table.show([dead(900, 'reasonother')])")
    expect(region).to_contain_text("1 cause")
    keyboard.type("47")
    notebook.kernel("table.show(before)")
    expect(counts).to_contain_text("266 shown")
    expect(region).to_contain_text("260 causes")
    expect(field).to_be_focused()
    keyboard.type("11")
    keyboard.press("Enter")
    expect(region.get_by_text("see INC-4711")).to_be_visible()


def _filters_outlive_a_reload(page: Page) -> None:
    region = page.get_by_role("region", name="Causes")
    region.get_by_placeholder("Find in causes").fill("reasonab")
    expect(region.get_by_role("listitem")).to_have_count(1)
    region.locator(".sbn-cause-main").click()
    page.get_by_role("group", name="carrier.code", exact=True).get_by_label("UA").check()
    page.get_by_role("button", name="Column filters").click()
    page.get_by_label("Filter sequence").fill("1..100")
    page.get_by_placeholder("Search all columns").fill("reasona")
    page.wait_for_function(FILTERS, arg=4)
    counts = page.locator(".sbn-counts")
    expect(counts).to_contain_text("1 of 266 shown")
    page.evaluate(SAVE)
    page.wait_for_timeout(600)  # until the kernel has the filters
    page.reload()
    expect(counts).to_contain_text("1 of 266 shown")
    assert page.evaluate(FILTERS, 4)
    expect(page.get_by_placeholder("Search all columns")).to_have_value("reasona")
    page.get_by_role("button", name="Column filters").click()
    expect(page.get_by_label("Filter sequence")).to_have_value("1..100")
    expect(page.locator(".sbn-cause-main[aria-pressed=true]")).to_contain_text("reasonab")
    page.get_by_role("button", name="Clear filters").click()
    expect(counts).not_to_contain_text("1 of 266 shown")


def _chosen_cause_stays_in_its_list(notebook: Notebook, region: Locator) -> None:
    """A refresh moves the chosen cause down, and the list scrolls to it."""
    page = notebook.page
    page.set_viewport_size({"width": 1024, "height": 768})
    region.get_by_placeholder("Find in causes").fill("")
    region.locator(".sbn-cause-main").first.click()
    chosen = region.get_by_role("listitem").filter(has=page.locator("[aria-pressed=true]"))
    expect(chosen).to_have_count(1)  # which need not be the first by now
    word = "reason" + (chosen.text_content() or "").partition("reason")[2][:2]
    notebook.page.mouse.move(5, 5)
    page.evaluate("() => document.activeElement.blur()")
    more = "[dead(1_000 + 9 * n + m, other) for n, other in enumerate(words[100:105]) for m in range(9)]"
    notebook.kernel(f"table.show([*table.messages, *{more}])")
    cause = region.get_by_role("listitem").filter(has_text=word)
    expect(page.locator(".sbn-counts")).to_contain_text("of 311 shown")
    expect(cause.locator(".sbn-cause-main[aria-pressed=true]")).to_have_count(1)
    page.wait_for_timeout(300)  # until the list is drawn
    box, list_box = cause.bounding_box(), region.get_by_role("list").bounding_box()
    assert box
    assert list_box
    assert box["y"] + box["height"] <= list_box["y"] + list_box["height"] + 1
    notebook.kernel("table.patch({('flights/$dlq', 1000 + n): {'outcome': 'settled'} for n in range(9)})")
    outcome = page.locator(".sbn-name[data-column=outcome]")
    expect(outcome).to_be_visible()
    notebook.kernel("table.remove([('flights/$dlq', 1000 + n) for n in range(9)])")
    expect(outcome).to_have_count(0)
