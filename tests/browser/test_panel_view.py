"""A panel as one anywidget, in a page that has the models of its widgets, and no views of ipywidgets.

The page keeps the interface of anywidget's hosts, https://anywidget.dev/en/afm/, as marimo does. ``make check-marimo``
drives the same panel in marimo itself.
"""

from __future__ import annotations

import base64
import json
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import comm
import pytest
from comm.base_comm import BaseComm
from playwright.sync_api import expect

from sbnotebook import RejectMessage, Triage, connect
from sbnotebook.emulator import running
from sbnotebook.widgets import panel as panels
from sbnotebook.widgets.front_end import module, style
from tests.browser.conftest import RUN_TIMEOUT
from tests.filled_queues import filled_client_queue

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

    from sbnotebook import LockedMessage

HOST: Final = "http://panel.test"
PAGE: Final = """<!doctype html><meta charset="utf-8"><div id="panel"></div><script type="module">
const models = new Map();
const known = (id) => {
  if (!models.has(id)) {
    const found = { state: {}, listeners: {} };
    found.ready = new Promise((resolve) => (found.open = resolve));
    models.set(id, found);
  }
  return models.get(id);
};
const bytes = (text) => new DataView(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
const text = (buffer) => btoa(Array.from(new Uint8Array(buffer), (byte) => String.fromCharCode(byte)).join(""));
const emit = ({ listeners }, type, ...details) => (listeners[type] ?? []).forEach((listen) => listen(...details));
const update = (found, state) => {
  const names = Object.keys(state).filter((name) => JSON.stringify(found.state[name]) !== JSON.stringify(state[name]));
  Object.assign(found.state, state);
  for (const name of names) emit(found, `change:${name}`, state[name]);
};
const modelOf = (id, found) => ({
  get: (name) => found.state[name],
  set: (name, value) => {
    update(found, { [name]: value });
    (found.changed ??= {})[name] = value;
  },
  save_changes: () => {
    toKernel(id, { method: "update", state: found.changed, buffer_paths: [] }, []);
    found.changed = {};
  },
  send: (content, _, buffers = []) => toKernel(id, { method: "custom", content }, buffers.map(text)),
  on: (type, listen) => (found.listeners[type] ??= []).push(listen),
  off: (type, listen) => (found.listeners[type] = found.listeners[type].filter((each) => each !== listen)),
  widget_manager: { get_model: async (id) => (await known(id).ready, modelOf(id, known(id))) },
});
const host = {
  async getWidget(reference) {
    const id = reference.replace("anywidget:", "");
    const found = known(id);
    await found.ready;
    add(found.state._css);
    const address = URL.createObjectURL(new Blob([found.state._esm], { type: "text/javascript" }));
    const { default: made } = await import(address);
    const widget = typeof made === "function" ? made() : made;
    const model = modelOf(id, found);
    await widget.initialize?.({ model });
    return { render: ({ el, signal }) => widget.render({ model, el, signal }) };
  },
};
window.take = (messages) => {
  for (const [id, { method, state, content }, buffers] of messages) {
    const found = known(id);
    if (method === "custom") emit(found, "msg:custom", content, buffers.map(bytes));
    else if (state) update(found, state);
    if (method === "open") found.open();
  }
};
const root = document.querySelector("#panel").attachShadow({ mode: "open" });
const add = (text) => root.append(Object.assign(document.createElement("style"), { textContent: text }));
const place = document.createElement("div");
root.append(place);
window.words = () => place.innerText;
window.names = () => [...place.querySelectorAll("button")].map(({ textContent }) => textContent);
window.show = async (id) => {
  const { default: view } = await import("/panel.js");
  await known(id).ready;
  add(`STYLE`);
  const model = modelOf(id, known(id));
  view.initialize({ model });
  view.render({ model, el: place, host });
};
</script>"""


class Comms:
    """The comms of widgets, whose other end is a page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.open: dict[str, Any] = {}
        self.new: SimpleQueue[tuple[str, dict[str, Any], list[str]]] = SimpleQueue()
        self.told: list[tuple[str, object]] = []

    def make(self, **options: Any) -> BaseComm:
        """Make the comm of a widget."""
        comms = self

        class PageComm(BaseComm):
            def publish_msg(self, msg_type: str, data: Any = None, *_: Any, **named: Any) -> None:
                buffers = named.get("buffers")
                sent = data | {"method": "open"} if msg_type == "comm_open" else data
                texts = [base64.b64encode(each).decode() for each in buffers or ()]
                comms.new.put((self.comm_id, sent or {}, texts))

        made = PageComm(**options)
        self.open[made.comm_id] = made
        return made

    def receive(self, number: str, data: dict[str, Any], buffers: list[str]) -> None:
        """Hand a message of the page to its widget."""
        self.told.append((number, data.get("content")))
        message = {"content": {"data": data}, "buffers": [memoryview(base64.b64decode(each)) for each in buffers]}
        self.open[number].handle_msg(message)

    def deliver(self) -> None:
        """Hand what widgets sent to the page."""
        messages: list[object] = []
        while True:
            try:
                messages.append(self.new.get_nowait())
            except Empty:
                break
        self.page.evaluate("(messages) => take(messages)", json.loads(json.dumps(messages, default=str)))

    def until(self, condition: str) -> None:
        """Deliver messages until something holds in the page."""
        deadline = monotonic() + RUN_TIMEOUT / 1000
        self.deliver()
        while not self.page.evaluate(condition):
            assert monotonic() < deadline, condition
            self.deliver()


def opened(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> tuple[Comms, list[str]]:
    page = browser.new_page(viewport={"width": 1200, "height": 1400})
    comms, errors = Comms(page), list[str]()

    def serve(route: Route) -> None:
        if route.request.url == f"{HOST}/panel.js":
            route.fulfill(body=module(*panels.SCRIPTS), content_type="text/javascript")
        else:
            route.fulfill(body=PAGE.replace("STYLE", style("parts.css", "panel_view.css")), content_type="text/html")

    page.on("pageerror", lambda error: errors.append(str(error)))
    page.route(f"{HOST}/**", serve)
    untyped: Any = page
    untyped.expose_function("toKernel", comms.receive)
    page.goto(f"{HOST}/")
    monkeypatch.setattr(comm, "create_comm", comms.make)
    return comms, errors


def reject(message: LockedMessage) -> None:
    raise RejectMessage("Unknown carrier", f"Order {message.message_id} names the carrier 'XY'")


def has(text: str) -> str:
    return f"() => words().includes({json.dumps(text)})"


def is_at(comms: Comms, selector: str) -> None:
    """The keyboard focus comes to an element."""
    comms.until(f"() => document.activeElement.shadowRoot?.activeElement?.matches({json.dumps(selector)})")


@pytest.mark.browser
def test_triage_as_one_anywidget_resubmits_a_cause(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    comms, errors = opened(browser, monkeypatch)
    page = comms.page
    with running() as emulator, connect(emulator.connection_string) as namespace:
        orders = filled_client_queue(namespace, "orders", 5)
        orders.process(reject, show_progress=False)
        triage = Triage(namespace, "orders/$dlq")
        triage.record.join(triage)
        page.evaluate("(id) => { show(id); }", triage.model_id)
        comms.until("() => names().includes('Select 5')")
        assert (triage.model_id, {"kind": "ready"}) in comms.told, (
            "otherwise the kernel shows plain widgets after a time"
        )

        page.get_by_role("button", name="Select 5", exact=True).click()
        comms.until(has("5 messages are selected."))
        assert len(triage.table.selected_keys) == 5
        bar = page.locator(".sbn-selection")
        expect(bar.locator("button > svg > path")).to_have_count(len(triage.bar.buttons))
        bar.get_by_role("button", name="Resubmit…", exact=True).click()
        comms.until(has("Rate, a second"))
        is_at(comms, ".sbn-form input")
        page.get_by_label("Rate, a second").fill("many")
        page.get_by_role("button", name="Show the plan").click()
        comms.until(has("Write a number above 0"))
        page.get_by_label("Rate, a second").fill("200")
        page.get_by_role("button", name="Show the plan").click()
        comms.until(has("Carry out"))
        is_at(comms, ".sbn-acting .sbn-prose")
        assert triage.actions.wait()
        expect(page.get_by_role("button", name="Carry out")).to_be_enabled()
        page.get_by_role("button", name="Carry out").click()
        comms.until(has("5 of 5 messages of orders/$dlq settled."))
        is_at(comms, ".sbn-acting .sbn-prose")
        comms.until(has("Nothing is dead-lettered here"))
        assert len(orders.peek(show_progress=False)) == 5

        # A page that marimo exports has the last state of all parts, and no kernel.
        record = page.locator(".sbn-record")
        expect(record).to_be_hidden()
        page.evaluate("(id) => { window.__MARIMO_STATIC__ = {}; show(id); }", triage.model_id)
        comms.until("() => !words().includes('Refresh')")
        expect(record.get_by_text("5 of 5 messages of orders/$dlq settled.")).to_be_visible()
        triage.close()
    assert errors == []
