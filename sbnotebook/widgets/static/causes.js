/**
 * The causes, with the number of messages, the first time, and notes. A click shows the
 * messages of one cause only. Counts and trends follow the other filters.
 */

import { timeText } from "./columns.js";
import { arrange, counted, drawnSoon, figure, pressable, roving } from "./drawing.js";
import { made } from "./header.js";

const CAUSE_FILTER = "cause";
const CAUSE_COLUMN = "cause";
const SEEN_COLUMN = "enqueued_time";
const BACK_COLUMN = "resubmit_count";
const OTHERS = "";
const FEW_CAUSES = 6;
const TREND_POINTS = 24;
const TREND_HEIGHT = 20;
const LONGEST_NOTE = 1000;
const CANARY = 10;
const FORM_TRIES = 40; // looks at the panel, one in each frame or two
const MAINS = ".sbn-cause-main";

/** The counts of one cause. */
class Tally {
  constructor() {
    this.rows = [];
    this.first = Infinity;
    this.last = -Infinity;
    this.back = 0; // how often a message came back at most
    this.backRows = 0;
    this.backLast = -Infinity;
    this.trend = new Uint32Array(TREND_POINTS);
  }

  add(row, time, back, from, width) {
    this.rows.push(row);
    if (back > this.back) this.back = back;
    if (back > 0) this.backRows++;
    if (!(time >= -Infinity)) return;
    if (back > 0 && time > this.backLast) this.backLast = time; // a clone is enqueued when it is resubmitted
    if (time < this.first) this.first = time;
    if (time > this.last) this.last = time;
    this.trend[Math.min(TREND_POINTS - 1, Math.floor((time - from) / width))]++;
  }
}

/** Rows by cause, those that pass all filters but that by cause. */
function tallied(store) {
  const causes = store.column(CAUSE_COLUMN);
  const times = store.column(SEEN_COLUMN);
  const resubmits = store.column(BACK_COLUMN);
  const tallies = new Map(store.causes.map(({ fingerprint }) => [fingerprint, new Tally()]));
  const others = new Tally();
  let [from, to] = [Infinity, -Infinity];
  for (let row = 0; row < store.total; row++) {
    if (times[row] < from) from = times[row];
    if (times[row] > to) to = times[row];
  }
  const width = Math.max(1, (to - from) / TREND_POINTS);
  const rows = store.rowsWithout(CAUSE_FILTER);
  for (let index = 0; index < rows.length; index++) {
    const row = rows[index];
    (tallies.get(causes[row]) ?? others).add(row, times[row], resubmits[row], from, width);
  }
  if (others.rows.length) tallies.set(OTHERS, others);
  return tallies;
}

/** What a cause has of its own beside the others, in words. */
function differing(store, cause, trait) {
  if (!store.causes.some((other) => other[trait] !== cause[trait])) return "";
  return cause[trait] ? `${trait} ${cause[trait]}` : cause[trait] === "" && `no ${trait}`;
}

/** One cause in the list. */
class CauseItem {
  constructor(store, cause, action) {
    this.store = store;
    this.cause = cause;
    this.example = -1;
    const what = cause.fingerprint === OTHERS ? ["All other messages"] : [cause.reason || "(no reason)", cause.cause];
    const where = [cause.frame && `in ${cause.frame}`, differing(store, cause, "subject"), differing(store, cause, "source")];
    this.count = made("span", { class: "sbn-cause-count" });
    this.state = made("span", { class: "sbn-cause-where sbn-cause-state", hidden: true });
    this.main = made(
      "button",
      { type: "button", class: "sbn-cause-main", title: [...what, ...where].filter(Boolean).join("\n") },
      this.count,
      made("span", { class: "sbn-cause-what" }, made("b", {}, what[0]), what[1] ? ` ${what[1]}` : ""),
      made("span", { class: "sbn-cause-where" }, where.filter(Boolean).join(" · ")),
      this.state,
    );
    this.main.addEventListener("click", (event) => this.choose(event.ctrlKey || event.metaKey));
    this.main.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return; // which is not a click everywhere
      event.preventDefault();
      this.choose(true);
    });
    this.seen = made("span", { class: "sbn-cause-seen" });
    this.trend = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.trend.setAttribute("viewBox", `0 0 ${TREND_POINTS} ${TREND_HEIGHT}`);
    this.trend.setAttribute("preserveAspectRatio", "none");
    this.trend.setAttribute("role", "img");
    this.trend.append(document.createElementNS(this.trend.namespaceURI, "path"));
    this.select = pressable("", () => this.takeAll(), { title: "Select the messages of this cause that pass the other filters" });
    this.canary = pressable(`First ${CANARY}`, () => this.takeFirst(), {
      title: `Select only the ${CANARY} oldest messages of this cause that pass the other filters, to try an action on them before the rest`,
    });
    this.act = pressable(action ?? "", () => this.begin(action), {
      title: "Open the form for the selected messages of this cause, or for all of them if none is selected",
    });
    this.act.hidden = !action;
    this.show = pressable("Example", () => this.next(), { title: "Show a message of this cause; again for the next one" });
    this.write = pressable("Note", () => this.edit(), { title: "Write down what is known of this cause" });
    const noted = cause.fingerprint === OTHERS ? [] : [this.write];
    const actions = made("span", { class: "sbn-cause-actions" }, this.select, this.canary, this.act, this.show, ...noted);
    this.note = made("div", { class: "sbn-cause-note", hidden: true });
    this.element = made("li", { class: "sbn-cause" }, this.main, this.trend, this.seen, actions, this.note);
  }

  /** Show this cause's messages only, or all again; `more` adds it to those that are chosen. */
  choose(more) {
    const { store, cause } = this;
    const before = chosenCauses(store);
    const chosen = new Set(more ? before : []);
    if (!before.has(cause.fingerprint) || (!more && before.size > 1)) chosen.add(cause.fingerprint);
    else chosen.delete(cause.fingerprint);
    chooseCauses(store, chosen);
  }

  /** Its rows as they are now: those that were counted may have been others. */
  get rows() {
    return tallied(this.store).get(this.cause.fingerprint)?.rows ?? [];
  }

  takeAll() {
    this.store.select(this.rows);
  }

  takeFirst() {
    this.store.selectOnly(this.rows.slice(0, CANARY));
  }

  /** Open the form of an action in the panel around the table, for messages of this cause and no others. */
  async begin(action) {
    const { rows, store } = this;
    const chosen = rows.filter((row) => store.selection.has(row));
    store.selectOnly(chosen.length ? chosen : rows);
    const panel = this.element.closest(".sbn-panel");
    const before = panel?.querySelector(".sbn-form");
    try {
      await store.request("act", { action });
      for (let look = 0; look < FORM_TRIES; look++) {
        const form = panel?.querySelector(".sbn-form");
        if (form && form !== before) return lead(form);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    } catch (error) {
      store.tell("failed", error.message);
    }
  }

  next() {
    const { rows } = this;
    this.example = (this.example + 1) % Math.max(1, rows.length);
    this.store.focus(rows[this.example] ?? null);
  }

  /** @param {Tally} tally */
  draw(tally, most) {
    const { store, cause } = this;
    this.tally = tally;
    const count = tally.rows.length;
    this.count.textContent = figure(count);
    this.main.style.setProperty("--part", `${(100 * count) / most}%`);
    this.main.setAttribute("aria-pressed", String(chosenCauses(store).has(cause.fingerprint)));
    this.main.setAttribute("aria-label", [`${counted(count, "message")}: ${this.main.title}`, stateOf(tally)].filter(Boolean).join("\n"));
    const [first, last] = [tally.first, tally.last].map((time) => (Number.isFinite(time) ? timeText(time).slice(0, 16) : ""));
    this.seen.textContent = [first, last === first ? "" : last].filter(Boolean).join("\n");
    this.state.textContent = stateOf(tally);
    this.state.hidden = !tally.back;
    this.seen.title = first && `First seen ${first}, last seen ${last} (UTC)`;
    this.drawTrend();
    this.select.textContent = `Select ${figure(count)}`;
    this.canary.hidden = count <= CANARY;
    for (const button of [this.select, this.act, this.show]) button.disabled = !count;
    if (!this.isEdited) this.drawNote(store.notes[cause.fingerprint] ?? "");
  }

  drawTrend() {
    const { trend } = this.tally;
    const most = Math.max(1, ...trend);
    const height = (number) => TREND_HEIGHT - (number ? Math.max(1.5, (TREND_HEIGHT * number) / most) : 0);
    const steps = Array.from(trend, (number, index) => `V${height(number).toFixed(1)}H${index + 1}`);
    this.trend.firstChild.setAttribute("d", `M0 ${TREND_HEIGHT}${steps.join("")}V${TREND_HEIGHT}Z`);
    this.trend.setAttribute("aria-label", `Trend: at most ${counted(most, "message")} in a ${TREND_POINTS}th of the time`);
  }

  drawNote(text) {
    this.note.hidden = !text;
    this.note.replaceChildren(text);
  }

  edit() {
    if (this.isEdited) return;
    this.isEdited = true;
    const input = made("input", { type: "text", maxLength: LONGEST_NOTE, "aria-label": `Note on ${this.cause.reason || "this cause"}` });
    input.value = this.store.notes[this.cause.fingerprint] ?? "";
    input.placeholder = "What is known of this cause? Enter keeps it, Escape does not.";
    const failed = made("span", { class: "sbn-failed", role: "alert" });
    const end = () => {
      this.isEdited = false;
      this.drawNote(this.store.notes[this.cause.fingerprint] ?? "");
      this.write.focus();
    };
    const save = () => this.keep(input.value.trim()).then(end, (error) => (failed.textContent = error.message));
    input.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") save();
      else if (event.key === "Escape") end();
    });
    this.note.hidden = false;
    this.note.replaceChildren(input, pressable("Keep", save), pressable("Cancel", end), failed);
    input.focus();
  }

  /** Give a note to the kernel; it is shown when the kernel has it. */
  async keep(text) {
    const { store } = this;
    const { fingerprint } = this.cause;
    await store.request("note", { fingerprint, text });
    store.notes = { ...store.notes, [fingerprint]: text };
    store.tell("causes");
  }
}

/** When messages of a cause were last resubmitted, and how many of them came back, in words. */
function stateOf({ back, backRows, backLast }) {
  if (!back) return "";
  const often = back > 1 ? `, up to ${counted(back, "time")}` : "";
  const when = Number.isFinite(backLast) ? `resubmitted ${timeText(backLast).slice(0, 16)}, ` : "";
  return `${when}${figure(backRows)} came back${often}`;
}

/** Bring a form into sight, and go to its first field. */
function lead(form) {
  form.scrollIntoView({ block: "nearest" });
  form.querySelector("input, select, textarea, button")?.focus();
}

/** The fingerprints that the table is filtered by. */
function chosenCauses(store) {
  return store.filters.get(CAUSE_FILTER)?.test.chosen ?? new Set();
}

function chooseCauses(store, chosen) {
  const known = new Set(store.causes.map(({ fingerprint }) => fingerprint));
  const test = (row) => {
    const cause = store.column(CAUSE_COLUMN)[row];
    return chosen.has(known.has(cause) ? cause : OTHERS);
  };
  test.chosen = chosen;
  store.setFilter(CAUSE_FILTER, chosen.size ? test : null);
}

/** The list of causes in one view. */
class CauseList {
  constructor(store, action) {
    this.store = store;
    this.action = action;
    this.items = new Map();
    this.isOpen = false;
    this.title = made("strong", {});
    this.hint = made("span", { class: "sbn-causes-hint" }, "Click a cause to see its messages only; with Ctrl to add one.");
    this.clear = pressable("Show all", () => chooseCauses(store, new Set()), { class: "sbn-quiet" });
    const head = made("div", { class: "sbn-causes-head" }, this.title, this.hint, this.clear);
    this.list = made("ul", { "aria-label": "Causes" });
    roving(this.list, MAINS);
    this.more = pressable("", () => this.open(), { class: "sbn-quiet" });
    this.element = made("div", { class: "sbn-causes-view", role: "region", "aria-label": "Causes", hidden: true }, head, this.list, this.more);
  }

  open() {
    this.isOpen = !this.isOpen;
    this.draw();
  }

  draw() {
    const { store } = this;
    this.element.hidden = !store.rowCount;
    if (this.known !== store.causes) this.forget();
    const chosen = chosenCauses(store);
    if (!store.causes.length) this.title.textContent = "Looking for the causes…";
    this.hint.hidden = !store.causes.length;
    this.clear.hidden = !chosen.size;
    if (!store.causes.length) return arrange(this.list, []);
    return this.drawList(tallied(store), chosen);
  }

  /** Forget the causes, except for a note that is being written. */
  forget() {
    this.known = this.store.causes;
    for (const [fingerprint, item] of this.items) if (!item.isEdited) this.items.delete(fingerprint);
    const chosen = chosenCauses(this.store);
    if (chosen.size) chooseCauses(this.store, chosen); // which rows have another cause is another question now
  }

  drawList(tallies, chosen) {
    const all = [...tallies].sort(([, one], [, other]) => other.rows.length - one.rows.length);
    const there = all.filter(([fingerprint, { rows }]) => rows.length || chosen.has(fingerprint));
    const told = there.filter(([fingerprint, { rows }]) => fingerprint !== OTHERS && rows.length).length;
    const known = this.store.causes.length;
    this.title.textContent = `${told === known ? "" : `${figure(told)} of `}${counted(known, "cause")}`;
    const listed = there.filter(([fingerprint], index) => this.isOpen || index < FEW_CAUSES || chosen.has(fingerprint));
    const most = Math.max(1, there[0]?.[1].rows.length ?? 0);
    const items = listed.map(([fingerprint]) => this.item(fingerprint));
    listed.forEach(([, tally], index) => items[index].draw(tally, most));
    arrange(this.list, items.map(({ element }) => element));
    const rest = there.length - FEW_CAUSES;
    this.more.hidden = rest <= 0;
    this.more.textContent = this.isOpen ? "Show fewer" : `${counted(rest, "more cause")}…`;
    this.more.setAttribute("aria-expanded", String(this.isOpen));
  }

  item(fingerprint) {
    const cause = this.store.causes.find((one) => one.fingerprint === fingerprint) ?? { fingerprint };
    if (!this.items.has(fingerprint)) this.items.set(fingerprint, new CauseItem(this.store, cause, this.action));
    return this.items.get(fingerprint);
  }
}

/**
 * Draw the causes; gives the function that ends them.
 * @param {Store} store
 * @param {HTMLElement} element
 * @param {{cause_action?: string}} options
 */
export function causesView(store, element, options) {
  const list = new CauseList(store, options.cause_action);
  const listen = new AbortController();
  const soon = drawnSoon(() => list.draw());
  for (const type of ["rows", "filter", "causes"]) store.addEventListener(type, soon, { signal: listen.signal });
  element.append(list.element);
  soon();
  return () => {
    listen.abort();
    soon.stop();
  };
}
