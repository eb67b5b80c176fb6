/**
 * A set of row numbers that is as quick with all rows as with a few.
 */

const LEAST_ROOM = 1024;

export class RowSet {
  /** @param {Iterable<number>} rows */
  constructor(rows = []) {
    this.clear();
    for (const row of rows) this.add(row);
  }

  has(row) {
    return this.flags[row] === 1;
  }

  add(row) {
    if (row >= this.flags.length) this.grow(Math.max(row + 1, 2 * this.flags.length));
    this.size += 1 - this.flags[row];
    this.flags[row] = 1;
  }

  delete(row) {
    if (!this.has(row)) return;
    this.flags[row] = 0;
    this.size -= 1;
  }

  clear() {
    this.flags = new Uint8Array(LEAST_ROOM);
    this.size = 0;
  }

  grow(room) {
    const { flags } = this;
    this.flags = new Uint8Array(room);
    this.flags.set(flags);
  }

  /** The rows in the order of their numbers. */
  *[Symbol.iterator]() {
    const { flags } = this;
    for (let row = flags.indexOf(1); row >= 0; row = flags.indexOf(1, row + 1)) yield row;
  }
}
