/**
 * Which rows are shown, and in which order: filters, sorting, and the rows that pass.
 *
 * With many rows this takes a while, so it is found out in slices. Until then everything is as it was: `shown`,
 * `passesWithout` and `hiddenSelected` tell what the user sees, and never a half-found result.
 */

import { inSlices } from "./slices.js";
import { sortedRows } from "./sorting.js";

const TESTED_ROWS = 500; // in one step
const NO_ROWS = new Uint32Array(0);
const NOTHING = new Set();

/** A typed array with more room; the new part is empty. */
export function wider(values, capacity, nothing = NaN) {
  const all = new values.constructor(capacity).fill(nothing);
  all.set(values.subarray(0, capacity));
  return all;
}

/** The base of a store, which has the rows: their `total`, `capacity`, `removed` and `selection`, and `column`. */
export class ShownRows extends EventTarget {
  constructor() {
    super();
    this.filters = new Map();
    this.sort = null;
    this.changes = 0; // of rows, filters and sorting
    this.reached = 0; // the last change in the shown rows
    this.edition = 0; // of the values that the rows are sorted by
    this.isOther = false; // a change of filters or sorting is to come
    this.isOrder = true; // all of sorting
  }

  tell(type, detail = {}) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  /** Call a function with the events of some types, until a signal. */
  on(types, action, signal) {
    for (const type of types.split(" ")) this.addEventListener(type, action, { signal });
  }

  /** Show only rows that pass a test, beside the other filters; none removes it. `said` is what the test is made of. */
  setFilter(id, test, said = {}) {
    const filter = { chosen: NOTHING, text: "", ...said, test, passes: new Uint8Array(this.capacity), tested: 0, stale: [] };
    if (test) this.filters.set(id, filter);
    else if (!this.filters.delete(id)) return;
    this.updateAnew();
    this.tell("filter", { id });
  }

  /** The values that a filter keeps; none where there is no such filter. */
  chosen(id) {
    return this.filters.get(id)?.chosen ?? NOTHING;
  }

  /** Remove all filters; views empty their controls when none is there. */
  clearFilters() {
    this.filters.clear();
    this.updateAnew();
    this.tell("filter", { id: null });
  }

  /** Sort by a column; by null, rows are in the order in which they came. */
  sortBy(name, descending = false) {
    this.sort = name === null ? null : { name, descending };
    this.edition += 1;
    this.updateAnew(true);
    this.tell("sort");
  }

  /** The test whether a row passes all filters but one. */
  passesWithout(id) {
    const { fails, removed } = this;
    const passes = this.applied.get(id);
    return (row) => !removed[row] && (fails[row] === 0 || (fails[row] === 1 && passes?.[row] === 0));
  }

  /** Whether the rows of another filter or in another order are still to come. */
  get isBehind() {
    return this.isOther && this.reached !== this.changes;
  }

  /** Bring the shown rows up to date with other filters, or another order, and end the update in progress. */
  updateAnew(isOrder = false) {
    this.stopUpdate();
    this.isOther = true;
    this.update(isOrder);
  }

  stopUpdate() {
    this.updating?.abort();
    this.updating = null;
  }

  /** Bring the shown rows up to date, in slices. Changes of rows that come meanwhile follow in a further turn. */
  async update(isOrder = false) {
    this.changes += 1;
    this.isOrder &&= isOrder;
    if (this.updating) return;
    const { signal } = (this.updating = new AbortController());
    await null; // changes in one go are one change
    try {
      while (this.reached !== this.changes && !signal.aborted) await inSlices(this.sifting(), signal);
    } finally {
      if (!signal.aborted) this.updating = null;
    }
  }

  /** Find the rows to show, in steps; the last one shows them. */
  *sifting() {
    const { changes, edition, sort } = this;
    if (sort && this.orderOf !== edition) {
      this.order = yield* sortedRows(this.column(sort.name), this.total, sort.descending);
      this.orderOf = edition;
    }
    const isOld = ({ tested, stale }) => tested < this.total || stale.length > 0;
    for (let old; (old = [...this.filters].find(([, filter]) => isOld(filter))); yield) this.testSome(...old);
    this.reached = changes;
    this.show();
  }

  /** Test some of the rows that a filter has not tested since they changed. Views have the results before. */
  testSome(id, filter) {
    const { stale, test } = filter;
    const isSeen = this.applied.get(id) === filter.passes;
    if (isSeen || filter.passes.length < this.total) filter.passes = wider(filter.passes, this.capacity, 0);
    const { passes } = filter;
    for (let count = 0; stale.length && count < TESTED_ROWS; count++) {
      const row = stale.pop();
      passes[row] = test(row) ? 1 : 0;
    }
    const end = Math.min(filter.tested + TESTED_ROWS, this.total);
    for (let row = filter.tested; row < end; row++) passes[row] = test(row) ? 1 : 0;
    filter.tested = end;
  }

  /** Show the rows that pass all filters, in their order. */
  show() {
    const { isOther, isOrder, removed, total } = this;
    const fails = new Uint8Array(total);
    this.applied = new Map(Array.from(this.filters, ([id, { passes }]) => [id, passes]));
    for (const passes of this.applied.values()) for (let row = 0; row < total; row++) fails[row] += 1 - passes[row];
    const order = this.sort ? this.order : null;
    const rows = new Uint32Array(order?.length ?? total);
    let count = 0;
    for (let index = 0; index < rows.length; index++) {
      const row = order ? order[index] : index;
      if (!fails[row] && !removed[row]) rows[count++] = row;
    }
    const before = this.shown;
    [this.fails, this.shown, this.isOther, this.isOrder] = [fails, rows.subarray(0, count), false, true];
    const isSame = before.length === count && before.every((row, index) => row === rows[index]);
    this.tell("shown", { isOther, isSame });
    if (!isOrder) this.tell("passed");
  }

  // ------------------------------------------------------------ changes of rows

  /** Begin with other rows, none of which are here yet. */
  showNothing() {
    this.stopUpdate();
    this.shown = NO_ROWS; // row numbers after filters and sorting
    this.applied = new Map(); // which rows pass each filter that the shown rows have passed
    this.fails = new Uint8Array(0); // how many of these each row fails
    this.forget();
  }

  /** Test and sort rows again from one on: they have changed. */
  forget(first = 0) {
    for (const filter of this.filters.values()) {
      filter.tested = Math.min(filter.tested, first);
      if (!first) filter.stale = [];
    }
    this.edition += 1;
    this.update();
  }

  /** Test rows again that have other values in a column. */
  testAgain(rows, name) {
    if (this.sort?.name === name) this.edition += 1;
    for (const { stale } of this.filters.values()) for (const row of rows) stale.push(row);
    this.update();
  }

  /** Show rows no longer that were removed, at once. */
  hideRemoved() {
    const { removed, shown } = this;
    const rows = new Uint32Array(shown.length);
    let count = 0;
    for (let index = 0; index < shown.length; index++) if (!removed[shown[index]]) rows[count++] = shown[index];
    this.shown = rows.subarray(0, count);
    this.tell("shown", { isOther: false, isSame: count === shown.length });
  }

  /** How many of the selected rows the filters hide. */
  get hiddenSelected() {
    if (!this.applied.size || !this.selection.size) return 0;
    const { fails, selection } = this;
    let count = 0;
    for (let row = 0; row < fails.length; row++) if (fails[row] && selection.has(row)) count++;
    return count;
  }
}
