/**
 * The timeline: how many messages were enqueued when, as bars, to filter by. Pale bars are all messages, strong ones
 * those that pass the other filters.
 */

import { span } from "./cause_rows.js";
import { timeText } from "./columns.js";
import { counted, drawnSoon, figure, made, oneStop, pressable, roving, svg } from "./drawing.js";
import { filterBy, TIMES } from "./filters.js";
import { focusedElement } from "./focused.js";
import { each } from "./slices.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/** Widths of bars, each with its name. */
const STEPS = [
  [SECOND, "one second"],
  ...[2, 5, 10, 15, 30].map((number) => [number * SECOND, `${number} seconds`]),
  [MINUTE, "one minute"],
  ...[2, 5, 10, 15, 30].map((number) => [number * MINUTE, `${number} minutes`]),
  [HOUR, "one hour"],
  ...[2, 3, 6, 12].map((number) => [number * HOUR, `${number} hours`]),
  [DAY, "one day"],
  ...[2, 7, 14, 30, 90, 365].map((number) => [number * DAY, `${number} days`]),
];
const MOST_BARS = 60;
const FEWEST_BARS = 12;
const TICK_WIDTH = 120; // pixels
const BAR_HEIGHT = 100; // of the drawing, for any size on the page
const LEAST_HEIGHT = 3;
const TIME_FILTER = "time";

/** The bars that a range of times is cut into: where the first begins, how wide each is, and how many they are. */
export function barsOf(first, last) {
  let [step, name] = STEPS.find(([width]) => (last - first) / width < MOST_BARS - 1) ?? STEPS.at(-1);
  if ((last - first) / step >= MOST_BARS - 1) {
    const days = Math.ceil((last - first) / (MOST_BARS - 2) / DAY);
    [step, name] = [days * DAY, `${days} days`];
  }
  const start = Math.floor(first / step) * step;
  const needed = Math.floor((last - start) / step) + 1;
  const count = Math.max(FEWEST_BARS, needed);
  return { start: start - Math.floor((count - needed) / 2) * step, step, name, count };
}

/** Where the bars begin, as short as it can be said: the date only where it is another than before. */
export function tickTexts(starts, step) {
  return starts.map((start, index) => {
    const [date, time] = timeText(start).split(" ");
    if (step >= DAY) return date;
    const short = time.slice(0, step < MINUTE ? 8 : 5);
    const before = index && timeText(starts[index - 1]).split(" ")[0];
    return before === date ? short : `${index ? date.slice(5) : date} ${short}`;
  });
}

class Timeline {
  constructor(store) {
    this.store = store;
    this.said = made("span", { class: "sbn-timeline-said", role: "status" });
    this.clear = pressable("Clear", () => this.choose(null), { class: "sbn-quiet", "aria-label": "Clear the range of times" });
    this.most = made("span", { class: "sbn-timeline-most" });
    const head = made("div", { class: "sbn-timeline-head" }, made("strong", {}, "Enqueued (UTC)"), this.most, this.said, this.clear);
    const label = "Messages over time. Arrow keys move, Shift takes several bars, Enter filters, Escape clears.";
    this.plot = svg("svg", { preserveAspectRatio: "none", role: "group", "aria-label": label });
    this.axis = made("div", { class: "sbn-timeline-axis", "aria-hidden": "true" });
    this.element = made("div", { class: "sbn-timeline-view" }, head, this.plot, this.axis);
    roving(this.plot, ".sbn-bin", ["ArrowLeft", "ArrowRight"]);
    this.plot.addEventListener("keydown", (event) => this.key(event));
    this.plot.addEventListener("pointerdown", (event) => this.press(event));
  }

  /** The chosen range, in milliseconds; it belongs to the filter, which all views of the table share. */
  get range() {
    return this.store.filters.get(TIME_FILTER)?.range ?? null;
  }

  choose(range) {
    filterBy(this.store, TIME_FILTER, { range });
  }

  chooseBars(one, other) {
    const { start, step } = this.bars;
    this.choose([start + Math.min(one, other) * step, start + (Math.max(one, other) + 1) * step]);
  }

  /** Count the messages of each bar, all and those that pass the other filters, in steps. */
  *count() {
    const { store } = this;
    const cells = store.column(TIMES);
    const passes = store.passesWithout(TIME_FILTER);
    const isThere = (row) => !store.isRemoved(row) && cells[row] >= -Infinity;
    const { first, last } = yield* span(store);
    const bars = first <= last ? barsOf(first, last) : null;
    const all = new Uint32Array(bars?.count ?? 0);
    const passing = new Uint32Array(all.length);
    yield* each(0, bars ? store.total : 0, (row) => {
      if (!isThere(row)) return;
      const place = Math.floor((cells[row] - bars.start) / bars.step);
      all[place]++;
      if (passes(row)) passing[place]++;
    });
    Object.assign(this, { bars, all, passing });
  }

  *draw() {
    yield* this.count();
    this.element.hidden = !this.bars;
    if (!this.bars) return;
    this.ticks = Math.max(2, Math.floor(this.element.clientWidth / TICK_WIDTH));
    const key = [...Object.values(this.bars), this.ticks].join();
    if (key !== this.built) this.build();
    this.built = key;
    this.drawBars();
  }

  /** Make the bars and the labels below them. */
  build() {
    const { start, step, count } = this.bars;
    this.plot.setAttribute("viewBox", `0 0 ${count} ${BAR_HEIGHT}`);
    this.bins = Array.from({ length: count }, (_, index) => this.bin(index));
    this.plot.replaceChildren(...this.bins.map(({ group }) => group));
    oneStop(this.plot, ".sbn-bin");
    const apart = Math.ceil(count / this.ticks);
    const most = count * (1 - 0.6 / this.ticks); // what begins behind it has no room
    const ticks = Array.from({ length: Math.ceil(count / apart) }, (_, index) => index * apart).filter((tick) => tick < most);
    const texts = tickTexts(ticks.map((tick) => start + tick * step), step);
    this.axis.replaceChildren(
      ...ticks.map((tick, index) => {
        const label = made("span", {}, texts[index]);
        label.style.left = `${(100 * tick) / count}%`;
        return label;
      }),
    );
  }

  bin(index) {
    const whole = { x: index, y: 0, width: 1, height: BAR_HEIGHT, class: "sbn-bin-room" };
    const bar = { x: index + 0.08, width: 0.84 };
    const [room, all, passing] = [whole, { ...bar, class: "sbn-bin-all" }, { ...bar, class: "sbn-bin-passing" }].map((one) => svg("rect", one));
    const title = svg("title");
    const group = svg("g", { class: "sbn-bin", role: "button", tabindex: -1, "data-bar": index }, room, all, passing, title);
    return { group, all, passing, title };
  }

  drawBars() {
    const { all: allCounts, passing: counts, range } = this;
    const { start, step, name } = this.bars;
    const most = Math.max(...allCounts);
    const height = (number) => (number ? Math.max(LEAST_HEIGHT, (BAR_HEIGHT * number) / most) : 0);
    this.bins.forEach(({ group, all, passing, title }, index) => {
      const from = start + index * step;
      for (const [bar, number] of [[all, allCounts[index]], [passing, counts[index]]]) {
        bar.setAttribute("height", height(number));
        bar.setAttribute("y", BAR_HEIGHT - height(number));
      }
      const isIn = Boolean(range && from < range[1] && from + step > range[0]);
      const of = counts[index] === allCounts[index] ? "" : ` of ${figure(allCounts[index])}`;
      const text = `${this.span([from, from + step])}: ${figure(counts[index])}${of} ${allCounts[index] === 1 ? "message" : "messages"}`;
      title.textContent = text;
      group.setAttribute("aria-label", text);
      group.setAttribute("aria-pressed", String(isIn));
      group.classList.toggle("sbn-out", Boolean(range) && !isIn);
    });
    this.plot.classList.toggle("sbn-one-cause", this.store.filters.has("cause"));
    this.most.textContent = `each bar ${name}, the highest ${counted(most, "message")}`;
    this.said.textContent = range ? `Shown: ${this.span(range)}` : "";
    this.clear.hidden = !range;
  }

  /** A range of times in words, without what does not differ. */
  span([from, to]) {
    const length = this.bars.step < MINUTE ? 19 : this.bars.step < DAY ? 16 : 10;
    const until = this.bars.step < DAY ? to : to - 1;
    const [first, last] = [timeText(from).slice(0, length), timeText(until).slice(0, length)];
    if (first === last) return first;
    return `${first} to ${first.slice(0, 10) === last.slice(0, 10) && length > 10 ? last.slice(11) : last}`;
  }

  key(event) {
    const place = Number(event.target.dataset?.bar ?? -1);
    if (place < 0) return;
    if (!event.shiftKey) this.from = undefined;
    if (event.key === "Enter" || event.key === " ") this.toggle(place);
    else if (event.key === "Escape") this.choose(null);
    else if (event.shiftKey && event.key.startsWith("Arrow")) {
      // The focus has moved already: from where the range began to where it is now.
      this.from ??= place;
      this.chooseBars(this.from, Number(focusedElement().dataset?.bar ?? place));
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Show one bar's messages, or all again where they are shown alone. */
  toggle(place) {
    const { start, step } = this.bars;
    const { range } = this;
    const isAlone = range && range[0] === start + place * step && range[1] === range[0] + step;
    if (isAlone) this.choose(null);
    else this.chooseBars(place, place);
  }

  /** A click takes one bar, dragging takes several. */
  press(event) {
    const at = ({ clientX }) => {
      const { left, width } = this.plot.getBoundingClientRect();
      return Math.max(0, Math.min(this.bars.count - 1, Math.floor(((clientX - left) / width) * this.bars.count)));
    };
    const from = at(event);
    let to = from;
    const show = () => {
      const [low, high] = [Math.min(from, to), Math.max(from, to)];
      this.bins.forEach(({ group }, index) => group.classList.toggle("sbn-out", index < low || index > high));
    };
    const move = (moved) => {
      to = at(moved);
      show();
    };
    const end = () => {
      this.plot.removeEventListener("pointermove", move);
      if (from === to) this.toggle(from);
      else this.chooseBars(from, to);
    };
    if (event.button !== 0) return;
    this.plot.setPointerCapture(event.pointerId);
    this.plot.addEventListener("pointermove", move);
    this.plot.addEventListener("lostpointercapture", end, { once: true });
  }
}

/** Draw the timeline, until a signal. */
export function timelineView(store, element, signal) {
  const timeline = new Timeline(store);
  const soon = drawnSoon(() => timeline.draw(), signal);
  store.on("rows passed", soon, signal);
  element.append(timeline.element);
  timeline.element.hidden = true;
  const size = new ResizeObserver(soon);
  size.observe(element);
  signal.addEventListener("abort", () => size.disconnect());
  soon();
}
