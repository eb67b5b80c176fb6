/**
 * The order of rows by a column: stable, ascending or descending, and rows without a value always at the end.
 */

import { cellValue } from "./columns.js";
import { each } from "./slices.js";

const RUN = 4_000; // values that are sorted in one step

/**
 * Row numbers in order, in steps. The different values are sorted, and the rows then counted into their places, which
 * takes time in proportion to the rows.
 * @param {Array|Float64Array|BigInt64Array} column values by row number
 * @param {number} count of rows
 * @param {boolean} descending
 * @returns {Generator<void, Uint32Array>}
 */
export function* sortedRows(column, count, descending) {
  const places = new Map(); // by value
  yield* each(0, count, (row) => {
    const value = cellValue(column[row]);
    if (value !== null) places.set(value, 0);
  });
  const values = yield* sortedValues([...places.keys()]);
  const size = values.length; // the place of rows without a value
  yield* each(0, size, (place) => places.set(values[place], descending ? size - 1 - place : place));
  const starts = new Uint32Array(size + 2);
  const placesOfRows = new Uint32Array(count);
  yield* each(0, count, (row) => {
    const place = places.get(cellValue(column[row])) ?? size;
    placesOfRows[row] = place;
    starts[place + 1]++;
  });
  for (let place = 0; place <= size; place++) starts[place + 1] += starts[place];
  const rows = new Uint32Array(count);
  yield* each(0, count, (row) => { rows[starts[placesOfRows[row]]++] = row; });
  return rows;
}

/** Different values in order: short runs are sorted, and then merged. */
function* sortedValues(values) {
  const runs = [];
  for (let start = 0; start < values.length; start += RUN) {
    runs.push(values.slice(start, start + RUN).sort((one, other) => (one < other ? -1 : 1)));
    yield;
  }
  while (runs.length > 1) runs.push(yield* merged(runs.shift(), runs.shift()));
  return runs[0] ?? [];
}

function* merged(one, other) {
  if (one.at(-1) < other[0]) return one.concat(other); // rows often come in an order, such as that of time
  const all = new Array(one.length + other.length);
  let [here, there] = [0, 0];
  yield* each(0, all.length, (index) => {
    const isHere = there === other.length || (here < one.length && one[here] < other[there]);
    all[index] = isHere ? one[here++] : other[there++];
  });
  return all;
}
