/** Lines over time, drawn as SVG. Names come from the kernel: they are shown as text only. */


import { made, svg } from "./drawing.js";

const WIDTH = 360;
const HEIGHT = 96;
const FRAME = { left: 40, right: 6, top: 8, bottom: 16 };

const clock = (time) => new Date(time).toISOString().slice(11, 19);

/** A number for people: whole where it is large, and no longer than it must be. */
function shortly(number) {
  if (number == null) return "–";
  if (number >= 10_000) return `${(number / 1000).toLocaleString("en-US", { maximumFractionDigits: number < 100_000 ? 1 : 0 })}k`;
  return number.toLocaleString("en-US", { maximumFractionDigits: number < 10 ? 2 : number < 100 ? 1 : 0 });
}

/** A round number that is not below a number, and not far above it. */
function ceiling(number) {
  const power = 10 ** Math.floor(Math.log10(Math.max(number, 1)));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((each) => each * power).find((each) => each >= number);
}

export class Chart {
  constructor() {
    this.points = [];
    this.at = null;
    this.head = made("div", { class: "sbn-chart-head" });
    this.svg = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: "0" });
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    for (const type of ["pointerleave", "blur"]) this.svg.addEventListener(type, () => this.show(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.root = made("div", { class: "sbn-chart" }, this.head, this.svg);
  }

  /** Name the lines; each has its value beside its name. */
  name({ title, names }) {
    if (this.title === title && this.names?.join() === names.join()) return;
    Object.assign(this, { title, names, when: made("span", { class: "sbn-chart-when" }) });
    const values = names.map((name, line) => {
      const key = made("span", { class: "sbn-chart-key" });
      return made("span", { class: `sbn-chart-value sbn-line-${line}` }, key, made("span", {}, name), made("b"));
    });
    this.values = values.map((value) => value.lastChild);
    this.head.replaceChildren(made("span", { class: "sbn-chart-title" }, title), ...values, this.when);
  }

  /** Draw a node, which has the values of each line as `line0`, `line1` … */
  draw(node) {
    this.name(node);
    this.points = node.times.map((time, at) => ({ time, values: node.names.map((_, line) => node[`line${line}`][at]) }));
    if (!this.points.length) return;
    const { points } = this;
    const [first, last] = [points[0].time, points.at(-1).time];
    const most = ceiling(Math.max(...points.flatMap(({ values }) => values.map((value) => value ?? 0))));
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
    this.names.forEach((_, line) => parts.push(...this.line(line, y)));
    this.mark = svg("line", { y1: FRAME.top, y2: FRAME.top + height, class: "sbn-chart-mark", visibility: "hidden" });
    this.svg.replaceChildren(...parts, this.mark);
    this.svg.setAttribute("aria-label", this.words());
    this.show(this.at === null ? null : Math.min(this.at, points.length - 1));
  }

  /** A line that is interrupted where nothing is known, with a dot at its end. */
  line(number, y) {
    let path = "";
    let pen = "M";
    let end = null;
    for (const point of this.points) {
      const value = point.values[number];
      if (value == null) {
        pen = "M";
        continue;
      }
      end = { cx: this.x(point.time).toFixed(1), cy: y(value).toFixed(1) };
      path += `${pen}${end.cx} ${end.cy}`;
      pen = "L";
    }
    if (!end) return [];
    return [svg("path", { d: path, class: `sbn-line-${number}` }), svg("circle", { ...end, r: 2, class: `sbn-line-${number}` })];
  }

  words() {
    const said = this.names.map((name, line) => {
      const known = this.points.map(({ values }) => values[line]).filter((value) => value != null);
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
    this.values.forEach((value, line) => (value.textContent = shortly(point.values[line])));
    this.when.textContent = at === null ? "" : `${clock(point.time)} UTC`;
    this.mark.setAttribute("visibility", at === null ? "hidden" : "visible");
    this.mark.setAttribute("x1", this.x(point.time));
    this.mark.setAttribute("x2", this.x(point.time));
  }
}

