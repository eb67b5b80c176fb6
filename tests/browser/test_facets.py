"""Facets, timeline and causes around the message table, by mouse and by keyboard."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import CONTROL, DETECTOR, Notebook, Run, assert_nothing_ran

HOSTILE = """<img src="data:," onerror="detected('image')">"""
# 300 messages, one a minute from 08:00 on: three subjects, each in a row; three reasons, in turn; 50 sessions, in turn.
CELLS = [
    f"""\
from datetime import UTC, datetime, timedelta
from IPython.display import HTML
from sbnotebook import EntityAddress, PeekedMessage
from sbnotebook.widgets.table.message_table import MessageTable
REASONS = [("Invalid", "Flight {{}} has no tail number"), ("Late", "Flight {{}} is late"), ({HOSTILE!r}, {HOSTILE!r})]
def dead(number):
    reason, description = REASONS[number % 3]
    carrier = ["UA", "none", "another"][number // 100]
    return PeekedMessage(
        entity=EntityAddress.parse("flights/$dlq"), sequence_number=number + 1, message_id=f"m-{{number}}",
        subject=["UA", None, {HOSTILE!r}][number // 100], session_id=f"s-{{number % 50}}",
        enqueued_time=datetime(2026, 11, 20, 8, tzinfo=UTC) + timedelta(minutes=number),
        application_properties={{
            "DeadLetterReason": reason,
            **({{"ResubmitCount": number // 2 + 1}} if number in (1, 4) else {{}}),
            "DeadLetterErrorDescription": f"{{description.format(1000 + number)}} for {{carrier}}"}})
table = MessageTable([dead(number) for number in range(300)], timeline=True, causes=True)
notes = []
table.on_note(lambda fingerprint, text: notes.append((fingerprint, text)))
table""",
    f"HTML({CONTROL!r})",
]
SELECTED = "[len(table.selected_keys), table.hidden]"


def facet(page: Page, name: str) -> Locator:
    return page.get_by_role("group", name=name, exact=True)


def shows(page: Page, text: str) -> None:
    expect(page.locator(".sbn-counts")).to_contain_text(text)


def bars(page: Page) -> Locator:
    return page.get_by_role("group", name="Messages over time").get_by_role("button")


def clear_all(page: Page) -> None:
    """Clear all facets, and wait until they are drawn: others move up where a button goes."""
    page.get_by_role("button", name="Clear all").click()
    expect(page.get_by_role("button", name="Clear all")).to_be_hidden()


@pytest.mark.browser
def test_facets_timeline_and_causes_filter_the_table(run: Run) -> None:
    notebook = run(CELLS, DETECTOR)
    page = notebook.page
    shows(page, "300 shown")
    # The timeline and the causes move the facets when they are drawn, under the pointer, too.
    expect(bars(page)).to_have_count(30)
    expect(page.get_by_role("region", name="Causes")).to_contain_text("9 causes")
    _facets(page)
    _facets_that_open(page)
    _timeline(page)
    _causes(notebook)
    _changes(notebook)
    assert_nothing_ran(notebook)
    assert notebook.largest < 1_000_000


def _facets(page: Page) -> None:
    subjects = facet(page, "subject")
    expect(subjects.get_by_role("listitem")).to_have_text(["(none)100", f"{HOSTILE}100", "UA100"])
    subjects.get_by_label("UA").check()
    shows(page, "100 of 300 shown")
    expect(facet(page, "reason").get_by_role("listitem")).to_have_text(["Invalid34", f"{HOSTILE}33", "Late33"])
    # Its own filter does not change its counts, and the keyboard continues from the selected box.
    expect(subjects.get_by_role("listitem")).to_have_text(["(none)100", f"{HOSTILE}100", "UA100"])
    expect(subjects.get_by_label("UA")).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    expect(subjects.get_by_label("(none)")).to_be_checked()
    shows(page, "200 of 300 shown")
    # Another order moves the box: a click meanwhile would miss.
    expect(facet(page, "reason").get_by_role("listitem")).to_have_text(["Invalid67", "Late67", f"{HOSTILE}66"])
    facet(page, "reason").get_by_label("Late").check()
    expect(subjects.get_by_role("listitem")).to_have_text(["(none)34", f"{HOSTILE}33", "UA33"])
    shows(page, "67 of 300 shown")
    page.get_by_role("button", name="Clear subject").click()
    shows(page, "100 of 300 shown")
    clear_all(page)
    shows(page, "300 shown")


def _facets_that_open(page: Page) -> None:
    sessions = facet(page, "session id")
    expect(sessions.get_by_role("listitem")).to_have_count(6)
    page.get_by_role("button", name="44 more…").click()
    expect(sessions.get_by_role("listitem")).to_have_count(50)
    expect(page.get_by_label("Find in session id")).to_be_focused()
    page.keyboard.type("S-4")
    expect(sessions.get_by_role("listitem")).to_have_count(11)
    sessions.get_by_label("s-42").check()
    shows(page, "6 of 300 shown")
    page.get_by_role("button", name="Show fewer").click()
    expect(sessions.get_by_label("s-42")).to_be_checked()
    expect(sessions.get_by_role("listitem")).to_have_count(7)
    clear_all(page)


def _timeline(page: Page) -> None:
    expect(bars(page)).to_have_count(30)
    expect(page.locator(".sbn-timeline-view")).to_contain_text("each bar 10 minutes, the highest 10 messages")
    facet(page, "subject").get_by_label("UA").check()
    expect(page.locator(".sbn-causes-head strong")).to_have_text("3 of 9 causes")
    expect(bars(page).first).to_have_accessible_name("2026-11-20 08:00 to 08:10: 10 messages")
    expect(bars(page).nth(20)).to_have_accessible_name("2026-11-20 11:20 to 11:30: 0 of 10 messages")
    bars(page).first.click()
    shows(page, "10 of 300 shown")
    expect(bars(page).first).to_have_attribute("aria-pressed", "true")
    # Shift and an arrow key take the next bars, too; Escape takes them all away.
    bars(page).first.focus()
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    shows(page, "30 of 300 shown")
    expect(page.locator(".sbn-timeline-view")).to_contain_text("Shown: 2026-11-20 08:00 to 08:30")
    page.keyboard.press("Escape")
    shows(page, "100 of 300 shown")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    shows(page, "0 of 300 shown")
    page.get_by_role("button", name="Clear the range of times").click()
    shows(page, "100 of 300 shown")
    # All that is above the facets moves them when it is drawn: a click meanwhile would miss.
    expect(page.get_by_role("button", name="Clear the range of times")).to_be_hidden()
    expect(page.locator(".sbn-causes-head strong")).to_have_text("3 of 9 causes")
    clear_all(page)
    shows(page, "300 shown")
    box = page.get_by_role("group", name="Messages over time").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.51, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.99, box["y"] + 20)
    page.mouse.up()
    shows(page, "150 of 300 shown")
    page.get_by_role("button", name="Clear the range of times").click()


def _causes(notebook: Notebook) -> None:
    page = notebook.page
    causes = page.get_by_role("region", name="Causes").get_by_role("listitem")
    expect(page.get_by_role("region", name="Causes")).to_contain_text("9 causes")
    expect(causes).to_have_count(6)
    expect(causes.first).to_contain_text("2026-11-20 11:20")
    page.get_by_role("button", name="3 more causes…").click()
    expect(causes).to_have_count(9)
    late = causes.filter(has_text="Late").filter(has_text="for UA")
    expect(late).to_contain_text("Flight <n> is late")
    expect(late.locator(".sbn-cause-state")).to_have_text("resubmitted 2026-11-20 08:04, 2 came back, up to 3 times")
    reason = page.get_by_role("columnheader", name="reason")
    expect(reason).to_be_visible()
    late.locator(".sbn-cause-main").click()
    shows(page, "33 of 300 shown")
    # All messages of the cause have one reason, which the list of causes shows; their descriptions differ.
    expect(reason).to_have_count(0)
    expect(page.get_by_role("columnheader", name="description")).to_be_visible()
    expect(page.locator(".sbn-causes-head strong")).to_have_text("9 causes")
    expect(facet(page, "subject").get_by_role("listitem")).to_have_text(["UA33"])
    causes.filter(has_text="Invalid").filter(has_text="for UA").locator(".sbn-cause-main").click(modifiers=["Control"])
    shows(page, "67 of 300 shown")
    expect(reason).to_be_visible()
    # The selection has the cause's messages that pass the other filters.
    bars(page).first.click()
    late.get_by_role("button", name="Select 3", exact=True).click()
    shows(page, "7 of 300 shown, 3 selected")
    notebook.comes_to(SELECTED, [3, 0])
    page.get_by_role("button", name="Clear filters").click()
    late.get_by_role("button", name="Select 33").click()
    shows(page, "33 selected")
    notebook.comes_to(SELECTED, [33, 0])
    late.get_by_role("button", name="Example").click()
    expect(page.locator(".sbn-detail-view")).to_contain_text("Message 2 of flights/$dlq")
    late.get_by_role("button", name="Example").click()
    expect(page.locator(".sbn-detail-view")).to_contain_text("Message 5 of flights/$dlq")
    late.get_by_role("button", name="Note").click()
    page.keyboard.type(f"winter {HOSTILE}")
    page.keyboard.press("Enter")
    expect(late.locator(".sbn-cause-note")).to_have_text(f"winter {HOSTILE}")
    notebook.comes_to("notes and notes[-1][1]", f"winter {HOSTILE}")
    notebook.kernel("table.set_notes({notes[-1][0]: 'known since Friday'}, {})")
    expect(late.locator(".sbn-cause-note")).to_have_text("known since Friday")
    # By keyboard: down the list, and one of them.
    causes.first.locator(".sbn-cause-main").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(causes.nth(1).locator(".sbn-cause-main")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".sbn-cause-main[aria-pressed=true]")).to_have_count(2)
    page.get_by_role("button", name="Show all").click()
    shows(page, "300 shown")


def _changes(notebook: Notebook) -> None:
    page = notebook.page
    notebook.kernel("table.patch({('flights/$dlq', n): {'outcome': 'settled'} for n in range(1, 21)})")
    expect(facet(page, "outcome").get_by_role("listitem")).to_have_text(["(none)280", "settled20"])
    facet(page, "outcome").get_by_label("settled").check()
    shows(page, "20 of 300 shown")
    notebook.kernel("table.remove([('flights/$dlq', n) for n in range(1, 101)])")
    shows(page, "0 of 200 shown")
    expect(facet(page, "outcome").get_by_role("listitem")).to_have_text(["(none)200", "settled0"])
    clear_all(page)
    expect(facet(page, "subject").get_by_role("listitem")).to_have_text(["(none)100", f"{HOSTILE}100"])
    expect(page.get_by_role("region", name="Causes").get_by_role("listitem")).to_have_count(6)
    expect(bars(page)).to_have_count(40)
    # Nothing is said of the causes of rows that have just come.
    page.evaluate("""() => {
        const { store } = document.querySelector(".sbn-table");
        store.addEventListener("rows", ({ detail }) => (window.known ??= [detail.kind, store.causes.size]));
    }""")
    notebook.kernel("table.show([dead(number) for number in range(30)])")
    expect(page.get_by_role("region", name="Causes")).to_contain_text("3 causes")
    assert page.evaluate("() => window.known") == ["replaced", 0]
    notebook.kernel("table.show([])")
    expect(bars(page)).to_have_count(0)
    expect(facet(page, "subject")).to_have_count(0)
    expect(page.get_by_role("region", name="Causes")).to_be_hidden()
