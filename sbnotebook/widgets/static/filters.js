/**
 * The filters of a table: what each says, and the test that follows from it. The kernel keeps what they say, so that a page
 * that is loaded again has them.
 */

import { filterTest } from "./columns.js";

export const TIMES = "enqueued_time"; // the column of the timeline

/** The tests of filters, by the beginning of their ids; none where all rows pass. */
const TESTS = {
  cause: (store, _, said) => TESTS.facet(store, "cause", said),
  facet: (store, name, { chosen }) => chosen.size > 0 && ((row) => chosen.has(store.value(row, name))),
  time(store, _, { range }) {
    const time = (row) => store.column(TIMES)[row];
    return range && ((row) => time(row) >= range[0] && time(row) < range[1]);
  },
  text: () => () => true, // the search finds its rows when it draws
  column(store, name, { text }) {
    const test = text.trim() && filterTest(store.kind(name), text);
    return test && ((row) => test(store.value(row, name)));
  },
};

/** Show only rows with the chosen values, in a range of times, or with a text in a column, as the id says. */
export function filterBy(store, id, { chosen = new Set(), range = null, text = "" }) {
  const [kind, ...name] = id.split(":");
  const said = { chosen, range, text };
  store.setFilter(id, TESTS[kind](store, name.join(":"), said), said);
}

/** What the filters say, as JSON; those of numbers that JSON cannot hold are left out. */
export function filtersOf(store) {
  const all = [...store.filters].map(([id, { chosen, range, text }]) => ({ id, chosen: [...chosen], range, text }));
  return all.filter(({ chosen }) => !chosen.some((value) => typeof value === "bigint"));
}

/** Filter a table that has no filters. */
export function refilter(store, filters) {
  if (store.filters.size) return;
  for (const { id, chosen, range, text } of filters) filterBy(store, id, { chosen: new Set(chosen), range, text });
}
