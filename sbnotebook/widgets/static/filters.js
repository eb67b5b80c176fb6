/**
 * The filters of a table as the kernel keeps them, so that a page that is loaded again has them.
 */

import { chooseCauses } from "./cause_rows.js";
import { filterTest } from "./columns.js";
import { keepValues } from "./facets.js";
import { keepTimes } from "./timeline.js";

/** What makes filters, by the beginning of their ids. */
const MAKERS = {
  cause: (store, _, { chosen }) => chooseCauses(store, new Set(chosen)),
  facet: (store, name, { chosen }) => keepValues(store, name, new Set(chosen)),
  time: (store, _, { range }) => keepTimes(store, range),
  text: (store, _, { text }) => store.setFilter("text", () => true, text), // the search finds its rows when it draws
  column(store, name, { text }) {
    const test = filterTest(store.kind(name), text);
    store.setFilter(`column:${name}`, test && ((row) => test(store.value(row, name))), text);
  },
};

/** The filters as JSON; those of numbers that JSON cannot hold are left out. */
export function filtersOf(store) {
  const all = [...store.filters].map(([id, { test, text }]) => {
    const { chosen = [], range } = test;
    return { id, text, chosen: [...chosen], range };
  });
  return all.filter(({ chosen }) => !chosen.some((value) => typeof value === "bigint"));
}

/** Filter a table that has no filters. */
export function refilter(store, filters) {
  if (store.filters.size) return;
  for (const filter of filters) {
    const [kind, ...name] = filter.id.split(":");
    MAKERS[kind]?.(store, name.join(":"), filter);
  }
}
