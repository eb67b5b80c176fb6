/**
 * The rows of each cause: which they are, and when they came.
 */

import { TIMES } from "./filters.js";
import { each } from "./slices.js";

export const CAUSE_FILTER = "cause";
const CAUSE_COLUMN = "cause";
const BACK_COLUMN = "resubmit_count";
const SUB_QUEUE = "/$"; // in the address of each dead-letter queue, and of no other
export const TREND_POINTS = 24;

/**
 * Rows by cause, those that pass all filters but that by cause: `rows` of each cause, how many rows are `unread`, whose
 * causes the page does not have yet, and the `time` of all rows. They are found in steps.
 */
export function* tallied(store, causes) {
  const own = store.column(CAUSE_COLUMN);
  const passes = store.passesWithout(CAUSE_FILTER);
  const rows = new Map(Array.from(causes.keys(), (fingerprint) => [fingerprint, []]));
  let unread = 0;
  yield* each(0, store.total, (row) => {
    if (!passes(row)) return;
    if (rows.has(own[row])) rows.get(own[row]).push(row);
    else unread++;
  });
  const { first, last } = yield* span(store);
  return { rows, unread, time: { from: first, width: Math.max(1, (last - first) / TREND_POINTS) } };
}

/** The rows of one cause that pass all filters but that by cause. */
export function rowsOfCause(store, fingerprint) {
  const causes = store.column(CAUSE_COLUMN);
  const passes = store.passesWithout(CAUSE_FILTER);
  return Array.from(causes.keys()).filter((row) => causes[row] === fingerprint && passes(row));
}

/** The first and the last time of the rows, without removed ones, found in steps. */
export function* span(store) {
  const times = store.column(TIMES);
  let [first, last] = [Infinity, -Infinity];
  yield* each(0, store.total, (row) => {
    if (store.isRemoved(row)) return;
    if (times[row] < first) first = times[row];
    if (times[row] > last) last = times[row];
  });
  return { first, last };
}

/** When the messages of some rows came: the first, the last, how many in each part of the time, and which came back. */
export function history(store, rows, { from, width }) {
  const times = store.column(TIMES);
  const resubmits = store.column(BACK_COLUMN);
  const seen = { first: Infinity, last: -Infinity, back: 0, backRows: 0, backLast: -Infinity, trend: new Uint32Array(TREND_POINTS) };
  for (const row of rows) {
    const time = times[row];
    // A clone that waits for its first delivery has not come back.
    const back = resubmits[row] > 0 && store.value(row, "entity").includes(SUB_QUEUE) ? resubmits[row] : 0;
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
