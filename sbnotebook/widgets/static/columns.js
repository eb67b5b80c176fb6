/**
 * Columns: how they come from the kernel, how their values are shown, and how a filter on one is written.
 */

const NULL_TEXT = "\0";
const NULL_LONG = -(2n ** 63n);
const decoder = new TextDecoder();

/** How long a text may be in a row; the kernel cuts it there. */
export const CUT = 200;

/** Values as the kernel packed them; see row_packing.py. */
export function decoded(coding, bytes, count) {
  if (coding === "float") return new Float64Array(bytes.slice().buffer);
  if (coding === "long") return Array.from(new BigInt64Array(bytes.slice().buffer), (value) => (value === NULL_LONG ? null : value));
  if (coding === "text") return lines(bytes);
  const codes = new Uint32Array(bytes.slice(0, 4 * count).buffer);
  const texts = lines(bytes.subarray(4 * count));
  return Array.from(codes, (code) => texts[code]);
}

function lines(bytes) {
  const texts = decoder.decode(bytes).split("\n");
  for (let index = 0; index < texts.length; index++) if (texts[index] === NULL_TEXT) texts[index] = null;
  return texts;
}

/** A cell of a column as value: null where there is none. */
export function cellValue(cell) {
  if (typeof cell === "number") return Number.isNaN(cell) ? null : cell;
  return cell ?? null;
}

/** A value as it is shown. */
export function shownText(kind, value) {
  if (value === null) return "";
  if (kind === "time") return timeText(value);
  if (kind === "flag") return value ? "yes" : "no";
  return kind === "text" && value.length >= CUT ? `${value}…` : String(value);
}

/** Milliseconds since 1970 as time in UTC, to the second, in the form that a filter takes. */
export function timeText(milliseconds) {
  const time = new Date(milliseconds);
  return Number.isNaN(time.getTime()) ? "" : time.toISOString().slice(0, -5).replace("T", " ");
}

/** Time that is left as minutes and seconds. */
export function leftText(milliseconds) {
  if (milliseconds <= 0) return "ended";
  const seconds = Math.ceil(milliseconds / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

/** What may be written into a column's filter, in words. */
export function filterHelp(kind) {
  if (kind === "number") return "a number, >3, <=3, or 3..7";
  if (kind === "time") return "2026-11-21, >2026-11-21 10:00, or 2026-11-20..2026-11-21 (UTC)";
  if (kind === "flag") return "yes or no";
  return "contains; =exactly, !without";
}

/** The test that a column's filter stands for; null where it cannot be read. */
export function filterTest(kind, text) {
  const typed = text.trim();
  if (kind === "text") return textTest(typed.toLowerCase());
  if (kind === "flag") return (value) => value !== null && shownText(kind, value).startsWith(typed.toLowerCase());
  const range = (kind === "time" ? rangeOf(typed, moment) : rangeOf(typed, exactNumber));
  return range && ((value) => value !== null && value >= range[0] && value < range[1]);
}

function textTest(typed) {
  const [first, rest] = [typed[0], typed.slice(1).trim()];
  if (first === "=") return (value) => (value ?? "").toLowerCase() === rest;
  if (first === "!" && rest) return (value) => !(value ?? "").toLowerCase().includes(rest);
  return (value) => value !== null && value.toLowerCase().includes(typed);
}

/** From (inclusive) and to (exclusive) of the input; `read` gives both for one value, or null. */
function rangeOf(typed, read) {
  const between = typed.split("..");
  if (between.length === 2) {
    const [from, to] = between.map((part) => (part.trim() ? read(part.trim()) : [-Infinity, Infinity]));
    return from && to && [from[0], to[1]];
  }
  const [, sign, rest] = /^(>=|<=|>|<|=|)(.*)$/s.exec(typed);
  const value = read(rest.trim());
  if (!value) return null;
  return { ">": [value[1], Infinity], ">=": [value[0], Infinity], "<": [-Infinity, value[0]], "<=": [-Infinity, value[1]] }[
    sign
  ] ?? value;
}

/** A number as the range that holds it alone; a whole one exactly, however large. */
function exactNumber(text) {
  if (/^[+-]?\d+$/.test(text)) {
    const whole = BigInt(text);
    return Number.isSafeInteger(Number(whole)) ? [Number(whole), nextNumber(Number(whole))] : [whole, whole + 1n];
  }
  const number = Number(text);
  return text && !Number.isNaN(number) ? [number, nextNumber(number)] : null;
}

function nextNumber(number) {
  return number + Math.max(Number.MIN_VALUE, Math.abs(number) * Number.EPSILON);
}

const MOMENT = /^(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2})(?::(\d{2})(?::(\d{2})(?:\.\d*)?)?)?)?)?)?Z?$/;

/** A time, of which the end may be missing, as the range that it means: 2026-11 is the whole month. */
function moment(text) {
  const found = MOMENT.exec(text);
  if (!found) return null;
  const parts = found.slice(1).filter((part) => part !== undefined).map(Number);
  const at = (more) => {
    const all = [0, 1, 1, 0, 0, 0].map((least, index) => (parts[index] ?? least) + (index === parts.length - 1 ? more : 0));
    return Date.UTC(all[0], all[1] - 1, ...all.slice(2));
  };
  return [at(0), at(1)];
}
