/**
 * The causes, with the number of messages, the first time, and notes. A click shows the
 * messages of one cause only. Counts and trends follow the other filters.
 */

import { CAUSE_FILTER, history, rowsOfCause, tallied, TREND_POINTS } from "./cause_rows.js";
import { timeText } from "./columns.js";
import { FROM_CAUSES } from "./detail.js";
import { arrange, counted, drawnSoon, figure, later, made, pressable, roving, sortAsBefore, svg } from "./drawing.js";
import { filterBy } from "./filters.js";
import { focusedElement } from "./focused.js";
import { each } from "./slices.js";

const FEW_CAUSES = 6;
const MORE_CAUSES = 100; // in each further part of the list
const FIND_DELAY = 200; // milliseconds after a key
const TREND_HEIGHT = 20;
const LONGEST_NOTE = 1000;
const FIRST = 10;
const MAINS = ".sbn-cause-main";

/** One cause in the list. */
class CauseItem {
  constructor(store, cause, varied, action) {
    this.store = store;
    this.cause = cause;
    this.example = -1;
    const what = [cause.reason || "(no reason)", cause.cause];
    const own = varied.map((trait) => (cause[trait] ? `${trait} ${cause[trait]}` : `no ${trait}`));
    const where = [cause.frame && `in ${cause.frame}`, ...own];
    this.count = made("span", { class: "sbn-cause-count" });
    this.state = made("span", { class: "sbn-cause-where sbn-cause-state", hidden: true });
    this.main = made(
      "button",
      { type: "button", class: "sbn-button sbn-cause-main", title: [...what, ...where].filter(Boolean).join("\n") },
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
    const size = { viewBox: `0 0 ${TREND_POINTS} ${TREND_HEIGHT}`, preserveAspectRatio: "none" };
    this.trend = svg("svg", { ...size, role: "img" }, svg("path"));
    this.select = pressable("", () => store.select(this.rows), { title: "Select the messages of this cause that pass the other filters" });
    this.first = pressable(`First ${FIRST}`, () => store.selectOnly(this.rows.slice(0, FIRST)), {
      title: `Select only the ${FIRST} oldest messages of this cause that pass the other filters, to try an action on them before the rest`,
    });
    this.act = pressable(action ?? "", () => this.begin(action), {
      title: "Open the form for the selected messages of this cause, or for all of them if none is selected",
    });
    this.act.hidden = !action;
    this.show = pressable("Example", () => this.next(), { title: "Show a message of this cause; again for the next one" });
    this.write = pressable("Note", () => this.edit(), { title: "Write down what is known of this cause" });
    const rest = made("span", { class: "sbn-cause-rest" }, this.select, this.first, this.show, this.write);
    const actions = made("span", { class: "sbn-cause-actions" }, this.act, rest);
    this.note = made("div", { class: "sbn-cause-note", hidden: true });
    this.element = made("li", { class: "sbn-cause" }, this.main, this.trend, this.seen, actions, this.note);
  }

  /** Show this cause's messages only, or all again; `more` adds it to those that are chosen. */
  choose(more) {
    const { store, cause } = this;
    const before = store.chosen(CAUSE_FILTER);
    const chosen = new Set(more ? before : []);
    if (!before.has(cause.fingerprint) || (!more && before.size > 1)) chosen.add(cause.fingerprint);
    else chosen.delete(cause.fingerprint);
    filterBy(store, CAUSE_FILTER, { chosen });
  }

  /** Its rows as they are now: those that were counted may have been others. */
  get rows() {
    return rowsOfCause(this.store, this.cause.fingerprint);
  }

  /** Open the form of an action in the panel around the table, for messages of this cause and no others. */
  async begin(action) {
    const { rows, store } = this;
    const chosen = rows.filter((row) => store.selection.has(row));
    store.selectOnly(chosen.length ? chosen : rows);
    this.act.focus(); // not all browsers do so at a click: the focus moves to the form that opens
    try {
      await store.request("act", { action });
    } catch (error) {
      store.tell("failed", error.message);
    }
  }

  next() {
    const { rows } = this;
    this.example = (this.example + 1) % Math.max(1, rows.length);
    this.store.focus(rows[this.example] ?? null, FROM_CAUSES);
  }

  draw(rows, most, time) {
    const { store, cause } = this;
    const seen = history(store, rows, time);
    const state = stateOf(seen, store.resubmits[cause.fingerprint]);
    const count = rows.length;
    this.count.textContent = figure(count);
    this.main.style.setProperty("--part", `${(100 * count) / most}%`);
    this.main.setAttribute("aria-pressed", String(store.chosen(CAUSE_FILTER).has(cause.fingerprint)));
    this.main.setAttribute("aria-label", [`${counted(count, "message")}: ${this.main.title}`, state].filter(Boolean).join("\n"));
    const [first, last] = [seen.first, seen.last].map((time) => (Number.isFinite(time) ? timeText(time).slice(0, 16) : ""));
    this.seen.textContent = [first, last === first ? "" : last].filter(Boolean).join("\n");
    this.state.textContent = state;
    this.state.hidden = !state;
    this.seen.title = first && `First seen ${first}, last seen ${last} (UTC)`;
    this.drawTrend(seen.trend);
    this.select.textContent = `Select ${figure(count)}`;
    this.first.hidden = count <= FIRST;
    for (const button of [this.select, this.act, this.show]) button.disabled = !count;
    if (!this.isEdited) this.drawNote(store.notes[cause.fingerprint] ?? "");
  }

  drawTrend(trend) {
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
    const { store } = this;
    const { fingerprint, reason } = this.cause;
    const input = made("input", { type: "text", maxLength: LONGEST_NOTE, "aria-label": `Note on ${reason || "this cause"}` });
    input.value = store.notes[fingerprint] ?? "";
    input.placeholder = "What is known of this cause? Enter keeps it, Escape does not.";
    const failed = made("span", { class: "sbn-failed", role: "alert" });
    const end = () => {
      this.isEdited = false;
      this.drawNote(store.notes[fingerprint] ?? "");
      this.write.focus();
      store.tell("causes");
    };
    const save = async () => {
      const text = input.value.trim();
      try {
        await store.request("note", { fingerprint, text });
        store.notes = { ...store.notes, [fingerprint]: text };
        end();
      } catch (error) {
        failed.textContent = error.message;
      }
    };
    input.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") save();
      else if (event.key === "Escape") end();
    });
    this.note.hidden = false;
    this.note.replaceChildren(input, pressable("Keep", save), pressable("Cancel", end), failed);
    input.focus();
  }
}

/** When messages of a cause were last resubmitted, and how many came back, in words; `sent` is of those from this panel. */
function stateOf({ back, backRows, backLast }, [time, count] = [-Infinity, 0]) {
  if (!back && !count) return "";
  const often = back > 1 ? `, up to ${counted(back, "time")}` : "";
  const last = Math.max(time, backLast);
  const when = Number.isFinite(last) ? `${count ? `${figure(count)} ` : ""}resubmitted ${timeText(last).slice(0, 16)}, ` : "";
  return `${when}${back ? `${figure(backRows)} came back` : "none came back yet"}${often}`;
}

/** The test whether a cause has all words of a text, in any case. */
function soughtIn(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return ({ reason, cause, frame, subject, source }) => {
    const said = words.length ? [reason, cause, frame, subject, source].join("\n").toLowerCase() : "";
    return words.every((word) => said.includes(word));
  };
}

/** The list of causes in one view. */
class CauseList {
  constructor(store, action, signal) {
    this.store = store;
    this.action = action;
    this.items = new Map();
    this.order = [];
    this.place = -1; // of the first chosen cause
    this.limit = FEW_CAUSES;
    this.title = made("strong", {});
    this.reading = made("span", { class: "sbn-causes-hint", role: "status" });
    this.search = made("input", { type: "search", placeholder: "Find in causes", "aria-label": "Find in causes" });
    this.search.addEventListener("input", later(FIND_DELAY, () => this.drawSoon()));
    this.hint = made("span", { class: "sbn-causes-hint" }, "Click a cause to see its messages only; with Ctrl to add one.");
    this.clear = pressable("Show all", () => store.setFilter(CAUSE_FILTER, null), { class: "sbn-quiet" });
    const head = made("div", { class: "sbn-causes-head" }, this.title, this.reading, this.hint, this.search, this.clear);
    this.list = made("ul", { "aria-label": "Causes" });
    roving(this.list, MAINS);
    this.more = pressable("", () => this.show(this.limit === FEW_CAUSES ? MORE_CAUSES : this.limit + MORE_CAUSES), { class: "sbn-quiet" });
    this.fewer = pressable("Show fewer", () => this.show(FEW_CAUSES), { class: "sbn-quiet" });
    this.element = made("div", { class: "sbn-causes-view", role: "region", "aria-label": "Causes", hidden: true }, head, this.list, this.more, this.fewer);
    // Buttons keep their places while a user is about to press one.
    this.drawSoon = drawnSoon(() => this.draw(), signal);
    for (const type of ["pointerleave", "focusout"]) this.element.addEventListener(type, this.drawSoon);
  }

  show(limit) {
    this.limit = limit;
    this.drawSoon();
  }

  *draw() {
    const { store } = this;
    this.element.hidden = !store.rowCount && !this.edited.length;
    if (this.causes !== store.causes || this.known !== store.causes.size) this.forget();
    const chosen = store.chosen(CAUSE_FILTER);
    this.hint.hidden = !this.known;
    this.clear.hidden = !chosen.size;
    if (this.known) return yield* this.drawList(yield* tallied(store, this.causes), chosen);
    this.title.textContent = "Looking for the causes…";
    for (const part of [this.search, this.reading, this.more, this.fewer]) part.hidden = true;
    this.place = -1;
    return this.arrange([]);
  }

  /** Take over other causes; a note that is being written stays. */
  forget() {
    const { causes } = this.store;
    [this.causes, this.known] = [causes, causes.size];
    if (!causes.size) this.order = [];
    const isVaried = (trait) => new Set(Array.from(causes.values(), (cause) => cause[trait])).size > 1;
    this.varied = ["subject", "source"].filter(isVaried);
    if (!causes.size || !this.isHeld) {
      for (const [fingerprint, item] of this.items) if (!item.isEdited) this.items.delete(fingerprint);
    }
    const chosen = this.store.chosen(CAUSE_FILTER);
    if (chosen.size) filterBy(this.store, CAUSE_FILTER, { chosen }); // which rows have another cause is another question now
  }

  /** Whether the pointer or the focus is in the list. */
  get isHeld() {
    return this.element.matches(":hover") || this.list.contains(focusedElement());
  }

  /** The largest first; while the list is held, as before. */
  ordered(entries) {
    entries.sort(([, one], [, other]) => other.length - one.length);
    if (this.isHeld) sortAsBefore(entries, ([fingerprint]) => fingerprint, this.order);
    this.order = entries.map(([fingerprint]) => fingerprint);
    return entries;
  }

  *drawList({ rows, time, unread }, chosen) {
    const { causes } = this;
    const there = this.ordered([...rows].filter(([fingerprint, { length }]) => length || chosen.has(fingerprint)));
    const told = there.filter(([, { length }]) => length).length;
    this.title.textContent = `${told === causes.size ? "" : `${figure(told)} of `}${counted(causes.size, "cause")}`;
    this.reading.hidden = !unread;
    this.reading.textContent = unread ? `Reading ${counted(unread, "more message")}…` : "";
    this.search.hidden = causes.size <= FEW_CAUSES;
    const sought = [];
    const test = soughtIn(this.search.value);
    yield* each(0, there.length, (index) => test(causes.get(there[index][0])) && sought.push(there[index]));
    const shown = sought.filter(([fingerprint], index) => index < this.limit || chosen.has(fingerprint));
    const most = shown.reduce((most, [, { length }]) => Math.max(most, length), 1);
    const items = shown.map(([fingerprint]) => this.item(fingerprint));
    for (const [index, [, own]] of shown.entries()) {
      items[index].draw(own, most, time);
      yield;
    }
    this.arrange(items);
    this.keepInSight(shown.findIndex(([fingerprint]) => chosen.has(fingerprint)));
    const rest = sought.length - this.limit;
    this.more.hidden = rest <= 0;
    this.more.textContent = `${counted(rest, "more cause")}…`;
    this.fewer.hidden = this.limit === FEW_CAUSES;
  }

  /** Those whose notes are being written. */
  get edited() {
    return [...this.items.values()].filter(({ isEdited }) => isEdited);
  }

  /** Show these, and those whose notes are being written: without its field, the user would type into the page. */
  arrange(items) {
    arrange(this.list, [...new Set([...items, ...this.edited])].map(({ element }) => element));
  }

  /** Scroll the list to the first chosen cause, where its place has changed, unless the list is held; the page does not scroll. */
  keepInSight(place) {
    const isElsewhere = place !== this.place;
    this.place = place;
    if (!isElsewhere || place < 0 || this.isHeld) return;
    const [inner, outer] = [this.list.children[place], this.list].map((each) => each.getBoundingClientRect());
    this.list.scrollTop += Math.min(0, inner.top - outer.top) + Math.max(0, inner.bottom - outer.bottom);
  }

  item(fingerprint) {
    const cause = this.causes.get(fingerprint);
    if (!this.items.has(fingerprint)) this.items.set(fingerprint, new CauseItem(this.store, cause, this.varied, this.action));
    return this.items.get(fingerprint);
  }
}

/** Draw the causes, until a signal. */
export function causesView(store, element, options, signal) {
  const list = new CauseList(store, options.cause_action, signal);
  store.on("rows passed causes", list.drawSoon, signal);
  element.append(list.element);
  list.drawSoon();
}
