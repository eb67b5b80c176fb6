"""Take the pictures of the documentation: the panels in JupyterLab, in light and dark.

Look at each before you commit it: ``make pictures`` writes them to ``docs/images``.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Locator, ViewportSize, expect

from tests.browser.conftest import Lab, Notebook, chromium, run_notebook, running_lab

__all__ = ["main"]

ROOT: Final = Path(__file__).resolve().parents[1]
IMAGES: Final = ROOT / "docs" / "images"
TUTORIAL: Final = ROOT / "notebooks" / "02_triage.ipynb"
THEME: Final = "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })"
FADE: Final = 1_000  # milliseconds in which the colours of a theme change
PATIENCE: Final = 180_000
FOLD: Final = "() => window.jupyterapp.commands.execute('application:toggle-left-area')"
TALL: Final[ViewportSize] = {
    "width": 1280,
    "height": 2600,
}  # so that nothing is scrolled, and no part sticks to an edge

EMULATOR: Final = """\
import json, random, time
from sbnotebook import Message, connect
from sbnotebook.emulator import running
from sbnotebook.emulator.clock import ManualClock, SystemClock
random.seed(7)
def started(**entities):
    global server, clock, namespace
    clock = ManualClock(int(time.time() * 1000) - 46 * 3_600_000)
    server = running(clock=clock, **entities)
    emulator = server.__enter__()
    namespace = connect(emulator.connection_string)
    return emulator
"""
DEAD: Final = (
    EMULATOR
    + """\
CAUSES = {
    "PriceMissing": ("order", 185, 28, 5,
        '''System.InvalidOperationException: Order 4711 has no price for article "A-17"
   at System.Linq.ThrowHelper.ThrowNoMatchException()
   at Acme.Orders.Pricing.FindAsync(Article article) in /src/Pricing.cs:line 61
   at Azure.Messaging.ServiceBus.ReceiverManager.OnMessageHandler(EventArgs args)'''),
    "CarrierUnavailable": ("shipment", 92, 12, 2,
        "POST https://carriers.example.org/v2/labels returned 503 Service Unavailable after 3 attempts"),
    "InvalidAddress": ("shipment", 67, 23, 14, "The postal code '00000' does not exist in country DE"),
    "MaxDeliveryCountExceeded": ("invoice", 42, 38, 3, "Message could not be consumed after 10 delivery attempts."),
    "TTLExpiredException": ("notice", 34, 23, 14, "The message expired and was dead lettered."),
}
emulator = started(queues=["orders"])
queue = namespace.entity("orders")
def letter(reason, number):
    carrier = {"code": "??", "name": "Jos\\u00e9 & Fr\\u00e8res"}
    country = random.choice(["DE", "FR", "AT"])
    body = {"order": 4_000 + number, "carrier": carrier, "country": country, "total": number / 8}
    back = {"ResubmitCount": 1} if reason == "PriceMissing" and number % 13 == 0 else {}
    return Message(
        message_id=f"{reason}-{number}", body=json.dumps(body).encode(), subject=CAUSES[reason][0],
        content_type="application/json", application_properties=back)
hours = sorted(
    (min(45, max(0, random.gauss(at, width))), reason)
    for reason, (_, count, at, width, _) in CAUSES.items() for _ in range(count))
past = 0
for number, (hour, reason) in enumerate(hours):
    clock.advance((hour - past) * 3600)
    past = hour
    queue.send(letter(reason, number), show_progress=False)
emulator.use_clock(SystemClock())
with queue.lock(len(hours)) as batch:
    held = list(batch.messages)
    for reason, (*_, text) in CAUSES.items():
        own = [each for each in held if each.message_id.startswith(reason)]
        batch.dead_letter(own, reason=reason, description=text)
"""
)
SHOWN: Final = """\
from sbnotebook.widgets.triage import Triage
Triage(namespace, "orders/$dlq")"""
BROWSED: Final = (
    EMULATOR
    + """\
emulator = started(queues=["bookings", "orders", "refunds"], topics={"flights": ["audit", "billing"], "telemetry": []})
emulator.use_clock(SystemClock())
def order(number):
    carrier = random.choice(["UA", "DL", "AA", "B6"])
    body = {"order": number, "carrier": carrier, "flight": 1_500 + number % 90, "total": number / 8}
    return Message(
        message_id=f"order-{number}", body=json.dumps(body).encode(), subject=carrier,
        content_type="application/json", application_properties={"attempt": 1})
orders = namespace.entity("orders")
orders.send((order(1_000 + n) for n in range(400)), show_progress=False)
with orders.lock(25) as batch:
    batch.dead_letter(reason="Invalid", description="The flight is unknown.")
orders.schedule([order(2_000 + n) for n in range(6)], delay="2h")
namespace.entity("bookings").send((order(n) for n in range(12)), show_progress=False)
namespace.entity("flights").send((order(n) for n in range(40)), show_progress=False)
"""
)
MONITORED: Final = """\
import threading
def traffic():
    while True:  # until the kernel ends
        for name, arrive, leave in (("orders", 20, 26), ("bookings", 5, 5)):
            entity = namespace.entity(name)
            entity.send([order(n) for n in range(random.randint(0, arrive))], show_progress=False)
            with entity.lock(random.randint(1, leave)) as batch:
                batch.dead_letter(batch.messages[:name == "orders"], reason="Invalid")
                batch.complete(batch.messages[1:])
        time.sleep(0.3)
from sbnotebook.widgets.monitor import Monitor
monitor = Monitor(namespace, ["orders", "bookings"], every=0.5)
threading.Thread(target=traffic, daemon=True).start()
monitor"""
HELD: Final = """\
from sbnotebook.widgets.lock_board import LockBoard
LockBoard(namespace, orders.lock(12))"""

Take = Callable[[Notebook, Locator], Locator]


def main() -> None:
    """Take all pictures, or those whose names are given."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
        chromium() as browser,
        running_lab(Path(home)) as lab,
    ):
        for take in (_triage, _browser, _tutorial):
            if not sys.argv[1:] or take.__name__.strip("_") in sys.argv[1:]:
                take(browser, lab)


def _opened(browser: Browser, lab: Lab, cells: list[str]) -> tuple[Notebook, Locator]:
    notebook = run_notebook(browser, lab, cells, patience=PATIENCE)
    notebook.page.set_viewport_size(TALL)
    notebook.page.evaluate(FOLD)
    return notebook, notebook.page.locator(".jp-OutputArea-output .sbn-panel").first


def _keep(notebook: Notebook, name: str, target: Locator, *, is_dark_too: bool = True) -> None:
    for theme in ("light", "dark") if is_dark_too else ("light",):
        notebook.page.evaluate(THEME, f"JupyterLab {theme.capitalize()}")
        notebook.page.mouse.move(5, 5)
        notebook.page.wait_for_timeout(FADE)
        target.screenshot(path=IMAGES / (f"{name}-{theme}.png" if is_dark_too else f"{name}.png"))
    notebook.page.evaluate(THEME, "JupyterLab Light")


def _triage(browser: Browser, lab: Lab) -> None:
    notebook, panel = _opened(browser, lab, [DEAD, SHOWN])
    expect(panel.get_by_text("420 messages, peeked at")).to_be_visible()
    cause = panel.get_by_role("listitem").filter(has_text="CarrierUnavailable")
    cause.get_by_role("button", name="Note").click()
    notebook.page.keyboard.type("carrier was down until 09:00, see INC-4711")
    notebook.page.keyboard.press("Enter")
    cause.locator(".sbn-cause-main").click()
    cause.get_by_role("button", name="Select 92").click()
    _keep(notebook, "table", panel.locator(".sbn-table"))
    cause.get_by_role("button", name="Resubmit…").click()
    panel.get_by_label("Delay").fill("5m")
    panel.get_by_role("button", name="Show the plan").click()
    expect(panel.get_by_role("button", name="Carry out")).to_be_visible()
    panel.get_by_text("The first 5 of 92 messages").click()
    _keep(notebook, "triage", panel)
    panel.get_by_role("button", name="Not now").click()
    panel.get_by_role("button", name="Edit and resubmit…").click()
    panel.get_by_label("Change", exact=True).select_option("Set in JSON body")
    panel.get_by_placeholder("path, such as").fill("$.carrier.code")
    panel.get_by_placeholder("value: JSON, or a text").fill("UA")
    panel.get_by_role("button", name="Try it").click()
    expect(panel.get_by_text("Message 1 of 92")).to_be_visible()
    _keep(notebook, "edit-form", panel.locator(".sbn-form"))
    panel.get_by_role("button", name="Show the plan").click()
    expect(panel.get_by_role("button", name="Carry out")).to_be_visible()
    _keep(notebook, "action-panel", panel.locator(".sbn-actions"))
    panel.get_by_role("button", name="Show all").click()
    panel.get_by_role("button", name="Example").first.click()
    expect(panel.locator(".sbn-detail-fault")).to_be_visible()
    _keep(notebook, "detail", panel.locator(".sbn-detail-view"))
    notebook.close()


def _browser(browser: Browser, lab: Lab) -> None:
    show = "from sbnotebook.widgets.entity_browser import Browser\nBrowser(namespace, 'orders')"
    notebook, panel = _opened(browser, lab, [BROWSED, show, HELD, MONITORED])
    panel.get_by_role("gridcell", name="26", exact=True).click()
    expect(panel.locator(".sbn-detail-head")).to_contain_text("Message")
    _keep(notebook, "browser", panel)
    panels = notebook.page.locator(".jp-OutputArea-output .sbn-panel")
    board = panels.filter(has_text="Held in orders").first
    for number in (2, 6, 10):
        board.get_by_role("row").nth(number + 1).locator(".sbn-check").click()
    board.get_by_role("button", name="Dead-letter…").click()
    board.get_by_label("Reason").fill("Unknown carrier")
    board.get_by_label("Description").fill("We load no flights of this carrier")
    board.get_by_role("button", name="Show the plan").click()
    expect(board.get_by_role("button", name="Carry out")).to_be_visible()
    _keep(notebook, "lock-board", board)
    notebook.page.wait_for_timeout(30_000)  # of traffic
    _keep(notebook, "monitor", panels.filter(has_text="every (s)").first)
    notebook.close()


def _tutorial(browser: Browser, lab: Lab) -> None:
    cells = [cell for cell in json.loads(TUTORIAL.read_text())["cells"] if cell["cell_type"] == "code"]
    end = next(place for place, cell in enumerate(cells) if "picture" in cell["metadata"])
    notebook, panel = _opened(browser, lab, ["".join(cell["source"]) for cell in cells[: end + 1]])
    panel.get_by_role("listitem").first.get_by_role("button", name="Select").click()
    _keep(notebook, "tutorial-triage", panel, is_dark_too=False)
    notebook.close()


if __name__ == "__main__":
    main()
