/**
 * The table's head: sorts by a column, changes its width, and filters it.
 */

import { cellValue, filterHelp, filterTest } from "./columns.js";
import { arrange, later, made, oneStop, roving } from "./drawing.js";
import { filterBy } from "./filters.js";

const FILTER_DELAY = 150; // milliseconds from the last key to the filter
const WIDTHS = [48, 900]; // pixels
const WIDTH_STEP = 16;
const PADDING = 22;
const MARK = " ▲"; // of a column that is sorted by
const SAMPLE = 100;
const MOST_FIT = 0.8; // of the cells; the others are shown in full where the pointer rests
const WIDEST = 300;
const COUNTDOWN = "time left";
const OF_CAUSES = ["dead_letter_reason", "dead_letter_error_description", "subject"];
const NAMES = "[data-column]";
const constants = new WeakMap(); // names of columns with one value, by the rows that are shown

/** The columns that are shown, with the widths of those that have none yet; `element` has the font. */
export function shownColumns(store, element) {
  const columns = store.columns.filter((column) => !column.hidden && !isSaidByCause(store, column.name));
  for (const column of columns) {
    if (column.width && !column.guessed) continue;
    column.width = fittingWidth(store, column, element);
    column.guessed = !store.shown.length || !element.isConnected; // until there are rows to fit
  }
  return columns;
}

/** Whether the cause that the table is filtered by says the same as a column, which has one value in all rows. */
function isSaidByCause(store, name) {
  if (store.chosen("cause").size !== 1 || store.filters.has(`column:${name}`)) return false;
  const { shown } = store;
  if (!shown.length) return false;
  if (!constants.has(shown)) constants.set(shown, OF_CAUSES.filter((each) => isConstant(store.column(each), shown)));
  return constants.get(shown).includes(name);
}

function isConstant(cells, shown) {
  const first = cellValue(cells[shown[0]]);
  return shown.every((row) => cellValue(cells[row]) === first);
}

function isCountdown(store, name) {
  return store.countdown && name === "locked_until";
}

function fittingWidth(store, { name, title, kind }, element) {
  const ruler = document.createElement("canvas").getContext("2d");
  const { fontSize, fontFamily } = getComputedStyle(element);
  ruler.font = `600 ${fontSize || "13px"} ${fontFamily || "sans-serif"}`;
  const head = ruler.measureText((isCountdown(store, name) ? COUNTDOWN : title) + MARK).width;
  const rows = isCountdown(store, name) ? [] : store.shown.subarray(0, kind === "time" ? 1 : SAMPLE);
  ruler.font = ruler.font.replace("600 ", "");
  const cells = Float64Array.from(rows, (row) => ruler.measureText(store.text(row, name)).width).sort();
  const widest = Math.max(head, cells[Math.floor(MOST_FIT * cells.length)] ?? 0);
  return Math.min(WIDEST, Math.max(WIDTHS[0], Math.round(widest + PADDING)));
}

/** The rows of headers and of filters; a column that stays keeps its cells, with the focus and the typed text. */
export class Header {
  constructor(store, resized) {
    this.store = store;
    this.resized = resized;
    this.names = made("div", { class: "sbn-names", role: "row", "aria-rowindex": "1" });
    this.filters = made("div", { class: "sbn-filters", role: "row", "aria-rowindex": "2", hidden: true });
    this.corners = [this.corner("columnheader", "selected"), this.corner("gridcell", "")];
    this.cells = new Map(); // the name and the filter of each column that is shown
    this.element = made("div", { class: "sbn-head", role: "rowgroup" }, this.names, this.filters);
    this.names.addEventListener("keydown", (event) => this.key(event));
    roving(this.names, NAMES, ["ArrowLeft", "ArrowRight"]);
  }

  draw(columns) {
    const key = ({ name, title, kind }) => [name, title, kind].join("\n");
    const cells = (column) => this.cells.get(key(column)) ?? [this.name(column), this.filter(column)];
    this.cells = new Map(columns.map((column) => [key(column), cells(column)]));
    [this.names, this.filters].forEach((row, place) => {
      arrange(row, [this.corners[place], ...[...this.cells.values()].map((pair) => pair[place])]);
    });
    const { sort } = this.store;
    for (const cell of this.names.querySelectorAll(NAMES)) {
      const sorted = sort?.name === cell.dataset.column;
      cell.setAttribute("aria-sort", sorted ? (sort.descending ? "descending" : "ascending") : "none");
    }
    oneStop(this.names, NAMES);
  }

  corner(role, label) {
    return made("div", { class: "sbn-check", role }, made("span", { class: "sbn-said" }, label));
  }

  name(column) {
    const title = isCountdown(this.store, column.name) ? COUNTDOWN : column.title;
    const handle = made("span", { class: "sbn-handle", "aria-hidden": "true" });
    handle.addEventListener("pointerdown", (event) => this.drag(event, column));
    handle.addEventListener("click", (event) => event.stopPropagation());
    handle.addEventListener("dblclick", () => this.resize(column, fittingWidth(this.store, column, this.element)));
    const cell = made(
      "div",
      {
        class: `sbn-name sbn-${column.kind}`,
        role: "columnheader",
        "data-column": column.name,
        tabIndex: -1,
        title: `${column.name}: click or Enter sorts; drag the edge, or Shift and an arrow key, for its width`,
      },
      made("span", { class: "sbn-title" }, title),
      handle,
    );
    cell.addEventListener("click", () => this.sort(column.name));
    return cell;
  }

  /** From unsorted to ascending to descending and back. */
  sort(name) {
    const { sort } = this.store;
    if (sort?.name !== name) this.store.sortBy(name);
    else if (sort.descending) this.store.sortBy(null);
    else this.store.sortBy(name, true);
  }

  key(event) {
    const cell = event.target.closest(NAMES);
    const column = this.store.columns.find(({ name }) => name === cell?.dataset.column);
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!column) return;
    if (event.key === "Enter" || event.key === " ") this.sort(column.name);
    else if (step && event.shiftKey) this.resize(column, column.width + step * WIDTH_STEP);
    else return;
    event.preventDefault();
    event.stopImmediatePropagation(); // the focus stays
  }

  drag(event, column) {
    event.preventDefault();
    event.stopPropagation();
    const handle = event.target;
    const start = event.clientX - column.width;
    const move = (moved) => this.resize(column, moved.clientX - start);
    handle.setPointerCapture(event.pointerId);
    handle.addEventListener("pointermove", move);
    handle.addEventListener("lostpointercapture", () => handle.removeEventListener("pointermove", move), { once: true });
  }

  resize(column, width) {
    column.width = Math.min(WIDTHS[1], Math.max(WIDTHS[0], Math.round(width)));
    column.guessed = false;
    this.resized();
  }

  filter(column) {
    const { name, title, kind } = column;
    const label = `Filter ${title}: ${filterHelp(kind)}`;
    const input = made("input", { type: "search", title: label, "aria-label": label, spellcheck: false, "data-column": name });
    input.value = this.store.filters.get(`column:${name}`)?.text ?? "";
    input.addEventListener("input", later(FILTER_DELAY, () => this.apply(input, column)));
    return made("div", { role: "gridcell" }, input);
  }

  apply(input, { name, kind }) {
    const text = input.value;
    input.setAttribute("aria-invalid", String(Boolean(text.trim()) && !filterTest(kind, text)));
    filterBy(this.store, `column:${name}`, { text });
  }

  /** Empty the inputs of filters that are gone. */
  forgetFilters() {
    for (const input of this.filters.querySelectorAll("input")) input.value = "";
  }

  /** Show or hide the row of filters. */
  toggleFilters(on) {
    this.filters.hidden = !on;
    for (const input of this.filters.querySelectorAll("input")) {
      input.value ||= this.store.filters.get(`column:${input.dataset.column}`)?.text ?? ""; // from before the page was loaded
    }
    this.resized();
    if (on) this.filters.querySelector("input")?.focus();
  }
}
