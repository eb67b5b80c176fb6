/**
 * The order of rows by a column: stable, ascending or descending, and rows without a value always at the end.
 *
 * Each row has a key of four units of 16 bits: a number, the next characters of a text, or the place of a text among few.
 * Rows are counted into their places by one unit after the other, the last unit first. That takes time in proportion to
 * the rows.
 */

import { cellValue } from "./columns.js";

const UNITS = 4;
const FEW = 500; // texts, which are compared
const PART = 10_000; // rows in one step

/**
 * Row numbers in order, in steps.
 * @param {Array|Float64Array|BigInt64Array} column values by row number
 * @param {number} count of rows
 * @param {boolean} descending
 * @returns {Generator<void, Uint32Array>}
 */
export function* sortedRows(column, count, descending) {
  const rows = new Uint32Array(count);
  const valued = rows.subarray(0, putValuedFirst(rows, column));
  const flip = descending ? 0xffff : 0;
  yield;
  if (Array.isArray(column)) yield* sortTexts(valued, column, new Uint16Array(UNITS * count), flip);
  else yield* sortKeys(valued, keysOfNumbers(column.slice(0, count)), flip);
  return rows;
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

/** Sort rows by the last units of their keys, in steps. Rows with the same key stay in their order. */
function* sortKeys(rows, keys, flip, units = UNITS) {
  let [from, to] = [rows, new Uint32Array(rows.length)];
  for (let unit = 0; unit < units; unit++) {
    if (sortByUnit(from, to, keys, unit, flip)) [from, to] = [to, from];
    yield;
  }
  if (from !== rows) rows.set(from);
}

/** Sort rows by a unit of their keys into another array; false if all have the same. */
function sortByUnit(from, to, keys, unit, flip) {
  const starts = new Uint32Array(0x10001);
  for (let index = 0; index < from.length; index++) starts[(keys[UNITS * from[index] + unit] ^ flip) + 1]++;
  if (starts.includes(from.length)) return false;
  for (let place = 0; place < 0x10000; place++) starts[place + 1] += starts[place];
  for (let index = 0; index < from.length; index++) to[starts[keys[UNITS * from[index] + unit] ^ flip]++] = from[index];
  return true;
}

/** The bits of numbers, changed to be in the order of the numbers. */
function keysOfNumbers(numbers) {
  const isFloat = numbers instanceof Float64Array;
  const words = new Int32Array(numbers.buffer);
  for (let low = 0, high = 1; high < words.length; low += 2, high += 2) {
    if (isFloat && !words[low] && !(words[high] << 1)) words[high] = 0; // -0 is 0
    const others = isFloat ? words[high] >> 31 : 0; // in negative floats, all bits are turned
    words[low] ^= others;
    words[high] ^= others | (1 << 31);
  }
  return new Uint16Array(words.buffer);
}

/** Sort rows by their texts, in steps: by the first characters that differ, and rows with the same ones again. */
function* sortTexts(rows, texts, keys, flip) {
  if (takePlaces(rows, texts, keys)) {
    yield* sortKeys(rows, keys, flip, 1);
    return;
  }
  const first = texts[rows[0]];
  let start = first.length;
  yield* inParts(rows, (part) => { start = sharedLength(part, texts, first, start); });
  let codes = 0;
  yield* inParts(rows, (part) => { codes |= takeKeys(part, texts, start, new Uint8Array(keys.buffer)); });
  if (codes > 0xff) yield* inParts(rows, (part) => takeKeys(part, texts, start, keys));
  yield* sortKeys(rows, keys, flip);

  const words = new Int32Array(keys.buffer);
  for (let from = 0, seen = 0, to; from < rows.length; from = to) {
    to = endOfKey(rows, words, from);
    const count = to - from;
    if (count > FEW && count < rows.length) yield* sortTexts(rows.subarray(from, to), texts, keys, flip);
    else if (count > 1) compareTexts(rows.subarray(from, to), texts, flip ? -1 : 1);
    if (to - seen < FEW) continue;
    seen = to;
    yield;
  }
}

/** Take the places of texts in their order as the last units of keys; false if there are too many different texts. */
function takePlaces(rows, texts, keys) {
  const found = new Set();
  for (let index = 0; index < rows.length && found.size <= FEW; index++) found.add(texts[rows[index]]);
  if (found.size > FEW) return false;
  const places = new Map([...found].sort().map((text, place) => [text, place]));
  for (let index = 0; index < rows.length; index++) keys[UNITS * rows[index]] = places.get(texts[rows[index]]);
  return true;
}

function* inParts(rows, action) {
  for (let start = 0; start < rows.length; start += PART) {
    action(rows.subarray(start, start + PART));
    yield;
  }
}

/** How many characters texts share with the first one, and at most as many as before. */
function sharedLength(rows, texts, first, most) {
  for (let index = 0; index < rows.length; index++) {
    const text = texts[rows[index]];
    if (text === first) continue;
    let end = 0;
    while (end < most && text.charCodeAt(end) === first.charCodeAt(end)) end++;
    most = end;
  }
  return most;
}

/** Take characters from one on as keys, in reverse order; gives the bits that they have. */
function takeKeys(rows, texts, start, keys) {
  const size = (2 * UNITS) / keys.BYTES_PER_ELEMENT;
  let codes = 0;
  for (let index = 0; index < rows.length; index++) {
    const text = texts[rows[index]];
    const last = size * (rows[index] + 1) - 1;
    for (let place = 0; place < size; place++) {
      const code = start + place < text.length ? text.charCodeAt(start + place) : 0;
      codes |= code;
      keys[last - place] = code;
    }
  }
  return codes;
}

/** Where the rows with the same key end that begin at a place. */
function endOfKey(rows, words, from) {
  const key = 2 * rows[from];
  let to = from + 1;
  while (to < rows.length && words[2 * rows[to]] === words[key] && words[2 * rows[to] + 1] === words[key + 1]) to++;
  return to;
}

function compareTexts(rows, texts, sign) {
  rows.sort((one, other) => (texts[one] === texts[other] ? one - other : texts[one] < texts[other] ? -sign : sign));
}
