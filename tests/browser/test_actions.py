"""Acting on messages in JupyterLab: selected, repaired, planned, carried out, paused, reported and undone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import RUN_TIMEOUT, Lab, run_notebook, write

# Jupyter would render text between two dollar signs as a formula.
HOSTILE = """<img src=data:, onerror=detected('image')> $x^2$ and $y$"""
CONTROL = """<img src=data:, onerror=detected('control')>"""
DETECTOR = "window.found = []; window.detected = (what) => window.found.push(what)"
CELLS = [
    f"""\
import json
from IPython.display import HTML, display
import sbnotebook
from sbnotebook.model import Message
from sbnotebook.widgets.action_panel import ActionPanel
from sbnotebook.widgets.forms.edit_form import EditForm
from sbnotebook.widgets.table.message_table import MessageTable
from sbnotebook.widgets.forms.message_actions import ResubmitForm
namespace = sbnotebook.connect("emulator")
namespace.create_queue("orders")
queue = namespace.entity("orders")
body = json.dumps({{"carrier": {{"code": "??", "name": {HOSTILE!r}}}, "flight": 1545}}).encode()
queue.send([Message(message_id=f"m{{n}}", body=body, subject={HOSTILE!r}) for n in range(300)], batch_size=300)
table = MessageTable(queue.peek(), facets=())
form, how = EditForm(lambda: table.selected), ResubmitForm(queue.address)
panel = ActionPanel(namespace, table=table)""",
    "display(table, form, how, panel)",
    f"HTML({CONTROL!r})",
]
PROPOSE = """\
proposal = how.proposal(queue, form.edit)
panel.propose(
    lambda: proposal.make(table.selected), hidden=3, title="Repair", rate=proposal.limits.rate
)"""


def click(page: Page, name: str) -> None:
    page.get_by_role("button", name=name).last.click()


def repair(page: Page) -> None:
    """Describe a change by the form, see what it does, and say how fast it is to be."""
    page.get_by_role("button", name="Select 300 shown").click()
    click(page, "Add a change")
    page.get_by_label("Change", exact=True).select_option("Set in JSON body")
    write(page.get_by_placeholder("path, such as"), "$.carrier.code")
    write(page.get_by_placeholder("value: JSON, or a text"), "UA")
    click(page, "Try it")
    changes = page.locator(".sbn-prose").first
    expect(changes.locator(".sbn-prose-added")).to_have_text('+  "code": "UA",', timeout=RUN_TIMEOUT)
    expect(page.get_by_text("Message 1 of 300, number 1")).to_be_visible()
    expect(changes).to_contain_text("$x^2$ and $y$")
    rate = page.get_by_label("Rate, a second")
    write(rate, "many")
    rate.press("Tab")
    expect(page.get_by_text("Write a number above 0")).to_be_visible(timeout=RUN_TIMEOUT)
    write(rate, "10")  # for half a minute, so that there is time to pause
    rate.press("Tab")
    expect(page.get_by_text("Write a number above 0")).to_be_hidden(timeout=RUN_TIMEOUT)


@pytest.mark.browser
def test_action_panel_repairs_messages(browser: Browser, lab: Lab) -> None:
    notebook = run_notebook(browser, lab, CELLS, DETECTOR)
    page = notebook.page
    prose = page.locator(".sbn-acting .sbn-prose").first
    expect(prose).to_contain_text("Nothing is planned", timeout=RUN_TIMEOUT)

    repair(page)
    notebook.kernel(PROPOSE)
    expect(prose).to_contain_text("Resubmit 300 messages of orders to orders, edited.", timeout=RUN_TIMEOUT)
    expect(prose).to_contain_text("3 of them are hidden by the filter")
    expect(page.get_by_role("button", name="Carry out")).not_to_be_focused()
    page.get_by_role("button", name="Carry out").dblclick()
    settled = page.get_by_role("gridcell", name="settled", exact=True)
    expect(settled.first).to_be_visible(timeout=RUN_TIMEOUT)
    click(page, "Pause")
    expect(page.get_by_text("Paused. Locks are renewed.")).to_be_visible(timeout=RUN_TIMEOUT)
    expect(settled.first).to_be_visible()
    click(page, "Continue")
    expect(page.get_by_text("Paused.")).to_be_hidden(timeout=RUN_TIMEOUT)
    click(page, "Cancel")
    expect(prose).to_contain_text("Resubmit was cancelled", timeout=RUN_TIMEOUT)
    expect(prose).to_contain_text("Skipped messages are unchanged, and you can choose them again.")
    expect(settled).to_have_count(0, timeout=RUN_TIMEOUT)  # their rows have left, as they have

    notebook.kernel("how.rate.value = ''\n" + PROPOSE)
    click(page, "Carry out")
    expect(prose).to_contain_text(re.compile(r"(\d+) of \1 messages of orders settled\."), timeout=RUN_TIMEOUT)
    bodies = "sorted(m.body_text[13:25] for m in queue.peek())"
    assert notebook.kernel(f'print({bodies} == [\'"code": "UA"\'] * 300)') == "True"
    left = notebook.kernel("print(panel.report.settled)")

    click(page, "Restore the originals (duplicates)")
    expect(prose).to_contain_text(f"Restore the originals of {left} messages", timeout=RUN_TIMEOUT)
    click(page, "Carry out")
    expect(prose).to_contain_text("Undo is done", timeout=RUN_TIMEOUT)
    assert notebook.kernel("print(len(queue.peek()))") == str(300 + int(left))

    page.wait_for_function("() => window.found.length > 0", timeout=RUN_TIMEOUT)
    assert page.evaluate("() => window.found") == ["control"], "the control shows that the detector works"
    assert page.locator(".jp-OutputArea-output mjx-container, .jp-OutputArea-output .MathJax").count() == 0
    assert (notebook.external, notebook.errors) == ([], [])
