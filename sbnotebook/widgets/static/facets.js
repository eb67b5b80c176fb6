/**
 * Facets: the values of some columns with their counts, to filter by. The counts follow all filters but the facet's own.
 */

import { cellValue, shownText } from "./columns.js";
import { arrange, drawnSoon, figure, made, oneStop, pressable, roving, sortAsBefore } from "./drawing.js";
import { filterBy } from "./filters.js";
import { focusedElement } from "./focused.js";
import { each } from "./slices.js";

const USUAL_FACETS = [
  "outcome",
  "dead_letter_reason",
  "subject",
  "state",
  "delivery_count",
  "entity",
  "session_id",
  "content_type",
  "dead_letter_source",
  "to",
  "resubmit_count",
];
const MOST_VALUES = 1000; // a column with more is not a facet
const FEW_VALUES = 6;
const LISTED_VALUES = 200; // of a facet that is opened; the search finds the others
const BOXES = "input[type=checkbox]";
const IN_BODIES = "body_json"; // how names of columns with values in bodies begin

/** One column's values, with their counts. */
class Facet {
  constructor(store, { name, title, kind }) {
    Object.assign(this, { store, name, kind, id: `facet:${name}` });
    this.counts = new Map();
    this.items = new Map();
    this.order = []; // of the values
    this.isOpen = false;
    this.clear = pressable("Clear", () => this.clearAll(), { class: "sbn-quiet", "aria-label": `Clear ${title}` });
    this.search = made("input", { type: "search", placeholder: `Find in ${title}`, "aria-label": `Find in ${title}` });
    this.search.addEventListener("input", () => this.draw());
    this.list = made("ul", {});
    roving(this.list, BOXES);
    this.more = pressable("", () => this.open(!this.isOpen), { class: "sbn-quiet" });
    const head = made("div", { class: "sbn-facet-head" }, made("span", { class: "sbn-facet-name" }, title), this.clear);
    this.element = made("section", { class: "sbn-facet", role: "group", "aria-label": title }, head, this.search, this.list, this.more);
  }

  /** Values that are ticked. They belong to the filter, which all views of the table share. */
  get chosen() {
    return this.store.chosen(this.id);
  }

  choose(value, on) {
    const chosen = new Set(this.chosen);
    if (on) chosen.add(value);
    else chosen.delete(value);
    filterBy(this.store, this.id, { chosen });
  }

  /** Count each value in the rows that pass the other filters, in steps; where there are too many, the chosen ones only. */
  *count() {
    const { store } = this;
    const cells = store.column(this.name);
    const passes = store.passesWithout(this.id);
    const counts = new Map([...this.chosen].map((value) => [value, 0]));
    yield* each(0, store.total, (row) => {
      if (store.isRemoved(row)) return;
      const value = cellValue(cells[row]);
      const count = counts.get(value);
      if (count !== undefined || counts.size <= MOST_VALUES) counts.set(value, (count ?? 0) + Number(passes(row)));
    });
    this.counts = counts;
  }

  get isTooMany() {
    return this.counts.size > MOST_VALUES;
  }

  get isWorthShowing() {
    return this.chosen.size > 0 || (this.counts.size > 1 && !this.isTooMany);
  }

  /** Chosen values and existing ones, the most frequent first. */
  get values() {
    const { chosen, isTooMany } = this;
    const listed = [...this.counts].filter(([value, count]) => chosen.has(value) || (count && !isTooMany));
    const found = listed.map(([value, count]) => ({ value, count, text: this.text(value) }));
    return found.sort((one, other) => other.count - one.count || (one.text < other.text ? -1 : 1));
  }

  text(value) {
    if (value === null) return "(none)";
    return shownText(this.kind, value) || "(empty)";
  }

  open(on) {
    this.isOpen = on;
    this.search.value = "";
    this.draw();
    if (on) this.search.focus();
  }

  clearAll() {
    this.store.setFilter(this.id, null);
    this.list.querySelector(BOXES)?.focus();
  }

  /** Values with their counts, the most frequent first; while the pointer or the focus is here, in the order before. */
  ordered() {
    const { element, values: found } = this;
    const isHeld = element.matches(":hover") || element.contains(focusedElement());
    if (isHeld) sortAsBefore(found, ({ value }) => value, this.order);
    this.order = found.map(({ value }) => value);
    return found;
  }

  draw() {
    const { chosen } = this;
    const all = this.ordered();
    const words = this.search.value.toLowerCase();
    const few = all.filter(({ value }, index) => index < FEW_VALUES || chosen.has(value));
    const found = this.isOpen ? all.filter(({ text }) => text.toLowerCase().includes(words)) : few;
    const listed = found.slice(0, LISTED_VALUES);
    const most = all.reduce((most, { count }) => Math.max(most, count), 1);
    arrange(this.list, listed.map((entry) => this.item(entry, chosen, most)));
    oneStop(this.list, BOXES);
    const rest = (this.isOpen ? found.length : all.length) - listed.length;
    this.clear.hidden = !chosen.size;
    this.search.hidden = !this.isOpen;
    this.more.hidden = !this.isOpen && !rest;
    this.more.textContent = this.isOpen ? `${rest ? `${figure(rest)} more, search for them. ` : ""}Show fewer` : `${figure(rest)} more…`;
    this.more.setAttribute("aria-expanded", String(this.isOpen));
    for (const value of this.items.keys()) if (!listed.some((entry) => entry.value === value)) this.items.delete(value);
  }

  item({ value, text, count }, chosen, most) {
    let item = this.items.get(value);
    if (!item) {
      const box = made("input", { type: "checkbox" });
      box.addEventListener("change", () => this.choose(value, box.checked));
      const shown = made("span", { class: "sbn-facet-value", title: text }, text);
      const number = made("span", { class: "sbn-facet-count" });
      item = made("li", {}, made("label", {}, box, shown, number));
      Object.assign(item, { box, number });
      this.items.set(value, item);
    }
    item.box.checked = chosen.has(value);
    item.number.textContent = figure(count);
    item.style.setProperty("--part", `${(100 * count) / most}%`);
    return item;
  }
}

/** Draw facets, until a signal. */
export function facetsView(store, element, options, signal) {
  const boxes = new Map();
  const clearAll = () => boxes.forEach(({ id }) => store.setFilter(id, null));
  const clear = pressable("Clear all", clearAll, { class: "sbn-quiet" });
  const head = made("div", { class: "sbn-facets-head" }, made("strong", {}, "Filter by"), clear);
  const list = made("div", { class: "sbn-facets-list" });
  const panel = made("div", { class: "sbn-facets", role: "region", "aria-label": "Filter by value" }, head, list);

  const box = (column) => {
    if (!boxes.has(column.name)) {
      const added = new Facet(store, column);
      for (const type of ["pointerleave", "focusout"]) added.element.addEventListener(type, soon);
      boxes.set(column.name, added);
    }
    return boxes.get(column.name);
  };
  const draw = function* () {
    const inBodies = store.columns.map(({ name }) => name).filter((name) => name.startsWith(IN_BODIES)).reverse();
    const names = [...inBodies, ...(options.facets ?? USUAL_FACETS)];
    const columns = names.map((name) => store.columns.find((column) => column.name === name)).filter(Boolean);
    const all = columns.map(box);
    for (const facet of all) yield* facet.count();
    const worth = all.filter((facet) => facet.isWorthShowing);
    for (const shown of worth) {
      shown.draw();
      yield;
    }
    arrange(list, worth.map((shown) => shown.element));
    clear.hidden = !worth.some(({ chosen }) => chosen.size);
    if (worth.length && !panel.isConnected) element.append(panel);
    else if (!worth.length) panel.remove();
  };
  const soon = drawnSoon(draw, signal);
  store.on("rows columns passed", soon, signal);
  soon();
}
