"""Accessibility of every panel, light and dark: axe-core's rules, and where the focus is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.conftest import Notebook, Run, faults, write

CELLS = [
    """\
from sbnotebook import Message
from sbnotebook.widgets.entity_browser import Browser
from sbnotebook.widgets.lock_board import LockBoard
from sbnotebook.widgets.monitor import Monitor
from sbnotebook.widgets.triage import Triage
namespace.create_queue("orders")
queue = namespace.entity("orders")
queue.send(Message(body=b'{"order": %d}' % n, subject="order") for n in range(30))
with queue.lock(30) as batch:
    held = list(batch.messages)
    batch.dead_letter(held[:12], reason="PriceMissing", description="no price")
    batch.dead_letter(held[12:20], reason="CarrierUnknown", description="the carrier is unknown")
triage, monitor = Triage(namespace, "orders/$dlq"), Monitor(namespace, ["orders"])
board, tree = LockBoard(namespace, queue.lock(3)), Browser(namespace, "orders")""",
    "display(triage)",
    "display(board)",
    "display(monitor)",
    "display(tree)",
]
# The panels are parts of a page that is not ours.
OPTIONS = {"resultTypes": ["violations"], "rules": {"region": {"enabled": False}}}
PANELS = ".jp-OutputArea-output .sbn-panel"
# The table of messages scrolls by itself.
TOO_WIDE = """(panels) => [...document.querySelectorAll(panels)]
    .flatMap((panel) => [panel, ...panel.querySelectorAll(
        '.sbn-panel, .sbn-table, .sbn-beside, .sbn-column, input, button')])
    .filter((part) => part.checkVisibility() && !part.closest('.sbn-grid'))
    .filter((part) => part.scrollWidth > part.clientWidth + 2 && !part.matches('input, button')
        || part.getBoundingClientRect().right > part.closest('.jp-OutputArea-output').getBoundingClientRect().right + 2)
    .map((part) => `${part.className} ${part.textContent.slice(0, 60)}: ${part.scrollWidth} in ${part.clientWidth}`)"""


def opened(notebook: Notebook) -> Locator:
    """Open all parts of the triage: a message, a form with a change, and a plan."""
    triage = notebook.page.locator(PANELS).filter(has_text="Triage of orders/$dlq")
    triage.get_by_role("button", name="Select 12", exact=True).click()
    triage.get_by_role("button", name="Example").first.click()
    triage.get_by_role("button", name="Edit and resubmit…").click()
    write(triage.get_by_placeholder("name of the property"), "carrier")
    triage.get_by_role("button", name="Try it").click()
    triage.get_by_role("button", name="Show the plan").click()
    expect(triage.get_by_role("button", name="Carry out")).to_be_visible()
    return triage


@pytest.mark.browser
def test_axe_finds_nothing_in_light_and_dark(run: Run, tmp_path: Path) -> None:
    notebook = run(CELLS)
    page = notebook.page
    expect(page.locator(PANELS).get_by_text("20 messages, peeked at")).to_be_visible()
    expect(page.get_by_role("region", name="orders").get_by_text("oldest").first).to_be_visible()
    found: dict[str, list[str]] = {}
    opened(notebook)
    for theme in ("light", "dark"):
        notebook.use_theme(theme)
        page.wait_for_timeout(300)  # the theme's colours fade in
        found[theme] = faults(page, PANELS, OPTIONS)
        page.screenshot(path=tmp_path / f"{theme}.png")
    page.evaluate("() => window.jupyterapp?.shell.collapseLeft()")
    for width in (640, 400):  # as 1280 by 1024 at 200 %, and as a narrow window beside another
        page.set_viewport_size({"width": width, "height": 512})
        page.wait_for_timeout(300)
        found[f"at {width} px"] = [*faults(page, PANELS, OPTIONS), *page.evaluate(TOO_WIDE, PANELS)]
        page.screenshot(path=tmp_path / f"{width}.png", full_page=True)
    assert not any(found.values()), json.dumps(found, indent=1)


# The user is on a button of a form before all of the form is drawn.
GO_ON = """(panel, name) => new MutationObserver((_, observer) => {
    const button = [...panel.querySelectorAll('button')].find((each) => each.textContent.trim() === name);
    if (!button?.checkVisibility()) return;
    button.focus();
    observer.disconnect();
}).observe(panel, { childList: true, subtree: true })"""


@pytest.mark.browser
def test_the_focus_moves_to_what_is_new(run: Run) -> None:
    notebook = run(CELLS[:2])
    triage = notebook.page.locator(PANELS).filter(has_text="Triage of orders/$dlq").first
    words = triage.locator(".sbn-words").first
    triage.get_by_role("button", name="Select 12", exact=True).click()

    def press(name: str, then: Locator, key: str = "Enter") -> None:
        button = triage.get_by_role("button", name=name)
        button.focus()
        button.press(key)
        expect(then).to_be_focused()

    complete = triage.get_by_role("button", name="Complete…")
    press("Complete…", triage.get_by_label("Lock at most"))
    press("Close", complete)
    press("Edit and resubmit…", triage.get_by_role("button", name="By a form"))
    press("Remove", triage.get_by_role("button", name="Add a change"))
    press("Complete…", triage.get_by_label("Lock at most"))
    press("Show the plan", words)
    expect(words).to_be_in_viewport()
    press("Not now", words)
    press("Show the plan", words)
    expect(words).to_contain_text("Complete 12 messages")
    press("Carry out", words, "Space")
    expect(words).to_contain_text("Complete is done")
    press("Done", words)
    triage.evaluate(GO_ON, "Add a change")
    triage.get_by_role("button", name="Edit and resubmit…").press("Enter")
    notebook.page.wait_for_timeout(500)  # more than the form needs to take the focus
    expect(triage.get_by_role("button", name="Add a change")).to_be_focused()
    notebook.page.locator("main, .jp-Notebook").last.click(position={"x": 5, "y": 5})
    notebook.kernel("triage.actions.propose(lambda: triage._entity.purge(show_progress=False))")
    expect(words).to_contain_text("Purge 8 messages")
    expect(words).not_to_be_focused()
