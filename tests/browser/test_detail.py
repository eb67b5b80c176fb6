"""The detail pane: a message's body and properties, hostile ones above all, copied and downloaded."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import CONTROL, DETECTOR, Notebook, Run, assert_nothing_ran

HOSTILE = """<img src="data:," onerror="detected('image')"><script>detected('script')</script>"""
BLOCKS = """() => [...document.querySelectorAll('.sbn-detail-view pre > *')].every(
    ({ textContent }) => textContent.length <= 2000 && textContent.isWellFormed())"""
CELLS = [
    f"""\
import hashlib, json
from datetime import UTC, datetime
from IPython.display import HTML
from sbnotebook import EntityAddress, PeekedMessage
from sbnotebook.widgets.table.message_table import MessageTable
BODIES = [
    b'{{"carrier": "UA", "price": 1.10, "id": 12345678901234567890}}',
    {HOSTILE!r}.encode(),
    b"<order><carrier>UA</carrier></order>",
    bytes(range(256)) * 10_000,
    b"[" * 10_000 + b"]" * 10_000,
    "\\u05d0 a".encode() * 60_000,
    "\\U0001f600x".encode() * 30_000,
    "\\u202e\\x1b[31m evil".encode(),
    b"",
]
def peeked(number, body):
    return PeekedMessage(
        entity=EntityAddress.parse("flights/$dlq"), sequence_number=number, body=body, subject={HOSTILE!r},
        enqueued_time=datetime(2026, 11, 20, 8, tzinfo=UTC),
        application_properties={{"DeadLetterReason": {HOSTILE!r}, "attempt": 3, {HOSTILE!r}: "\\u202eevil"}})
table = MessageTable([peeked(number, body) for number, body in enumerate(BODIES, 1)], facets=())
table""",
    f"HTML({CONTROL!r})",
]


@pytest.mark.browser
def test_one_message_is_shown_copied_and_downloaded(run: Run, tmp_path: Path) -> None:
    notebook = run(CELLS, DETECTOR)
    page = notebook.page
    expect(page.locator(".sbn-counts")).to_have_text("9 shown")
    _by_keyboard(page)
    _body_of_many_megabytes(page)
    if page.evaluate(
        "() => !navigator.userAgent.includes('Firefox')"
    ):  # Playwright does not hear of downloads from the system's Firefox
        _downloaded(notebook, tmp_path)
    _hostile_bodies(page)
    _gone(notebook)
    assert_nothing_ran(notebook)
    assert notebook.largest < 1_100_000  # a part of a body, and what JupyterLab adds to it


def _shows(page: Page, number: int) -> None:
    expect(page.locator(".sbn-detail-head")).to_contain_text(f"Message {number} of flights/$dlq")


def _by_keyboard(page: Page) -> None:
    grid = page.get_by_role("grid")
    grid.focus()
    page.keyboard.press("Enter")
    _shows(page, 1)
    text = page.locator(".sbn-detail-view pre")
    expect(text).to_have_text('{\n  "carrier": "UA",\n  "price": 1.10,\n  "id": 12345678901234567890\n}')
    properties = page.locator(".sbn-detail-properties")
    expect(properties.locator("tr").filter(has_text="attempt")).to_have_text("attempt3int")
    expect(page.locator(".sbn-detail-fault")).to_have_text(f"reason {HOSTILE}")
    expect(properties.get_by_role("rowheader", name=HOSTILE)).to_be_visible()
    expect(properties).to_contain_text("⟨U+202E⟩evil")
    # The arrow keys go from message to message, and from tab to tab.
    page.keyboard.press("ArrowDown")
    _shows(page, 2)
    expect(text).to_have_text(HOSTILE)
    page.keyboard.press("ArrowDown")
    _shows(page, 3)
    expect(text).to_have_text("<order>\n  <carrier>UA</carrier>\n</order>")
    page.get_by_role("tab", name="XML").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(text).to_have_text("<order><carrier>UA</carrier></order>")
    page.get_by_role("button", name="Copy body").click()
    expect(page.locator(".sbn-detail-said")).to_have_text("Copied.")
    assert _pasted(page) == "<order><carrier>UA</carrier></order>"
    page.get_by_role("button", name="Copy body").focus()
    page.keyboard.press("Escape")
    expect(page.locator(".sbn-detail-view")).to_be_hidden()
    expect(grid).to_be_focused()


def _pasted(page: Page) -> str:
    """Paste into a field of its own, because not every browser lets a page read the clipboard."""
    page.evaluate("() => document.body.appendChild(document.createElement('textarea')).focus()")
    page.keyboard.press("Control+V")
    text = page.evaluate_handle("() => document.activeElement")
    pasted = text.evaluate("(field) => field.value")
    text.evaluate("(field) => field.remove()")
    return pasted


def _body_of_many_megabytes(page: Page) -> None:
    page.keyboard.press("Enter")
    _shows(page, 3)
    page.keyboard.press("ArrowDown")
    _shows(page, 4)
    expect(page.locator(".sbn-detail-view pre")).to_contain_text(r"\xff")  # Text was chosen before
    page.get_by_role("tab", name="Hex").click()
    expect(page.locator(".sbn-detail-view pre")).to_contain_text("00000010  10 11 12 13 14 15 16 17  18 19 1a 1b")
    expect(page.locator(".sbn-detail-body")).to_contain_text("This is its beginning only. Download has the whole body.")
    expect(page.get_by_role("button", name="Copy body")).to_be_disabled()


def _downloaded(notebook: Notebook, tmp_path: Path) -> None:
    page = notebook.page
    with page.expect_download() as download:
        page.get_by_role("button", name="Download body").click()
    assert download.value.suggested_filename == "flights-dlq-4.bin"
    download.value.save_as(tmp_path / "body")
    found = hashlib.sha256((tmp_path / "body").read_bytes()).hexdigest()
    assert found == notebook.kernel("print(hashlib.sha256(BODIES[3]).hexdigest())")


def _hostile_bodies(page: Page) -> None:
    text = page.locator(".sbn-detail-view pre")
    rows = page.get_by_role("grid").get_by_role("row")
    for number, begin, notes in (
        (5, "[\n  [\n    [", "This is its beginning only"),
        (6, "\u05d0 a" * 1_000, ""),
        (7, "\U0001f600x" * 30_000, ""),
        (8, "⟨U+202E⟩⟨ESC⟩[31m evil", ""),
        (9, "(empty)", ""),
    ):
        rows.filter(has=page.get_by_role("gridcell", name=str(number), exact=True)).click()
        _shows(page, number)
        page.locator(".sbn-tabs").get_by_role("tab").first.click()
        expect(text).to_contain_text(begin)
        expect(page.locator(".sbn-detail-body")).to_contain_text(notes)
        # What the browser lays out at once is short, and no character is cut in two.
        assert page.evaluate(BLOCKS)


def _gone(notebook: Notebook) -> None:
    page = notebook.page
    notebook.kernel("table.remove([('flights/$dlq', 9)])")
    expect(page.locator(".sbn-detail-view")).to_be_hidden()
