/**
 * The message table as a widget: one store for each model, and a view for each place where it is displayed.
 */

import { inflated, Transport } from "./transport.js";
import { Store } from "./store.js";
import { keepKeys } from "./focused.js";
import { Grid } from "./grid.js";
import { decoded } from "./columns.js";
import { later, made } from "./drawing.js";
import { Toolbar } from "./toolbar.js";
import { causesView } from "./causes.js";
import { detailView } from "./detail.js";
import { facetsView } from "./facets.js";
import { filtersOf, refilter } from "./filters.js";
import { inSlices } from "./slices.js";
import { timelineView } from "./timeline.js";

const KEEP_DELAY = 300; // milliseconds from the last change of a filter

/** What the kernel sends, by kind. */
const HANDLERS = {
  begin(store, { load, columns, total, now }) {
    store.load = load;
    store.state = total ? "loading" : "ready";
    store.toldHidden = 0;
    store.hasLongTexts = false;
    store.causes = new Map(); // those of the rows before go; new ones are announced when they are known
    store.tellTime(now);
    store.begin(store.laidOut(columns), total);
  },
  columns(store, { columns, total }) {
    store.columns = store.laidOut(columns);
    store.grow(total);
    store.forget();
    store.tell("columns");
  },
  async rows(store, content, [data]) {
    await inSlices(store.fill(content, await inflated(data)));
  },
  end(store, { has_long: hasLong }) {
    store.state = "ready";
    store.hasLongTexts ||= hasLong;
    store.refocus();
    store.tell("rows", { kind: store.total ? "added" : "replaced" });
  },
  async patch(store, { column, parts: [{ coding }], now }, [data, rows]) {
    const numbers = numbersOf(rows);
    store.tellTime(now);
    store.patch(column, numbers, decoded(coding, await inflated(data), numbers.length));
  },
  remove: (store, _, [rows]) => store.remove(numbersOf(rows)),
  select(store, _, [bits]) {
    store.turn += 1;
    store.adopt(rowsOfBits(bits));
  },
  async causes(store, _, [data]) {
    const causes = JSON.parse(new TextDecoder().decode(await inflated(data)));
    for (const cause of causes) store.causes.set(cause.fingerprint, cause);
    store.tell("causes");
  },
  notes(store, { notes, resubmits }) {
    Object.assign(store, { notes, resubmits });
    store.tell("causes");
  },
  filters: (store, { filters }) => refilter(store, filters),
  failed: (store, { text }) => store.tell("failed", text),
};

function numbersOf(data) {
  return new Uint32Array(data.slice().buffer);
}

/** Row numbers of the bits that are set. */
function* rowsOfBits(bits) {
  for (let index = 0; index < 8 * bits.length; index++) {
    if (bits[index >> 3] & (1 << (index & 7))) yield index;
  }
}

function bitsOf(rows, total) {
  const bits = new Uint8Array(Math.ceil(total / 8));
  for (const row of rows) bits[row >> 3] |= 1 << (row & 7);
  return bits;
}

/** Send the selection to the kernel, before any later click. */
function tellSelection(store, transport) {
  const hidden = store.hiddenSelected;
  store.toldHidden = hidden;
  try {
    transport.send("selection", { turn: store.turn, hidden }, [bitsOf(store.selection, store.total).buffer]);
  } catch (error) {
    store.tell("failed", error.message);
  }
}

/** A store that the kernel fills, and that tells it the selection. */
function connect(model) {
  const store = new Store((name, data) => transport.request(name, data));
  const handle = async (content, buffers) => {
    if (content.but === transport.page || (content.kind !== "begin" && content.load !== store.load)) return;
    await HANDLERS[content.kind]?.(store, content, buffers);
  };
  const transport = new Transport(model, handle, (error) => store.tell("failed", `What the kernel sent cannot be shown: ${error}`));
  store.turn = 0; // how many selections the kernel has told
  store.addEventListener("selection", ({ detail }) => detail.own && tellSelection(store, transport));
  store.on("selection shown rows", () => {
    if (store.state === "ready" && store.toldHidden !== store.hiddenSelected) tellSelection(store, transport);
  });
  const keep = later(KEEP_DELAY, () => {
    try {
      if (store.state === "ready") transport.send("filters", { filters: filtersOf(store) });
    } catch {
      // Without a kernel, there is no page to come.
    }
  });
  store.addEventListener("filter", keep);
  transport.send("ready");
  return store;
}

/** Draw a table into an element; gives the function that ends it. */
function tableView(store, element, options) {
  const grid = new Grid(store, options);
  const toolbar = new Toolbar(store, grid.header);
  const side = made("div", { class: "sbn-side" });
  const timeline = made("div", { class: "sbn-timeline" });
  const causes = made("div", { class: "sbn-causes" });
  const detail = made("div", { class: "sbn-detail" });
  const main = made("div", { class: "sbn-main" }, side, grid.element);
  const root = made("div", { class: "sbn-table" });
  keepKeys(root);
  root.store = store; // for those who look into it with the browser's tools, and for measuring
  root.append(timeline, causes, toolbar.element, main, detail);
  element.replaceChildren(root);

  const draw = () => {
    root.classList.toggle("sbn-alive", store.state !== "waiting"); // the record below it is hidden then
    toolbar.draw();
    grid.drawSoon();
  };
  const end = new AbortController();
  const { signal } = end;
  const on = (types, action) => store.on(types, action, signal);
  on("filter", () => !store.filters.size && grid.header.forgetFilters());
  on("shown", ({ detail }) => {
    if (detail.isOther) return grid.reset();
    grid.follow();
    if (!detail.isSame) grid.endRange();
  });
  on("selection", () => grid.endRange());
  on("rows", ({ detail }) => {
    if (detail.kind !== "patched") grid.endRange();
    if (detail.kind === "replaced") grid.forgetRow();
  });
  on("failed", (event) => toolbar.fail(event.detail));
  on("rows shown selection columns focus", draw);
  const drawBehind = () => setTimeout(() => store.isBehind && draw()); // most rows are found before
  on("filter sort", drawBehind);
  draw();
  const hasFacets = options.facets === null || options.facets.length > 0;
  if (hasFacets) facetsView(store, side, options, signal);
  if (options.timeline) timelineView(store, timeline, signal);
  if (options.causes) causesView(store, causes, options, signal);
  detailView(store, detail, hasFacets, signal);
  signal.addEventListener("abort", () => grid.dispose());
  return () => end.abort();
}

export default () => {
  let store;
  return {
    initialize({ model }) {
      store = connect(model);
    },
    render({ model, el }) {
      return tableView(store, el, model.get("options"));
    },
  };
};
