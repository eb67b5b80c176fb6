/**
 * The detail pane: one message with its body, laid out, and all of its properties. All of it is text, shown as text.
 */

import { copyText } from "./clipboard.js";
import { figure, made, oneStop, pressable, roving } from "./drawing.js";
import { filterBy } from "./filters.js";
import { focusedElement } from "./focused.js";

const LOADING_DELAY = 150; // milliseconds; faster answers need no note
const MOST_COPIED = 5_000_000; // bytes that a clipboard takes without trouble
const BLOCK = 2_000; // characters
const SHORT_VALUE = 200;
const TABS = "[role=tab]";
const FILTERS = ".sbn-filter-by";
/** The part of the table that shows the causes. */
export const FROM_CAUSES = "sbn-causes";
let detailNumber = 0;

/**
 * A text as blocks that the browser lays out one by one, and only those in sight. As a whole, a long text that changes
 * its direction with every word would block the page for half a minute. Blocks end at line ends, if possible.
 */
function blocksOf(text) {
  const blocks = [];
  for (let start = 0; start < text.length; ) {
    let end = Math.min(start + BLOCK, text.length);
    if (end < text.length) {
      const line = text.lastIndexOf("\n", end - 1) + 1;
      if (line > start) end = line;
      else if (/[\uD800-\uDBFF]/.test(text[end - 1])) end--; // both halves of a character stay together
    }
    blocks.push(made("div", { class: "sbn-block" }, text.slice(start, end)));
    start = end;
  }
  return blocks;
}

/** A name that may break after an underscore. */
function wrappable(name) {
  if (name.length > SHORT_VALUE) return [name];
  return name.split(/(?<=_)/).flatMap((part) => [part, made("wbr")]);
}

/** A message in the detail pane. */
class Detail {
  constructor(store, hasFacets) {
    this.store = store;
    this.hasFacets = hasFacets;
    this.id = `sbn-detail-${detailNumber++}`;
    this.row = null;
    this.tab = null;
    this.title = made("strong", { "aria-live": "polite" });
    this.about = made("span", { class: "sbn-detail-about" });
    this.said = made("span", { class: "sbn-detail-said", role: "status" });
    this.copy = pressable("Copy body", () => this.run(() => this.copyBody()));
    this.load = pressable("Download body", () => this.run(() => this.downloadBody()));
    const close = pressable("Close", () => this.close(), { title: "Close the message (Escape)" });
    const head = made("div", { class: "sbn-detail-head" }, this.title, this.about, this.said, this.copy, this.load, close);
    this.content = made("div", { class: "sbn-detail-content" });
    this.element = made("div", { class: "sbn-detail-view", role: "region", "aria-label": "Message", hidden: true }, head, this.content);
    this.element.addEventListener("keydown", (event) => event.key === "Escape" && this.close());
  }

  close() {
    const opener = this.opener?.isConnected ? this.opener : this.element.closest(".sbn-table")?.querySelector(".sbn-grid");
    this.store.focus(null);
    opener?.focus();
  }

  /** Show the message of a row; null closes the pane. */
  async open(row) {
    if (row === this.row) return;
    this.row = row;
    this.element.hidden = row === null;
    this.said.textContent = "";
    if (row === null) return;
    this.place();
    const waiting = setTimeout(() => this.row === row && this.empty("Loading the message. A kernel that is busy with a cell hands it over when the cell has ended."), LOADING_DELAY);
    try {
      const { data } = await this.store.request("detail", { row });
      if (this.row !== row) return;
      this.draw(data);
      this.reveal();
    } catch (error) {
      if (this.row === row) this.empty(error.message, pressable("Try again", () => this.again(row)));
    } finally {
      clearTimeout(waiting);
    }
  }

  /** Move below the part of the table that opened it: the causes, or the rows. */
  place() {
    const box = this.element.parentElement;
    const causes = this.store.opener ? box.parentElement.querySelector(`.${this.store.opener}`) : null;
    this.opener = causes?.contains(focusedElement()) ? focusedElement() : null;
    if (causes && causes.nextElementSibling !== box) causes.after(box);
    else if (!causes && box.nextElementSibling) box.parentElement.append(box);
  }

  /** Bring the message into sight, as far as its opener stays there; not in other places where the table is shown. */
  reveal() {
    const root = this.element.closest(".sbn-table");
    if (!root?.matches(":hover") && !root?.contains(focusedElement())) return;
    const opener = this.store.opener ? this.opener?.closest("li") : root.querySelector(".sbn-open");
    for (const each of [this.element, opener]) each?.scrollIntoView({ block: "nearest" });
  }

  again(row) {
    this.row = null;
    this.open(row);
  }

  /** A sentence where the message would be. */
  empty(text, ...further) {
    this.detail = null;
    this.title.textContent = "Message";
    this.about.textContent = "";
    for (const button of [this.copy, this.load]) button.disabled = true;
    this.content.replaceChildren(made("p", {}, text), ...further);
  }

  draw(detail) {
    this.detail = detail;
    this.title.textContent = detail.title;
    this.about.textContent = detail.about;
    const isText = detail.text_size !== null;
    this.copy.disabled = !isText;
    this.copy.title = isText ? "" : "The body is not text. You can download it.";
    this.load.disabled = false;
    const notes = detail.notes.map((note) => made("p", { class: "sbn-detail-note" }, note));
    const body = made("div", { class: "sbn-detail-body" }, ...notes, ...this.views(detail.views));
    const properties = made("div", { class: "sbn-detail-properties" }, ...detail.sections.map((section) => this.section(section)));
    this.content.replaceChildren(...(detail.fault ? [this.fault(detail.fault)] : []), body, properties);
  }

  /** Why it is a dead letter: the reason, and the description with the frames of libraries dimmed. */
  fault({ reason, lines }) {
    const named = made("p", {}, made("span", { class: "sbn-detail-about" }, "reason "), made("strong", {}, reason || "(none)"));
    const trace = made("pre", { class: "sbn-detail-trace", tabIndex: 0, role: "group", "aria-label": "description" });
    for (const [line, isLibrary] of lines) {
      trace.append(made("div", { class: isLibrary ? "sbn-detail-library" : "" }, ...(line.length > BLOCK ? blocksOf(line) : [line || "\u200b"])));
    }
    return made("div", { class: "sbn-detail-fault" }, named, ...(lines.length ? [trace] : []));
  }

  /** The ways to read the body, as tabs; the one that was chosen last stays chosen. */
  views(views) {
    const tabs = made("div", { class: "sbn-tabs", role: "tablist", "aria-label": "Body as" });
    const note = made("p", { class: "sbn-detail-note" });
    const text = made("pre", { id: `${this.id}-text`, role: "tabpanel", tabIndex: 0 });
    const choose = (view, button) => {
      for (const other of tabs.children) other.setAttribute("aria-selected", String(other === button));
      oneStop(tabs, TABS, button);
      text.replaceChildren(...this.linesOf(view));
      oneStop(text, FILTERS);
      text.classList.toggle("sbn-hex", view.name === "Hex");
      text.scrollTop = 0;
      text.setAttribute("aria-label", `Body as ${view.name}`);
      note.textContent = view.note;
      note.hidden = !view.note;
    };
    for (const view of views) {
      const button = pressable(view.name, () => {
        this.tab = view.name;
        choose(view, button);
      });
      button.setAttribute("role", "tab");
      button.setAttribute("aria-controls", text.id);
      tabs.append(button);
    }
    roving(tabs, TABS, ["ArrowLeft", "ArrowRight"]);
    roving(text, FILTERS);
    const first = Math.max(0, views.findIndex(({ name }) => name === this.tab));
    choose(views[first], tabs.children[first]);
    return [tabs, text, note];
  }

  /** The text of a view; lines with a value that the table can be filtered by have a button for that. */
  linesOf({ text, places = [] }) {
    const paths = new Map(this.hasFacets ? places : []);
    const count = Math.max(-1, ...paths.keys()) + 1;
    const lines = text.split("\n", count);
    const rest = text.slice(lines.reduce((length, line) => length + line.length + 1, 0));
    const first = lines.flatMap((line, index) => {
      const path = paths.get(index);
      if (!path || line.length > BLOCK) return blocksOf(`${line}\n`);
      return [made("div", {}, line, this.filterBy(path), "\n")];
    });
    return [...first, ...blocksOf(rest || (count ? "" : "(empty)"))];
  }

  filterBy(path) {
    const label = `Show the messages with the same ${path.replace(/^\./, "")} only`;
    const filter = async () => {
      const { row, store } = this;
      const { data } = await store.request("body_column", { path });
      filterBy(store, `facet:${data.name}`, { chosen: new Set([store.value(row, data.name)]) });
      return `Filtered by ${path.replace(/^\./, "")}.`;
    };
    return pressable("", () => this.run(filter), { class: "sbn-filter-by", title: label, "aria-label": label });
  }

  section({ title, rows }) {
    const table = made("table", {}, made("caption", {}, title));
    for (const [name, value, type] of rows) {
      const cells = made("td", {}, ...(value.length > SHORT_VALUE ? blocksOf(value) : [value]));
      if (type) cells.append(made("span", { class: "sbn-detail-type" }, type));
      table.append(made("tr", {}, made("th", { scope: "row" }, ...wrappable(name)), cells));
    }
    return table;
  }

  // ------------------------------------------------------------ the whole body

  /** Do something that takes its time, and say how it ended. */
  async run(action) {
    const { row } = this;
    const say = (text) => this.row === row && (this.said.textContent = text);
    try {
      say(await action());
    } catch (error) {
      say(error.message);
    }
  }

  /** Fetch the body, or its text, part by part. */
  async body(asText) {
    const { row, detail } = this;
    const { load } = this.store;
    const all = asText ? detail.text_size : detail.size;
    const parts = [];
    let size = 0;
    while (size < all) {
      const { buffers } = await this.store.request("body", { row, offset: size, as_text: asText });
      if (this.store.load !== load) throw new Error("Other messages are shown now. Open this one again.");
      if (!buffers[0]?.byteLength) throw new Error("The body did not come as a whole. Try again.");
      parts.push(buffers[0]);
      size += buffers[0].byteLength;
      if (size < all && this.row === row) this.said.textContent = `Fetching: ${figure(size)} of ${figure(all)} bytes`;
    }
    return new Blob(parts, { type: "application/octet-stream" });
  }

  async copyBody() {
    if (this.detail.text_size > MOST_COPIED) throw new Error("The body is too large to be copied. It can be downloaded.");
    const text = await (await this.body(true)).text();
    const copied = await copyText(text, this.element);
    if (!copied) throw new Error("The browser does not let the page copy. Select the text and copy it.");
    return "Copied.";
  }

  async downloadBody() {
    const name = this.detail.file_name;
    const address = URL.createObjectURL(await this.body(false));
    made("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
    return `Downloaded as ${name}.`;
  }
}

/** Draw the detail pane, until a signal. */
export function detailView(store, element, hasFacets, signal) {
  const detail = new Detail(store, hasFacets);
  const follow = () => detail.open(store.focused ?? null);
  store.on("focus rows", follow, signal);
  element.append(detail.element);
  follow();
}
