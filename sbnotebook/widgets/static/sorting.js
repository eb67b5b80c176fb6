/**
 * The order of rows by a column: stable, ascending or descending, and rows without a value always at the end.
 */

import { cellValue } from "./columns.js";

const PART = 4_000; // rows in one step

/** Row numbers in order, in steps: parts are sorted, and then merged. */
export function* sortedRows(column, count, descending) {
  const rows = new Uint32Array(count);
  const valued = rows.subarray(0, putValuedFirst(rows, column));
  const sign = descending ? -1 : 1;
  const compare = (one, other) => {
    const [first, second] = [column[one], column[other]];
    return first === second ? one - other : first < second ? -sign : first > second ? sign : one - other;
  };
  for (let start = 0; start < valued.length; start += PART) {
    yield;
    valued.subarray(start, start + PART).sort(compare);
  }
  let [from, to] = [valued, new Uint32Array(valued.length)];
  for (let width = PART; width < valued.length; width *= 2) {
    for (let start = 0; start < valued.length; start += 2 * width) yield* merge(from, to, start, width, compare);
    [from, to] = [to, from];
  }
  if (from !== valued) valued.set(from);
  return rows;
}

/** Merge two sorted parts that lie side by side into another array, in steps. */
function* merge(from, to, start, width, compare) {
  const [middle, end] = [start + width, start + 2 * width].map((place) => Math.min(place, from.length));
  let [left, right] = [start, middle];
  for (let place = start; place < end; place++) {
    const isLeft = right === end || (left < middle && compare(from[left], from[right]) < 0);
    to[place] = from[isLeft ? left++ : right++];
    if (place % PART === 0) yield;
  }
}

/** Number rows, those without a value last; gives how many have one. */
function putValuedFirst(rows, column) {
  const others = [];
  let count = 0;
  for (let row = 0; row < rows.length; row++) {
    if (cellValue(column[row]) === null) others.push(row);
    else rows[count++] = row;
  }
  rows.set(others, count);
  return count;
}
