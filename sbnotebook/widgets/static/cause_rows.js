/**
 * The rows of each cause: which they are, and when they came.
 */

import { each } from "./slices.js";

export const CAUSE_FILTER = "cause";
const CAUSE_COLUMN = "cause";
const SEEN_COLUMN = "enqueued_time";
const BACK_COLUMN = "resubmit_count";
export const TREND_POINTS = 24;

/**
 * Rows by cause, those that pass all filters but that by cause: `rows` of each cause, the number of `known` causes, and how many
 * rows are `unread`, whose causes the kernel does not know yet. They are found in steps.
 */
export function* tallied(store) {
  const causes = store.column(CAUSE_COLUMN);
  const found = new Map(store.causes.map(({ fingerprint }) => [fingerprint, []]));
  const known = new Set(found.keys());
  yield* each(0, store.total, (row) => causes[row] && known.add(causes[row]));
  let unread = 0;
  const rows = store.rowsWithout(CAUSE_FILTER);
  yield* each(0, rows.length, (index) => {
    const row = rows[index];
    const cause = causes[row];
    if (!cause) unread++;
    else if (found.has(cause)) found.get(cause).push(row);
    else found.set(cause, [row]);
  });
  return { rows: found, known: known.size, unread };
}

/** The rows of one cause that pass all filters but that by cause. */
export function rowsOfCause(store, fingerprint) {
  const causes = store.column(CAUSE_COLUMN);
  return Array.from(store.rowsWithout(CAUSE_FILTER).filter((row) => causes[row] === fingerprint));
}

/** The first and the last time of all rows. */
export function span(store) {
  const times = store.column(SEEN_COLUMN);
  let [from, to] = [Infinity, -Infinity];
  for (let row = 0; row < store.total; row++) {
    if (times[row] < from) from = times[row];
    if (times[row] > to) to = times[row];
  }
  return { from, width: Math.max(1, (to - from) / TREND_POINTS) };
}

/** When the messages of some rows came: the first, the last, how many in each part of the time, and which came back. */
export function history(store, rows, { from, width }) {
  const times = store.column(SEEN_COLUMN);
  const resubmits = store.column(BACK_COLUMN);
  const seen = { first: Infinity, last: -Infinity, back: 0, backRows: 0, backLast: -Infinity, trend: new Uint32Array(TREND_POINTS) };
  for (const row of rows) {
    const [time, back] = [times[row], resubmits[row]];
    if (back > seen.back) seen.back = back;
    if (back > 0) seen.backRows++;
    if (!(time >= -Infinity)) continue;
    if (back > 0 && time > seen.backLast) seen.backLast = time; // a clone is enqueued when it is resubmitted
    if (time < seen.first) seen.first = time;
    if (time > seen.last) seen.last = time;
    seen.trend[Math.min(TREND_POINTS - 1, Math.floor((time - from) / width))]++;
  }
  return seen;
}
