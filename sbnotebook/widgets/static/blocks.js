/**
 * Draws the blocks of a panel, and tells the kernel of clicks and values. All that a block says is shown as text.
 *
 * The kernel sends the whole tree once, and after that what differs. An element stays as long as its block is there, so that
 * the focus, the place in the page and a half-typed text stay.
 */

import { Chart } from "./chart.js";
import { copyText } from "./clipboard.js";
import { arrange, dropdown, made } from "./drawing.js";
import { drawButton, drawField } from "./fields.js";
import { FocusKeeper } from "./focus.js";
import { keepKeys } from "./focused.js";
import { drawTree } from "./tree.js";

const REFERENCE = "IPY_MODEL_";
const TOLD_AGAIN = [1_000, 5_000]; // milliseconds
const STILL_HERE = 30_000; // milliseconds
const MOST_SHORT = 26; // characters of a value that stays on one line: a timestamp, or MaxDeliveryCountExceeded
const FAILED = "This part of the panel cannot be shown: ";
const OLD = "This panel needs a newer front end, such as marimo 0.25: it cannot draw tables in panels.";
const SAVED = "__MARIMO_STATIC__"; // in a page that marimo has exported: it has no kernel, so the record takes the panel's place
const MARKS = { "-": "sbn-removed", "+": "sbn-added" };

/** The blocks of one panel by place, as the kernel has told them to this page. */
class Tree {
  constructor(model) {
    this.model = model;
    this.views = new Set();
    this.take(model.get("tree") ?? { turn: -1, nodes: {} });
    model.on("msg:custom", (message) => this.hear(message));
    this.ask(); // even where it is drawn at once: a kernel that does not hear it draws plain widgets instead
    for (const wait of TOLD_AGAIN) setTimeout(() => this.views.size || this.ask(), wait);
  }

  ask() {
    this.tell({ kind: "ready", turn: this.turn });
  }

  tell(message) {
    try {
      this.model.send(message);
    } catch {
      // The kernel has ended; the panel says so.
    }
  }

  take({ turn, nodes }) {
    this.turn = turn;
    this.nodes = new Map(Object.entries(nodes));
  }

  hear(message) {
    if (message.kind === "whole") {
      if (message.turn === this.turn) return;
      this.take(message);
      this.views.forEach((view) => view.draw([...this.nodes.keys()]));
    } else if (message.turn === this.turn + 1) {
      this.turn = message.turn;
      for (const place of message.gone) this.nodes.delete(place);
      for (const [place, values] of Object.entries(message.nodes)) this.nodes.set(place, changed(this.nodes.get(place), values));
      this.views.forEach((view) => view.draw(Object.keys(message.nodes)));
    } else if (message.turn > this.turn) this.ask();
  }
}

/** A node with changed values; of a long list there may be its new end only. */
function changed(node, values) {
  if (!node || "kind" in values) return values;
  const now = { ...node };
  for (const [name, value] of Object.entries(values)) {
    now[name] = value?.added ? [...node[name].slice(value.dropped), ...value.added] : value;
  }
  return now;
}

/** One place where a panel is shown. */
class PanelView {
  constructor(tree, host) {
    this.tree = tree;
    this.host = host;
    this.parts = new Map();
    this.after = [];
    this.end = new AbortController();
    this.root = made("div", { class: "sbn-panel" });
    keepKeys(this.root);
    const { model } = tree;
    const live = () => {
      this.root.classList.toggle("jupyter-widgets-disconnected", model.comm_live === false);
      if (model.comm_live === false) for (const each of this.root.querySelectorAll(".sbn-button:not(.sbn-table *), .sbn-field :is(input, select, textarea)")) each.disabled = true;
    };
    model.on("comm_live_update", live);
    this.end.signal.addEventListener("abort", () => model.off("comm_live_update", live));
    live();
    this.isPressed = false;
    this.waiting = new Set();
    this.holdStill();
  }

  /** Draw nothing between press and release: the fault of a field goes as a button is pressed, and would move the button away. */
  holdStill() {
    const { signal } = this.end;
    this.root.addEventListener("pointerdown", ({ button }) => (this.isPressed = button === 0), { signal });
    const release = () => setTimeout(() => {
      this.isPressed = false;
      if (this.waiting.size && !signal.aborted) this.draw([]);
    });
    for (const type of ["pointerup", "pointercancel", "contextmenu", "blur"]) addEventListener(type, release, { signal });
  }

  /** Draw all, where the root is in the page. */
  begin() {
    this.tree.views.add(this);
    this.draw([...this.tree.nodes.keys()]);
  }

  draw(changes) {
    const { nodes } = this.tree;
    for (const place of changes) this.waiting.add(place);
    if (this.isPressed) return;
    const places = [...this.waiting].filter((place) => nodes.has(place));
    this.waiting.clear();
    for (const place of places) {
      const node = nodes.get(place);
      if (!this.parts.has(place)) this.parts.set(place, KINDS[node.kind](this, place, node));
      this.parts.get(place).update?.(node);
    }
    for (const place of places) {
      const { inner } = this.parts.get(place);
      const children = nodes.get(place).children?.map((each) => this.parts.get(each).element);
      if (children) arrange(inner, children);
    }
    for (const [place, part] of this.parts) {
      if (nodes.has(place)) continue;
      part.end?.();
      this.parts.delete(place);
    }
    const top = this.parts.get("");
    if (top) arrange(this.root, [top.element]);
    for (const act of this.after.splice(0)) act();
  }

  /** Tell the kernel a click, or a value. */
  tell(place, value) {
    this.tree.tell({ kind: "act", place, value });
  }

  dispose() {
    this.end.abort();
    this.tree.views.delete(this);
    for (const part of this.parts.values()) part.end?.();
  }
}

// ------------------------------------------------------------ words

function drawTitle(_view, _place, { is_small: isSmall }) {
  const element = made(isSmall ? "h4" : "h3", { class: isSmall ? "sbn-subtitle" : "sbn-heading" });
  return { element, update: ({ text }) => (element.textContent = text) };
}

function drawText(view) {
  const element = made("p", { class: "sbn-text" });
  const update = ({ text, tone, is_strong: isStrong }) => {
    element.textContent = text;
    element.dataset.tone = tone;
    element.classList.toggle("sbn-strong", isStrong);
    // Screen readers announce errors at once, and the words of plans later.
    view.after.push(() => {
      if (tone === "error") element.setAttribute("role", "alert");
      else if (element.closest(".sbn-words")) element.setAttribute("role", "status");
    });
  };
  return { element, update };
}

/** A text to copy, with a line below it that says whether it was copied. */
function drawCode(view) {
  const code = made("pre", { class: "sbn-code", tabIndex: 0, "aria-label": "Code" });
  const said = made("p", { class: "sbn-text", role: "status", "data-tone": "quiet" });
  const element = made("div", {}, code, said);
  let copied = 0;
  const copy = async () => {
    const isCopied = await copyText(code.textContent, element);
    if (!isCopied) getSelection().selectAllChildren(code);
    said.textContent = isCopied ? "Copied." : "The browser does not let the page copy: the text is selected, copy it.";
  };
  const update = ({ text, copies }) => {
    code.textContent = text;
    if (copies > copied) view.after.push(copy);
    copied = copies;
  };
  return { element, update };
}

/** A table with a caption that opens and closes it. */
function drawTable() {
  const table = made("table", { class: "sbn-values" });
  // With the keyboard, only an element that has the focus can be scrolled.
  const scroll = made("div", { class: "sbn-scroll", tabindex: "0" }, table);
  const summary = made("summary", {});
  const details = made("details", { class: "sbn-details" }, summary);
  const element = made("div", {});
  let wasOpen = null;
  const update = ({ caption, columns, rows, is_open: isOpen }) => {
    const head = made("tr", {}, ...columns.map((name) => made("th", { scope: "col" }, name)));
    const lines = rows.map((row) => made("tr", {}, ...row.map((value) => (Array.isArray(value) ? changeCell(value) : valueCell(value)))));
    table.replaceChildren(made("thead", {}, head), made("tbody", {}, ...lines));
    summary.textContent = caption;
    if (isOpen !== wasOpen) details.open = wasOpen = isOpen;
    if (caption) details.append(scroll);
    arrange(element, [caption ? details : scroll]);
  };
  return { element, update };
}

function valueCell(value) {
  const text = String(value);
  const kind = text.length > MOST_SHORT ? "sbn-long" : "sbn-short";
  return made("td", { class: typeof value === "number" ? "sbn-figure" : kind }, text);
}

/** Lines that were removed, added, or stay, each with its mark. */
function changeCell(lines) {
  const line = ([mark, text]) =>
    made("div", { class: MARKS[mark] ?? "sbn-same" }, made("span", { class: "sbn-mark" }, mark), made("span", {}, text));
  return made("td", { class: "sbn-change" }, ...lines.map(line));
}

function drawChart() {
  const chart = new Chart();
  return { element: chart.root, update: (node) => chart.draw(node) };
}

function drawProgress() {
  const element = made("progress", { class: "sbn-progress", "aria-label": "Progress", max: 1 });
  return { element, update: ({ done }) => (element.value = done) };
}

// ------------------------------------------------------------ boxes

function drawRow() {
  const element = made("div", { class: "sbn-beside" });
  return { element, inner: element };
}

function drawColumn(view, _place, { look, name }) {
  const inner = made("div", { class: "sbn-column" });
  const element = name ? made("section", { "aria-label": name }, made("h4", { class: "sbn-subtitle", title: name }, name), inner) : inner;
  if (look) element.classList.add(`sbn-${look}`);
  if (look === "held") element.classList.add("sbn-selection");
  const part = { element, inner };
  let led = 0;
  let keeper;
  if (look === "words") {
    element.tabIndex = -1;
    view.after.push(() => (keeper ??= new FocusKeeper(element)));
    part.end = () => keeper?.dispose();
  }
  part.update = ({ forward, look: now }) => {
    if (look === "held" || look === "selection") element.classList.toggle("sbn-sticky", now === "held");
    if (forward > led) view.after.push(() => keeper?.forward());
    led = forward;
  };
  return part;
}

function drawMenu(_view, _place, { name }) {
  const inner = made("div", {});
  return { element: dropdown(`${name} ▾`, inner), inner };
}

/** A widget with a script of its own; the page adds its style where the element is, so it must be there first. */
function drawGrid(view, _place, { widget }) {
  const element = made("div", { class: "sbn-own" });
  const end = new AbortController();
  const { widget_manager: manager } = view.tree.model;
  const id = widget.slice(REFERENCE.length);
  const draw = async () => {
    if (manager?.create_view) {
      const drawn = await manager.create_view(await manager.get_model(id));
      if (end.signal.aborted) return drawn.remove();
      element.append(drawn.el);
      return end.signal.addEventListener("abort", () => drawn.remove());
    }
    if (!view.host?.getWidget) return element.append(OLD);
    const found = await view.host.getWidget(`anywidget:${id}`);
    return found.render({ el: element, signal: end.signal });
  };
  queueMicrotask(() => draw().catch((error) => element.append(FAILED, String(error))));
  return { element, end: () => end.abort() };
}

const KINDS = {
  title: drawTitle,
  text: drawText,
  code: drawCode,
  table: drawTable,
  chart: drawChart,
  progress: drawProgress,
  button: drawButton,
  field: drawField,
  row: drawRow,
  column: drawColumn,
  menu: drawMenu,
  grid: drawGrid,
  tree: drawTree,
};

/** Tell the kernel whether a panel is in sight. */
function watchSight(tree, element, signal) {
  const page = `${Date.now()}-${Math.random()}`;
  let inSight = true;
  const isSeen = () => inSight && !document.hidden;
  const say = (how) => tree.tell({ kind: "seen", page, how });
  const tell = () => say(isSeen() ? "here" : "gone");
  const observer = new IntersectionObserver((entries) => {
    const { isIntersecting } = entries.at(-1);
    if (isIntersecting === inSight) return;
    inSight = isIntersecting;
    tell();
  });
  addEventListener("pagehide", () => say("gone"), { signal });
  addEventListener("pageshow", tell, { signal });
  document.addEventListener("visibilitychange", tell, { signal });
  const timer = setInterval(() => isSeen() && say("still"), STILL_HERE);
  tell();
  observer.observe(element);
  signal.addEventListener("abort", () => {
    observer.disconnect();
    clearInterval(timer);
    say("gone");
  });
}

export default () => {
  let tree;
  return {
    initialize({ model }) {
      tree = new Tree(model);
    },
    render({ model, el, host }) {
      if (SAVED in window && model.get("record")) {
        // HTML that the kernel has made and escaped; a document that is parsed runs no scripts.
        const { head, body } = new DOMParser().parseFromString(model.get("record"), "text/html");
        el.replaceChildren(made("div", { class: "sbn-panel sbn-record" }, ...head.childNodes, ...body.childNodes));
        return undefined;
      }
      const view = new PanelView(tree, host);
      el.replaceChildren(view.root);
      view.begin();
      watchSight(tree, view.root, view.end.signal);
      return () => view.dispose();
    },
  };
};
