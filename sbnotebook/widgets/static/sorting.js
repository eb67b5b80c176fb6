/**
 * The order of rows by a column: stable, ascending or descending, and rows without a value always at the end.
 */

import { cellValue } from "./columns.js";

/**
 * Row numbers in order.
 * @param {Array|Float64Array|BigInt64Array} column values by row number
 * @param {number} count of rows
 * @param {boolean} descending
 * @returns {Uint32Array}
 */
export function sortedRows(column, count, descending) {
  if (!(column instanceof Float64Array)) return byPlace(...placesOf(column, count), descending);
  const sign = descending ? -1 : 1;
  const there = [];
  const missing = [];
  for (let row = 0; row < count; row++) (Number.isNaN(column[row]) ? missing : there).push(row);
  const rows = Uint32Array.from(there).sort((one, other) => sign * (column[one] - column[other]) || one - other);
  const all = new Uint32Array(count);
  all.set(rows);
  all.set(missing, rows.length);
  return all;
}

/**
 * Rows in the order of their places. Places are counted and not compared, which takes time in proportion to the rows.
 * @param {Uint32Array} places of rows; `size` where there is no value
 * @param {number} size one more than the last place
 */
function byPlace(places, size, descending) {
  const order = descending ? (place) => (place === size ? size : size - 1 - place) : (place) => place;
  const starts = new Uint32Array(size + 2);
  for (const place of places) starts[order(place) + 1]++;
  for (let place = 0; place <= size; place++) starts[place + 1] += starts[place];
  const rows = new Uint32Array(places.length);
  places.forEach((place, row) => { rows[starts[order(place)]++] = row; });
  return rows;
}

/** Each row's place in the order of the different values, and how many of these there are. */
function placesOf(column, count) {
  const found = new Map();
  for (let row = 0; row < count; row++) {
    const value = cellValue(column[row]);
    if (value !== null) found.set(value, 0);
  }
  const values = [...found.keys()];
  if (typeof values[0] === "bigint") values.sort((one, other) => (one < other ? -1 : 1));
  else values.sort();
  values.forEach((value, place) => found.set(value, place));
  const places = new Uint32Array(count);
  for (let row = 0; row < count; row++) places[row] = found.get(cellValue(column[row])) ?? values.length;
  return [places, values.length];
}
