/**
 * The line above the table: search, selection, columns, and how many rows are shown and selected.
 */

import { dropdown, figure, later, made, pressable } from "./drawing.js";
import { Search } from "./search.js";

const SAID_DELAY = 400;

/** How many rows are shown and selected, in words. */
export function countsText(store) {
  if (store.state === "waiting") return "waiting for the kernel";
  const [shown, all] = [store.shown.length, store.rowCount];
  const parts = [shown === all ? `${figure(all)} shown` : `${figure(shown)} of ${figure(all)} shown`];
  if (store.selection.size) {
    const hidden = store.hiddenSelected;
    const of = hidden ? ` (${figure(hidden)} hidden by the filter)` : "";
    parts.push(`${figure(store.selection.size)} selected${of}`);
  }
  if (store.state === "loading") parts.push("loading…");
  else if (store.isBehind) parts.push("updating…");
  return parts.join(", ");
}

/** The toolbar of one view. */
export class Toolbar {
  constructor(store, header) {
    this.store = store;
    this.header = header;
    this.search = new Search(store);
    this.all = pressable("Select shown", () => store.select(store.shown));
    this.none = pressable("Clear selection", () => store.clearSelection());
    this.reset = pressable("Clear filters", () => store.clearFilters());
    this.filters = pressable("Column filters", () => this.toggleFilters(), { "aria-expanded": "false" });
    const menu = made("div", { role: "group", "aria-label": "Columns that are shown" });
    const columns = dropdown("Columns", menu, () => menu.replaceChildren(...store.columns.map((column) => this.choice(column))));
    this.counts = made("span", { class: "sbn-counts" });
    this.said = made("span", { class: "sbn-said", role: "status" });
    this.failed = made("span", { class: "sbn-failed", role: "alert" });
    const buttons = [this.all, this.none, this.filters, columns, this.reset];
    this.element = made("div", { class: "sbn-bar" }, this.search.element, ...buttons, this.counts, this.said, this.failed);
    this.say = later(SAID_DELAY, () => (this.said.textContent = this.counts.textContent));
  }

  /** Bring counts and buttons up to date. */
  draw() {
    const { store } = this;
    this.search.draw();
    this.counts.textContent = [countsText(store), store.searching].filter(Boolean).join(", ");
    this.say(); // a screen reader hears it when it no longer changes
    this.all.textContent = `Select ${figure(store.shown.length)} shown`;
    this.all.disabled = !store.shown.length;
    this.none.disabled = !store.selection.size;
    this.reset.hidden = !store.filters.size;
  }

  /** Show an error of the kernel's. */
  fail(text) {
    this.failed.textContent = text;
  }

  toggleFilters() {
    const on = this.filters.getAttribute("aria-expanded") !== "true";
    this.filters.setAttribute("aria-expanded", String(on));
    this.header.toggleFilters(on);
  }

  choice(column) {
    const box = made("input", { type: "checkbox", checked: !column.hidden });
    box.addEventListener("change", () => this.store.showColumn(column.name, box.checked));
    return made("label", { title: column.name }, box, column.title);
  }
}
