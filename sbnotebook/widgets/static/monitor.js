// Counts and rates of entities over time, as lines. Names come from the service: they are shown as text only.

const MOST_POINTS = 500;
const STILL_HERE = 30_000; // milliseconds after which a view in sight says so again
const WIDTH = 360;
const HEIGHT = 96;
const FRAME = { left: 40, right: 6, top: 8, bottom: 16 };
const CHARTS = [
  { title: "Messages", lines: [["active", "active"], ["dead", "dead letters"]] },
  { title: "Each second, at least", lines: [["arrived", "in"], ["left", "out"]] },
];
const NUMBERS = [
  ["active", "active", "messages that can be received, deferred ones counted with them"],
  ["dead", "dead letters", "messages in the dead-letter queue"],
  ["scheduled", "later", "scheduled messages, which become active later"],
  ["transfer", "transfer", "messages in the transfer dead-letter queue"],
];

function html(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function svg(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

const clock = (time) => new Date(time).toISOString().slice(11, 19);

/** A number for people: whole where it is large, and no longer than it must be. */
function shortly(number) {
  if (number == null) return "–";
  if (number >= 10_000) return `${(number / 1000).toLocaleString("en-US", { maximumFractionDigits: number < 100_000 ? 1 : 0 })}k`;
  return number.toLocaleString("en-US", { maximumFractionDigits: number < 10 ? 2 : number < 100 ? 1 : 0 });
}

/** Seconds as people say them. */
function age(seconds) {
  if (seconds == null) return "–";
  for (const [unit, name] of [[86_400, "d"], [3_600, "h"], [60, "min"]]) {
    if (seconds >= unit) return `${(seconds / unit).toFixed(seconds < 10 * unit ? 1 : 0)} ${name}`;
  }
  return `${Math.round(seconds)} s`;
}

/** A round number that is not below a number, and not far above it. */
function ceiling(number) {
  const power = 10 ** Math.floor(Math.log10(Math.max(number, 1)));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((each) => each * power).find((each) => each >= number);
}

class Chart {
  constructor({ title, lines }) {
    this.lines = lines;
    this.title = title;
    this.points = [];
    this.at = null;
    this.root = html("div", "sbn-chart");
    this.head = html("div", "sbn-chart-head");
    this.head.append(html("span", "sbn-chart-title", title));
    this.values = lines.map(([key, name]) => {
      const value = html("span", `sbn-chart-value sbn-line-${key}`);
      value.append(html("span", "sbn-chart-key"), html("span", "", name), html("b"));
      this.head.append(value);
      return value.lastChild;
    });
    this.when = html("span", "sbn-chart-when");
    this.head.append(this.when);
    this.svg = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: "0" });
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.show(null));
    this.svg.addEventListener("blur", () => this.show(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.root.append(this.head, this.svg);
  }

  /** @param points samples in their order, at least one */
  draw(points) {
    this.points = points;
    const [first, last] = [points[0].time, points.at(-1).time];
    const most = ceiling(Math.max(...points.flatMap((point) => this.lines.map(([key]) => point[key] ?? 0))));
    const [width, height] = [WIDTH - FRAME.left - FRAME.right, HEIGHT - FRAME.top - FRAME.bottom];
    this.x = (time) => FRAME.left + (last > first ? ((time - first) / (last - first)) * width : 0);
    const y = (value) => FRAME.top + height - (value / most) * height;
    const parts = [0, most / 2, most].map((value) =>
      svg("line", { x1: FRAME.left, x2: WIDTH - FRAME.right, y1: y(value), y2: y(value), class: "sbn-chart-rule" }),
    );
    for (const value of [0, most]) {
      parts.push(svg("text", { x: FRAME.left - 4, y: y(value) + 3, "text-anchor": "end" }, shortly(value)));
    }
    parts.push(svg("text", { x: FRAME.left, y: HEIGHT - 3 }, clock(first)));
    if (last > first) parts.push(svg("text", { x: WIDTH - FRAME.right, y: HEIGHT - 3, "text-anchor": "end" }, clock(last)));
    for (const [key] of this.lines) parts.push(...this.line(key, y));
    this.mark = svg("line", { y1: FRAME.top, y2: FRAME.top + height, class: "sbn-chart-mark", visibility: "hidden" });
    this.svg.replaceChildren(...parts, this.mark);
    this.svg.setAttribute("aria-label", this.words());
    this.show(this.at === null ? null : Math.min(this.at, points.length - 1));
  }

  /** A line that is interrupted where nothing is known, with a dot at its end. */
  line(key, y) {
    let path = "";
    let pen = "M";
    let end = null;
    for (const point of this.points) {
      const value = point[key];
      if (value == null) {
        pen = "M";
        continue;
      }
      end = { cx: this.x(point.time).toFixed(1), cy: y(value).toFixed(1) };
      path += `${pen}${end.cx} ${end.cy}`;
      pen = "L";
    }
    if (!end) return [];
    return [svg("path", { d: path, class: `sbn-line-${key}` }), svg("circle", { ...end, r: 2, class: `sbn-line-${key}` })];
  }

  words() {
    const said = this.lines.map(([key, name]) => {
      const known = this.points.map((point) => point[key]).filter((value) => value != null);
      if (!known.length) return `${name}: not known yet`;
      return `${name}: ${shortly(known.at(-1))} now, between ${shortly(Math.min(...known))} and ${shortly(Math.max(...known))}`;
    });
    return `${this.title} since ${clock(this.points[0].time)} UTC; ${said.join("; ")}`;
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * WIDTH;
    let nearest = 0;
    this.points.forEach((point, at) => {
      if (Math.abs(this.x(point.time) - x) < Math.abs(this.x(this.points[nearest].time) - x)) nearest = at;
    });
    this.show(nearest);
  }

  key(event) {
    const last = this.points.length - 1;
    const from = this.at ?? last + 1;
    const places = { ArrowLeft: Math.max(0, from - 1), ArrowRight: Math.min(last, from + 1), Home: 0, End: last, Escape: null };
    if (!(event.key in places)) return;
    event.preventDefault();
    event.stopPropagation();
    this.show(places[event.key]);
  }

  /** The values at a place, or the newest for null. */
  show(at) {
    if (!this.points.length) return;
    this.at = at;
    const point = at === null ? this.points.at(-1) : this.points[at];
    this.lines.forEach(([key], index) => {
      this.values[index].textContent = shortly(point[key]);
    });
    this.when.textContent = at === null ? "" : `${clock(point.time)} UTC`;
    this.mark.setAttribute("visibility", at === null ? "hidden" : "visible");
    this.mark.setAttribute("x1", this.x(point.time));
    this.mark.setAttribute("x2", this.x(point.time));
  }
}

class Card {
  constructor(entity) {
    this.points = [];
    this.root = html("section", "sbn-card");
    this.root.setAttribute("aria-label", entity);
    const name = html("div", "sbn-card-name", entity);
    name.title = entity;
    this.numbers = html("div", "sbn-card-numbers");
    this.charts = CHARTS.map((each) => new Chart(each));
    this.root.append(name, this.numbers, ...this.charts.map((chart) => chart.root));
  }

  draw() {
    const now = this.points.at(-1);
    const cells = NUMBERS.filter(([key]) => key !== "transfer" || now.transfer > 0).map(([key, name, words]) =>
      this.number(name, now[key].toLocaleString("en-US"), words, key === "dead" && now.dead > 0),
    );
    cells.push(this.number("oldest", age(now.oldest), "how long ago the oldest active message was enqueued"));
    this.numbers.replaceChildren(...cells);
    for (const chart of this.charts) chart.draw(this.points);
  }

  number(name, value, words, bad = false) {
    const cell = html("div", bad ? "sbn-bad" : "");
    cell.title = words;
    cell.append(html("div", "sbn-card-label", name), html("div", "sbn-card-value", value));
    return cell;
  }
}

class MonitorView {
  constructor(element) {
    this.cards = new Map();
    this.root = html("div", "sbn-monitor");
    this.empty = html("div", "sbn-monitor-empty", "The first counts are on their way…");
    this.root.append(this.empty);
    this.drawing = 0;
    element.append(this.root);
  }

  add(points) {
    for (const point of points) {
      if (!this.cards.has(point.entity)) {
        const card = new Card(point.entity);
        this.cards.set(point.entity, card);
        this.root.append(card.root);
      }
      const held = this.cards.get(point.entity).points;
      held.push(point);
      if (held.length > MOST_POINTS) held.shift();
    }
    this.empty.hidden = this.cards.size > 0;
    this.drawing ||= requestAnimationFrame(() => {
      this.drawing = 0;
      for (const card of this.cards.values()) card.draw();
    });
  }

  replace(points) {
    for (const card of this.cards.values()) card.root.remove();
    this.cards.clear();
    this.add(points);
  }
}

function render({ model, el }) {
  const view = new MonitorView(el);
  const told = (message) => (message.kind === "history" ? view.replace(message.points) : view.add(message.points));
  const id = `${Date.now()}-${Math.random()}`;
  // Samples are taken only while they are visible.
  let inSight = true;
  const isSeen = () => inSight && !document.hidden;
  const send = (kind) => {
    try {
      model.send({ kind, view: id });
    } catch {
      // The kernel has ended; the panel says so.
    }
  };
  const tell = () => send(isSeen() ? "here" : "gone");
  const observer = new IntersectionObserver((entries) => {
    const { isIntersecting } = entries.at(-1);
    if (isIntersecting !== inSight) {
      inSight = isIntersecting;
      tell();
    }
  });
  const ends = new AbortController();
  const gone = () => send("gone");
  model.on("msg:custom", told);
  addEventListener("pagehide", gone, { signal: ends.signal });
  addEventListener("pageshow", tell, { signal: ends.signal });
  document.addEventListener("visibilitychange", tell, { signal: ends.signal });
  const timer = setInterval(() => isSeen() && send("still"), STILL_HERE);
  tell();
  observer.observe(view.root);
  return () => {
    model.off("msg:custom", told);
    ends.abort();
    observer.disconnect();
    clearInterval(timer);
    gone();
  };
}

export default { render };
