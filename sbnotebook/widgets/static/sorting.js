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
  const ranks = column instanceof Float64Array ? column : ranksOf(column, count);
  const sign = descending ? -1 : 1;
  const there = [];
  const missing = [];
  for (let row = 0; row < count; row++) (Number.isNaN(ranks[row]) ? missing : there).push(row);
  const rows = Uint32Array.from(there).sort((one, other) => sign * (ranks[one] - ranks[other]) || one - other);
  const all = new Uint32Array(count);
  all.set(rows);
  all.set(missing, rows.length);
  return all;
}

/** Each row's place in the order of the values, so that only numbers are compared; NaN where there is no value. */
function ranksOf(column, count) {
  const places = new Map();
  for (let row = 0; row < count; row++) {
    const value = cellValue(column[row]);
    if (value !== null) places.set(value, 0);
  }
  const values = [...places.keys()];
  if (typeof values[0] === "bigint") values.sort((one, other) => (one < other ? -1 : 1));
  else values.sort();
  values.forEach((value, place) => places.set(value, place));
  return Float64Array.from({ length: count }, (_, row) => places.get(cellValue(column[row])) ?? NaN);
}
