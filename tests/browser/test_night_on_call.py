"""A night on call in JupyterLab, as a person does it: from the cause to the record, with its clicks and keys counted.

``make night`` runs it in two sizes of the window, light and dark, and keeps a picture of each step. The mouse scrolls
before it clicks an element that is out of sight, as a hand does, which is counted.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import SAVE, Lab, Notebook, run_notebook
from tests.browser.test_accessibility import PANELS, TOO_WIDE

BROKEN = r"""() => [...document.querySelectorAll('.sbn-values td')].filter((cell) => {
    const words = document.createRange();
    words.selectNodeContents(cell);
    return /^\S{1,30}$/.test(cell.textContent) && words.getClientRects().length > 1;
}).map((cell) => cell.textContent)"""
ALL = os.environ.get("SBNOTEBOOK_NIGHT")
NIGHTS: Final = [("light", 1440, 900), ("dark", 1440, 900), ("light", 1024, 768), ("dark", 1024, 768)]
NOTCH = 100  # pixels that a notch of the wheel scrolls
MOST_NOTCHES = 60
MOST_TABS = 40
CELLS = [
    "%load_ext sbnotebook\n%sb_connect {emulator.connection_string} --into namespace",
    """\
import json
from sbnotebook import Message
FRAMES = {
    "PriceMissing": '''System.InvalidOperationException: Order %d has no price for article "A-%d"
   at System.Linq.ThrowHelper.ThrowNoMatchException()
   at Acme.Orders.Pricing.PriceList.FindAsync(Article article) in /src/Pricing/PriceList.cs:line 61
   at Acme.Orders.OrderHandler.HandleAsync(Order order) in /src/OrderHandler.cs:line 118
   at Azure.Messaging.ServiceBus.ReceiverManager.OnMessageHandler(EventArgs args)''',
    "CarrierUnavailable": '''org.acme.CarrierException: POST https://carriers.example.org/labels/%d returned 503
\\tat org.springframework.web.client.RestTemplate.doExecute(RestTemplate.java:881)
\\tat org.acme.shipping.LabelClient.order(LabelClient.java:%d)
\\tat java.base/java.lang.Thread.run(Thread.java:1583)''',
    "InvalidAddress": '''Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/worker/loop.py", line 88, in run
  File "/app/addresses.py", line 41, in checked
ValueError: order %d: the postal code '%d' does not exist in country DE''',
    "MaxDeliveryCountExceeded": "Message %d could not be consumed after %d delivery attempts.",
    "StockNegative": "The stock of article %d would be -%d.",
    "DuplicateInvoice": "Invoice %d exists already, written %d seconds ago.",
}
COUNTS = dict(zip(FRAMES, (240, 150, 90, 60, 40, 20)))
def order(n):
    customer = {"name": "Jos\\u00e9 M\\u00fcller", "country": ["DE", "FR", "AT"][n % 3]}
    body = json.dumps({"order": n, "customer": customer, "total": n / 8}).encode()
    return Message(message_id=f"order-{n}", body=body, subject="order", content_type="application/json")
namespace.create_queue("orders")
queue = namespace.entity("orders")
queue.send((order(n) for n in range(sum(COUNTS.values()))), show_progress=False)
with queue.lock(sum(COUNTS.values())) as batch:
    held, first = list(batch.messages), 0
    for reason, count in COUNTS.items():
        text = FRAMES[reason] % (first, 7)
        batch.dead_letter(held[first:first + count], reason=reason, description=text)
        first += count
def consume(refused):
    '''Consume all messages of the queue, and dead-letter the first ones for the reason of before.'''
    with queue.lock(None) as batch:
        held = list(batch.messages)
        batch.dead_letter(held[:refused], reason="PriceMissing", description=FRAMES["PriceMissing"] % (0, 7))
        batch.complete(held[refused:])
    print(len(held), refused)""",
    "%sb_triage orders/$dlq",
]
REACHED = """(element) => {
    const { left, top, width, height } = element.getBoundingClientRect();
    const hit = document.elementFromPoint(left + width / 2, top + height / 2);
    return element.contains(hit) || hit?.contains(element.closest("button") ?? element) === true;
}"""
CENTRE = "(element) => { const { top, height } = element.getBoundingClientRect(); return top + height / 2; }"
# A place in the list of causes, where it has to be scrolled down to the element.
IN_LIST = """(element) => {
    const list = element.closest(".sbn-causes-view ul");
    const [inner, outer] = [element, list ?? element].map((each) => each.getBoundingClientRect());
    return list && outer.top >= 0 && inner.bottom > outer.bottom ? [outer.left + 100, outer.top + 50] : null;
}"""
ACTIVE = "() => document.activeElement?.outerHTML.slice(0, 120)"
FOCUSED = "(element) => element === document.activeElement"


@dataclass
class Hand:
    """A hand on a mouse: it scrolls until an element is in sight, and clicks it."""

    page: Page
    folder: Path
    name: str
    clicks: int = 0
    scrolled: int = 0
    tabs: int = 0
    steps: list[tuple[str, int, int, int]] = field(default_factory=list[tuple[str, int, int, int]])

    def click(self, target: Locator) -> None:
        expect(target).to_be_visible()
        for _ in range(MOST_NOTCHES):
            if target.evaluate(REACHED):
                break
            size = self.page.viewport_size or {"height": 0}
            down = target.evaluate(CENTRE) > size["height"] / 2
            inner = target.evaluate(IN_LIST)
            self.page.mouse.move(*(inner or (self.margin, size["height"] / 2)))
            self.page.mouse.wheel(0, NOTCH if down or inner else -NOTCH)
            self.page.wait_for_timeout(60)
            self.scrolled += NOTCH
        target.click()
        self.clicks += 1

    @property
    def margin(self) -> float:
        """The place at the notebook's edge where the wheel scrolls the notebook and nothing else."""
        box = self.page.locator(".jp-NotebookPanel-notebook").bounding_box()
        assert box is not None
        return box["x"] + 12

    def tab_to(self, target: Locator) -> None:
        """Press Tab until an element has the focus."""
        passed: list[str] = []
        for _ in range(MOST_TABS):
            if target.evaluate(FOCUSED):
                return
            self.page.keyboard.press("Tab")
            self.tabs += 1
            passed.append(self.page.evaluate(ACTIVE))
        pytest.fail(f"{MOST_TABS} Tabs do not lead to {target}, but to {passed}.")

    def step(self, name: str) -> None:
        """End a step: keep a picture and the counts until now.

        No part of a panel may be wider than the page, and no short word of a plan's table may be broken.
        """
        self.page.wait_for_timeout(300)  # until all views have drawn
        assert self.page.evaluate(TOO_WIDE, PANELS) == [], name
        assert self.page.evaluate(BROKEN) == [], name
        self.steps.append((name, self.clicks, self.scrolled, self.tabs))
        self.page.screenshot(path=self.folder / f"{self.name}-{len(self.steps)}-{name.replace(' ', '-')}.png")


@pytest.mark.browser
@pytest.mark.parametrize(("theme", "width", "height"), NIGHTS if ALL else NIGHTS[:1])
def test_a_night_on_call(browser: Browser, lab: Lab, tmp_path: Path, theme: str, width: int, height: int) -> None:
    notebook = run_notebook(browser, lab, CELLS)
    page = notebook.page
    page.set_viewport_size({"width": width, "height": height})
    notebook.use_theme(theme)
    panel = page.locator(".jp-OutputArea-output .sbn-panel").filter(has_text="Triage of orders/$dlq").first
    expect(panel.get_by_text("600 messages, peeked at")).to_be_visible()
    expect(panel.get_by_text("6 causes")).to_be_visible()
    page.locator(".sbn-panel").first.evaluate("(panel) => panel.scrollIntoView()")
    folder = Path(ALL) if ALL else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    hand = Hand(page, folder, f"{width}-{theme}")
    _find(hand, panel)
    _first_ten(hand, panel, notebook)
    _rest(hand, panel, notebook)
    _undo(hand, panel, notebook)
    _by_keyboard(hand, panel)
    expect(page.locator(".sbn-panel")).to_have_count(1)  # by now, the kernel would have shown plain widgets instead
    _record(hand, notebook, browser, lab)
    (folder / f"{width}-{theme}.json").write_text(json.dumps(hand.steps, indent=1))
    assert (notebook.external, notebook.errors) == ([], [])


def cause_in(panel: Locator) -> Locator:
    return panel.get_by_role("region", name="Causes").get_by_role("listitem").filter(has_text="PriceMissing")


def _find(hand: Hand, panel: Locator) -> None:
    """See the largest cause, its messages, and one of them with its stack trace."""
    hand.step("opened")
    cause = cause_in(panel)
    hand.click(cause.locator(".sbn-cause-main"))
    expect(panel.locator(".sbn-counts")).to_contain_text("240 of 600 shown")
    hand.click(cause.get_by_role("button", name="Example"))
    expect(panel.locator(".sbn-detail-fault")).to_contain_text("PriceList.FindAsync")
    expect(panel.locator(".sbn-detail-fault")).to_be_in_viewport(ratio=0.9)
    expect(panel.get_by_text("José Müller").first).to_be_visible()
    hand.step("cause found")


def _carry_out(hand: Hand, panel: Locator, said: str, *, picture: str) -> None:
    hand.click(panel.get_by_role("button", name="Show the plan"))
    expect(panel.get_by_role("button", name="Carry out")).to_be_in_viewport()
    hand.step(picture)
    hand.click(panel.get_by_role("button", name="Carry out"))
    expect(panel.get_by_text(said)).to_be_in_viewport()


def _first_ten(hand: Hand, panel: Locator, notebook: Notebook) -> None:
    """Send ten messages back, and watch what becomes of them."""
    cause = cause_in(panel)
    before = hand.scrolled
    hand.click(cause.get_by_role("button", name="First 10"))
    hand.click(cause.get_by_role("button", name="Resubmit…"))
    assert hand.scrolled == before, "the way from the cause to its action needs no scrolling"
    expect(panel.locator(".sbn-form")).to_be_in_viewport()
    _carry_out(hand, panel, "Resubmitted 10 messages to orders.", picture="first planned")
    expect(cause_in(panel)).to_contain_text(re.compile(r"10 resubmitted [-\d]+ [:\d]+, none came back yet"))
    hand.step("first sent")
    assert notebook.kernel("consume(4)") == "10 4"
    hand.click(panel.get_by_role("button", name="Refresh"))
    expect(cause_in(panel)).to_contain_text("4 came back")
    hand.step("first watched")


def _rest(hand: Hand, panel: Locator, notebook: Notebook) -> None:
    """Send all others, of which some come back."""
    hand.click(cause_in(panel).get_by_role("button", name="Select 234"))
    hand.click(cause_in(panel).get_by_role("button", name="Resubmit…"))
    _carry_out(hand, panel, "Resubmitted 234 messages to orders.", picture="rest planned")
    hand.step("rest sent")
    assert notebook.kernel("consume(14)") == "234 14"
    hand.click(panel.get_by_role("button", name="Refresh"))
    expect(cause_in(panel)).to_contain_text("14 came back")
    hand.step("came back")


def _undo(hand: Hand, panel: Locator, notebook: Notebook) -> None:
    """Complete the wrong cause, and bring its messages back."""
    wrong = panel.get_by_role("region", name="Causes").get_by_role("listitem").filter(has_text="DuplicateInvoice")
    hand.click(panel.get_by_role("button", name="Show all"))
    hand.click(wrong.get_by_role("button", name="Select 20", exact=True))
    hand.click(panel.get_by_role("button", name="Complete…"))
    _carry_out(hand, panel, "Completed 20 messages of orders/$dlq.", picture="wrong cause planned")
    hand.click(panel.get_by_role("button", name="Undo"))
    expect(panel.get_by_role("button", name="Carry out")).to_be_in_viewport()
    hand.click(panel.get_by_role("button", name="Carry out"))
    expect(panel.get_by_text("Undo is done")).to_be_in_viewport()
    hand.step("undone")
    assert notebook.kernel("print(len(queue.peek(show_progress=False)))") == "20"


def _by_keyboard(hand: Hand, panel: Locator) -> None:
    """The way from a cause to its plan, by keys alone."""
    cause = panel.get_by_role("region", name="Causes").get_by_role("listitem").filter(has_text="StockNegative")
    cells = hand.page.locator(".jp-Cell").count()
    before = hand.tabs
    for part in (cause.locator(".sbn-cause-main"), panel.get_by_role("button", name="Refresh")):
        part.focus()
        for key in ("d", "d", "x"):
            hand.page.keyboard.press(key)
    assert hand.page.locator(".jp-Cell").count() == cells, "the keys of the notebook's commands do nothing here"
    cause.locator(".sbn-cause-main").focus()
    hand.tab_to(cause.get_by_role("button", name="Resubmit…"))
    assert hand.tabs - before <= 3, "the way from the cause to its action is short"
    hand.page.keyboard.press("Enter")
    expect(panel.locator(".sbn-form").locator("input, select").first).to_be_focused()
    plan = panel.get_by_role("button", name="Show the plan")
    expect(plan).to_be_visible()  # the form's parts are drawn one by one
    hand.tab_to(plan)
    hand.page.keyboard.press("Enter")
    expect(panel.get_by_text("Resubmit 40 messages of orders/$dlq to orders.")).to_be_in_viewport()
    hand.tab_to(panel.get_by_role("button", name="Carry out"))
    hand.step("by keyboard")


def _record(hand: Hand, notebook: Notebook, browser: Browser, lab: Lab) -> None:
    """The saved notebook names all actions, without a kernel."""
    hand.page.evaluate(SAVE)
    saved = json.loads((lab.folder / Path(notebook.page.url).name).read_text())
    outputs = [output for cell in saved["cells"] for output in cell.get("outputs", [])]
    (record,) = ["".join(output["data"]["text/html"]) for output in outputs if "sbn-record" in str(output.get("data"))]
    for said in ("Resubmitted 10 messages", "Resubmitted 234 messages", "Completed 20 messages", "Undo is done"):
        assert said in record
    page = browser.new_page(viewport=hand.page.viewport_size)
    page.set_content(record)
    page.screenshot(path=hand.folder / f"{hand.name}-{len(hand.steps) + 1}-record.png", full_page=True)
    page.close()
