/**
 * The rows of one table in the browser: what they hold, which are shown and in which order, and which are selected.
 *
 * There is one for each model; views only draw what it says. A row keeps its number for as long as it is there, and the
 * kernel knows it by the same number; numbers of other rows never change when one is removed.
 */

import { cellValue, decoded, shownText } from "./columns.js";
import { ShownRows, wider } from "./shown_rows.js";

/** Columns searched only while visible: many rows share their values, so hidden matches would surprise. */
const UNSEARCHED = new Set(["entity", "cause"]);
const IDLE_ROWS = 1_000; // rows whose text is gathered at one go

/**
 * Events: "rows" (detail.kind: replaced, added, patched or removed; first: the first new row; rows: their numbers).
 * "filter" and "sort" when they are chosen, and "shown" when their rows are found (detail.isOther: by another filter or
 * order; isSame: the rows are those before); then "passed", unless only the order is another. "selection", "columns",
 * "focus" (detail: row number or null), "causes", "state".
 */
export class Store extends ShownRows {
  constructor(request) {
    super();
    this.request = request;
    /** What the table waits for: "waiting" for the kernel, "loading" rows, "ready". */
    this.state = "waiting";
    this.toldHidden = 0;
    this.causes = new Map(); // by fingerprint
    this.notes = {};
    this.resubmits = {}; // the last time and the count, by cause
    /** Milliseconds by which the kernel's clock is ahead of this one. */
    this.clockOffset = null;
    this.layouts = new Map(); // columns by name, including earlier ones
    this.begin([], 0);
  }

  // ------------------------------------------------------------ rows

  /** Forget all rows; filters and sorting stay. */
  begin(columns, total) {
    if (this.focused != null) this.lost = this.keyOf(this.focused);
    this.columns = columns;
    this.cells = new Map();
    this.total = 0;
    this.removed = new Uint8Array(0);
    this.removedCount = 0;
    this.texts = [];
    this.selection = new Set();
    this.focused = null;
    this.grow(total);
    this.showNothing();
  }

  /** Make room for rows up to a number of them. */
  grow(capacity) {
    for (const [name, values] of this.cells) {
      if (!Array.isArray(values) && values.length < capacity) this.cells.set(name, wider(values, capacity));
    }
    this.removed = wider(this.removed, capacity, 0);
    this.capacity = capacity;
  }

  /** Take rows as the kernel packed them, in steps. */
  *fill({ first, count, parts }, bytes) {
    if (first + count > this.capacity) this.grow(first + count);
    let start = 0;
    for (const { name, coding, bytes: length } of parts) {
      this.put(name, first, decoded(coding, bytes.subarray(start, start + length), count));
      start += length;
      yield;
    }
    this.texts.fill(undefined, first, first + count); // they may lack these columns
    this.total = Math.max(this.total, first + count);
    this.forget(first);
    this.tell("rows", { kind: first ? "added" : "replaced", first });
    this.gatherTexts();
  }

  /** Keep values of a column: floats in an array of floats; texts, and numbers that floats cannot hold, in a list. */
  put(name, first, values) {
    const isList = Array.isArray(values);
    let held = this.cells.get(name) ?? (isList ? [] : wider(new Float64Array(0), this.capacity));
    if (isList && !Array.isArray(held)) held = Array.from(held, cellValue);
    this.cells.set(name, held);
    if (!Array.isArray(held)) held.set(values, first);
    else for (let index = 0; index < values.length; index++) held[first + index] = cellValue(values[index]);
  }

  /** Change the cells of a column, which appears where it is not there. */
  patch(column, rows, values) {
    if (!this.columns.some(({ name }) => name === column.name)) {
      // Near the front: new columns, such as an outcome, must be visible without scrolling.
      this.columns.splice(1, 0, ...this.laidOut([column]));
      this.tell("columns");
    }
    const number = column.kind !== "text";
    if (!this.cells.has(column.name)) {
      this.cells.set(column.name, number ? wider(new Float64Array(0), this.capacity) : new Array(this.total).fill(null));
    }
    const held = this.cells.get(column.name);
    rows.forEach((row, index) => {
      const value = cellValue(values[index]);
      held[row] = Array.isArray(held) ? value : value === null ? NaN : Number(value);
      this.texts[row] = undefined;
    });
    this.testAgain(rows, column.name);
    this.tell("rows", { kind: "patched", rows, column: column.name });
  }

  remove(rows) {
    for (const row of rows) {
      this.removedCount += 1 - this.removed[row];
      this.removed[row] = 1;
      this.selection.delete(row);
    }
    this.hideRemoved();
    this.tell("rows", { kind: "removed", rows });
    if (this.isRemoved(this.focused)) this.focus(null);
    for (const { name, late } of this.columns) if (late && !this.hasValue(name)) this.drop(name);
  }

  /** Whether a row that is left has a value in a column. */
  hasValue(name) {
    return this.column(name).some((cell, row) => !this.removed[row] && ![null, ""].includes(cellValue(cell)));
  }

  /** Take a late column away, such as the outcome where all messages that had one are gone; not one that is filtered by. */
  drop(name) {
    if (this.filters.has(`column:${name}`) || this.filters.has(`facet:${name}`)) return;
    this.columns = this.columns.filter((column) => column.name !== name);
    this.tell("columns");
  }

  /** How many rows there are. */
  get rowCount() {
    return this.total - this.removedCount;
  }

  isRemoved(row) {
    return this.removed[row] === 1;
  }

  /** Values of a column by row number, removed rows included; NaN or null where there is none. */
  column(name) {
    return this.cells.get(name) ?? [];
  }

  kind(name) {
    return this.columns.find((column) => column.name === name)?.kind ?? "text";
  }

  /** The value of a cell; times are milliseconds since the epoch. */
  value(row, name) {
    return cellValue(this.column(name)[row]);
  }

  /** A value as it is shown. */
  text(row, name) {
    return shownText(this.kind(name), this.value(row, name));
  }

  /** Show a column, or hide it and forget its filter. */
  showColumn(name, on) {
    for (const column of this.columns) if (column.name === name) column.hidden = !on;
    if (!on) this.setFilter(`column:${name}`, null);
    this.tell("columns");
  }

  /** Columns as the kernel names them, with the widths and the choice that they had here. */
  laidOut(columns) {
    return columns.map((column) => {
      const known = this.layouts.get(column.name);
      const { width, hidden = column.hidden } = known ?? {};
      const laidOut = Object.assign(known ?? {}, { ...column, width, hidden });
      this.layouts.set(column.name, laidOut);
      return laidOut;
    });
  }

  /** Take the kernel's time; a message that was long on its way says too little. */
  tellTime(now) {
    this.clockOffset = Math.max(this.clockOffset ?? -Infinity, now - Date.now());
  }

  // ------------------------------------------------------------ texts

  /** All that a row says, in lower case, to be searched. */
  searchText(row) {
    const text = this.texts[row];
    if (text !== undefined) return text;
    const searched = this.columns.filter(({ name, hidden }) => !hidden || !UNSEARCHED.has(name));
    const said = searched.map(({ name, kind }) => shownText(kind, cellValue(this.column(name)[row])));
    return (this.texts[row] = said.join("\n").toLowerCase());
  }

  /** Gather the rows' texts while nothing else is to be done, so that the first search is as quick as the others. */
  gatherTexts(row = 0) {
    clearTimeout(this.gathering);
    const next = () => {
      const end = Math.min(row + IDLE_ROWS, this.total);
      for (; row < end; row++) this.searchText(row);
      if (row < this.total) this.gatherTexts(row);
    };
    this.gathering = setTimeout(() => (window.requestIdleCallback ?? window.setTimeout)(next), 10);
  }

  // ------------------------------------------------------------ selection, focus, news

  /** Select rows, or take them out of the selection. */
  select(rows, on = true) {
    for (const row of rows) {
      if (on && this.removed[row] === 0) this.selection.add(row); // a row that there is
      else this.selection.delete(row);
    }
    this.tell("selection", { own: true });
  }

  /** Select these rows and no others. */
  selectOnly(rows) {
    this.selection.clear();
    this.select(rows);
  }

  toggle(row) {
    this.select([row], !this.selection.has(row));
  }

  clearSelection() {
    this.selection.clear();
    this.tell("selection", { own: true });
  }

  /** Take a selection that the kernel gave. */
  adopt(rows) {
    this.selection = new Set(rows);
    this.tell("selection");
  }

  /** Show a row in the detail pane below its opener (a class; by default below the rows), or close it for null. */
  focus(row, opener = "") {
    this.focused = row;
    this.opener = opener;
    this.tell("focus", row);
  }

  keyOf(row) {
    return `${this.value(row, "sequence_number")} ${this.value(row, "entity")}`;
  }

  /** Find the focused message again among rows that came in place of others. */
  refocus() {
    if (this.lost === undefined) return;
    let row = 0;
    while (row < this.total && this.keyOf(row) !== this.lost) row++;
    this.lost = undefined;
    this.focus(row < this.total ? row : null, this.opener);
  }
}
