/**
 * The rows of the table: only those that are in sight are elements, which are used again for others.
 */

import { leftText } from "./columns.js";
import { made } from "./drawing.js";
import { Header, shownColumns } from "./header.js";

const ROW_HEIGHT = 26; // pixels; the style sheet's --sbn-row
const HIGHEST = 8_000_000; // pixels, more than which browsers do not scroll
const MOST_ROWS = 16; // in sight, unless the user makes the table higher
const CHECK_WIDTH = 30;
const SOON = 10_000; // milliseconds; a lock that is left for less is marked

/** The grid of one view. */
export class Grid {
  constructor(store, options) {
    this.store = store;
    this.options = options;
    this.id = `sbn-grid-${Math.random().toString(36).slice(2)}`; // each panel has its own copy of this module
    store.countdown = options.countdown;
    this.cursor = 0; // place among the shown rows
    this.slots = [];
    this.header = new Header(store, () => this.layOut());
    this.body = made("div", { class: "sbn-body", role: "rowgroup" });
    this.empty = made("div", { class: "sbn-empty", hidden: true });
    this.element = made(
      "div",
      { class: "sbn-grid", role: "grid", tabIndex: 0, "aria-label": options.label, "aria-multiselectable": "true" },
      this.header.element,
      this.body,
      this.empty,
    );
    this.element.addEventListener("scroll", () => this.drawSoon(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.body.addEventListener("mousedown", (event) => event.shiftKey && event.preventDefault()); // selects no text
    this.body.addEventListener("click", (event) => this.click(event));
    this.body.addEventListener("mouseover", ({ target }) => {
      if (target.matches(".sbn-cell")) target.title = target.scrollWidth > target.clientWidth ? target.textContent : "";
    });
    this.size = new ResizeObserver(() => this.drawSoon());
    this.size.observe(this.element);
    if (options.countdown) this.clock = setInterval(() => this.drawSoon(), 1000);
  }

  get cursor() {
    return this.place;
  }

  set cursor(place) {
    this.place = place;
    this.row = this.store.shown[place];
  }

  /** Keep the cursor on its row, which has another place among the shown rows now. */
  follow() {
    const place = this.store.shown.indexOf(this.row);
    if (place >= 0) this.cursor = place;
  }

  /** Keep the place of the cursor: its row number is that of another message now. */
  forgetRow() {
    this.row = undefined;
  }

  dispose() {
    this.size.disconnect();
    clearInterval(this.clock);
    cancelAnimationFrame(this.frame);
  }

  // ------------------------------------------------------------ drawing

  /** Draw before the next frame, however often it was asked for. */
  drawSoon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.draw();
    });
  }

  draw() {
    const { store } = this;
    const { shown } = store;
    this.columns = shownColumns(store, this.element);
    this.header.draw(this.columns);
    this.layOut();
    if (store.state === "ready") this.cursor = Math.max(0, Math.min(this.cursor, shown.length - 1)); // else rows are to come
    this.element.setAttribute("aria-busy", String(store.isBehind));
    this.element.setAttribute("aria-rowcount", shown.length + 2);
    this.element.setAttribute("aria-colcount", this.columns.length + 1);
    this.body.style.height = `${Math.min(HIGHEST, Math.max(1, shown.length) * ROW_HEIGHT)}px`;
    this.drawRows(shown);
    this.say(shown);
  }

  layOut() {
    const widths = [CHECK_WIDTH, ...(this.columns ?? []).map(({ width }) => width)];
    const last = `minmax(${widths.at(-1)}px, 1fr)`; // nothing is left empty beside it
    const all = widths.map((width, index) => (index < widths.length - 1 ? `${width}px` : last));
    this.element.style.setProperty("--sbn-columns", all.join(" "));
    this.element.style.setProperty("--sbn-width", `${widths.reduce((sum, width) => sum + width, 0)}px`);
    // Filters change no height, so that nothing below the table jumps.
    this.element.style.setProperty("--sbn-rows", Math.min(MOST_ROWS, Math.max(3, this.store.rowCount)));
    this.element.style.setProperty("--sbn-head", `${this.header.element.offsetHeight}px`);
  }

  /** The pixels of the body that are in sight. */
  get room() {
    return Math.max(ROW_HEIGHT, this.element.clientHeight - this.header.element.offsetHeight);
  }

  /** Pixels of rows for each pixel of the scroll bar; 1 unless there are too many rows. */
  get scale() {
    const all = this.store.shown.length * ROW_HEIGHT;
    return all <= HIGHEST ? 1 : (all - this.room) / (HIGHEST - this.room);
  }

  drawRows(shown) {
    const top = this.element.scrollTop;
    const virtualTop = top * this.scale;
    const first = Math.floor(virtualTop / ROW_HEIGHT);
    const count = Math.min(Math.ceil(this.room / ROW_HEIGHT) + 1, Math.max(0, shown.length - first));
    while (this.slots.length < count) this.addSlot();
    this.slots.forEach((slot, index) => {
      slot.hidden = index >= count;
      if (slot.hidden) return;
      slot.style.transform = `translateY(${(first + index) * ROW_HEIGHT - virtualTop + top}px)`;
      this.drawRow(slot, first + index, shown[first + index]);
    });
    const active = this.slots.find((slot) => !slot.hidden && slot.place === this.cursor);
    if (active) this.element.setAttribute("aria-activedescendant", active.id);
    else this.element.removeAttribute("aria-activedescendant");
  }

  addSlot() {
    const slot = made("div", { class: "sbn-row", role: "row", id: `${this.id}-${this.slots.length}` });
    this.slots.push(slot);
    this.body.append(slot);
  }

  drawRow(slot, place, row) {
    const { store, columns } = this;
    slot.place = place;
    slot.row = row;
    slot.setAttribute("aria-rowindex", place + 3);
    slot.setAttribute("aria-selected", String(store.selection.has(row)));
    slot.classList.toggle("sbn-cursor", place === this.cursor);
    slot.classList.toggle("sbn-open", row === store.focused);
    while (slot.children.length <= columns.length) slot.append(made("div", { role: "gridcell" }));
    while (slot.children.length > columns.length + 1) slot.lastChild.remove();
    slot.firstChild.className = "sbn-check";
    columns.forEach((column, index) => this.drawCell(slot.children[index + 1], row, column));
  }

  drawCell(cell, row, { name, kind }) {
    const counts = this.options.countdown && name === "locked_until";
    // A lock without an end has ended: it is lost, or settled.
    const left = counts ? (this.store.value(row, name) ?? 0) - Date.now() - (this.store.clockOffset ?? 0) : Infinity;
    const text = counts ? leftText(left) : this.store.text(row, name);
    const style = `sbn-cell sbn-${counts ? "number" : kind}${left < SOON ? " sbn-soon" : ""}`;
    if (cell.textContent !== text) cell.textContent = text;
    if (cell.className !== style) cell.className = style;
  }

  /** Say why there are no rows, if known here: the caller knows whether there are any. */
  say(shown) {
    const { state, rowCount } = this.store;
    const text = {
      waiting: "Waiting for the kernel. Rows come when its cell has ended; if they never do, run the cell again.",
      loading: "Loading…",
    }[state];
    this.empty.textContent = text ?? (rowCount ? "No message passes the filters." : "No messages are shown.");
    this.empty.hidden = shown.length > 0;
  }

  // ------------------------------------------------------------ moving and selecting

  click(event) {
    const slot = event.target.closest(".sbn-row");
    if (!slot) return;
    const previous = this.cursor;
    this.cursor = slot.place;
    if (event.shiftKey) this.selectRange(previous);
    else if (event.ctrlKey || event.metaKey || event.target.closest(".sbn-check")) this.store.toggle(slot.row);
    else if (!String(getSelection())) this.store.focus(slot.row);
    if (!event.shiftKey) this.anchor = null;
    this.drawSoon();
  }

  key(event) {
    const { shown } = this.store;
    if (event.target !== this.element || event.altKey) return;
    const page = Math.max(1, Math.floor(this.room / ROW_HEIGHT) - 1);
    const to = {
      ArrowDown: this.cursor + 1,
      ArrowUp: this.cursor - 1,
      PageDown: this.cursor + page,
      PageUp: this.cursor - page,
      Home: 0,
      End: shown.length - 1,
    }[event.key];
    if (to !== undefined) this.moveTo(to, event.shiftKey);
    else if (event.key === " " || event.key === "Enter") this.act(event.key);
    else if (event.key === "Escape") this.store.focus(null);
    else if (event.key === "a" && (event.ctrlKey || event.metaKey)) this.store.select(shown);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Select the row of the cursor, or open its message; where it was scrolled away, it comes back into sight. */
  act(key) {
    const row = this.store.shown[this.cursor];
    if (row === undefined) return;
    this.reveal();
    if (key === " ") this.store.toggle(row);
    else this.store.focus(row);
  }

  moveTo(place, extend) {
    const { shown } = this.store;
    const previous = this.cursor;
    this.cursor = Math.max(0, Math.min(place, shown.length - 1));
    this.reveal();
    if (extend) this.selectRange(previous);
    else this.anchor = null;
    if (this.store.focused !== null && shown.length) this.store.focus(shown[this.cursor]);
    this.drawSoon();
  }

  /** Select from where the range began to the cursor, and no longer what it held before. */
  selectRange(previous) {
    const { store } = this;
    const anchor = this.anchor ?? { place: previous, before: new Set(store.selection) };
    const { place, before } = anchor;
    const range = store.shown.subarray(Math.min(place, this.cursor), Math.max(place, this.cursor) + 1);
    store.selection = new Set(before);
    store.select(range);
    this.anchor = anchor; // which the news of the selection has ended
  }

  /** Begin the next range at the cursor: the one before is of other rows, or of another selection. */
  endRange() {
    this.anchor = null;
  }

  /** Scroll so that the cursor is in sight. */
  reveal() {
    const { scale, room } = this;
    const top = this.element.scrollTop * scale;
    const start = this.cursor * ROW_HEIGHT;
    if (start < top) this.element.scrollTop = start / scale;
    else if (start + ROW_HEIGHT > top + room) this.element.scrollTop = (start + ROW_HEIGHT - room) / scale;
  }

  /** Go to the first row. */
  reset() {
    this.anchor = null;
    this.cursor = 0;
    this.element.scrollTop = 0;
  }
}
